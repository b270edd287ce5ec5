"""Where the rows of the newest episodes are in their stream, so that something can be said about an episode later."""

from __future__ import annotations

from typing import Any

import numpy as np

from headrace.common.label import MAX_REWARD_BYTES, Kind, Label

Array = np.ndarray[Any, Any]


class Episodes:
    """First and last seq of each episode of one actor's stream.

    Args:
        keep: episodes that are remembered, those whose rows went out last.
    """

    def __init__(self, keep: int = 256) -> None:
        self._keep = keep
        self._spans: dict[int, tuple[int, int]] = {}

    def sent(self, rows: Array, first: int) -> None:
        """Note rows ``(n,)`` that go out under the seqs from ``first`` on."""
        episodes = rows["episode"]
        starts = np.flatnonzero(np.diff(episodes, prepend=~episodes[:1]))
        for start, stop in zip(starts.tolist(), [*starts[1:].tolist(), len(rows)], strict=True):
            episode = int(episodes[start])
            old, _ = self._spans.pop(episode, (first + start, 0))
            self._spans[episode] = (old, first + stop - 1)
        while len(self._spans) > self._keep:
            del self._spans[next(iter(self._spans))]

    def label(self, episode: int, kind: Kind, outcome: int = 0) -> Label | None:
        """A label about every row of ``episode``; none when nothing of it is remembered. Its stream is still to be named."""
        span = self._spans.get(episode)
        return None if span is None else Label(kind, 0, *span, outcome, episode=episode)

    def take_back(self, episode: int, window: int) -> Label | None:
        """A label by which rows of ``episode``, of ``window`` steps each, earn nothing: the last ones that may be named."""
        span = self._spans.get(episode)
        if span is None:
            return None
        first = max(span[0], span[1] + 1 - MAX_REWARD_BYTES // (4 * window))
        rewards = np.zeros((span[1] + 1 - first, window), "<f4")
        return Label(Kind.REWARDS, 0, first, span[1], rewards=rewards, episode=episode)
