"""Control by scenes on a clock that is moved by hand: what the robot is told, and what the actor hears of it."""

import math

import numpy as np
import pytest

from headrace.actor.config import RobotConfig, TeleopConfig
from headrace.actor.control import Control, Phase
from headrace.actor.guard import Guard, Vitals
from headrace.actor.limits import GuardConfig
from headrace.actor.robot import Observation, RobotState
from headrace.actor.signals import Begun, Broken, Offer, Said, Start, Stepped
from headrace.common.specs import (
    HEALTH_HELD,
    HEALTH_JUDGED,
    HEALTH_LIMITED,
    HEALTH_OVERRUN,
    HEALTH_SUCCESS,
    OUTCOME_FAILURE,
    OUTCOME_SUCCESS,
    SOURCE_HUMAN,
    ActionSpec,
    ObsSpec,
)

OBS = (ObsSpec("count", (1,), "<f4"),)
ACTION = ActionSpec((1,), (-9.0,), (9.0,))
LIMITS = {"low": (-5.0,), "high": (5.0,), "max_delta": (1.0,), "max_rate": (100.0,)}
HERE = RobotState(np.zeros(1, np.float32))
FRESH = Vitals(math.inf, 0.0)


class Scene:
    """Ten periods a second. ``told``: what was carried out, (kind, episode, tick, action), 'stop', ('reset', episode, seed)."""

    def __init__(self, max_steps=None, guard=None, gives="displacement", **robot):
        config = RobotConfig(rate_hz=10.0, guard=GuardConfig(**{**LIMITS, **(guard or {})}), **robot)
        self.control = Control(config, Guard(config.guard, OBS, ACTION), max_steps, gives)
        self.now, self.state, self.told, self.seen, self.count = 0.0, HERE, [], [], 0

    def period(self, offer=None, missed=0, at=0.01, human=None, words=(), **observed):
        """One period, whose action, if any, comes ``at`` seconds after its beginning; what a human wants and says in it."""
        self.now = round(self.now + 0.1 * (1 + missed), 6)
        self.count += 1
        seen = Observation({"count": np.array([self.count], np.float32)}, **observed)
        self.control.begin(self.now, seen, self.state, missed, None if human is None else np.array(human, np.float32))
        for word in words:
            self.control.said(self.now, word)
        if offer is not None:
            self.control.offer(self.now + at, offer)
        self.carry_out(self.control.decide(self.now + at + self.control.wait_s(self.now + at)))
        self.seen += self.control.signals
        self.control.signals = []
        return self

    def carry_out(self, order):
        if order is None:
            return
        if order.reset is not None:
            self.told.append(("reset", *order.reset))
            after = self.control.was_reset(self.now, self.state)
            if after is not None:
                self.carry_out(after)
        elif order.command is None:
            self.told.append("stop")
        else:
            c = order.command
            self.told.append((c.kind, c.episode, c.tick, round(float(c.action[0]), 4)))
            self.control.carried(self.now, c)

    def running(self, episode=0):
        """An episode whose period 0 is the next one."""
        self.control.arm(self.now, self.state)
        self.period()
        self.control.start(self.now, Start(episode, 7, FRESH))
        self.period()
        assert self.control.phase is Phase.RUNNING
        self.told, self.seen = [], []
        return self

    def sources(self):
        return [(s.tick, round(float(s.action[0]), 4), s.source, s.health) for s in self.seen if isinstance(s, Stepped)]

    def steps(self):
        return [(s.tick, round(float(s.action[0]), 4), s.health) for s in self.seen if isinstance(s, Stepped)]


def want(tick, *values, episode=0, vitals=FRESH, seen=-1):
    return Offer(episode, tick, np.array(values, np.float32)[:, None], vitals, seen)


def test_an_episode_from_arming_to_its_end():
    scene = Scene()
    scene.period()
    assert (scene.control.phase, scene.told) == (Phase.DISARMED, [])  # nothing leaves
    scene.control.arm(scene.now, scene.state)
    scene.period()
    scene.control.start(scene.now, Start(3, 7, FRESH))
    scene.period()
    assert scene.told == [("hold", -1, 0, 0.0), ("reset", 3, 7)]
    scene.period(want(0, 0.5, episode=3)).period(want(1, 0.75, episode=3))
    scene.period(terminated=True, reward=2.0, outcome=OUTCOME_SUCCESS)
    assert scene.told[2:] == [("policy", 3, 0, 0.5), ("policy", 3, 1, 0.75), ("hold", -1, 0, 0.75)]
    begun, first, last = scene.seen
    assert isinstance(begun, Begun)
    assert (begun.episode, begun.values["count"]) == (3, 4)
    assert (first.tick, first.terminated, first.values["count"]) == (1, False, 5)
    assert (last.tick, last.reward, last.terminated, last.outcome, last.values["count"]) == (2, 2.0, True, OUTCOME_SUCCESS, 6)
    assert scene.steps() == [(1, 0.5, 0), (2, 0.75, 0)]
    assert scene.control.phase is Phase.IDLE


