"""Frame stacking: the last h observations of each lane, as the policy's input."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from headrace.common.specs import TransitionSpec

Array = np.ndarray[Any, Any]


class FrameStack:
    """Turns each step's observations into what a policy takes.

    With ``spec.stack`` 1 the observations pass through. Else the result is key -> ``(L, h, *shape)``, oldest
    first, padded at an episode's start by repeating its first frame, exactly as rows refer to frames.
    """

    def __init__(self, spec: TransitionSpec, lanes: int) -> None:
        self._stack = spec.stack
        self._frames = {o.key: np.zeros((lanes, spec.stack, *o.shape), o.dtype) for o in spec.obs}
        self._episode = np.full(lanes, -1, np.int64)

    def push(self, obs: Mapping[str, Array], episode: Array) -> Mapping[str, Array]:
        """Add one frame a lane; the result stays valid until the next call.

        Args:
            obs: key -> ``(L, *shape)``.
            episode: ``(L,)``, the episode of each frame; a new number starts a new stack.
        """
        if self._stack == 1:
            return obs
        first = episode != self._episode
        self._episode = np.array(episode)
        for key, frames in self._frames.items():
            frames[:, :-1] = frames[:, 1:].copy()
            frames[:, -1] = obs[key]
            frames[first] = obs[key][first][:, None]
        return self._frames
