"""LeRobot's arms as drivers and its leaders as teleop devices, against a stub of its interfaces."""

import importlib
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from headrace.actor.config import EnvConfig, RobotConfig, TeleopConfig, WindowConfig
from headrace.actor.envs import make_spec
from headrace.actor.guard import Vitals
from headrace.actor.limits import GuardConfig
from headrace.actor.robot import Command, Observation
from headrace.actor.robot_lanes import RobotLanes
from headrace.actor.robots import make_robot
from headrace.actor.teleop import make_teleop
from headrace.common.clock import ManualClock
from headrace.common.errors import ConfigError, EnvError
from headrace.common.specs import ActionSpec, ObsSpec

FAKES = Path(__file__).resolve().parents[2] / "helpers" / "fakes"
ARM, LEADER = "examples.robots.lerobot_arm:LeRobotArm", "examples.robots.lerobot_leader:LeRobotLeader"
LOW, HIGH = [-100.0, -100.0, 0.0], [100.0, 100.0, 100.0]
SO101 = {"type": "so101_follower", "port": "/dev/arm", "id": "white"}
FRONT = {"type": "opencv", "width": 8, "height": 6}
ACTION = ActionSpec((3,), tuple(LOW), tuple(HIGH))
FOREVER = float("inf")


@pytest.fixture(autouse=True)
def lerobot(monkeypatch):
    monkeypatch.syspath_prepend(FAKES)
    yield
    for name in [n for n in sys.modules if n.partition(".")[0] in ("lerobot", "draccus") or n.startswith("examples.robots")]:
        del sys.modules[name]


def arm(robot=None, cameras=None, low=LOW, high=HIGH, **kwargs):
    words = {**SO101, **(robot or {})}
    return make_robot(EnvConfig(ARM, kwargs={"robot": words, "low": low, "high": high, "cameras": cameras or {}, **kwargs}))


def command(values, deadline=FOREVER):
    return Command(np.array(values, np.float32), "policy", 0, 0, deadline)


def test_the_spec_is_that_of_a_lerobot_dataset_and_known_before_anything_is_connected():
    made = arm(cameras={"wrist": {**FRONT, "height": 4}, "front": FRONT})
    assert made.obs == (
        ObsSpec("images.front", (6, 8, 3), "|u1"),
        ObsSpec("images.wrist", (4, 8, 3), "|u1"),
        ObsSpec("state", (3,), "<f4"),
    )
    assert made.action == ACTION
    assert not made._arm.is_connected


def test_what_is_commanded_is_sent_and_what_motors_and_cameras_say_is_observed():
    clock = ManualClock(50.0)
    made = arm(cameras={"front": FRONT}, clock=clock)
    made.connect()
    assert made.act(command([10, -20, 30]))
    assert made._arm.sent == [{"shoulder.pos": 10.0, "elbow.pos": -20.0, "gripper.pos": 30.0}]
    clock.sleep(1.0)
    seen = made.observe()
    assert seen.values["state"].tolist() == [10, -20, 30]
    assert seen.values["images.front"].shape == (6, 8, 3)
    assert 50.0 <= seen.stamps["images.front"] <= 51.0
    assert (made.state().position.tolist(), made.state().fault) == ([10, -20, 30], "")
    made.close()
    made.close()
    assert made._arm.disconnected == 1
    assert not made._eyes["images.front"]._camera.is_connected


def test_a_command_whose_deadline_has_passed_is_not_sent():
    clock = ManualClock(50.0)
    made = arm(clock=clock)
    made.connect()
    assert not made.act(command([1, 2, 3], deadline=49.9))
    assert made._arm.sent == []


def test_stop_sends_where_the_motors_are():
    clock = ManualClock(50.0)
    made = arm(clock=clock)
    made.connect()
    made._arm.joints = {"shoulder.pos": 7.0, "elbow.pos": 8.0, "gripper.pos": 9.0}  # somebody pushed it
    made.stop()
    assert made._arm.sent == [made._arm.joints]


def test_goals_that_lerobot_changed_are_a_fault():
    made = arm()
    made.connect()
    made._arm.most = 5.0
    assert made.act(command([4, 4, 4]))
    assert made.state().fault == ""
    assert made.act(command([4, 6, 4]))
    assert "other goals than it was told: ['elbow.pos']" in made.state().fault


def test_an_observation_waits_for_no_picture():
    made = arm(cameras={"front": {**FRONT, "index_or_path": "held"}})
    made.connect()
    gate = importlib.import_module("lerobot.cameras.opencv").GATE
    before = [made.observe() for _ in range(3)]  # for ever, if it waited: the camera has given one picture, and is held
    assert {int(seen.values["images.front"][0, 0, 0]) for seen in before} == {1}
    assert len({seen.stamps["images.front"] for seen in before}) == 1
    gate.set()
    end = time.monotonic() + 30
    while (seen := made.observe()).values["images.front"][0, 0, 0] == 1 and time.monotonic() < end:
        time.sleep(0.01)
    assert seen.stamps["images.front"] > before[0].stamps["images.front"]
    made.close()


@pytest.mark.parametrize(
    ("camera", "why"),
    [
        ({"index_or_path": "absent"}, "camera front: Failed to open"),
        ({"index_or_path": "wide"}, r"camera front: a picture is \(6, 9, 3\) uint8, expected \(6, 8, 3\)"),
    ],
)
def test_a_camera_that_cannot_be_used_is_named(camera, why):
    with pytest.raises(EnvError, match=why):
        arm(cameras={"front": {**FRONT, **camera}}).connect()