def test_what_was_executed_is_what_is_told():
    scene = Scene(guard={"late": 9}).running()
    scene.period(want(0, 0.5)).period().period(want(2, 4.0), missed=1).period(want(3, 1.5))
    assert scene.steps() == [(1, 0.5, 0), (2, 0.5, HEALTH_HELD), (3, 1.5, HEALTH_LIMITED | HEALTH_OVERRUN)]
    ages = [s.age for s in scene.seen if isinstance(s, Stepped)]
    assert ages == pytest.approx([0.01, 0.05, 0.01])  # a hold is decided at the deadline


@pytest.mark.parametrize(("at", "kind"), [(0.049, "policy"), (0.051, "hold")])
def test_an_action_counts_until_its_deadline(at, kind):
    scene = Scene().running()
    scene.period(want(0, 0.5), at=at)
    assert scene.told[0][0] == kind
    assert scene.control.counts == ({"dropped_late": 1} if kind == "hold" else {})


def test_a_command_whose_deadline_passes_on_its_way_is_replaced_by_a_hold_from_where_the_robot_is():
    scene = Scene().running()
    scene.period(want(0, 0.5))
    scene.now += 0.1
    scene.control.begin(scene.now, Observation({"count": np.zeros(1)}), HERE)
    scene.control.offer(scene.now, want(1, 0.9))
    order = scene.control.decide(scene.now)
    assert order.command.deadline == pytest.approx(scene.now + 0.05)
    scene.carry_out(scene.control.expired(scene.now + 0.06))
    assert scene.told[-1] == ("hold", 0, 1, 0.5)
    scene.period(want(2, 1.2))
    assert scene.steps()[-1] == (2, 0.5, HEALTH_HELD)
    assert scene.control.counts == {"dropped_late": 1}


def test_actions_of_another_episode_or_period_are_dropped():
    scene = Scene(guard={"late": 9}).running(episode=5)
    scene.period(want(0, 0.5, episode=4)).period(want(0, 0.5, episode=5)).period(want(2, 0.25, episode=6))
    assert [told[0] for told in scene.told] == ["hold"] * 3
    assert scene.control.counts == {"dropped_episode": 2, "dropped_late": 1}


def test_a_chunk_runs_tick_by_tick_until_a_newer_one_replaces_what_is_left():
    scene = Scene().running()
    scene.period(want(0, 0.1, 0.2, 0.3, 0.4)).period().period(want(1, 9.0, 0.5)).period()
    told = [("policy", 0, 0, 0.1), ("policy", 0, 1, 0.2), ("policy", 0, 2, 0.5), ("hold", 0, 3, 0.5)]
    assert scene.told == told  # the newer one wants nothing of period 3
    assert scene.control.counts == {"dropped_late": 1}  # its first action was for a period that is over


def test_an_action_that_was_decided_ahead_is_carried_out_at_once_and_tells_how_old_it_is():
    scene = Scene(ahead=True, guard={"late": 1}).running()
    assert scene.control.wait_s(scene.now) == 0
    scene.period(want(1, 0.5, seen=0), at=0.04)  # nobody can have decided on period 0, which is no fault of anybody
    scene.period(want(2, 0.75, seen=1), at=0.04).period(at=0.0)
    assert scene.told == [("hold", 0, 0, 0.0), ("policy", 0, 1, 0.5), ("policy", 0, 2, 0.75)]
    scene.period(want(3, 0.25, seen=1), at=0.02).period(want(4, 0.25, seen=0), at=0.02)
    assert scene.control.counts == {}
    ages = [s.age for s in scene.seen if isinstance(s, Stepped)]
    assert ages == pytest.approx([0.04, 0.14, 0.1, 0.22])
    assert scene.steps()[0] == (1, 0.0, HEALTH_HELD)


