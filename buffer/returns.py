"""The spread of the discounted return, by which learners scale rewards; counted once per committed row, like observations.

Of an episode whose steps give r_0, r_1, ... the discounted return so far is G_t = r_t + gamma G_{t-1}, and its moments are
over all steps. G needs every step of an episode in order, which a sampled batch does not hold and the order of commits does.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace.common.statistics import ReturnStatistics

if TYPE_CHECKING:
    from headrace.buffer.pinned import Pinned
    from headrace.buffer.store import Store

Array = np.ndarray[Any, Any]
Episode = tuple[int, int, int]  # actor, stream, episode
Moments = tuple[int, float, float]  # count, mean, sum of squared deviations
MOST_RUNNING = 4096  # episodes whose last G is kept, those that went on last


class Returns:
    """Follows the rows of one pool as an index; discounted returns begin at 0 with each episode, and behind a gap in it.

    Unlike other indexes it counts rows that are gone, so its state travels in snapshots. At open, where there is none, it is
    made of the live rows: the spread over what is there, which a learner could as well have begun with. Rewards that are
    amended and rows that are discarded stay in it as they were.

    Args:
        gamma: discount of one env step.
    """

    reads_rows = True

    def __init__(self, gamma: float) -> None:
        self._gamma, self._chunks = gamma, False
        self._demos: Moments = (0, 0.0, 0.0)
        self.cleared()

    def follow(self, store: Store, pinned: Pinned | None) -> None:
        """Count the rows of ``store`` from now on, the live ones first, and demonstrations once."""
        self._chunks = store.spec.kind == "chunk"
        if pinned is not None:
            pinned.attach(self)
            self._demos = self._moments
        store.attach(self)

    def result(self) -> ReturnStatistics:
        """The moments so far, over demonstrations and rows."""
        count, _, m2 = _merged(self._demos, self._moments)
        return ReturnStatistics(count, m2 / count) if count else ReturnStatistics()

    # --- the calls of an index --------------------------------------------------------------------------------------

    def cleared(self) -> None:
        """Nothing was counted yet, but for demonstrations."""
        self._moments: Moments = (0, 0.0, 0.0)
        self._running: dict[Episode, tuple[int, float]] = {}  # its next t, and its last G

    def committed(self, first: int, rows: Array) -> None:
        """Count the executed steps that ``rows`` account for."""
        values = np.array(list(self._follow(rows)))
        mean = values.mean()
        self._moments = _merged(self._moments, (len(values), float(mean), float(np.square(values - mean).sum())))
        while len(self._running) > MOST_RUNNING:
            del self._running[next(iter(self._running))]

    def _follow(self, rows: Array) -> Iterator[float]:
        """G of each executed step, in order. Windows of overlapping rows account for their first step, chunks for all."""
        window = rows["rewards"].shape[1] if self._chunks else 1
        ends = (rows["terminated"] | rows["truncated"]).astype(bool) & (self._chunks | (rows["steps"] == 1))
        steps = rows["steps"] if self._chunks else np.ones(len(rows), np.int64)
        names = ("actor", "stream", "episode", "t")
        columns = (*(rows[name].tolist() for name in names), steps.tolist(), ends.tolist())
        rewards = rows["rewards"][:, :window].tolist()
        for actor, stream, episode, t, count, ended, given in zip(*columns, rewards, strict=True):
            following, g = self._running.pop((actor, stream, episode), (t, 0.0))
            g = g if following == t else 0.0
            for reward in given[:count]:
                g = self._gamma * g + reward
                yield g
            if not ended:
                self._running[actor, stream, episode] = (t + count, g)

    def retired(self, tail: int) -> None:
        """What was counted stays counted."""

    def amended(self, ids: Array, rows: Array) -> None:
        """What was counted stays counted."""

    def discarded(self, ids: Array) -> None:
        """What was counted stays counted."""

    # --- state ------------------------------------------------------------------------------------------------------

    def get_state(self) -> dict[str, Any]:
        """``gamma``, ``moments`` of the rows alone, and ``running``: actor, stream, episode, next t and last G of each."""
        running = [[*key, *last] for key, last in self._running.items()]
        return {"gamma": self._gamma, "moments": list(self._moments), "running": running}

    @staticmethod
    def check_state(state: Mapping[str, Any]) -> None:
        """Refuse what is no state of :meth:`get_state`, with KeyError, TypeError or ValueError."""
        _read(state)

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Continue from :meth:`get_state`; one of another gamma leaves this as it is, made of the live rows."""
        gamma, moments, running = _read(state)
        if gamma == self._gamma:
            self._moments, self._running = moments, running

    def check_valid(self) -> tuple[bool, str]:
        """Whether the moments are finite and the variance is not negative."""
        good = _are_moments(self._moments)
        return good, "" if good else f"{self._moments} are no moments of returns"


def _read(state: Mapping[str, Any]) -> tuple[float, Moments, dict[Episode, tuple[int, float]]]:
    count, mean, m2 = state["moments"]
    moments = int(count), float(mean), float(m2)
    running = {(int(a), int(s), int(e)): (int(t), float(g)) for a, s, e, t, g in state["running"]}
    if not _are_moments(moments) or len(running) > MOST_RUNNING:
        raise ValueError(f"{moments} are no moments of returns, or {len(running)} episodes are too many")
    return float(state["gamma"]), moments, running


def _are_moments(moments: Moments) -> bool:
    count, mean, m2 = moments
    return count >= 0 and math.isfinite(mean) and 0 <= m2 < math.inf


def _merged(ours: Moments, theirs: Moments) -> Moments:
    """Moments over both, by Chan, Golub and LeVeque (1979), eq. 2.1."""
    (n, mean, m2), (k, other, n2) = ours, theirs
    total = n + k
    if not total:
        return ours
    shift = other - mean
    return total, mean + shift * k / total, m2 + n2 + shift * shift * n * k / total
