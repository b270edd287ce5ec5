"""Where the rows of the newest episodes are in their stream, so that something can be said about an episode later."""

from __future__ import annotations

from typing import Any

import numpy as np

from headrace.common.label import MAX_REWARD_BYTES, Kind, Label

Array = np.ndarray[Any, Any]


class Episodes:
    """First and last seq of each episode of one actor's stream, and the rows in which an episode ends.

    Args:
        keep: episodes that are remembered, those whose rows went out last.
    """

    def __init__(self, keep: int = 256) -> None:
        self._keep = keep
        self._spans: dict[int, tuple[int, int]] = {}
        self._last: dict[
            int, dict[int, Array]
        ] = {}  # episode -> seq -> rewards of the executed steps of a row that has its last

    def sent(self, rows: Array, first: int) -> None:
        """Note rows ``(n,)`` that go out under the seqs from ``first`` on."""
        for i in np.flatnonzero(rows["terminated"] | rows["truncated"]):
            row = rows[i]
            self._last.setdefault(int(row["episode"]), {})[first + int(i)] = row["rewards"][: int(row["steps"])].copy()
        episodes = rows["episode"]
        starts = np.flatnonzero(np.diff(episodes, prepend=~episodes[:1]))
        for start, stop in zip(starts.tolist(), [*starts[1:].tolist(), len(rows)], strict=True):
            episode = int(episodes[start])
            old, _ = self._spans.pop(episode, (first + start, 0))
            self._spans[episode] = (old, first + stop - 1)
        while len(self._spans) > self._keep:
            oldest = next(iter(self._spans))
            del self._spans[oldest]
            self._last.pop(oldest, None)

    def label(self, episode: int, kind: Kind, outcome: int = 0) -> Label | None:
        """A label about every row of ``episode``; none when nothing of it is remembered. Its stream is still to be named."""
        span = self._spans.get(episode)
        return None if span is None else Label(kind, 0, *span, outcome, episode=episode)

    def amend(self, episode: int, reward: float, window: int) -> Label | None:
        """A label by which the last step of ``episode`` earns ``reward``, in all the rows of ``window`` steps that hold it.

        None when nothing of it is remembered. Of more rows than one label may name these are the last ones.
        """
        rows = self._last.get(episode)
        if not rows:
            return None
        last = max(rows)
        first = max(min(rows), last + 1 - MAX_REWARD_BYTES // (4 * window))
        rewards = np.zeros((last + 1 - first, window), "<f4")  # rows of other lanes between them are not meant
        for seq, known in rows.items():
            if seq >= first:
                rewards[seq - first, : len(known)] = [*known[:-1], reward]
                known[-1] = reward
        return Label(Kind.REWARDS, 0, first, last, rewards=rewards, episode=episode)