def test_an_action_that_rests_on_too_old_an_observation_holds():
    scene = Scene(guard={"action_age_s": 0.15, "late": 9}).running()
    scene.period(want(0, 0.1)).period(want(1, 0.2, seen=0)).period(want(2, 0.3, seen=0)).period(want(3, 0.4, seen=-1))
    assert [told[0] for told in scene.told] == ["policy", "policy", "hold", "policy"]
    assert scene.control._guard.counts["old"] == 1


def test_nothing_queued_crosses_a_reset():
    scene = Scene().running()
    scene.period(want(0, 0.1, 0.2, 0.3, 0.4)).period(truncated=True)
    scene.control.start(scene.now, Start(1, 8, FRESH))
    scene.period().period().period()
    assert scene.told == [
        ("policy", 0, 0, 0.1),
        ("hold", -1, 0, 0.1),
        ("reset", 1, 8),
        ("hold", 1, 0, 0.0),  # from where the robot says it is after the reset
        "stop",  # two periods of episode 1 without an action of its own
    ]


def test_a_silent_actor_means_hold_and_then_stop_and_the_episode_ends_with_its_last_step():
    scene = Scene().running()
    scene.period(want(0, 0.5)).period().period().period()
    assert scene.told == [("policy", 0, 0, 0.5), ("hold", 0, 1, 0.5), "stop"]
    assert scene.steps() == [(1, 0.5, 0), (2, 0.5, HEALTH_HELD)]
    assert scene.seen[-1] == Broken(0, "no action for 2 periods")
    assert (scene.control.phase, scene.control.why) == (Phase.DISARMED, "no action for 2 periods")
    scene.period(want(3, 0.5))
    assert len(scene.told) == 3  # nothing arms it but arm()
    scene.control.start(scene.now, Start(1, 7, FRESH))
    scene.period()
    assert scene.control.phase is Phase.DISARMED


@pytest.mark.parametrize("phase", [Phase.IDLE, Phase.HOMING, Phase.WAITING, Phase.RUNNING])
def test_an_actor_that_is_gone_means_hold_and_then_stop_in_every_phase(phase):
    scene = Scene(home=(3.0,), gate=True, guard={"late": 99})
    scene.control.arm(0.0, HERE)
    scene.period()
    if phase is not Phase.IDLE:
        scene.control.start(scene.now, Start(0, 7, FRESH))
        scene.period()
    if phase in (Phase.WAITING, Phase.RUNNING):
        scene.state = RobotState(np.array([3.0], np.float32))
        scene.period()
    if phase is Phase.RUNNING:
        scene.control.ready(scene.now)
        scene.period(want(0, 1.0))
    assert scene.control.phase is phase
    scene.told = []
    scene.control.lost("gone")
    assert scene.control.wait_s(scene.now) == 0
    scene.period().period().period()
    assert (scene.told[0][0], scene.told[1:]) == ("hold", ["stop"])
    assert scene.control.why == "gone"
    scene.control.arm(scene.now, HERE)
    assert scene.control.phase is Phase.DISARMED


def test_home_is_reached_within_the_limits_before_the_scene_is_reset():
    scene = Scene(home=(2.5,), home_within=0.1)
    scene.control.arm(0.0, HERE)
    scene.control.start(0.0, Start(0, 7, FRESH))
    for place in (0.0, 0.9, 1.9, 2.45):
        scene.state = RobotState(np.array([place], np.float32))
        scene.period()
    assert scene.told == [("home", -1, 0, 1.0), ("home", -1, 0, 2.0), ("home", -1, 0, 2.5), ("reset", 0, 7)]


def test_a_home_that_is_not_reached_stops():
    scene = Scene(home=(2.5,), home_s=0.35)
    scene.control.arm(0.0, HERE)
    scene.control.start(0.0, Start(0, 7, FRESH))
    for _ in range(5):
        scene.period()
    assert scene.told[-1] == "stop"
    assert scene.control.why == "home was not reached in 0.35 s"
    assert scene.seen == [Broken(0, scene.control.why)]


