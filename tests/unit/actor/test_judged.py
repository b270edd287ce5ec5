"""Rewards by a success classifier: where success is held the episode ends with 1, for envs and for drivers."""

import numpy as np
import pytest
from helpers.judged import EYE, SPEC, bright, picture

from headrace.actor.assembler import Assembler
from headrace.actor.config import EnvConfig, SuccessConfig, WindowConfig
from headrace.actor.envs import check_env, make_lanes, make_spec
from headrace.actor.judged_robot import JudgedRobot
from headrace.actor.robot import Command, Observation, RobotState
from headrace.actor.robots import check_robot, make_robot
from headrace.actor.success import Held, Judge, SuccessClassifier
from headrace.common.errors import ConfigError, EnvError
from headrace.common.specs import HEALTH_JUDGED, HEALTH_SUCCESS, OUTCOME_FAILURE, OUTCOME_SUCCESS, ActionSpec
from headrace.common.weights import Version

SAID = HEALTH_JUDGED | HEALTH_SUCCESS


@pytest.fixture
def env(tmp_path):
    """An env with a classifier that wants two bright images in a row."""
    file = tmp_path / "cube.hrw"
    file.write_bytes(bright(hold=2).pack())

    def made(hold=None, threshold=None, lanes=1, **options):
        kwargs = options.pop("kwargs", {})
        success = SuccessConfig(options.pop("file", str(file)), threshold, hold)
        return EnvConfig("helpers.judged:Bright", kwargs, lanes=lanes, success=success, **options)

    return made


@pytest.mark.parametrize(
    ("vector", "autoreset"),
    [("sync", "next_step"), ("sync", "same_step"), ("sync", "disabled"), ("async", "same_step")],
)
def test_an_env_ends_with_reward_1_where_success_is_held_and_has_no_other_reward(env, autoreset, vector):
    lanes = make_lanes(env(autoreset=autoreset, vector=vector), WindowConfig(), run_seed=0, actor="a", epoch=1)
    lanes.reset()
    found = []
    while sum(x[4] for x in found) < 2:
        step = lanes.step(np.zeros((1, 1), np.float32))
        if step.live[0]:
            ends = bool(step.terminated[0]), bool(step.truncated[0])
            found.append((float(step.rewards[0]), *ends, int(step.health[0]), any(ends), int(step.success[0])))
    lanes.close()
    first, second = found[:4], found[4:]  # bright from step 3 on: held with step 4. The first observation counts for nobody
    assert [x[:4] for x in first] == [(0, False, False, HEALTH_JUDGED)] * 3 + [(1, True, False, SAID)]
    assert [x[:4] for x in second] == [(0, False, False, HEALTH_JUDGED)] * 8 + [(0, False, True, HEALTH_JUDGED)]
    assert (first[-1][5], second[-1][5]) == (OUTCOME_SUCCESS, OUTCOME_FAILURE)


@pytest.mark.parametrize(
    ("options", "steps"),
    [
        ({"hold": 1}, 3),
        ({"hold": 3}, 5),
        ({"kwargs": {"flicker": [4]}}, 6),
        ({"threshold": 1 - 1e-6}, 9),
    ],
)
def test_how_many_images_and_how_sure_are_the_files_unless_the_config_says_so(env, options, steps):
    robot = make_robot(env(**options))
    robot.reset(0, 0)
    count = 0
    while True:
        count += 1
        assert robot.act(Command(np.zeros(1, np.float32), "policy", 0, count - 1, np.inf))
        seen = robot.observe()
        assert seen.judged is (seen.reward == 1.0)
        if seen.terminated or seen.truncated:
            break
    robot.close()
    assert count == steps


def test_nothing_is_held_over_from_one_episode_of_an_env_to_the_next(env):
    robot = make_robot(env(kwargs={"at": 1, "length": 1, "every": 1}))
    for episode in range(3):
        robot.reset(episode, 0)
        robot.act(Command(np.zeros(1, np.float32), "policy", episode, 0, np.inf))
        seen = robot.observe()
        assert (seen.judged, seen.truncated, seen.outcome) == (False, True, OUTCOME_FAILURE)
    robot.close()


