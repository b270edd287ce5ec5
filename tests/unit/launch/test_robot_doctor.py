"""What the doctor says of a robot's computer: each verdict from both sides, and what to do."""

from __future__ import annotations

import numpy as np
import pytest

import headrace
from headrace.actor.envs import make_spec
from headrace.actor.fake_arm import FakeArm
from headrace.actor.teleop import Reading
from headrace.common.clock import ManualClock
from headrace.common.wire.network import NetworkConfig
from headrace.launch import robot_doctor as clinic
from headrace.launch.config import make_config
from headrace.launch.probe import Told

GUARD = {"low": [-1.4], "high": [1.4], "max_delta": [0.15], "max_rate": [2.5]}
ARM = {"id": "headrace.actor.fake_arm:FakeArm", "kwargs": {"size": 8}}
PLACE = clinic.Place("tcp://127.0.0.1:9", "arm-0", look_s=0.1, move_s=0.1)


def config(*words, **sections):
    return make_config({"env": ARM, "actor": {"robot": True}, "robot": {"guard": GUARD}, **sections}, words)


def verdicts(found):
    return {f.what: f.verdict for f in found}


def named(found, what):
    return next(f for f in found if f.what == what)


def told(**changes):
    good = {"about": {"headrace": headrace.__version__}, "round_trips_s": (0.002,) * 9, "offset_s": 0.0, "bytes_s": 1e6}
    return Told(**{**good, **changes})


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({}, ""),
        ({"about": {"headrace": "9.9"}}, "versions"),
        ({"about": {}}, "versions"),
        ({"round_trips_s": (0.2,) * 9}, "round trip"),
        ({"round_trips_s": (0.002,) * 8 + (0.6,)}, "round trip"),
        ({"bytes_s": 1.4e5}, "bandwidth"),
        ({"offset_s": -1.5}, "clocks"),
    ],
)
def test_what_a_probe_has_found_is_judged(changes, what):
    found = list(clinic.judge(told(**changes), 1e5, NetworkConfig()))
    assert [f.what for f in found] == ["versions", "round trip", "bandwidth", "clocks"]
    assert [f.what for f in found if f.verdict != "ok"] == [what] * bool(what)
    assert all(bool(f.advice) == (f.verdict != "ok") for f in found)


@pytest.mark.parametrize(
    ("governors", "verdict"), [([], "ok"), (["performance"] * 2, "ok"), (["performance", "powersave"], "look")]
)
def test_a_governor_that_lets_cores_sleep_is_named(tmp_path, governors, verdict):
    for n, name in enumerate(governors):
        (tmp_path / f"cpu{n}" / "cpufreq").mkdir(parents=True)
        (tmp_path / f"cpu{n}" / "cpufreq" / "scaling_governor").write_text(name + "\n")
    (found,) = clinic._governor(tmp_path)
    assert found.verdict == verdict
    assert ("cpupower" in found.advice) == (verdict == "look")


def test_a_spool_needs_a_place_that_has_room_and_is_tried(tmp_path):
    def look(**actor):
        made = config(actor={"robot": True, **actor})
        return list(clinic._disk(make_spec(made.env, made.window, robot=True), made))

    assert verdicts(look()) == {"spool": "look"}
    assert "end with the process" in look()[0].seen
    assert verdicts(look(spool=str(tmp_path / "new"), spool_bytes=1 << 20))["spool"] == "ok"
    assert "MiB/s of synced" in named(look(spool=str(tmp_path), spool_bytes=1 << 20), "disk").seen
    (full,) = look(spool=str(tmp_path), spool_bytes=1 << 60)
    assert (full.verdict, full.advice) == ("bad", "make room, or ask for less")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("kwargs", "robot", "verdict", "words"),
    [
        ({"camera_hz": 100.0}, {}, "ok", "new pictures a second"),
        ({"freeze": [[0.0, 9.0]]}, {}, "bad", "one picture and no other"),
        ({"camera_hz": 5.0}, {}, "look", "raise the camera's rate"),
        ({"camera_hz": 100.0, "freeze": [[0.1, 0.3]]}, {"frame_age_s": 0.1}, "look", "frame_age_s is 0.1 s"),
    ],
)
def test_cameras_are_watched_in_the_robots_own_periods(kwargs, robot, verdict, words):
    clock = ManualClock(100.0)
    made = config(robot={"rate_hz": 20, "guard": {**GUARD, **robot}})
    arm = FakeArm(size=8, clock=clock, **kwargs)
    arm.connect()
    found = list(clinic._cameras(made, arm, 0.57, clock))
    assert "12 times" in named(found, "observing").seen
    found = named(found, "pictures of camera.front")
    assert found.verdict == verdict
    assert words in str(found)


class Device:
    """Gives what its script says, as ``gives``."""

    def __init__(self, action, *, script, gives="displacement"):
        self.gives, self.script, self.n = gives, script, 0

    def connect(self, robot):
        pass

    def read(self, now, seen):
        self.n += 1
        value = self.script[min(self.n, len(self.script)) - 1]
        return Reading(None if value is None else np.full(6, value), ("ready",) if self.n == 2 else ())

    def close(self):
        pass


@pytest.mark.parametrize(
    ("gives", "script", "verdict"),
    [
        ("displacement", [None, 0.0, 0.1], "ok"),
        ("displacement", [None, 0.0, 0.0], "look"),  # it is held, and reads nothing but zeros
        ("displacement", [None], "look"),
        ("position", [0.5, 0.5, 0.7], "ok"),
        ("position", [0.5, 0.5], "look"),  # it stands where it stood
    ],
)
def test_somebody_moves_the_device_and_sees_whether_it_is_read(gives, script, verdict, capsys):
    kwargs = {"gives": gives, "script": script}
    teleop = {"device": f"{__name__}:Device", "kwargs": kwargs}
    made = config(robot={"guard": GUARD, "teleop": teleop})
    (found,) = clinic._teleop(made, FakeArm(size=8), 0.3, ManualClock())
    assert found.verdict == verdict
    assert "move the" in capsys.readouterr().err


def test_limits_of_another_arm_and_drivers_that_raise_are_bad():
    made = config(robot={"guard": {**GUARD, "low": [-1.0, -1.0]}})
    (found,) = clinic._robot(made, PLACE)
    assert (found.what, found.verdict) == ("guard", "bad")
    assert "robot.guard.low" in found.seen
    made = config(env={**ARM, "kwargs": {"size": 8, "record": "/nowhere/at/all"}})
    assert named(list(clinic._robot(made, PLACE)), "robot").verdict == "bad"


def test_nobody_who_listens_is_told_with_what_to_look_at():
    made = config()
    (found,) = clinic._link(made, make_spec(made.env, made.window, robot=True), "tcp://127.0.0.1:9", "arm-0")
    assert (found.what, found.verdict) == ("network", "bad")
    assert "refused" in found.seen
    (found,) = clinic._link(made, make_spec(made.env, made.window, robot=True), "tcp://127.0.0.1:0", "arm-0")
    assert "--connect" in found.advice