@pytest.mark.parametrize(("after", "phase"), [("stop", Phase.DISARMED), ("begin", Phase.RUNNING)])
def test_waiting_for_a_human_is_seen_and_ends_by_what_was_declared(after, phase):
    scene = Scene(gate=True, gate_s=0.25, gate_timeout=after)
    scene.control.arm(0.0, HERE)
    scene.control.start(0.0, Start(0, 7, FRESH))
    scene.period()
    report = scene.control.report(scene.now)
    assert (report["phase"], report["why"]) == ("waiting for a human", "a human says that the scene is ready")
    scene.period().period()
    assert (scene.control.phase, scene.told[1:]) == (Phase.WAITING, [("hold", -1, 0, 0.0)] * 2)
    scene.period()
    assert scene.control.phase is phase


def test_a_human_who_says_ready_begins_the_episode_with_the_next_period():
    scene = Scene(gate=True)
    scene.control.ready(0.0)
    scene.control.arm(0.0, HERE)
    scene.control.start(0.0, Start(0, 7, FRESH))
    scene.period().period()
    scene.control.ready(scene.now)
    scene.period(want(0, 0.5))
    assert isinstance(scene.seen[0], Begun)
    assert scene.told[-1] == ("policy", 0, 0, 0.5)


def test_no_episode_begins_while_anything_is_too_old():
    scene = Scene(guard={"link_age_s": 1.0})
    scene.control.arm(0.0, HERE)
    scene.now = 5.0
    scene.control.start(5.0, Start(0, 7, Vitals(3.9, 0.0)))
    assert (scene.control.phase, scene.control.why) == (Phase.IDLE, "no episode begins: link older than declared")
    scene.control.start(5.0, Start(0, 7, Vitals(4.5, 0.0)))
    assert scene.control.phase is Phase.RESETTING


def test_the_running_episode_ends_before_an_old_link_keeps_the_next_from_beginning():
    scene = Scene(guard={"link_age_s": 1.0}).running()
    old = Vitals(-9.0, 0.0)
    scene.period(want(0, 0.5, vitals=old)).period(want(1, 0.5, vitals=old)).period(truncated=True)
    assert [told[0] for told in scene.told] == ["policy", "policy", "hold"]
    scene.control.start(scene.now, Start(1, 7, old))
    assert scene.control.phase is Phase.IDLE


def test_an_episode_is_truncated_at_its_longest_and_a_terminal_there_stays_one():
    for terminated in (False, True):
        scene = Scene(max_steps=2).running()
        scene.period(want(0, 0.5)).period(want(1, 0.5)).period(terminated=terminated)
        assert [(s.tick, s.terminated, s.truncated) for s in scene.seen[1:]] == [
            (1, False, False),
            (2, terminated, not terminated),
        ]


def test_halt_stops_at_once_and_a_robot_that_was_moved_out_of_the_box_by_its_reset_is_disarmed():
    scene = Scene().running()
    scene.period(want(0, 0.5))
    scene.carry_out(scene.control.halt(scene.now, "somebody said halt"))
    scene.period()
    assert scene.told[1:] == ["stop"]
    assert scene.seen[-1] == Broken(0, "somebody said halt")
    scene.control.arm(scene.now, HERE)
    scene.control.start(scene.now, Start(1, 7, FRESH))
    scene.state = RobotState(np.array([7.0], np.float32))
    scene.period()
    assert scene.told[2:] == [("reset", 1, 7), "stop"]
    assert "outside of the box" in scene.control.why


def test_a_human_takes_over_and_gives_back_over_a_hold_each_and_the_guard_limits_them_too():
    scene = Scene(guard={"max_delta": (0.4,)}).running()
    scene.period(want(0, 0.3))
    for tick, human in enumerate([[0.1], [0.1], [9.0], [math.nan], [0.1]], 1):
        scene.period(want(tick, -0.3), human=human)
    scene.period(want(6, -0.3))
    scene.period(want(7, -0.3))
    scene.period()
    assert scene.told == [
        ("policy", 0, 0, 0.3),
        ("hold", 0, 1, 0.3),  # taking over
        ("human", 0, 2, 0.4),
        ("human", 0, 3, 0.8),  # as far as one command may lie from the one before
        ("hold", 0, 4, 0.8),  # no number
        ("human", 0, 5, 0.9),
        ("hold", 0, 6, 0.9),  # giving back
        ("policy", 0, 7, 0.5),
        ("hold", 0, 8, 0.5),
    ]
    human, held, limited = SOURCE_HUMAN, HEALTH_HELD, HEALTH_LIMITED
    assert scene.sources()[:7] == [
        (1, 0.3, 0, 0),
        (2, 0.3, 0, held),
        (3, 0.4, human, 0),
        (4, 0.8, human, limited),
        (5, 0.8, 0, held),  # a hold is nobody's
        (6, 0.9, human, 0),
        (7, 0.9, 0, held),
    ]
    assert scene.control.counts == {}  # what the policy wanted meanwhile was asked of nobody


