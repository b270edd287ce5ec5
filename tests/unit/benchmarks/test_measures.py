"""Pairs beside other libraries: which are done, what they say, and when a count was reached."""

from __future__ import annotations

import pytest
from campaign.measures import MEASURES, OURS, settings, summarise
from campaign.timeline import crossing


def pair(number, ours, theirs, measure="pendulum-wall", keys=("wall_s",), **settings):
    sides = {side: dict.fromkeys(keys, value) for side, value in (("headrace", ours), ("sb3", theirs), ("sbx", theirs))}
    return {"measure": measure, "pair": number, **sides, "settings": settings}


def five(ours, theirs, *rest):
    return [pair(n, ours, theirs, *rest) for n in range(5)]


RATE = ("halfcheetah-rate", ("env_steps_s", "updates_s"))


def test_the_newest_record_of_each_pair_counts():
    m = MEASURES["pendulum-wall"]
    said = summarise(m, [pair(0, 90.0, 100.0), pair(0, 70.0, 100.0), pair(1, 70.0, 100.0), {"measure": "threads"}])
    assert said["pairs"] == 2
    assert said["wall_s"] == {OURS: 70.0, "sb3": 100.0, "of": 2, "ratio": 0.7, "interval": [0.7, 0.7]}


def test_too_few_pairs_pass_nothing():
    m = MEASURES["pendulum-wall"]
    assert "passed" not in summarise(m, five(70.0, 100.0)[:4])
    assert summarise(m, five(70.0, 100.0))["passed"] is True


def test_pairs_of_other_settings_than_the_newest_do_not_count():
    m = MEASURES["pendulum-wall"]
    assert summarise(m, [pair(0, 70.0, 100.0, threads=1), pair(1, 50.0, 100.0, threads=2)])["pairs"] == 1


def test_bars_are_told_apart_by_direction_and_every_value_must_reach_them():
    assert summarise(MEASURES["pendulum-wall"], five(81.0, 100.0))["passed"] is False
    m = MEASURES["halfcheetah-rate"]
    assert summarise(m, five(116.0, 100.0, *RATE))["passed"] is True
    assert summarise(m, five(114.0, 100.0, *RATE))["passed"] is False
    slow_updates = five(116.0, 100.0, *RATE)
    for record in slow_updates:
        record["headrace"]["updates_s"] = 99.0
    assert summarise(m, slow_updates)["passed"] is False


def test_a_goal_that_was_not_reached_is_counted_and_not_averaged():
    m = MEASURES["pendulum-to-200"]
    keys = ("to_goal_s", "to_goal_env_steps")
    said = summarise(m, [pair(0, 40.0, None, m.name, keys), pair(1, 50.0, 60.0, m.name, keys)])["to_goal_s"]
    assert (said["headrace"], said["sb3"], said["of"]) == (45.0, 60.0, 1)
    assert said["ratio"] == pytest.approx(50 / 60, abs=1e-3)
    assert summarise(m, []) == {"pairs": 0, **{key: {**dict.fromkeys(m.sides), "of": 0} for key in m.values}}


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
