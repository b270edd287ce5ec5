"""How rows are drawn: what a draw is, and the uniform one, without replacement inside one batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from headrace.buffer.header import Header
from headrace.buffer.pinned import Pinned
from headrace.buffer.random_source import RandomSource
from headrace.buffer.tombstones import Tombstones
from headrace.common.errors import PoolTooSmall

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Drawn:
    """Rows chosen for one batch, or for several one after the other.

    Attributes:
        ids: ``(B,)`` int64 ids of live rows.
        weights: ``(B,)`` float32 importance weights, at most 1; None where every row counts the same.
        sets: ``(B,)`` uint8, which named set each row was drawn for; None where there are no sets.
    """

    ids: Array
    weights: Array | None = None
    sets: Array | None = None


def joined(draws: Sequence[Drawn], batches: int = 1) -> Drawn:
    """Draws of ``batches`` batches each as one: the first batch of every draw, then the second of every draw, and so on."""
    if len(draws) == 1:
        return draws[0]
    columns = zip(*((d.ids, d.weights, d.sets) for d in draws), strict=True)
    return Drawn(*(_interleaved(parts, batches) for parts in columns))


def _interleaved(parts: Sequence[Any], batches: int) -> Any:
    if parts[0] is None:
        return None
    return np.concatenate([part.reshape(batches, -1) for part in parts], axis=1).reshape(-1)


class Sampler(Protocol):
    """Draws live rows of one pool; called under the pool's lock."""

    def draw(self, batch_size: int, rng: np.random.Generator | None = None, batches: int = 1) -> Drawn:
        """``batches`` batches of ``batch_size`` rows, each in random order; ``rng`` draws in place of the pool's generator.

        Raises:
            PoolTooSmall: fewer rows than ``batch_size`` can be drawn.
        """


class UniformSampler:
    """Each live row that is not discarded, and each pinned one, equally likely; none twice in a batch."""

    def __init__(self, header: Header, tombstones: Tombstones, random: RandomSource, pinned: Pinned | None = None) -> None:
        self._header, self._tombstones, self._random = header, tombstones, random
        self._pinned, self._behind = pinned, 0 if pinned is None else len(pinned)

    def draw(self, batch_size: int, rng: np.random.Generator | None = None, batches: int = 1) -> Drawn:
        """Batches of distinct rows, all in one go: a call of numpy costs more than a batch of numbers.

        Raises:
            PoolTooSmall: fewer rows than ``batch_size`` are there.
        """
        tail = self._header.tail
        online = self._header.head - tail - len(self._tombstones)
        require_rows(batch_size, online + self._behind)
        places = _distinct(self._random.pick(rng), online + self._behind, batch_size, batches)
        ids = self._tombstones.step_over(places + tail)
        if self._pinned is not None:  # its rows lie behind those of the ring
            behind = places >= online
            ids[behind] = self._pinned.handles(places[behind] - online)
        return Drawn(ids)


def _distinct(rng: np.random.Generator, rows: int, n: int, batches: int) -> Array:
    """``(batches * n,)`` numbers below ``rows``, each n of them distinct and every ordered choice of them equally likely.

    Where a repetition is unlikely, a batch with one is thrown away as a whole, which costs half of the generator's own
    choice. That one is Floyd's algorithm for small shares and a tail shuffle above one in fifty, so the cost follows n.
    """
    if n * n > rows:
        return np.concatenate([rng.choice(rows, n, replace=False) for _ in range(batches)])
    drawn = rng.integers(rows, size=(batches, n))
    ordered = np.sort(drawn)
    repeated = ordered[:, 1:] == ordered[:, :-1]
    if repeated.any():
        again = repeated.any(axis=1)
        drawn[again] = _distinct(rng, rows, n, int(again.sum())).reshape(-1, n)
    return drawn.reshape(-1)


def require_rows(batch_size: int, rows: int) -> None:
    """Refuse a batch that so few rows cannot fill.

    Raises:
        PoolTooSmall: naming both numbers.
    """
    if not 1 <= batch_size <= rows:
        raise PoolTooSmall(f"a batch of {batch_size} rows was asked of {rows} stored rows; fill the pool or ask for less")