def test_a_human_needs_no_policy_no_weights_and_no_link_and_an_actor_that_is_lost_stops_the_human_too():
    scene = Scene(guard={"late": 2, "link_reaction": "stop", "weight_reaction": "stop"}).running()
    scene.period(want(0, 0.0), human=[0.1])
    old = Vitals(-math.inf, 1e9)
    for tick in range(1, 9):
        scene.period(want(tick, 0.0, vitals=old) if tick % 2 else None, human=[0.1])
    assert [kind for kind, *_ in scene.told] == ["hold", *["human"] * 8]
    scene.control.lost("the actor is gone")
    scene.period(human=[0.1]).period(human=[0.1])
    assert (scene.told[-1], scene.control.phase) == ("stop", Phase.DISARMED)


def test_a_device_that_gives_positions_takes_over_where_the_arm_is_and_stops_it_when_it_never_is():
    scene = Scene(gives="position", teleop=TeleopConfig(agree_s=0.5), guard={"hold_s": 0.2}).running()
    scene.period(want(0, 0.2))
    for tick, place in enumerate([0.6, 0.6, 0.6, 0.22, 0.3], 1):
        scene.period(want(tick, 0.2), human=[place])
    assert scene.told[1:] == [
        ("hold", 0, 1, 0.2),
        ("hold", 0, 2, 0.2),
        ("hold", 0, 3, 0.2),
        ("human", 0, 4, 0.22),
        ("human", 0, 5, 0.3),
    ]
    scene.period(want(6, 0.2))
    for tick in range(7, 14):
        scene.period(want(tick, 0.2), human=[5.0])
    assert (scene.told[-1], scene.control.why) == ("stop", "device and robot did not agree in 0.5 s")


def test_a_humans_command_that_came_late_to_the_robot_is_a_hold_and_the_human_keeps_the_robot():
    scene = Scene().running()
    scene.period(want(0, 0.0), human=[0.1])
    scene.period(human=[0.1])
    scene.now += 0.1
    scene.control.begin(scene.now, Observation({"count": np.zeros(1, np.float32)}), HERE, 0, np.array([0.1], np.float32))
    assert scene.control.decide(scene.now).command.kind == "human"
    scene.carry_out(scene.control.expired(scene.now + 0.06))
    scene.period(human=[0.1])
    assert scene.told[1:] == [("human", 0, 1, 0.1), ("hold", 0, 2, 0.1), ("human", 0, 3, 0.2)]
    assert scene.control.counts == {"dropped_late": 1}


def test_a_human_of_a_robot_of_displacements_says_the_command_itself():
    scene = Scene(guard={"command": "displacement"}).running()
    scene.period(want(0, 0.2))
    for tick in (1, 2, 3):
        scene.period(want(tick, 0.2), human=[0.5])
    assert scene.told[1:] == [("hold", 0, 1, 0.0), ("human", 0, 2, 0.5), ("human", 0, 3, 0.5)]


def test_whoever_holds_the_device_from_the_episodes_beginning_takes_over_then():
    scene = Scene()
    scene.control.arm(0.0, HERE)
    scene.period(human=[0.1]).control.start(scene.now, Start(0, 7, FRESH))
    scene.period(human=[0.1]).period(human=[0.1]).period(human=[0.1])
    assert [kind for kind, *_ in scene.told[-2:]] == ["hold", "human"]


def test_an_env_that_says_what_its_human_did_has_it_stored():
    scene = Scene(guard={"max_rate": (2.0,)}).running()
    scene.period(want(0, 0.1))
    scene.period(want(1, 0.5), executed=np.array([-0.7], np.float32))
    assert scene.sources()[0] == (1, -0.7, SOURCE_HUMAN, 0)
    assert scene.told[-1] == ("policy", 0, 1, -0.48)  # limited from there, and from the time at which that left


