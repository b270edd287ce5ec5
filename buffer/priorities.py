"""Prioritised sampling: each row's priority in a mapped column, a sum tree over what it makes likely, and what is drawn.

Schaul et al., Prioritized Experience Replay, arXiv:1511.05952, with the many asynchronous writers of Horgan et al., Distributed
Prioritized Experience Replay, arXiv:1803.00933.

Rules: a commit writes 0 into a slot of the column before its row can be seen, and 0 means: none yet. So after a kill at any
instant no row has a stranger's priority, and one that has none gets the running maximum. Leaves are made from the column.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from headrace.buffer.config import SamplingConfig
from headrace.buffer.header import Field, Header
from headrace.buffer.random_source import RandomSource
from headrace.buffer.ring import spans
from headrace.buffer.sampler import Drawn, joined, require_rows
from headrace.buffer.sum_tree import SumTree
from headrace.common.errors import PriorityRefused

Array = np.ndarray[Any, Any]
FIRST_MAXIMUM = 1.0  # where the running maximum starts
LARGEST = 3e38  # leaves room in float32 for what is added


class Priorities:
    """An index over the live rows that draws them by priority; a sampler.

    Args:
        config: exponents.
        column: ``(row_slots,)`` float32, 0 where a live row has no priority yet.
        header: of the pool; its epoch says which updates are stale, and it keeps the running maximum and their count.
        random: draws when a caller brings no generator.
    """

    reads_rows = False

    def __init__(self, config: SamplingConfig, column: Array, header: Header, random: RandomSource) -> None:
        self._config, self._column, self._header, self._random = config, column, header, random
        self._tree = SumTree(len(column))
        self._listeners: list[Callable[[Array, Array], None]] = []
        self._tail = self._head = self._live = 0

    @property
    def nbytes(self) -> int:
        """Bytes of this process's own memory."""
        return self._tree.nbytes

    @property
    def maximum(self) -> float:
        """The largest priority that any row ever had, and at least 1; what a new row gets."""
        return float(np.int32(self._header[Field.MAX_PRIORITY]).view(np.float32)) or FIRST_MAXIMUM

    @property
    def stale_updates(self) -> int:
        """Updates of rows that were gone, discarded, or of an earlier epoch."""
        return self._header[Field.STALE_UPDATES]

    @property
    def importance_exponent(self) -> float:
        """b now: it rises from the declared one to 1 over the declared number of updates."""
        b, span = self._config.importance_exponent, self._config.importance_anneal_updates
        return b if not span else b + (1.0 - b) * min(1.0, self._header.updates / span)

    # --- drawing ----------------------------------------------------------------------------------------------------

    def draw(self, batch_size: int, rng: np.random.Generator | None = None, batches: int = 1) -> Drawn:
        """Rows with probability P(i) = p_i^a / sum p^a, and weights (N P)^-b over the largest of the batch.

        A row may come more than once, see :meth:`SumTree.draw`.

        Raises:
            PoolTooSmall: fewer rows than ``batch_size`` are live.
        """
        require_rows(batch_size, self._live)
        return joined([self._draw(batch_size, self._random.pick(rng)) for _ in range(batches)])

    def _draw(self, batch_size: int, rng: np.random.Generator) -> Drawn:
        slots, leaves = self._tree.draw(batch_size, rng)
        # N and the sum are the same for the whole batch, so they cancel when the largest weight becomes 1.
        weights = (np.minimum.reduce(leaves) / leaves) ** np.float32(self.importance_exponent)
        return Drawn(self._ids(slots), weights)

    def info(self) -> dict[str, float]:
        """Mean of p^a over the rows that can be drawn, the running maximum of p, and b."""
        mean = self._tree.total / self._live if self._live else 0.0
        return {"priority_mean": mean, "priority_max": self.maximum, "importance_exponent": self.importance_exponent}

    # --- updating ---------------------------------------------------------------------------------------------------

    def update(self, epoch: int, ids: Array, priorities: Array) -> int:
        """Give rows new priorities; returns how many were stale, and therefore left as they are.

        ``priority_eps`` is added to each. Of a row that is named twice the last one stays.

        Args:
            epoch: the pool's, when the ids were drawn.
            ids: ``(n,)`` int64.
            priorities: ``(n,)``, for instance |td|.

        Raises:
            PriorityRefused: a number is negative or not finite, an id was never given out, or the lengths differ; nothing
                has changed.
        """
        check_priorities(priorities, len(ids))
        if epoch != self._header[Field.EPOCH]:
            return self._count_stale(len(ids))
        if len(ids) and np.maximum.reduce(ids) >= self._head:
            raise PriorityRefused("id", f"row {ids.max()} was never given out, the next one is {self._head}")
        slots, values = ids % self._tree.slots, (priorities + self._config.priority_eps).astype(np.float32)
        fresh = (ids >= self._tail) & (self._tree.get(slots) > 0)
        stale = len(ids) - int(np.count_nonzero(fresh))
        if stale:
            slots, values = slots[fresh], values[fresh]
        if len(slots):
            self._put(slots, values)
        return self._count_stale(stale)

    def _put(self, slots: Array, values: Array) -> None:
        largest = np.maximum.reduce(values)
        if largest > self.maximum:  # before the column, so that a kill leaves no priority above it
            self._header[Field.MAX_PRIORITY] = int(largest.view(np.int32))
        self._set(slots, values)

    def _set(self, slots: Array, values: Array) -> None:
        leaves = self._leaves(values)
        self._column[slots] = values
        self._tree.set(slots, leaves)
        for tell in self._listeners:
            tell(slots, leaves)

    def leaves(self, slots: Array) -> Array:
        """``(n,)`` p^a of the rows in ``slots``; 0 where no row can be drawn."""
        return self._tree.get(slots)

    def listen(self, tell: Callable[[Array, Array], None]) -> None:
        """Call ``tell(slots, leaves)`` whenever rows that are live already get other priorities."""
        self._listeners.append(tell)

    def _count_stale(self, stale: int) -> int:
        if stale:
            self._header[Field.STALE_UPDATES] += stale
        return stale

    # --- index ------------------------------------------------------------------------------------------------------

    def cleared(self) -> None:
        """Nothing is live any more."""
        self._tree.clear()
        self._tail = self._head = self._live = 0

    def committed(self, first: int, rows: Array) -> None:
        """Rows ``first ..`` are live; those without a priority get the running maximum."""
        if self._tail == self._head:
            self._tail = first
        count = len(rows)
        for slot, _, length in spans(first, count, self._tree.slots):
            values = self._column[slot : slot + length]
            if values.any():  # the rows were here before this process, or came from a snapshot
                np.copyto(values, self.maximum, where=~((values > 0) & (values <= self.maximum)))
                leaves = self._leaves(values)
            else:
                values[:] = self.maximum
                leaves = self._leaves(values[:1])
            self._tree.set_range(slot, slot + length, leaves)
        self._head = first + count
        self._live += count

    def retired(self, tail: int) -> None:
        """Rows below ``tail`` are gone, and are drawn no more."""
        for slot, _, length in spans(self._tail, tail - self._tail, self._tree.slots):
            self._live -= int(np.count_nonzero(self._tree.get_range(slot, slot + length)))
            self._tree.set_range(slot, slot + length, 0.0)
        self._tail = tail

    def amended(self, ids: Array, rows: Array) -> None:
        """An amended row keeps its priority: the next time it is drawn brings it up to date."""

    def discarded(self, ids: Array) -> None:
        """The rows are never drawn again, and updates of them are stale."""
        self._tree.set(ids % self._tree.slots, 0.0)
        self._live -= len(ids)

    def check_valid(self) -> tuple[bool, str]:
        """Whether the tree is sound, and holds the live rows' priorities and nothing else."""
        ok, why = self._tree.check_valid()
        if not ok:
            return ok, why
        leaves, column = self._tree.get(np.arange(self._tree.slots)), self._column
        slots = np.arange(self._tail, self._head) % self._tree.slots
        live = np.zeros(self._tree.slots, bool)
        live[slots] = True
        drawn = leaves > 0
        if (drawn & ~live).any():
            return False, "a slot without a live row can be drawn"
        if int(np.count_nonzero(drawn)) != self._live:
            return False, f"{np.count_nonzero(drawn)} rows can be drawn, {self._live} are counted"
        if not np.allclose(leaves[drawn], self._leaves(column[drawn]), rtol=1e-6, atol=0):
            return False, "a leaf is not its row's priority to the power of the exponent"
        if (column[drawn] > np.float32(self.maximum)).any():
            return False, "a priority is above the running maximum"
        return True, ""

    def _leaves(self, priorities: Array) -> Array:
        leaves: Array = priorities ** np.float32(self._config.priority_exponent)
        return leaves

    def _ids(self, slots: Array) -> Array:
        ids: Array = self._tail + (slots - self._tail) % self._tree.slots
        return ids


def check_priorities(priorities: Array, count: int) -> None:
    """Refuse priorities that ``count`` rows cannot take.

    Raises:
        PriorityRefused: reason ``shape`` or ``value``.
    """
    if priorities.shape != (count,) or priorities.dtype.kind not in "fiu":
        raise PriorityRefused("shape", f"{priorities.shape} of {priorities.dtype}, expected ({count},) numbers")
    if count and not 0 <= np.minimum.reduce(priorities) <= np.maximum.reduce(priorities) <= LARGEST:
        raise PriorityRefused("value", f"priorities must be numbers of [0, {LARGEST:g}]")
