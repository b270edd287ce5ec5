"""The recorder carries out the rule of lanes: a crash aborts, what is live is a step, a new episode begins."""

import numpy as np

from headrace.actor.deciding import Acts
from headrace.actor.envs import LaneObs, LaneStep
from headrace.actor.recorder import Ended, Recorder
from headrace.common.specs import OUTCOME_SUCCESS, ActionSpec, ObsSpec, TransitionSpec
from headrace.common.weights import Version

SPEC = TransitionSpec((ObsSpec("obs", (2,), "<f4"),), ActionSpec((1,), (-1.0,), (1.0,)))
VERSION = Version("l", 1, 7)


def frames(*places):
    """An observation a lane says (episode, t)."""
    return {"obs": np.array(places, np.float32)}


def step(next_obs, obs, episode, **flags):
    """One step of two lanes; each flag names the lanes where it is up."""
    names = ("dead", "terminated", "truncated", "crashed", "success")
    up = {name: np.isin(np.arange(2), flags.get(name, ())) for name in names}
    live, success = ~(up["dead"] | up["crashed"]), up["success"] * np.uint8(OUTCOME_SUCCESS)
    rewards = np.array([10, 20], np.float32)
    ends = up["terminated"], up["truncated"]
    return LaneStep(live, rewards, *ends, frames(*next_obs), up["crashed"], frames(*obs), np.array(episode), success)


def begun():
    recorder = Recorder(SPEC, 2)
    recorder.begin(LaneObs(frames((0, 0), (1, 0)), np.array([0, 1])))
    assert recorder.fresh.tolist() == [True, True]
    return recorder


def take(recorder, made):
    actions = np.zeros((2, 1), np.float32)
    ended = recorder.record(Acts(actions, np.ones(2, bool), actions), made, VERSION)
    recorder.go_on(made)
    return ended


def rows_of(recorder, lane):
    block = recorder.assemblers[lane].take(100)
    names = ("episode", "t", "terminated", "truncated")
    return [] if block is None else list(zip(*(block.rows[name].tolist() for name in names), strict=True))


def test_an_episode_that_ends_is_told_and_the_next_one_begins():
    recorder = begun()
    assert take(recorder, step([(0, 1), (1, 1)], [(0, 1), (1, 1)], [0, 1])) == []
    assert recorder.fresh.tolist() == [False, False]
    ended = take(recorder, step([(0, 2), (1, 2)], [(2, 0), (1, 2)], [2, 1], terminated=[0], success=[0]))
    assert ended == [Ended(0, 0, 20.0, 2, OUTCOME_SUCCESS)]
    assert recorder.fresh.tolist() == [True, False]
    assert rows_of(recorder, 0) == [(0, 0, 0, 0), (0, 1, 1, 0)]
    assert rows_of(recorder, 1) == [(1, 0, 0, 0)]  # the newest is held back
    ended = take(recorder, step([(2, 1), (1, 3)], [(4, 0), (3, 0)], [4, 3], truncated=[0, 1]))
    assert ended == [Ended(0, 2, 10.0, 1, 0), Ended(1, 1, 60.0, 3, 0)]


def test_a_lane_that_executed_nothing_has_no_row_and_a_crash_cuts_at_the_last_step():
    recorder = begun()
    take(recorder, step([(0, 1), (1, 1)], [(0, 1), (1, 1)], [0, 1]))
    assert take(recorder, step([(9, 9), (9, 9)], [(0, 1), (3, 0)], [0, 3], dead=[0], crashed=[1])) == []
    assert recorder.fresh.tolist() == [False, True]
    assert rows_of(recorder, 0) == []
    assert rows_of(recorder, 1) == [(1, 0, 0, 1)]
    assert take(recorder, step([(0, 2), (3, 1)], [(2, 0), (3, 1)], [2, 3], terminated=[0])) == [Ended(0, 0, 20.0, 2, 0)]


def test_a_cut_hands_over_every_row_as_truncated_and_the_same_episode_may_begin_again():
    recorder = begun()
    take(recorder, step([(0, 1), (1, 1)], [(0, 1), (1, 1)], [0, 1]))
    recorder.cut()
    assert recorder.fresh.all()
    assert [rows_of(recorder, lane) for lane in (0, 1)] == [[(0, 0, 0, 1)], [(1, 0, 0, 1)]]
    recorder.begin(LaneObs(frames((0, 0), (1, 0)), np.array([0, 1])))
    take(recorder, step([(0, 1), (1, 1)], [(2, 0), (3, 0)], [2, 3], truncated=[0, 1]))
    assert rows_of(recorder, 0) == [(0, 0, 0, 1)]
    assert recorder.check_valid() == (True, "")