@pytest.mark.parametrize(("word", "outcome"), [("success", OUTCOME_SUCCESS), ("failure", OUTCOME_FAILURE)])
def test_a_verdict_ends_the_running_episode_with_the_step_that_is_under_way(word, outcome):
    scene = Scene(max_steps=3).running()
    scene.period(want(0, 0.1))
    scene.period(want(1, 0.1), words=[word])
    scene.period(want(2, 0.1))
    ended = scene.seen[-1]
    assert (ended.tick, ended.terminated, ended.truncated, ended.outcome) == (2, True, False, outcome)
    assert scene.control.phase is Phase.IDLE
    scene.period(words=[word])  # of an episode that is over
    assert scene.seen[-1] == Said(word)
    scene.control.start(scene.now, Start(1, 8, FRESH))
    scene.period().period(want(0, 0.1, episode=1)).period(want(1, 0.1, episode=1))
    assert (scene.seen[-1].terminated, scene.seen[-1].outcome) == (False, 0)  # nothing of it is said of the next one


def test_a_verdict_on_what_is_stopped_before_its_step_is_whole_is_passed_on():
    scene = Scene().running()
    scene.period(want(0, 0.1)).period(want(1, 0.1), words=["success"])
    scene.carry_out(scene.control.halt(scene.now, "somebody said halt"))
    assert scene.control.signals == [Broken(0, "somebody said halt"), Said("success")]


def test_a_verdict_before_the_first_step_is_about_the_episode_before():
    scene = Scene().running()
    scene.period(want(0, 0.1), words=["failure", "discard"])
    assert [s for s in scene.seen if not isinstance(s, Begun)] == [Said("failure"), Said("discard")]
    scene.period(want(1, 0.1))
    assert scene.control.phase is Phase.RUNNING


def test_an_episode_that_is_discarded_while_it_runs_is_broken_off_and_the_robot_holds():
    scene = Scene().running()
    scene.period(want(0, 0.1)).period(want(1, 0.1), words=["discard"])
    assert scene.seen[-2:] == [Broken(0, "somebody has discarded it"), Said("discard")]
    assert (scene.control.phase, scene.told[-1]) == (Phase.IDLE, ("hold", -1, 0, 0.1))
    scene.control.start(scene.now, Start(1, 8, FRESH))
    assert scene.period().control.phase is Phase.RUNNING


def test_a_robot_that_is_paused_holds_and_begins_nothing_until_the_run_goes_on():
    scene = Scene().running()
    scene.period(want(0, 0.1)).period(want(1, 0.2), words=["pause"])
    assert scene.seen[-2:] == [Broken(0, "paused"), Said("pause")]
    assert (scene.control.phase, scene.told[-1]) == (Phase.PAUSED, ("hold", -1, 0, 0.1))
    scene.control.start(scene.now, Start(1, 8, FRESH))
    scene.period(words=["pause", "resume"])  # resuming is the buffer's to say
    assert (scene.control.phase, scene.seen[-2:]) == (Phase.PAUSED, [Said("pause"), Said("resume")])
    scene.carry_out(scene.control.halt(scene.now, "somebody said halt"))
    scene.control.pause(scene.now, paused=True)
    scene.control.arm(scene.now, HERE)
    assert scene.control.phase is Phase.PAUSED  # armed, and paused all the same
    scene.control.pause(scene.now, paused=False)
    assert scene.control.phase is Phase.IDLE
    scene.carry_out(scene.control.halt(scene.now, "somebody said halt"))
    scene.control.pause(scene.now, paused=True)
    scene.control.pause(scene.now, paused=False)
    assert scene.control.phase is Phase.DISARMED  # a run that goes on arms nobody


@pytest.mark.parametrize(
    ("words", "held", "outcome", "reward"),
    [
        ((), True, OUTCOME_SUCCESS, 1.0),
        (("failure",), True, OUTCOME_FAILURE, 0.0),
        (("success",), False, OUTCOME_SUCCESS, 1.0),
        (("failure",), False, OUTCOME_FAILURE, 0.0),
    ],
)
def test_what_a_classifier_says_is_kept_beside_what_people_say_who_pay_its_reward_or_take_it_back(words, held, outcome, reward):
    scene = Scene().running()
    scene.period(want(0, 0.5)).period(want(1, 0.75), judged=False, words=words)
    said = OUTCOME_SUCCESS if held else OUTCOME_FAILURE
    scene.period(judged=held, terminated=held, reward=float(held), outcome=said)
    first, last = (s for s in scene.seen if isinstance(s, Stepped))
    assert (first.health, last.health) == (HEALTH_JUDGED, HEALTH_JUDGED | HEALTH_SUCCESS * held)
    assert (last.terminated, last.outcome, last.reward) == (True, outcome, reward)
