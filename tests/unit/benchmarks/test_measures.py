"""Pairs beside other libraries: which are done, what they say, and when a count was reached."""

from __future__ import annotations

import pytest
from campaign.measures import MEASURES, OURS, settings, summarise
from campaign.timeline import crossing


def pair(number, ours, theirs, measure="pendulum-wall", key="wall_s"):
    return {"measure": measure, "pair": number, "headrace": {key: ours}, "sb3": {key: theirs}, "sbx": {key: theirs}}


def test_the_newest_record_of_each_pair_counts():
    m = MEASURES["pendulum-wall"]
    said = summarise(m, [pair(0, 90.0, 100.0), pair(0, 70.0, 100.0), pair(1, 70.0, 100.0), {"measure": "threads"}])
    assert said["pairs"] == 2
    assert said[OURS] == {"median": 70.0, "of": 2}
    assert (said["ratio"], said["interval"], said["passed"]) == (0.7, [0.7, 0.7], True)


def test_bars_are_told_apart_by_direction():
    assert summarise(MEASURES["pendulum-wall"], [pair(0, 81.0, 100.0)])["passed"] is False
    faster = [pair(0, 116.0, 100.0, "halfcheetah-rate", "env_steps_s")]
    assert summarise(MEASURES["halfcheetah-rate"], faster)["passed"] is True
    slower = [pair(0, 114.0, 100.0, "halfcheetah-rate", "env_steps_s")]
    assert summarise(MEASURES["halfcheetah-rate"], slower)["passed"] is False


def test_a_goal_that_was_not_reached_is_counted_and_not_averaged():
    m = MEASURES["pendulum-to-200"]
    said = summarise(m, [pair(0, 40.0, None, m.name, "to_goal_s"), pair(1, 50.0, 60.0, m.name, "to_goal_s")])
    assert said["sb3"] == {"median": 60.0, "of": 1}
    assert said["ratio"] == pytest.approx(50 / 60, abs=1e-3)
    assert "passed" not in said
    assert summarise(m, []) == {"pairs": 0, **{side: {"median": None, "of": 0} for side in m.sides}}


def test_settings_tell_thread_counts_apart():
    m = MEASURES["pendulum-wall"]
    assert settings(m, {"headrace": 1, "sb3": 2}) != settings(m, {"headrace": 1, "sb3": 1})


def test_a_count_is_crossed_between_looks():
    points = [(10.0, 0), (11.0, 0), (12.0, 100), (14.0, 300)]
    assert crossing(points, 50) == pytest.approx(11.5)
    assert crossing(points, 200) == pytest.approx(13.0)
    assert crossing(points, 300) == 14.0
    assert crossing(points, 301) is None
    assert crossing([], 1) is None