class Driver:
    """A driver that shows what it is told to, with stamps if it is told so."""

    obs, action = SPEC.obs, ActionSpec((1,), (-1.0,), (1.0,))

    def __init__(self):
        self.shown, self.stamps, self.calls = False, {}, []

    def observe(self):
        return Observation({"eye": picture(np.random.default_rng(0), success=self.shown)}, dict(self.stamps), reward=-7.0)

    def act(self, command):
        self.calls.append(command.kind)
        return True

    def stop(self):
        self.calls.append("stop")

    def state(self):
        return RobotState(np.zeros(1))

    connect = close = lambda self: None
    reset = lambda self, episode, seed: self.calls.append(("reset", episode))  # noqa: E731 - a driver in one screen


def judged(hold=2):
    driver = Driver()
    return driver, JudgedRobot(driver, Judge(SuccessClassifier(bright()), Held(0.5, hold)))


def go(robot, episode=0):
    robot.act(Command(np.zeros(1, np.float32), "policy" if episode >= 0 else "hold", episode, 0, np.inf))
    return robot.observe()


def test_of_a_driver_only_steps_of_episodes_are_judged():
    driver, robot = judged()
    driver.shown = True
    for _ in range(5):  # while people set the scene, and the first observation
        seen = go(robot, -1)
        assert (seen.judged, seen.reward, seen.terminated) == (None, -7.0, False)
    seen = go(robot)
    assert (seen.judged, seen.reward, seen.terminated, seen.outcome) == (False, 0.0, False, OUTCOME_FAILURE)
    seen = go(robot)
    assert (seen.judged, seen.reward, seen.terminated, seen.outcome) == (True, 1.0, True, OUTCOME_SUCCESS)
    go(robot, -1)
    assert go(robot, 1).judged is False  # nothing is left of the episode before
    robot.stop()
    assert robot.observe().judged is None
    assert driver.calls[-1] == "stop"
    assert robot.state().position is not None


def test_the_same_picture_does_not_count_twice():
    driver, robot = judged(hold=3)
    driver.shown, driver.stamps = True, {"eye": 1.0, "pose": 9.0}
    assert [go(robot).judged for _ in range(5)] == [False] * 5  # a camera that hangs
    found = []
    for stamp in (2.0, 2.0, 3.0):
        driver.stamps["eye"] = stamp
        found.append(go(robot).judged)
    assert found == [False, False, True]


def test_a_row_of_a_chunk_has_the_health_of_all_its_steps():
    spec = WindowConfig(chunk=3).spec((EYE,), ActionSpec((1,), (-1.0,), (1.0,)))
    assembler, seen, version = Assembler(spec), {"eye": np.zeros(EYE.shape, np.uint8)}, Version("a", 1, 1)
    assembler.begin(0, seen)
    for t, health in enumerate((HEALTH_JUDGED, 1, SAID, 4, HEALTH_JUDGED)):
        decided = np.zeros((3, 1), np.float32) if t % 3 == 0 else None
        assembler.step(np.zeros(1), 0.0, t == 4, False, seen, version=version, decided=decided, health=health)
    assert assembler.take(9).rows["health"].tolist() == [SAID | 1, HEALTH_JUDGED | 4]


def test_what_cannot_be_is_refused_before_anything_is_made(env, tmp_path):
    for check in (check_env, check_robot):
        check(env())
        with pytest.raises(ConfigError, match=r"env\.success\.file: .*nothing\.hrw cannot be read"):
            check(env(file=str(tmp_path / "nothing.hrw")))
    (tmp_path / "junk.hrw").write_bytes(b"junk")
    with pytest.raises(ConfigError, match="is no classifier"):
        make_spec(env(file=str(tmp_path / "junk.hrw")), WindowConfig())
    other = EnvConfig("Pendulum-v1", success=env().success)
    with pytest.raises(ConfigError, match="camera eye: not observed"):
        make_spec(other, WindowConfig())
    with pytest.raises(ConfigError, match="camera eye: not observed"):
        make_robot(EnvConfig("helpers.robots:make", success=env().success))
    with pytest.raises(EnvError, match=r"env\.success\.file"):
        make_spec(EnvConfig("helpers.judged:vector", success=env().success), WindowConfig())
