"""``EnvLoop``: the original's rollouts, over today's lanes: so many steps of every lane as arrays of one declared form."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from headrace.actor.envs import Lanes
from headrace.common.errors import SpecError

Array = np.ndarray[Any, Any]
Trajectories = dict[str, Any]


class EnvLoop:
    """Plays ``rollout_steps`` steps in each of L lanes.

    Args:
        lanes: the environments, one decision a step: the spec's window and stack are 1.
        act: chooses actions ``(L, *action.shape)`` in env units for states, ``(L, *shape)`` or a mapping of such by key.
        rollout_steps: T, steps of each lane in one rollout.

    Raises:
        SpecError: rows of these lanes cover several steps, or stack frames.
    """

    def __init__(self, lanes: Lanes, act: Callable[[Any], Array], rollout_steps: int) -> None:
        spec = lanes.spec
        if spec.window != 1 or spec.stack != 1:
            raise SpecError(f"rollouts are made of single steps: window {spec.window} and stack {spec.stack} must be 1")
        self._lanes, self._act, self._steps = lanes, act, rollout_steps
        self._obs: Any = None

    def reset(self) -> None:
        """Begin the next episode in every lane, each with a seed of its own."""
        self._obs = self._lanes.reset().obs

    def rollout(self) -> Trajectories:
        """Play on from :meth:`reset`; episodes that end are followed by the next ones.

        Returns:
            ``(L, T, ...)`` arrays: ``state``, ``action``, ``reward``, ``next_state`` (the true last observation of the step,
            never a reset one), ``terminated``, ``truncated`` (also where the rollout itself ends), and ``steps``, executed
            env steps: 1, or 0 where the lane executed nothing (its env was being reset, or crashed).
        """
        if self._obs is None:
            raise SpecError("reset() comes before rollout()")
        taken: list[dict[str, Any]] = []
        for _ in range(self._steps):
            action = self._act(self._plain(self._obs))
            step = self._lanes.step(action)
            if taken:  # a crash cuts the episode at its last complete step
                taken[-1]["truncated"] = taken[-1]["truncated"] | step.crashed
            taken.append(
                {
                    "state": self._plain(self._obs),
                    "action": action,
                    "reward": step.rewards,
                    "next_state": self._plain(step.next_obs),
                    "terminated": step.terminated,
                    "truncated": step.truncated,
                    "steps": step.live.astype(np.int64),
                }
            )
            self._obs = step.obs
        taken[-1]["truncated"] = taken[-1]["truncated"] | (taken[-1]["steps"] > 0)
        self._obs = None  # what follows begins with a reset
        return {name: _stack([step[name] for step in taken]) for name in taken[0]}

    def _plain(self, obs: Any) -> Any:
        """Copies, since environments may write into the same arrays again; one array where there is one key."""
        copies = {key: np.array(value) for key, value in obs.items()}
        return next(iter(copies.values())) if len(copies) == 1 else copies


def _stack(steps: list[Any]) -> Any:
    """T times ``(L, ...)`` as ``(L, T, ...)``, key by key."""
    if isinstance(steps[0], dict):
        return {key: _stack([step[key] for step in steps]) for key in steps[0]}
    return np.stack(steps, axis=1)
