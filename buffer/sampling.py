"""How one pool is sampled: the declared sampler, the generator that it draws with, and priorities."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from headrace.buffer.config import SamplingConfig
from headrace.buffer.header import Field
from headrace.buffer.inserted import Inserted
from headrace.buffer.pinned import Pinned
from headrace.buffer.priorities import Priorities, check_priorities
from headrace.buffer.random_source import RandomSource
from headrace.buffer.sampler import Drawn, Sampler, UniformSampler, joined
from headrace.buffer.set_sampler import SetSampler
from headrace.buffer.store import Store
from headrace.common.errors import PoolError

Array = np.ndarray[Any, Any]


class Sampling:
    """The sampler of one pool, from the moment on when the pool has a store.

    Args:
        config: the declared way.
        rng: draws when a caller brings no generator.
    """

    def __init__(self, config: SamplingConfig, rng: np.random.Generator) -> None:
        self.config, self._random = config, RandomSource(rng)
        self._sampler: Sampler  # comes with the store
        self._priorities: Priorities | None = None
        self._sets: SetSampler | None = None

    def follow(self, store: Store, pinned: Pinned | None) -> None:
        """Sample the rows of ``store`` from now on, and demonstrations, where the config allows them."""
        self._pinned_rows = 0 if pinned is None else len(pinned)
        self._header, self._tombstones = store.header, store.tombstones
        if self.config.method == "prioritised":
            column = store.files.add_column("priority")
            self._sampler = self._priorities = Priorities(self.config, column, store.header, self._random)
            store.attach(self._priorities)
        else:
            self._sampler = UniformSampler(store.header, store.tombstones, self._random, pinned)
            store.files.drop_column("priority")  # priorities that do not follow the rows are worth nothing
        if self.config.sets:
            slots = store.segment.sizes.row_slots
            self._sets = SetSampler(self.config, slots, lambda: store.ledger.actors, self._random, self._priorities, pinned)
            for index in self._sets.sets.values():
                store.attach(index)

    def draw(self, batch_size: int, rng: np.random.Generator | None, mix: str, batches: int = 1) -> Drawn:
        """Rows for so many batches, see :class:`Sampler` and :class:`SetSampler`."""
        if self._sets is not None:
            return joined([self._sets.draw(batch_size, rng, mix) for _ in range(batches)])
        if mix not in self.mixes:
            raise PoolError(f"mix {mix!r}: there are no named sets to mix; declare sampling.sets")
        return self._sampler.draw(batch_size, rng, batches)

    @property
    def drawable(self) -> int:
        """Largest batch that there may be rows for now."""
        rows: int = self._header.head - self._header.tail - len(self._tombstones) + self._pinned_rows
        return rows if self._sets is None else self._sets.drawable

    @property
    def waiting(self) -> str:
        """The set that is waited for before a batch can be drawn, in words; empty when none is."""
        return "" if self._sets is None else self._sets.waiting

    @property
    def mixes(self) -> list[str]:
        """What :meth:`draw` can draw: ``critic``, and ``actor`` where its batch is a separate one."""
        return list(self.config.mixes) or ["critic"]

    def info(self) -> dict[str, Any]:
        """How batches are drawn now, in numbers."""
        out: dict[str, Any] = {"method": self.config.method}
        for part in (self._priorities, self._sets):
            out |= {} if part is None else part.info()
        return out

    # --- priorities -------------------------------------------------------------------------------------------------

    def check(self, priorities: Array, count: int) -> Array:
        """Priorities that ``count`` new rows can take.

        Raises:
            PoolError: sampling is not prioritised.
            PriorityRefused: they are none.
        """
        self._require_priorities()
        check_priorities(priorities, count)
        return priorities

    def supply(self, done: Inserted, priorities: Array) -> None:
        """Give the rows of a block that has just been inserted the priorities that came with it."""
        head = self._header.head
        kept = min(done.rows, head - self._header.tail)
        ids = np.arange(head - kept, head)
        self._by_priority().update(self._header[Field.EPOCH], ids, priorities[len(priorities) - kept :])

    def update(self, epoch: int | None, ids: Array, priorities: Array) -> int:
        """See :meth:`SACReplayPool.update_priorities`."""
        now = self._header[Field.EPOCH] if epoch is None else epoch
        return self._by_priority().update(now, ids, priorities)

    def _require_priorities(self) -> None:
        if self.config.method != "prioritised":
            raise PoolError(f"sampling.method: {self.config.method} has no priorities; set prioritised")

    def _by_priority(self) -> Priorities:
        self._require_priorities()
        if self._priorities is None:
            raise PoolError("there are no rows yet that could have priorities")
        return self._priorities

    # --- state ------------------------------------------------------------------------------------------------------

    def get_state(self) -> dict[str, Any]:
        """States of the generator and of the mixes, as plain values."""
        return {**self._random.get_state(), "mixes": {} if self._sets is None else self._sets.get_state()}

    def check_state(self, state: Mapping[str, Any]) -> None:
        """Refuse what :meth:`set_state` would refuse; :class:`ConfigError` for another kind of generator."""
        self._random.check_state(state)

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Take a state of :meth:`get_state`."""
        self._random.set_state({name: value for name, value in state.items() if name != "mixes"})
        if self._sets is not None:
            self._sets.set_state(state.get("mixes", {}))