def test_a_camera_that_dies_is_told_by_the_next_observation_and_one_that_is_late_is_waited_for():
    made = arm(cameras={"front": {**FRONT, "index_or_path": "dies"}, "top": {**FRONT, "index_or_path": "stutters"}})
    made.connect()
    end = time.monotonic() + 10
    with pytest.raises(EnvError, match="camera front: camera is gone"):
        while time.monotonic() < end:
            made.observe()
    assert made._eyes["images.top"].newest()[0].shape == (6, 8, 3)
    made.close()


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"robot": {"type": "so999"}}, "no type 'so999'; there are so101_follower"),
        ({"robot": {"prot": "x"}}, "prot"),
        (
            {"robot": {"max_relative_target": 5.0}},
            "env.kwargs.robot.max_relative_target: 5.0; leave it out",
        ),
        ({"robot": {"cameras": {"front": FRONT}}}, "leave it out, and set env.kwargs.cameras"),
        ({"low": [0.0]}, "1 low and 3 high, but 3 motors"),
        ({"cameras": {"front": {**FRONT, "type": "film"}}}, "no type 'film'; there are opencv"),
    ],
)
def test_a_config_that_does_not_fit_is_refused_by_name(changes, why):
    with pytest.raises(ConfigError, match=why):
        arm(**changes)


@pytest.mark.parametrize(
    ("robot", "why"), [({"port": "COM1"}, r"'COM1'\. Try another one\.; is it on"), ({"id": None}, "lerobot-calibrate")]
)
def test_an_arm_that_cannot_be_reached_or_is_not_calibrated_says_what_to_do(robot, why):
    with pytest.raises(EnvError, match=why):
        arm(robot).connect()


def test_without_lerobot_its_name_is_the_error(monkeypatch):
    monkeypatch.setitem(sys.modules, "draccus", None)
    with pytest.raises(ConfigError, match="pip install lerobot"):
        arm()


def leader(**kwargs):
    config = TeleopConfig(LEADER, {"teleop": {"type": "so101_leader", "port": "/dev/leader", "id": "black"}, **kwargs})
    return make_teleop(config, ACTION, "position")


def test_whoever_moves_the_leader_drives_until_it_rests():
    made, seen = leader(moved=2.0, rest_s=1.0), Observation({})
    made.connect(None)
    assert made.read(0.0, seen).action is None
    made._leader.joints = [1.0, -1.0, 1.0]  # a shake
    assert made.read(0.1, seen).action is None
    made._leader.joints = [3.0, -1.0, 1.0]
    assert made.read(0.2, seen).action.tolist() == [3, -1, 1]
    made._leader.joints = [4.0, -1.0, 1.0]  # held, and hardly moved
    assert made.read(1.1, seen).action.tolist() == [4, -1, 1]
    assert made.read(1.3, seen).action is None
    made.close()
    made.close()
    assert not made._leader.is_connected


def test_a_leader_of_another_arm_or_without_calibration_is_refused():
    words = {"type": "so101_leader", "port": "/dev/leader"}
    with pytest.raises(ConfigError, match="gives 3 numbers, and the robot takes 2"):
        make_teleop(TeleopConfig(LEADER, {"teleop": words}), ActionSpec((2,), (-1.0,) * 2, (1.0,) * 2), "position")
    with pytest.raises(EnvError, match="lerobot-calibrate"):
        make_teleop(TeleopConfig(LEADER, {"teleop": words}), ACTION, "position").connect(None)


def test_an_arm_is_driven_behind_the_guard_in_a_process_of_its_own(tmp_path):
    log = tmp_path / "goals.log"
    env = EnvConfig(
        ARM,
        kwargs={"robot": {**SO101, "port": str(log)}, "low": LOW, "high": HIGH, "cameras": {"front": FRONT}},
        max_episode_steps=10,
    )
    guard = GuardConfig(low=(-50.0, -50.0, 0.0), high=(50.0,), max_delta=(5.0,), max_rate=(1000.0,), late=1000, hold_s=60.0)
    config = RobotConfig(rate_hz=50.0, operator="headrace.actor.operator:Willing", guard=guard)
    spec = make_spec(env, WindowConfig(), robot=True)
    lanes = RobotLanes(
        env, config, spec, (0, "arm", 1), lambda: Vitals(time.monotonic(), 0.0), lambda report: None, threading.Event()
    )
    asked, reached, end = np.array([[90.0, -20.0, 10.0]], np.float32), [], time.monotonic() + 60
    try:
        lanes.reset()
        while reached != [50, -20, 10] and time.monotonic() < end:  # the box ends at 50
            step = lanes.step(asked)
            reached = step.next_obs["state"][0].tolist()
    finally:
        lanes.close()
    assert reached == [50, -20, 10]
    goals = np.array([line.split() for line in log.read_text().splitlines()], float)
    assert np.abs(np.diff(goals, axis=0)).max() <= 5 + 1e-4
    assert len(goals) >= 10
    assert step.next_obs["images.front"].max() > 0


def test_all_types_are_registered_though_some_cannot_be_imported():
    arm()
    assert "so101_follower" in importlib.import_module("lerobot.robots").RobotConfig.get_known_choices()
    assert "lerobot.robots.needs_more" not in sys.modules
