"""What a dry run changes of a robot's config, and what it says of a robot that has none of its own."""

import numpy as np
import pytest

from headrace.actor.config import WindowConfig
from headrace.actor.fake_human import FakeHuman
from headrace.actor.robots import make_robot, robot_spec
from headrace.actor.teleop import make_teleop
from headrace.common.errors import ConfigError
from headrace.launch.chaos.dry_config import FAKE, STAND_IN, dry_config
from headrace.launch.chaos.dry_run import Seen, summarise, table
from headrace.launch.chaos.robot_log import RobotLog
from headrace.launch.config import make_config

GUARD = {"low": [-1.0], "high": [1.0], "max_delta": [0.1], "max_rate": [2.0]}
ENDPOINT = "tcp://127.0.0.1:5555"


def config(env, **changes):
    base = {"env": env, "actor": {"robot": True}, "robot": {"guard": GUARD, "rate_hz": 50.0}, "eval": {"every": 0}}
    return make_config({**base, **changes})


def dry(given, tmp_path):
    return dry_config(given, tmp_path / "record", ENDPOINT, (3.0, 4.0))


def test_a_fake_arm_keeps_its_options_and_a_driver_gets_a_stand_in_of_its_spec(tmp_path):
    fake = dry(config({"id": FAKE, "kwargs": {"size": 8, "joints": 3}}), tmp_path)
    assert (fake.env.id, fake.env.kwargs["size"], fake.env.kwargs["freeze"]) == (FAKE, 8, [[3.0, 4.0]])
    given = config({"id": "helpers.robots:make", "kwargs": {"dims": 2}, "roles": {"stamp": "critic"}}, window={"chunk": 4})
    other = dry(given, tmp_path)
    assert other.env.id == STAND_IN
    assert robot_spec(other.env, other.window) == robot_spec(given.env, given.window)
    arm = make_robot(other.env)
    arm.connect()
    assert arm.observe().values["stamp"].dtype == np.float32
    arm.close()


def test_what_a_dry_run_needs_is_small_and_here_and_all_else_stays(tmp_path):
    given = config({"id": FAKE}, pool={"capacity": 10**6}, run={"pool_dir": "/dev/shm"}, pacing={"min_fill": 5000})
    changed = dry(given, tmp_path)
    assert (changed.network.endpoint, changed.run.pool_dir, changed.pacing.env_steps) == (ENDPOINT, "", 0)
    assert changed.pool.capacity == 20_000
    assert changed.pacing.min_fill == max(200, given.learner.batch_size)
    assert (changed.robot.rate_hz, changed.robot.guard, changed.model) == (50.0, given.robot.guard, given.model)
    assert changed.robot.operator.endswith("Willing")


def test_nobody_needs_a_terminal_or_a_gamepad_for_it(tmp_path):
    assert dry(config({"id": FAKE}), tmp_path).robot.teleop.device == "none"
    teleop = {"device": "keyboard", "kwargs": {"step": 0.1}, "agree_s": 7.0}
    changed = dry(config({"id": FAKE}, robot={"guard": GUARD, "teleop": teleop}), tmp_path).robot.teleop
    assert (changed.agree_s, set(changed.kwargs)) == (7.0, {"chance"})
    human = make_teleop(changed, make_robot(config({"id": FAKE}).env).action, "position")
    assert isinstance(human, FakeHuman)


def test_configs_without_a_robot_or_with_limits_that_do_not_fit_are_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"actor\.robot: false"):
        dry(make_config({"env": {"id": FAKE}}), tmp_path)
    with pytest.raises(ConfigError, match=r"robot\.guard\.low, robot\.guard\.high: not given, with actor\.robot true"):
        config({"id": FAKE}, robot={"guard": {"max_delta": [0.1], "max_rate": [2.0]}})
    with pytest.raises(ConfigError, match=r"robot\.guard\.low: 2 numbers for a robot of 6 dimensions"):
        dry(config({"id": FAKE}, robot={"guard": {**GUARD, "low": [-1.0, -1.0]}}), tmp_path)


def line(at, kind="policy", deadline=9.0, episode=0):
    return {"what": "act", "at": at, "kind": kind, "episode": episode, "tick": 0, "deadline": deadline, "done": True}


GOOD = [{"what": "reset", "at": 0.0, "episode": 0}, line(1.0), line(1.02), line(1.04, "hold", None)]


@pytest.mark.parametrize(
    ("lines", "rows", "figure", "value"),
    [
        (GOOD, [1, 2, 3], "passed", True),
        ([*GOOD, line(9.5)], [1, 2, 3], "stale_commands", 1),
        ([*GOOD, line(1.5, episode=1)], [1, 2, 3], "crossed_resets", 1),
        (GOOD, [1, 3], "lost", 1),
        (GOOD, [1, 2, 2, 3], "duplicated", 1),
        ([*GOOD[:3], line(1.1, "hold", None)], [1, 2, 3], "safe_ms_p99", 75.0),
        (GOOD[:3], [1, 2, 3], "safe_ms_p99", None),
    ],
)
def test_a_report_passes_only_when_nothing_is_wrong(tmp_path, lines, rows, figure, value):
    seen = Seen(7, {"overruns": 2, "dropped": {"dropped_late": 1}, "guard": {"late": 1}}, {5: 3})
    report = summarise(
        RobotLog(lines), [(1.025, 1.45)], seen, {}, [(5, seq) for seq in rows], dry(config({"id": FAKE}), tmp_path)
    )
    assert report[figure] == value
    assert report["passed"] == (figure == "passed")
    assert (report["spooled"], report["overruns"]) == (7, 2)
    assert ("NOT passed" in table(report)) == (figure != "passed")


def test_the_window_of_chunks_is_the_actors_and_the_stand_in_takes_one_command_a_period(tmp_path):
    other = dry(config({"id": "helpers.robots:make"}, window={"chunk": 4}), tmp_path)
    assert make_robot(other.env).action.shape == (1,)
    assert robot_spec(other.env, WindowConfig(chunk=4)).action.shape == (4, 1)
