"""The driver seam: what a robot must be able to do so that an actor can drive it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from headrace.common.specs import OUTCOME_UNKNOWN, ActionSpec, ObsSpec

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Observation:
    """What the robot sees now, and how the task stands.

    Attributes:
        values: key -> ``(*shape)`` in the dtypes that :attr:`Robot.obs` declares; not written again by the robot.
        stamps: key -> when that frame was taken, in seconds of the monotonic clock; keys without a stamp are as old as
            their last change.
        reward: of the step that led here.
        terminated: the task has ended here.
        truncated: the episode has ended here, and the task has not.
        outcome: ``OUTCOME_*``, known at the end.
        executed: ``(A,)``, what a human had the robot do in place of the command that led here; none where nobody did.
        judged: whether a success classifier holds success here; none where none looked. A driver leaves it so.
    """

    values: Mapping[str, Array]
    stamps: Mapping[str, float] = field(default_factory=dict)
    reward: float = 0.0
    terminated: bool = False
    truncated: bool = False
    outcome: int = OUTCOME_UNKNOWN
    executed: Array | None = None
    judged: bool | None = None


@dataclass(frozen=True)
class RobotState:
    """What the robot says of itself.

    Attributes:
        position: ``(A,)``, where the robot is, in the units of its commands; none where commands are no positions.
        fault: what is wrong with it, in words; empty when nothing is.
    """

    position: Array | None = None
    fault: str = ""


@dataclass(frozen=True)
class Command:
    """One command on its way to the robot.

    Attributes:
        action: ``(A,)`` float32 in env units; it has passed the guard.
        kind: ``policy``, ``human``, ``hold`` or ``home``.
        episode: the episode that it belongs to; -1 between two.
        tick: control period of that episode.
        deadline: monotonic time (s) after which it must not be carried out any more; infinity for a hold.
    """

    action: Array
    kind: str
    episode: int
    tick: int
    deadline: float


class Robot(Protocol):
    """A robot, or an environment that stands for one. One thread calls it; nothing but ``reset`` may take long.

    There is no way to clear a fault on purpose: people do that at the robot.

    Attributes:
        obs: what it observes, sorted by key; known before :meth:`connect`.
        action: its commands, in env units; known before :meth:`connect`.
    """

    obs: tuple[ObsSpec, ...]
    action: ActionSpec

    def connect(self) -> None:
        """Reach the hardware; nothing moves.

        Raises:
            EnvError: it cannot be reached, and what to do.
        """
        ...

    def reset(self, episode: int, seed: int) -> None:
        """Make the scene ready for an episode; the robot may move by itself, within limits of its own, and take its time."""
        ...

    def observe(self) -> Observation:
        """What it sees now."""
        ...

    def act(self, command: Command) -> bool:
        """Begin to carry a command out; False when its deadline has passed, and nothing was done."""
        ...

    def stop(self) -> None:
        """Come to rest and take no more motion until the next :meth:`act`; may be called at any time, also twice."""
        ...

    def state(self) -> RobotState:
        """What it says of itself, read afresh."""
        ...

    def close(self) -> None:
        """Let go of the hardware; safe to call twice."""
        ...
