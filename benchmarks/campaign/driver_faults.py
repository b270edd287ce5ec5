"""Planted faults of the drivers in examples/robots: arms of LeRobot and of ROS 2, and a leader arm."""

from __future__ import annotations

from campaign.planting import Mutant

ARM, LEADER, ROS = (f"examples/robots/{name}.py" for name in ("lerobot_arm", "lerobot_leader", "ros_arm"))
LEROBOT_TEST, ROS_TEST = ("tests/unit/examples/test_lerobot.py",), ("tests/unit/examples/test_ros.py",)

DRIVERS = (
    Mutant("lerobot-carries-out-late-commands", ARM, "if self._clock.now() > command.deadline:", "if False:", LEROBOT_TEST),
    Mutant("lerobot-sends-other-goals-unseen", ARM, "> SAME]:", "> 1e9]:", LEROBOT_TEST),
    Mutant(
        "lerobot-stops-at-zero",
        ARM,
        "{name: seen[name] for name in self._goals}",
        "dict.fromkeys(self._goals, 0.0)",
        LEROBOT_TEST,
    ),
    Mutant("lerobot-has-limits-of-its-own", ARM, '("cameras", "max_relative_target")', '("cameras",)', LEROBOT_TEST),
    Mutant("lerobot-calibrates-at-connect", ARM, "connect(calibrate=False)", "connect()", LEROBOT_TEST),
    Mutant("lerobot-moves-uncalibrated", ARM, "if not arm.is_calibrated:", "if False:", LEROBOT_TEST),
    Mutant("a-dead-camera-shows-its-last-picture", ARM, "if self._problem is not None or", "if", LEROBOT_TEST),
    Mutant("a-late-picture-ends-the-camera", ARM, "except TimeoutError:", "except ZeroDivisionError:", LEROBOT_TEST),
    Mutant("pictures-of-any-shape", ARM, "if picture.shape != self.shape or", "if", LEROBOT_TEST),
    Mutant("an-old-reading-is-the-newest", ARM, "FRESH_S = 0.005", "FRESH_S = 1e9", LEROBOT_TEST),
    Mutant(
        "types-that-need-more-are-fatal", ARM, "contextlib.suppress(ImportError)", "contextlib.suppress(OSError)", LEROBOT_TEST
    ),
    Mutant("a-leader-at-rest-drives", LEADER, "< self._rest_s", "< 1e9", LEROBOT_TEST),
    Mutant("a-shaken-leader-drives", LEADER, "> self._moved:", "> 0:", LEROBOT_TEST),
    Mutant("ros-carries-out-late-commands", ROS, "if self._clock.now() > command.deadline:", "if False:", ROS_TEST),
    Mutant("ros-takes-joints-as-they-come", ROS, "order = [places[name] for name in self._joints]", "order = [0, 1]", ROS_TEST),
    Mutant("ros-does-not-hear-silence", ROS, "if silent_s > self._stale_s", "if False", ROS_TEST),
    Mutant("ros-mixes-colours", ROS, '"bgr8": (2, 1, 0)', '"bgr8": (0, 1, 2)', ROS_TEST),
    Mutant("ros-shows-padding", ROS, "[:, : 3 * width]", "[:, -3 * width :]", ROS_TEST),
    Mutant("ros-stops-at-zero", ROS, "[float(x) for x in self._position()]", "[0.0] * len(self._joints)", ROS_TEST),
    Mutant("ros-node-stays", ROS, "self._node.destroy_node()", "pass", ROS_TEST),
)
