"""Options of the buffer process, of the pool, and of how it is sampled."""

from __future__ import annotations

import re
from dataclasses import dataclass

from headrace.common.config import option
from headrace.common.errors import ConfigError
from headrace.common.specs import OUTCOMES, SOURCES

MAX_SETS = 32
MAX_BATCH = 1 << 20  # rows of the largest batch that a learner may ask for
_NAME = re.compile(r"[A-Za-z_]\w{0,31}", re.ASCII)


# Options of PoolConfig that decide the form of the files: other values need another generation of them.
SIZES = ("capacity", "min_block_rows", "max_block_rows", "max_actors")


@dataclass(frozen=True)
class BufferConfig:
    """How many buffers there are, and their limits."""

    shards: int = option(
        1, help="buffers that train starts on this host; on several hosts network.shards", low=1, high=64, resume=True
    )

    memory_cap_bytes: int = option(
        0,
        help="private memory beyond which the buffer ends, to be started again; 0: twice what it declares (headrace doctor)",
        unit="B",
        low=0,
        resume=True,
    )


@dataclass(frozen=True)
class PoolConfig:
    """How large the pool is; on which medium it lies is said by whoever makes it."""

    capacity: int = option(1_000_000, help="newest rows that the pool keeps", unit="rows", low=1, high=1 << 40, resume=True)
    min_block_rows: int = option(
        1,
        help="fewest rows of a regular block and of a regular episode; sizes the frame ring, 1 is always safe",
        unit="rows",
        low=1,
        high=1 << 20,
        resume=True,
    )
    max_block_rows: int = option(
        1024, help="most rows committed at once; larger blocks are split", unit="rows", low=1, high=1 << 20, resume=True
    )
    max_actors: int = option(
        64, help="actor names that the ledger can ever hold", unit="actors", low=1, high=1 << 16, resume=True
    )
    ack: str = option(
        "memory",
        help="what a row survives once it is acknowledged: memory: the death of any process; synced: a power cut too",
        choices=("memory", "synced"),
        resume=True,
    )
    snapshot_every_s: float = option(
        0.0, help="time between two snapshots of a running pool; 0 makes them on request only", unit="s", low=0, resume=True
    )
    snapshot_keep: int = option(2, help="newest snapshots that stay", unit="snapshots", low=1, high=1 << 20, resume=True)
    demos: tuple[str, ...] = option(
        (),
        help="exports and data sets whose rows are pinned beside the ring: drawn, never evicted, no env steps (docs/pool.md)",
    )

    def check(self, path: str = "pool") -> None:
        """Refuse regular blocks that no commit could hold."""
        if self.min_block_rows > self.max_block_rows:
            raise ConfigError(
                f"{path}.min_block_rows: {self.min_block_rows} is above {path}.max_block_rows {self.max_block_rows}; nearest"
                f" valid: {self.max_block_rows}"
            )

    def check_rows_stay(self, before: PoolConfig, kept: int, lost: int) -> None:
        """Refuse longer regular blocks than before, whose frame ring costs a pool live rows.

        Args:
            before: of the pool until now.
            kept: rows that would stay.
            lost: of the newest ``capacity`` those that would not.
        """
        if self.min_block_rows > before.min_block_rows:
            raise ConfigError(
                f"pool.min_block_rows: {self.min_block_rows} in place of {before.min_block_rows} leaves room for the frames of"
                f" {kept} of the newest {kept + lost} rows only; nearest valid: {before.min_block_rows}, or a smaller"
                " pool.capacity"
            )


@dataclass(frozen=True)
class SetConfig:
    """One named set of rows, and its part of each batch. What is left empty or 0 does not choose."""

    share: float = option(help="part of each batch that is drawn from the set", low=0, high=1)
    actor_share: float | None = option(
        None, help="the same for the batch of the actor's update, which is then a separate one; none: share", low=0, high=1
    )
    source: tuple[str, ...] = option((), help="who acted (sampling.human_rows)", choices=SOURCES)
    outcome: tuple[str, ...] = option((), help="how the episode ended", choices=OUTCOMES)
    task: tuple[int, ...] = option((), help="task ids", low=0, high=(1 << 32) - 1)
    actor: tuple[str, ...] = option((), help="actor ids, or patterns such as robot-*")
    newest_rows: int = option(0, help="only rows among the newest so many of the pool", unit="rows", low=0)
    newest_versions: int = option(0, help="only rows that acted with one of the newest so many weight versions", low=0)
    when_small: str = option(
        "yield",
        help="with fewer rows than its part: repeat rows in the batch (replace) or leave the rest to the other sets (yield)",
        choices=("replace", "yield"),
    )
    balance: str = option("none", help="task: each task has an equal part of the set's part", choices=("none", "task"))
    min_fill: int = option(0, help="rows that the set holds before the first batch", unit="rows", low=0)

    def check(self, path: str = "set") -> None:
        """Refuse a set that can never hold what it waits for."""
        if 0 < self.newest_rows < self.min_fill:
            raise ConfigError(
                f"{path}.min_fill: {self.min_fill} is above {path}.newest_rows {self.newest_rows}, so the set never fills;"
                f" nearest valid: {self.newest_rows}"
            )


