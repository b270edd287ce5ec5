"""An arm of ROS 2 as a driver, against a stub of rclpy."""

import importlib
import sys
from pathlib import Path

import numpy as np
import pytest

from headrace.actor.config import EnvConfig
from headrace.actor.robot import Command
from headrace.actor.robots import make_robot
from headrace.common.clock import ManualClock
from headrace.common.errors import ConfigError, EnvError
from headrace.common.specs import ActionSpec, ObsSpec

FAKES = Path(__file__).resolve().parents[2] / "helpers" / "fakes"
ARM = "examples.robots.ros_arm:RosArm"
CAMERA = {"topic": "/front/image", "height": 2, "width": 3}
OURS = ("rclpy", "sensor_msgs", "std_msgs")


@pytest.fixture(autouse=True)
def ros(monkeypatch):
    monkeypatch.syspath_prepend(FAKES)
    yield
    for name in [n for n in sys.modules if n.partition(".")[0] in OURS or n.startswith("examples.robots")]:
        del sys.modules[name]


class Driven:
    """A driver and the topics that it hears."""

    def __init__(self, *, joints=("a", "b"), preset=True, **kwargs):
        self.messages = importlib.import_module("sensor_msgs.msg")
        self.clock = ManualClock(100.0)
        kwargs = {"joints": list(joints), "low": [-1.0] * 2, "high": [1.0] * 2, "cameras": {"front": CAMERA}, **kwargs}
        self.arm = make_robot(EnvConfig(ARM, kwargs={**kwargs, "clock": self.clock}))
        executors = importlib.import_module("rclpy.executors")
        executors.PRESET = [("/joint_states", self.joints()), ("/front/image", self.image())] if preset else []

    def __enter__(self):
        self.arm.connect()
        self.node = importlib.import_module("rclpy.context").made[-1].node
        return self

    def __exit__(self, *_):
        self.arm.close()
        self.arm.close()

    def joints(self, **changes):
        state = {"name": ["b", "other", "a"], "position": [2.0, 9.0, 1.0], "velocity": [20.0, 90.0, 10.0], **changes}
        return self.messages.JointState(**state)

    def image(self, encoding="rgb8", height=2, step=12):
        pixels = np.arange(height * step, dtype=np.uint8)
        return self.messages.Image(height, 3, encoding, step, pixels.tobytes())

    def hears(self, topic, message):
        self.node.incoming.put((topic, message))
        self.node.incoming.join()
        return self


def command(values, deadline=float("inf")):
    return Command(np.array(values, np.float32), "policy", 0, 0, deadline)


def test_the_spec_is_known_before_ros_is():
    made = Driven().arm
    assert made.obs == (ObsSpec("images.front", (2, 3, 3), "|u1"), ObsSpec("state", (4,), "<f4"))
    assert made.action == ActionSpec((2,), (-1.0, -1.0), (1.0, 1.0))


def test_joints_come_in_the_order_of_the_config_and_pictures_without_what_pads_their_rows():
    with Driven() as driven:
        seen = driven.arm.observe()
        assert seen.values["state"].tolist() == [1, 2, 10, 20]
        assert seen.values["images.front"][:, 0].tolist() == [[0, 1, 2], [12, 13, 14]]
        assert seen.stamps == {"state": 100.0, "images.front": 100.0}
        driven.clock.sleep(1.0)
        driven.hears("/front/image", driven.image("bgr8"))
        seen = driven.arm.observe()
        assert seen.values["images.front"][0].tolist() == [[2, 1, 0], [5, 4, 3], [8, 7, 6]]
        assert seen.stamps == {"state": 100.0, "images.front": 101.0}


def test_goals_are_published_unless_they_are_late_and_a_stop_publishes_where_the_joints_are():
    with Driven() as driven:
        assert driven.node.publishes == "/forward_position_controller/commands"
        assert driven.arm.act(command([0.5, -0.5]))
        assert not driven.arm.act(command([0.6, 0.6], deadline=99.0))
        driven.hears("/joint_states", driven.joints(position=[4.0, 9.0, 3.0]))
        driven.arm.stop()
        assert driven.node.published == [[0.5, -0.5], [3, 4]]


def test_silence_and_missing_joints_are_faults_and_other_joints_are_nobodys():
    with Driven() as driven:
        driven.hears("/joint_states", driven.joints(name=["x", "y", "z"]))
        assert (driven.arm.state().position.tolist(), driven.arm.state().fault) == ([1, 2], "")
        driven.clock.sleep(0.3)
        assert driven.arm.state().fault == "/joint_states: silent for 0.30 s"
        driven.hears("/joint_states", driven.joints(name=["a", "y", "z"]))
        driven.hears("/joint_states", driven.joints(velocity=[]))
        assert driven.arm.state().fault == "/joint_states: no ['b'] among ['a', 'y', 'z']"
        assert driven.arm.observe().values["state"].tolist() == [1, 2, 0, 0]


@pytest.mark.parametrize("changes", [{"encoding": "mono8"}, {"height": 4}])
def test_a_picture_of_another_form_is_a_fault(changes):
    with Driven() as driven:
        driven.hears("/front/image", driven.image(**changes))
        assert "expected 2 x 3 and rgb8 or bgr8" in driven.arm.state().fault
        assert driven.arm.observe().values["images.front"][0, 0].tolist() == [0, 1, 2]


def test_topics_that_nobody_publishes_are_named_and_nothing_is_left():
    driven = Driven(preset=False)
    with pytest.raises(EnvError, match=r"nothing came within 10 s by /front/image, /joint_states"):
        driven.arm.connect()
    node = importlib.import_module("rclpy.context").made[-1].node
    driven.arm.close()
    assert node.destroyed
    assert not node.context.running


def test_without_ros_the_error_says_what_to_source(monkeypatch):
    driven = Driven()
    monkeypatch.setitem(sys.modules, "rclpy", None)
    with pytest.raises(EnvError, match=r"source its setup\.bash"):
        driven.arm.connect()
    driven.arm.close()


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"low": [0.0]}, "1 low and 2 high, but 2 joints"),
        ({"cameras": {"front": {"topic": "/x"}}}, r"env\.kwargs\.cameras\.front: \['topic'\], expected topic, height, width"),
    ],
)
def test_a_config_that_does_not_fit_is_refused_by_name(changes, why):
    with pytest.raises(ConfigError, match=why):
        Driven(**changes)
