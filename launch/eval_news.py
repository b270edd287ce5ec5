"""News of an evaluation that takes its time: how far it is, and which episode does not seem to end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from headrace.common.clock import Clock
from headrace.launch.progress import LINE_EVERY_S

LONG_EPISODE = 10_000  # env steps after which an episode without an end is named


class EvalNews:
    """Watches one evaluation, see :func:`headrace.actor.evaluate.evaluate`.

    Args:
        say: takes a line for people.
        clock: paces the lines.
    """

    def __init__(self, say: Callable[[str], None], clock: Clock) -> None:
        self._say, self._clock = say, clock
        self._next = clock.now() + LINE_EVERY_S
        self._hinted = False

    def __call__(self, done: int, lengths: np.ndarray[Any, Any]) -> None:
        """After a step: how many episodes have ended, and ``(n,)`` env steps of each of all n."""
        if not self._hinted and (endless := np.flatnonzero(lengths > LONG_EPISODE)).size:
            self._hinted = True
            self._say(f"episode {endless[0]} has run {LONG_EPISODE:,} steps without an end: set env.max_episode_steps")
        now = self._clock.now()
        if now >= self._next:
            self._next = now + LINE_EVERY_S
            self._say(f"evaluation: {done} of {len(lengths)} episodes, {lengths.sum():,} env steps")
