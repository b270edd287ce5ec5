"""Take-over: whose hands a robot is in. No way leads from one to another but over a hold.

in whose hands   the human                        next            what leaves
the policy's     does not hold the robot          the policy's    what the policy wants
                 takes hold of it                 taking over     a hold
taking over      holds it, device and robot agree the human's     what the human wants
                 holds it, they do not agree      taking over     a hold; a stop after ``agree_s``
                 lets go                          giving back     a hold
the human's      holds it                         the human's     what the human wants
                 lets go                          giving back     a hold
giving back      does not hold it                 the policy's    what the policy wants, decided since then
                 takes hold of it                 taking over     a hold

A device that gives displacements always agrees. One that gives positions does so where each of them is within
``agree_within`` of the last command, so that the robot never runs after it. Behind this the guard limits each change, whoever
wants it.
"""

from __future__ import annotations

import enum
from typing import Any

import numpy as np

from headrace.actor.config import TeleopConfig

Array = np.ndarray[Any, Any]


class Hands(str, enum.Enum):
    """In whose hands a robot is, in the words that people see."""

    POLICY = "the policy's"
    TAKING = "taking over"
    HUMAN = "the human's"
    GIVING = "giving back"


class TakeOver:
    """Decides period by period. Takes the time, and never waits.

    Attributes:
        hands: in whose hands the robot is in this period.
        refused: why it stops; empty while it need not.

    Args:
        config: of the gate.
        gives: what the device gives, see :class:`headrace.actor.teleop.Teleop`.
    """

    def __init__(self, config: TeleopConfig, gives: str) -> None:
        self._config, self._absolute = config, gives == "position"
        self._since = 0.0
        self.hands, self.refused = Hands.POLICY, ""

    def reset(self) -> None:
        """No episode runs: whoever holds the device takes over anew."""
        self.hands, self.refused = Hands.POLICY, ""

    def decide(self, now: float, action: Any, last: Array) -> Hands:
        """In whose hands the robot is in the period that begins ``now`` (s).

        Args:
            now: it never goes back.
            action: what the device gives; none where the human does not hold the robot.
            last: ``(A,)``, the last command that the robot took.
        """
        before, self.refused = self.hands, ""
        if action is None:
            letting_go = before in (Hands.TAKING, Hands.HUMAN)
            self.hands = Hands.GIVING if letting_go else Hands.POLICY
        elif before in (Hands.POLICY, Hands.GIVING):
            self.hands, self._since = Hands.TAKING, now
        elif before is Hands.TAKING and self._agrees(action, last):
            self.hands = Hands.HUMAN
        elif before is Hands.TAKING and now - self._since > self._config.agree_s:
            self.refused = f"device and robot did not agree in {self._config.agree_s:g} s"
        return self.hands

    def wanted(self, action: Any, last: Array) -> Any:
        """The command for what a human's device gives, where commands are positions; what is no number is left to the guard."""
        if self._absolute:
            return action
        return last + np.asarray(action) if np.shape(action) == last.shape else action

    def _agrees(self, action: Any, last: Array) -> bool:
        if not self._absolute:
            return True
        return np.shape(action) == last.shape and bool((np.abs(np.asarray(action) - last) <= self._config.agree_within).all())
