"""A sum tree over slots: draws a slot with probability proportional to its leaf, many slots a call.

A node is the sum of its children and is always added up from them anew, never moved by a difference, so the tree is the same
after any number of changes as one that is built from its leaves.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
# 16 leaves are one cache line; below 8 the number of levels costs more, above 32 the sums along a node do (measured).
FANOUT = 16
TOP = 4096  # nodes that one running sum goes over


class SumTree:
    """Non-negative leaves, ``(slots,)`` float32, and float64 sums of 16 children each up to a level of at most 4096 nodes.

    Args:
        slots: number of leaves; all are 0 at first.
    """

    def __init__(self, slots: int) -> None:
        self.slots = slots
        levels: list[Array] = [np.zeros((-(-slots // FANOUT), FANOUT), np.float32)]
        while len(levels[-1]) > TOP:
            levels.append(np.zeros((-(-len(levels[-1]) // FANOUT), FANOUT)))
        levels.append(np.zeros((1, len(levels[-1]))))
        self._levels = levels  # each (nodes, children); the sums of one are the children of the next
        self._flat = [level.reshape(-1) for level in levels]
        self._running: Array | None = None  # sums of the top level before each node and of all, until a leaf changes

    @property
    def nbytes(self) -> int:
        """Bytes of memory, about 4.6 a slot."""
        return sum(level.nbytes for level in self._levels)

    @property
    def total(self) -> float:
        """Sum of all leaves."""
        return float(self._top()[-1])

    def get(self, slots: Array) -> Array:
        """Leaves ``(n,)`` float32 of ``slots``, ``(n,)``."""
        leaves: Array = self._flat[0].take(slots)
        return leaves

    def set(self, slots: Array, values: Array | float) -> None:
        """Set the leaves of ``slots``, ``(n,)`` integers; where a slot is named twice its last value stays."""
        self._flat[0][slots] = values
        nodes = slots
        for level, above in zip(self._levels, self._flat[1:], strict=False):
            nodes = nodes // FANOUT
            if len(nodes) < len(level):
                above[nodes] = np.add.reduce(level.take(nodes, axis=0), axis=1, dtype=np.float64)
            else:
                above[: len(level)] = np.add.reduce(level, axis=1, dtype=np.float64)
        self._running = None

    def get_range(self, start: int, stop: int) -> Array:
        """The leaves of slots ``[start, stop)``, a view."""
        return self._flat[0][start:stop]

    def set_range(self, start: int, stop: int, values: Array | float) -> None:
        """Set the leaves of slots ``[start, stop)``."""
        self._flat[0][start:stop] = values
        for level, above in zip(self._levels, self._flat[1:], strict=False):
            start, stop = start // FANOUT, -(-stop // FANOUT)
            np.add.reduce(level[start:stop], axis=1, dtype=np.float64, out=above[start:stop])
        self._running = None

    def clear(self) -> None:
        """Set every leaf to 0."""
        for level in self._levels:
            level.fill(0)
        self._running = None

    def draw(self, count: int, rng: np.random.Generator) -> tuple[Array, Array]:
        """``count`` slots with probability leaf / total, in random order, and their leaves.

        Stratified: the total is cut into ``count`` equal parts, and one slot is drawn of each. Every slot is expected as often
        as in independent draws, with less variance; a leaf that fills a part of its own comes more than once.
        """
        points = np.arange(count) + rng.random(count)
        points *= self.total / count
        slots = rng.permutation(self.find(points))  # sorted points walk the tree's memory in order
        return slots, self.get(slots)

    def find(self, prefixes: Array) -> Array:
        """The slots ``(n,)`` int64 whose leaves hold the points ``prefixes``, ``(n,)`` of [0, total].

        Slot s holds ``[sum of leaves before s, the same plus leaf s)``; the total itself is in the last leaf that is not 0. A
        leaf of 0 is never found.

        Raises:
            ValueError: all leaves are 0.
        """
        running = self._top()
        if not running[-1] > 0:
            raise ValueError("every leaf is 0: there is nothing to find")
        # Below the last sum lies only what adds to it: rounding may carry a point up to the end, but never past a leaf.
        rest = np.minimum(np.maximum(prefixes, 0.0), np.nextafter(running[-1], 0.0))
        nodes: Array = running[1:].searchsorted(rest, side="right")
        rest -= running.take(nodes)
        before = np.zeros((len(rest), FANOUT + 1))  # sums of the children before each, and of all
        starts, sums = np.arange(0, before.size, FANOUT + 1), before[:, 1:]
        for level in reversed(self._levels[:-1]):
            np.add.accumulate(level.take(nodes, axis=0), axis=1, dtype=np.float64, out=sums)
            np.minimum(rest, np.nextafter(sums[:, -1], 0.0), out=rest)
            child = (sums > rest[:, None]).argmax(axis=1)
            rest -= before.reshape(-1).take(starts + child)
            nodes *= FANOUT
            nodes += child
        return nodes

    def check_valid(self) -> tuple[bool, str]:
        """Whether every leaf is finite and not negative, and every sum is that of its children to the last bit."""
        leaves = self._flat[0]
        if not ((leaves >= 0) & (leaves < np.inf)).all():
            return False, "a leaf is negative or not finite"
        for depth, (level, above) in enumerate(zip(self._levels, self._flat[1:], strict=False)):
            if not np.array_equal(level.sum(axis=1, dtype=np.float64), above[: len(level)]):
                return False, f"a sum of level {depth + 1} is not that of its children"
        return True, ""

    def _top(self) -> Array:
        if self._running is None:
            running = np.zeros(len(self._flat[-1]) + 1)
            self._flat[-1].cumsum(out=running[1:])
            self._running = running  # whole: an interrupt must not leave half of them
        return self._running
