"""The home shard's view of its satellites, the further shards of the run: who is there, and what each holds and has done.

Env steps are kept by the pool that holds them, durably: a shard that is lost, or that a later run has no more, has done what it
has done, and the sum never goes back.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from headrace.buffer import manifest
from headrace.buffer.pacing import Pacing
from headrace.common.errors import PoolError, WireError, describe_os_error
from headrace.common.wire.fleet import Session
from headrace.common.wire.messages import Hello, Holdings

LOG = logging.getLogger(__name__)
NAME = "shards.json"
MOST_POOLS = 4096
WRITE_S = 1.0  # a satellite that lives says again what a kill of the home shard has lost of it


class Satellites:
    """The further shards.

    Args:
        pacing: of the run.
        directory: where their env steps are kept; none keeps them in memory.

    Attributes:
        not_written: why the newest counts are not on disk; empty when they are.

    Raises:
        PoolDamaged: the file there is not what was written.
    """

    def __init__(self, pacing: Pacing, directory: Path | None = None) -> None:
        self._pacing, self._directory = pacing, directory
        self._env_steps: dict[str, int] = {}  # pool -> committed there
        self._here: dict[str, Holdings] = {}  # name of the account -> what is there
        self._known: set[str] = set()  # ids
        self._moved: dict[str, str] = {}  # pool -> how far it is moved into the home shard's
        self._written_at, self._changed = -WRITE_S, False
        self.not_written = ""
        known = manifest.read(directory, NAME) if directory is not None else None
        if known is not None:
            self._env_steps = {str(pool): int(steps) for pool, steps in dict(known["env_steps"]).items()}
            self._known = {str(identity) for identity in known["shards"]}
            self._moved = dict(known.get("moved", {}))

    @property
    def env_steps(self) -> int:
        """Committed in all pools that satellites of this run ever had."""
        return sum(self._env_steps.values())

    @property
    def rows(self) -> int:
        """Rows of the satellites that are here, from which batches can be drawn."""
        return sum(h.rows for h in self._here.values())

    @property
    def simulators(self) -> int:
        """Simulators of the satellites that are here."""
        return sum(h.simulators for h in self._here.values())

    @property
    def names(self) -> list[str]:
        """Accounts of all satellites that were ever here."""
        return [account(identity) for identity in sorted(self._known)]

    def join(self, session: Session, hello: Hello) -> None:
        """A satellite has a session."""
        name = account(session.id)
        self._changed = self._changed or session.id not in self._known
        self._known.add(session.id)
        self._here[name] = Holdings("", 0, 0)
        self._pacing.join_shard(name, limit=hello.executed, under_way=hello.pending)

    def holds(self, session: Session, holdings: Holdings) -> None:
        """Take what a satellite says of itself; raises :class:`WireError` for yet another pool, beyond any number."""
        name = account(session.id)
        if holdings.pool not in self._env_steps and len(self._env_steps) >= MOST_POOLS:
            raise WireError("shards", f"{len(self._env_steps)} pools of further shards are known, at most {MOST_POOLS}")
        self._here[name] = holdings
        if holdings.pool and self._env_steps.get(holdings.pool) != holdings.env_steps:
            self._env_steps[holdings.pool] = holdings.env_steps
            self._changed = True
        self._pacing.shard_holds(
            name,
            holdings.env_steps,
            returned=holdings.returned,
            under_way=holdings.under_way,
            simulators=holdings.simulators,
            reserve=holdings.reserve,
        )

    def leave(self, session: Session) -> None:
        """A satellite is gone; what its actors had under way returns to the budget, and counts when it is back."""
        self._here.pop(account(session.id), None)
        self._pacing.leave(account(session.id))
        self._written_at = -WRITE_S

    def tick(self, now: float) -> None:
        """Write the counts down."""
        if not self._changed or self._directory is None or now - self._written_at < WRITE_S:
            return
        self._written_at = now
        try:
            body = {"env_steps": self._env_steps, "shards": sorted(self._known), "moved": self._moved}
            manifest.write(self._directory, body, NAME)
        except OSError as error:  # tried again in a second
            self.not_written = describe_os_error(error)
        else:
            self._changed, self.not_written = False, ""

    def report(self, session: Session) -> dict[str, Any]:
        """What the status tells of a satellite that is here."""
        held = self._here.get(account(session.id), Holdings("", 0, 0))
        return {"pool": held.pool, "env_steps": held.env_steps, "rows": held.rows, "simulators": held.simulators}


class Moved:
    """The rows of one satellite's pool on their way into the home shard's, whose own count has their env steps from then on.

    Args:
        directory: of the home shard's pool.
        pool: uuid of the satellite's.

    Raises:
        PoolError: no satellite of this run ever had that pool.
        PoolDamaged: the file there is not what was written.
    """

    def __init__(self, directory: Path, pool: str) -> None:
        self._directory, self._pool = directory, pool
        self._body = manifest.read(directory, NAME) or {"env_steps": {}, "shards": []}
        if pool not in self._body["env_steps"]:
            raise PoolError(f"{directory}: no shard of this run ever held the pool {pool}; it has rows of another run")

    @property
    def is_done(self) -> bool:
        """Whether all rows are in the home shard's pool."""
        return self._state == "done"

    @property
    def _state(self) -> str:
        return str(self._body.get("moved", {}).get(self._pool, ""))

    def begin(self, steps: int) -> None:
        """Rows that account for so many env steps enter from here on; nothing where that was said before."""
        if self._state != "begun":
            self._body["env_steps"][self._pool] -= steps
            self._write("begun")

    def end(self) -> None:
        """All of them are in."""
        self._write("done")

    def _write(self, state: str) -> None:
        self._body["moved"] = {**self._body.get("moved", {}), self._pool: state}
        manifest.write(self._directory, self._body, NAME)


def account(identity: str) -> str:
    """The name of a satellite's account; no actor's id has its first character."""
    return f"\0{identity}"