@dataclass(frozen=True)
class SamplingConfig:
    """How the rows of a batch are chosen."""

    method: str = option("uniform", help="each row equally likely, or by its |td|", choices=("uniform", "prioritised"))
    priority_exponent: float = option(
        0.6, help="a of P(i) = p_i^a / sum p^a with prioritised; 0 is uniform, 1 fully proportional", low=0, high=1
    )
    priority_eps: float = option(1e-6, help="added to each |td|, so that every row is drawn some day", low=1e-12, high=1)
    importance_exponent: float = option(
        0.4, help="b of the weights (N P)^-b / max that take the bias out of prioritised batches; 0 leaves it in", low=0, high=1
    )
    importance_anneal_updates: int = option(
        0, help="updates over which b rises linearly to 1; 0 keeps it", unit="updates", low=0, high=1 << 53
    )
    sets: dict[str, SetConfig] = option(
        factory=dict,
        help="named sets that batches are mixed from, name -> definition; none: batches are of all rows",
        resume=True,
    )
    human_rows: str = option(
        "any",
        help="how many of a row's executed steps make it a human's: any, or most (over half)",
        choices=("any", "most"),
        resume=True,
    )

    @property
    def by_task(self) -> bool:
        """Whether a set chooses by task."""
        return any(s.task or s.balance == "task" for s in self.sets.values())

    @property
    def mixes(self) -> dict[str, dict[str, float]]:
        """Mix -> set -> share; ``actor`` is there only when some set has an ``actor_share``."""
        if not self.sets:
            return {}
        out = {"critic": {name: s.share for name, s in self.sets.items()}}
        if any(s.actor_share is not None for s in self.sets.values()):
            out["actor"] = {name: s.share if s.actor_share is None else s.actor_share for name, s in self.sets.items()}
        return out

    def check(self, path: str = "sampling") -> None:
        """Refuse sets that make no batch."""
        if len(self.sets) > MAX_SETS:
            raise ConfigError(f"{path}.sets: {len(self.sets)} sets, allowed {MAX_SETS}")
        for name, s in self.sets.items():
            if not _NAME.fullmatch(name):
                raise ConfigError(f"{path}.sets: {name!r} is not a name of letters, digits and _, at most 32, no digit first")
            if s.balance == "task" and self.method == "prioritised":
                raise ConfigError(
                    f"{path}.sets.{name}.balance: task with {path}.method prioritised, whose tree over the set's rows knows no"
                    f" tasks; nearest valid: none, with a set for each task in place of {name}, such as"
                    f" {name}_0: {{task: [0], share: ...}}; or {path}.method: uniform"
                )
        for mix, shares in self.mixes.items():
            total = sum(shares.values())
            if abs(total - 1) > 1e-6:
                key = "share" if mix == "critic" else "actor_share (share where it is none)"
                listed = ", ".join(f"{name} {share:g}" for name, share in shares.items())
                scaled = {name: share / total if total else 1 / len(shares) for name, share in shares.items()}
                raise ConfigError(
                    f"{path}.sets: {key} adds up to {total:g} ({listed}), must be 1; nearest valid:"
                    f" {', '.join(f'{name} {share:.4g}' for name, share in scaled.items())}"
                )

    def check_pinned(self, path: str = "sampling") -> None:
        """Refuse what pinned demonstrations cannot be sampled with."""
        if self.method == "prioritised":
            raise ConfigError(
                f"{path}.method: prioritised, but pinned demonstrations (pool.demos) have no priorities; nearest valid:"
                f" uniform, with a set of source demo in {path}.sets. Or leave pool.demos empty, and begin with their rows"
                " in the ring (headrace pool import, then run.pool_from)"
            )

    def check_fits(self, capacity: int, batch_size: int, path: str = "sampling") -> None:
        """Refuse sets that a pool of ``capacity`` rows can never fill, or whose rows never make ``batch_size``."""
        for name, s in self.sets.items():
            if s.min_fill > capacity:
                raise ConfigError(
                    f"{path}.sets.{name}.min_fill: {s.min_fill} is above pool.capacity {capacity}; nearest valid: {capacity}"
                )
        for mix, shares in self.mixes.items():
            drawn = [self.sets[name] for name, share in shares.items() if share > 0]
            most = sum(s.newest_rows or capacity for s in drawn)
            if most < batch_size and all(s.when_small == "yield" for s in drawn):
                raise ConfigError(
                    f"{path}.sets: newest_rows of the {mix} batch's sets add up to {most}, below a batch of {batch_size};"
                    " raise them, or set when_small: replace"
                )
