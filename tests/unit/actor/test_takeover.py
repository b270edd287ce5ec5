"""In whose hands a robot is, by the table of takeover.py: never from one to the other but over a hold."""

import numpy as np
import pytest

from headrace.actor.config import TeleopConfig
from headrace.actor.takeover import Hands, TakeOver

LAST = np.array([0.5, -0.5], np.float32)
P, T, H, G = Hands.POLICY, Hands.TAKING, Hands.HUMAN, Hands.GIVING
NEAR, FAR = [0.54, -0.46], [0.5, -0.4]


def hands(gate, *actions, period=0.1, start=0.0):
    return [gate.decide(start + i * period, action, LAST) for i, action in enumerate(actions)]


@pytest.mark.parametrize(
    ("gives", "actions", "expected"),
    [
        ("displacement", [None, None], [P, P]),
        ("displacement", [[9, 9], [9, 9], [9, 9]], [T, H, H]),
        ("displacement", [[0, 0], [0, 0], None, None], [T, H, G, P]),
        ("displacement", [[0, 0], None, None], [T, G, P]),
        ("displacement", [[0, 0], [0, 0], None, [0, 0], [0, 0]], [T, H, G, T, H]),
        ("position", [NEAR, NEAR, FAR], [T, H, H]),  # agreement is for taking over alone
        ("position", [FAR, FAR, NEAR, NEAR], [T, T, H, H]),
        ("position", [FAR, FAR, None, None], [T, T, G, P]),
        ("position", [[0.5], [np.nan, np.nan], NEAR], [T, T, H]),  # what is no place agrees with nothing
    ],
)
def test_the_table(gives, actions, expected):
    gate = TakeOver(TeleopConfig(agree_within=0.05), gives)
    assert hands(gate, *actions) == expected
    assert not gate.refused


def test_a_device_that_never_agrees_stops_the_robot_in_the_end():
    gate = TakeOver(TeleopConfig(agree_s=1.0), "position")
    assert set(hands(gate, *[FAR] * 11)) == {T}
    assert not gate.refused
    gate.decide(1.2, FAR, LAST)
    assert gate.refused == "device and robot did not agree in 1 s"
    gate.reset()
    assert (gate.hands, gate.refused) == (P, "")
    gate.decide(1.3, FAR, LAST)
    assert not gate.refused  # its time begins anew


def test_what_a_device_gives_as_a_command():
    moved = TakeOver(TeleopConfig(), "displacement")
    np.testing.assert_allclose(moved.wanted([0.1, 0.2], LAST), [0.6, -0.3], rtol=1e-6)
    assert moved.wanted("nonsense", LAST) == "nonsense"  # the guard holds for it, and counts it
    assert TakeOver(TeleopConfig(), "position").wanted(NEAR, LAST) is NEAR
