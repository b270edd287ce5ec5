"""A robot in a process of its own, driven as the one lane of an actor."""

import os
import signal
import threading
import time

import numpy as np
import pytest
from helpers.people import human_number

from headrace.actor.config import EnvConfig, RobotConfig, TeleopConfig, WindowConfig, WrapperConfig
from headrace.actor.deciding import Acts
from headrace.actor.envs import make_spec
from headrace.actor.guard import Vitals
from headrace.actor.limits import GuardConfig
from headrace.actor.people import People
from headrace.actor.recorder import Recorder
from headrace.actor.robot_lanes import RobotLanes
from headrace.common.config import load
from headrace.common.errors import ConfigError, EnvError
from headrace.common.specs import HEALTH_HELD, SOURCE_HUMAN
from headrace.common.weights import Version
from headrace.launch.chaos.scripted import ENV, executed

WILLING = "headrace.actor.operator:Willing"
LIMITS = {"low": (-1.0,), "high": (1.0,), "max_delta": (0.5,), "max_rate": (100.0,)}
WINDOW = WindowConfig()
VERSION = Version("driver", 1, 7)
DEADLINE_S = 30.0


class Driven:
    """Lanes, what they reported, and the rows that a recorder makes of their steps."""

    def __init__(self, env, *, guard=None, operator=WILLING, **robot):
        guard = GuardConfig(**{**LIMITS, "late": 5, **(guard or {})})
        config = RobotConfig(operator=operator, guard=guard, **{"rate_hz": 100.0, **robot})
        spec = make_spec(env, WINDOW, robot=True)
        self.stop, self.reports, self.rows = threading.Event(), [], []
        self.heard = float("inf")
        self.people = People(paused=False)
        self.lanes = RobotLanes(env, config, spec, (0, "arm", 1), self.vitals, self.reports.append, self.stop, self.people)
        self.recorder = Recorder(spec, 1)
        self.recorder.begin(self.lanes.reset())
        self.episodes = []
        self.end = time.monotonic() + DEADLINE_S

    def vitals(self):
        return Vitals(self.heard, 0.0)

    def step(self, value=0.25):
        step = self.lanes.step(np.full((1, self.lanes.spec.action.dim), value, np.float32))
        asked = np.full((1, self.lanes.spec.action.dim), 9.0)
        self.episodes += self.recorder.record(Acts(asked, np.ones(1, bool), asked), step, VERSION)
        self.recorder.go_on(step)
        while (block := self.recorder.assemblers[0].take(99)) is not None:
            self.rows += [(block, i) for i in range(block.n_rows)]
        return step

    def until(self, done):
        while not done():
            assert time.monotonic() < self.end, self.lanes.report
            self.step()
        return self

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.lanes.close()


def robot(**kwargs):
    return EnvConfig("helpers.robots:make", kwargs=kwargs)


def test_rows_hold_what_was_executed_and_every_episode_is_whole():
    with Driven(robot(length=4)) as driven:
        driven.until(lambda: len(driven.episodes) >= 3)
    for block, i in driven.rows:
        row = block.rows[i]
        before, after = (block.frames["stamp"][row[name][0]] for name in ("obs", "next_obs"))
        assert before[:2].tolist() == [row["episode"], row["t"]]
        assert after.tolist() == [row["episode"], row["t"] + 1, row["action"][0]]
        assert row["rewards"][0] == row["t"]
        assert abs(row["action"][0]) <= 0.25  # never what was only asked of the recorder
        assert 0 <= row["action_age"] < DEADLINE_S
    assert [(e.episode, e.length, e.outcome) for e in driven.episodes[:3]] == [(0, 4, 0), (1, 4, 1), (2, 4, 0)]
    ends = [(int(b.rows[i]["terminated"]), int(b.rows[i]["truncated"])) for b, i in driven.rows if b.rows[i]["t"] == 3]
    assert ends[:3] == [(1, 1), (0, 1), (1, 1)]


def test_a_gymnasium_env_is_a_robot_too(tmp_path):
    env = EnvConfig(ENV, kwargs={"lengths": [3], "success": True, "history": str(tmp_path)})
    with Driven(env, guard={"command": "displacement"}) as driven:
        driven.until(lambda: len(driven.episodes) >= 2)
    assert [(e.episode, e.length, e.outcome) for e in driven.episodes[:2]] == [(0, 3, 2), (1, 3, 1)]
    acted = {(e, t): action for (_, e, t), action in executed(tmp_path).items()}
    assert len(driven.rows) >= 6
    for block, i in driven.rows:
        row = block.rows[i]
        assert block.frames["obs"][row["obs"][0]].tolist() == [0, row["episode"], row["t"]]
        assert acted[int(row["episode"]), int(row["t"])] == row["action"].tolist()


