"""How rows are drawn: what a draw is, and the uniform one, without replacement inside one batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from headrace.buffer.files import Header
from headrace.buffer.random_source import RandomSource
from headrace.buffer.tombstones import Tombstones
from headrace.common.errors import PoolTooSmall

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Drawn:
    """Rows chosen for one batch.

    Attributes:
        ids: ``(B,)`` int64 ids of live rows.
        weights: ``(B,)`` float32 importance weights, at most 1; None where every row counts the same.
        sets: ``(B,)`` uint8, which named set each row was drawn for; None where there are no sets.
    """

    ids: Array
    weights: Array | None = None
    sets: Array | None = None


class Sampler(Protocol):
    """Draws live rows of one pool; called under the pool's lock."""

    def draw(self, batch_size: int, rng: np.random.Generator | None = None) -> Drawn:
        """``batch_size`` rows, in random order; ``rng`` draws in place of the pool's generator.

        Raises:
            PoolTooSmall: fewer rows than ``batch_size`` can be drawn.
        """


class UniformSampler:
    """Each live row that is not discarded equally likely, none twice."""

    def __init__(self, header: Header, tombstones: Tombstones, random: RandomSource) -> None:
        self._header, self._tombstones, self._random = header, tombstones, random

    def draw(self, batch_size: int, rng: np.random.Generator | None = None) -> Drawn:
        """Distinct rows.

        Raises:
            PoolTooSmall: fewer rows than ``batch_size`` are there.
        """
        tail = self._header.tail
        rows = self._header.head - tail - len(self._tombstones)
        require_rows(batch_size, rows)
        ids = _distinct(self._random.pick(rng), rows, batch_size)
        ids += tail
        return Drawn(self._tombstones.step_over(ids))


def _distinct(rng: np.random.Generator, rows: int, n: int) -> Array:
    """``(n,)`` distinct numbers below ``rows``, every ordered choice of them equally likely.

    Where a repetition is unlikely, draws with one are thrown away as a whole, which costs half of the generator's own
    choice. That one is Floyd's algorithm for small shares and a tail shuffle above one in fifty, so the cost follows n.
    """
    if n * n > rows:
        return rng.choice(rows, n, replace=False)
    while True:
        drawn = rng.integers(rows, size=n)
        ordered = np.sort(drawn)
        if not (ordered[1:] == ordered[:-1]).any():
            return drawn


def require_rows(batch_size: int, rows: int) -> None:
    """Refuse a batch that so few rows cannot fill.

    Raises:
        PoolTooSmall: naming both numbers.
    """
    if not 1 <= batch_size <= rows:
        raise PoolTooSmall(f"a batch of {batch_size} rows was asked of {rows} stored rows; fill the pool or ask for less")
