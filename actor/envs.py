"""Lanes: the parallel episodes of one actor as the loop sees them, without naming any environment library.

A loop over lanes needs one rule a lane and step, whatever the autoreset mode:

1. ``crashed`` -> ``assembler.abort()``; else ``live`` -> ``assembler.step(...)``; else nothing was executed;
2. ``episode`` changed -> ``assembler.begin(episode, obs)``, since ``obs`` is then the first observation of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

from headrace.actor.config import EnvConfig, WindowConfig
from headrace.common.specs import TransitionSpec

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class LaneObs:
    """The first observations of L new episodes.

    Attributes:
        obs: key -> ``(L, *shape)``, one frame a lane (see :class:`headrace.actor.stacking.FrameStack`).
        episode: ``(L,)`` int64, which episode each observation belongs to.
        task: ``(L,)`` int64, the task of each of these episodes, from info ``task`` of its reset; none where there is one task.
    """

    obs: Mapping[str, Array]
    episode: Array
    task: Array | None = None


@dataclass(frozen=True)
class LaneStep:
    """One step of all L lanes. The arrays are never written again by the lanes.

    Attributes:
        live: ``(L,)`` bool, False where no action was executed: the call only reset the lane, or it crashed.
        rewards: ``(L,)`` float32, raw; not checked to be finite (the pool refuses what is not).
        terminated: ``(L,)`` bool.
        truncated: ``(L,)`` bool.
        next_obs: key -> ``(L, *shape)``, the true last observation of the step, never a reset one.
        crashed: ``(L,)`` bool, the environment raised or its process died; ``next_obs`` means nothing there.
        obs: key -> ``(L, *shape)``, what the policy acts on next.
        episode: ``(L,)`` int64, the episode of ``obs``; it changes exactly where ``obs`` is a first observation.
        success: ``(L,)`` uint8 ``OUTCOME_*``, known at an episode's end from info ``success`` or ``is_success``.
        task: ``(L,)`` int64, the task of the episode of ``obs``, as of :class:`LaneObs`.
        executed: ``(L, A)`` float32, what was executed in place of what was asked for; none where that is the same.
        health: ``(L,)`` uint8 bits ``HEALTH_*``; none where nobody watches.
        action_age: ``(L,)`` float32, seconds from an action's observation to its execution; none where nobody measures it.
        source: ``(L,)`` uint8 ``SOURCE_*``, who acted; none where nobody but the policy did.
    """

    live: Array
    rewards: Array
    terminated: Array
    truncated: Array
    next_obs: Mapping[str, Array]
    crashed: Array
    obs: Mapping[str, Array]
    episode: Array
    success: Array
    task: Array | None = None
    executed: Array | None = None
    health: Array | None = None
    action_age: Array | None = None
    source: Array | None = None


class Lanes(Protocol):
    """L parallel episodes. Episode k of lane l has the number ``k * L + l``."""

    spec: TransitionSpec
    count: int
    restarts: int
    """How many times an environment (or, with async lanes, all of them) was made anew after a crash."""

    def reset(self) -> LaneObs:
        """Begin the next episode in every lane."""
        ...

    def step(self, actions: Array) -> LaneStep:
        """Execute ``actions`` of one env step, ``(L, A)`` float32 in env units.

        Raises:
            EnvError: a lane crashed more often in a row than ``env.max_restarts``.
        """
        ...

    def close(self) -> None:
        """Close the environments; safe to call twice."""
        ...

    def get_state(self) -> dict[str, Any]:
        """Which episode each lane begins at its next :meth:`reset`; enough to resume at an episode boundary."""
        ...

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Continue from :meth:`get_state`; call :meth:`reset` next."""
        ...

    def check_valid(self) -> tuple[bool, str]:
        """Whether the invariants hold, and which does not."""
        ...


@runtime_checkable
class HoldingLanes(Lanes, Protocol):
    """Lanes in real time, which go on also where nobody has decided what to do."""

    @property
    def running(self) -> bool:
        """Whether an episode runs, so that an action is wanted."""
        ...

    def hold(self) -> LaneStep:
        """A step without an action: what it executes is up to the lanes."""
        ...


def make_lanes(env: EnvConfig, window: WindowConfig, *, run_seed: int, actor: str, epoch: int) -> Lanes:
    """Make the lanes of one actor process.

    Every episode e resets with ``derive_seed(run_seed, actor, epoch, e)``, autoresets included. A factory that
    returns a ``VectorEnv`` resets itself, so there only explicit resets are seeded. An environment with a method
    ``on_episode(lane, episode)`` is told before each reset which episode it begins (curricula, logs).

    An environment that raises loses one episode of its lane and is made anew; a process of an async lane that dies,
    or takes longer than ``env.step_timeout_s``, costs one episode of every lane. A sync lane that never returns
    from a step cannot be interrupted.

    Raises:
        EnvError: the environment is unknown, cannot be made, or has spaces that are not supported.
    """
    from headrace.actor.gym_lanes import GymLanes
    from headrace.actor.rewarding import rewarded

    return rewarded(GymLanes(env, window, (run_seed, actor, epoch)), env)


def check_env(env: EnvConfig) -> None:
    """Refuse what the names in ``env`` alone tell, without making anything.

    Raises:
        EnvError: the environment is unknown, or a module or wrapper is not there.
    """
    from headrace.actor import gym_make

    gym_make.check_env(env)


def make_spec(env: EnvConfig, window: WindowConfig, *, robot: bool = False) -> TransitionSpec:
    """The spec of rows and frames that this environment, or ``robot``, gives; makes it once and closes it.

    Raises:
        EnvError: as :func:`make_lanes`.
    """
    if robot:
        from headrace.actor.robots import robot_spec

        return robot_spec(env, window)
    from headrace.actor.gym_make import probe_spec

    return probe_spec(env, window)