def test_an_actor_that_is_late_finds_holds_in_its_rows_and_no_action_of_its_own_too_late():
    with Driven(robot(length=50), guard={"late": 40, "hold_s": 9.0}, rate_hz=50.0) as driven:
        driven.until(lambda: driven.recorder.assemblers[0].ready > 0 or driven.rows)
        time.sleep(0.2)  # the control loop is busy elsewhere
        driven.until(lambda: driven.episodes)
        dropped = driven.lanes.report["dropped"]
    held = [block.rows[i] for block, i in driven.rows if block.rows[i]["health"] & 4]
    assert len(held) >= 5
    assert dropped["dropped_late"] >= 1
    assert sorted(int(block.rows[i]["t"]) for block, i in driven.rows if block.rows[i]["episode"] == 0) == list(range(50))


def test_nothing_moves_before_somebody_arms_and_confirms():
    with Driven(robot(length=50), operator="none", gate=True) as driven:
        driven.step()
        assert driven.lanes.report["phase"] == "disarmed"
        driven.lanes.say("arm")
        driven.until(lambda: driven.lanes.report["phase"] == "waiting for a human")
        assert not driven.rows
        driven.lanes.say("ready")
        driven.until(lambda: driven.rows)
        driven.lanes.say("halt")
        driven.until(lambda: driven.lanes.report["phase"] == "disarmed")
        assert driven.lanes.report["why"] == "somebody said halt"
        driven.until(lambda: driven.recorder.assemblers[0].ready == 0)
        last, i = driven.rows[-1]
        assert last.rows[i]["truncated"] == 1  # the last complete step ends the episode
        driven.lanes.say("arm")
        driven.until(lambda: driven.lanes.report["phase"] == "waiting for a human")


def test_a_driver_that_raises_disarms_and_the_robot_goes_on_when_it_is_armed_again():
    with Driven(robot(length=4, fail="observe")) as driven:
        driven.until(lambda: driven.episodes)
    assert [e.episode for e in driven.episodes] == [1]
    broken = [block.rows[i] for block, i in driven.rows if block.rows[i]["episode"] == 0]
    assert [(int(row["t"]), int(row["truncated"])) for row in broken] == [(0, 1)]


@pytest.mark.parametrize(
    ("where", "says"),
    [("connect", "OSError: scripted failure in connect"), ("reset", None)],
)
def test_a_driver_that_cannot_be_reached_is_told_and_one_that_cannot_be_reset_is_disarmed(where, says):
    if says:
        with pytest.raises(EnvError, match=says):
            Driven(robot(fail=where))
        return
    with Driven(robot(fail=where), operator="none") as driven:
        driven.lanes.say("arm")
        driven.until(lambda: "scripted failure in reset" in driven.lanes.report["why"])


def test_a_robot_that_cannot_be_made_or_has_no_limits_is_refused_by_name():
    with pytest.raises(EnvError, match="robot 'helpers.robots:make' could not be made: OSError: scripted failure in make"):
        Driven(robot(fail="make"))
    with pytest.raises(ConfigError, match=r"env\.lanes: 2"):
        make_spec(EnvConfig("helpers.robots:make", lanes=2), WINDOW, robot=True)
    with pytest.raises(ConfigError, match=r"robot\.guard\.max_rate: not given, and a robot does not move without limits"):
        Driven(robot(), guard={"max_rate": ()})
    with pytest.raises(ConfigError, match=r"robot\.home: \[0\.0\] with robot\.guard\.command displacement"):
        load(RobotConfig, {"home": [0.0], "guard": {"command": "displacement"}}, "robot")


def test_a_robot_whose_process_dies_is_no_robot_any_more():
    with Driven(robot(length=50)) as driven:
        driven.until(lambda: driven.rows)
        os.kill(driven.lanes._process.pid, signal.SIGKILL)
        with pytest.raises(EnvError, match="its process has ended .exit code -9.; look at the robot"):
            driven.until(lambda: False)


def test_an_actor_that_is_to_end_does_not_wait_for_people():
    with Driven(robot(), operator="none") as driven:
        driven.stop.set()
        begun = time.monotonic()
        driven.step()
        assert time.monotonic() - begun < 5.0


def test_a_human_takes_a_fake_arm_over_and_brings_it_there_and_rows_say_who_acted():
    env = EnvConfig("headrace.actor.fake_arm:FakeArm", kwargs={"size": 8}, max_episode_steps=400)
    human = TeleopConfig("headrace.actor.fake_human:FakeHuman", {"patience": 5, "periods": None, "step": 0.3})
    guard = {"low": (-1.5,), "high": (1.5,), "max_delta": (0.3,), "late": 50, "hold_s": 9.0}
    with Driven(env, guard=guard, teleop=human, rate_hz=20.0) as driven:
        while not driven.episodes:
            assert time.monotonic() < driven.end
            driven.step(0.0)
        driven.until(lambda: driven.recorder.assemblers[0].ready == 0)
    (ended, *_) = driven.episodes
    assert ended.outcome == 1  # the policy alone stands still for ever
    rows = [block.rows[i] for block, i in driven.rows if block.rows[i]["episode"] == ended.episode]
    acted = [int(row["source"][0]) for row in rows]
    first = acted.index(SOURCE_HUMAN)
    assert all(row["source"][0] == SOURCE_HUMAN or row["health"] & HEALTH_HELD for row in rows[first:])  # a hold is nobody's
    assert rows[first - 1]["health"] & HEALTH_HELD  # taken over by a hold
    commands = np.stack([row["action"] for row in rows])
    assert np.abs(np.diff(commands, axis=0)).max() <= 0.3 + 1e-6
    assert np.abs(commands[first:]).max() > 0
    assert driven.recorder.human_steps >= sum(acted) > 0


def test_an_env_with_people_of_its_own_is_a_robot_whose_rows_say_so():
    env = EnvConfig(ENV, kwargs={"lengths": [9]}, wrappers=(WrapperConfig("helpers.people:TakenOver", {"at": [3, 4]}),))
    with Driven(env, guard={"command": "displacement", "late": 100, "hold_s": 60.0}) as driven:
        driven.until(lambda: len(driven.episodes) >= 2)
    told = {(int(b.rows[i]["t"]), int(b.rows[i]["source"][0]), float(b.rows[i]["action"][0])) for b, i in driven.rows}
    assert {t for t, source, _ in told if source == SOURCE_HUMAN} == {3, 4}
    assert {action for t, _, action in told if t in (3, 4)} == {human_number(3), human_number(4)}


def test_a_verdict_typed_by_the_operator_ends_the_episode_and_a_pause_holds_until_the_buffer_has_the_run_go_on():
    with Driven(robot(length=9999), guard={"late": 100, "hold_s": 60.0}, rate_hz=50.0) as driven:
        driven.until(lambda: driven.rows)
        driven.lanes.say("success")
        driven.until(lambda: driven.episodes)
        assert (driven.episodes[0].episode, driven.episodes[0].outcome) == (0, 1)
        driven.until(lambda: driven.rows[-1][0].rows[driven.rows[-1][1]]["episode"] == 1)
        driven.lanes.say("pause")
        driven.until(lambda: driven.people.hear() == [] and driven.people.ask(0.0, paused=False) == "pause")
        driven.until(lambda: driven.lanes.report["phase"] == "paused")
        assert driven.people.ask(0.1, paused=True) == ""  # the buffer has heard it
        driven.until(lambda: driven.recorder.running(0) == -1)
        known = len(driven.rows)
        for _ in range(5):
            assert not driven.step().live.any()
        driven.people.ask(0.2, paused=False)
        driven.until(lambda: len(driven.rows) > known)
        last, i = driven.rows[known - 1]
        assert (last.rows[i]["episode"], last.rows[i]["truncated"]) == (1, 1)
        driven.until(lambda: driven.rows[-1][0].rows[driven.rows[-1][1]]["episode"] == 2)
        driven.lanes.say("quit")
        driven.until(lambda: driven.people.hear() == [] and driven.people.leave)


def test_no_episode_begins_where_nobody_knows_whether_the_run_is_paused():
    with Driven(robot(length=4)) as driven:
        driven.people.paused = None
        driven.until(lambda: driven.lanes.report["phase"] == "idle")
        for _ in range(10):
            driven.step()
            assert driven.lanes.report["phase"] == "idle"
        driven.people.paused = False
        driven.until(lambda: driven.rows)
