"""What a run's metrics hold of every actor."""

from __future__ import annotations

import pytest

from headrace.buffer.gathered import MOST_ACTORS, PART, joined, of_actors, spread, told_apart


def test_the_first_actors_by_name_are_told_one_by_one_however_many_there_are():
    names = [f"arm-{n:03}" for n in range(MOST_ACTORS + 5)]
    assert told_apart(reversed(names)) == names[:MOST_ACTORS]


def test_what_the_status_has_of_an_actor_is_told_under_the_names_of_the_metrics():
    status = {"id": "arm-0", "host": "lab", "rate": 9.5, "age_s": 0.5, "spooled_steps": 3, "acked": {"1": 4}}
    assert of_actors([status]) == {"arm-0": {"host": "lab", "env_steps_s": 9.5, "policy_age_s": 0.5, "waiting_steps": 3}}


def test_the_spread_of_nobody_is_nothing():
    assert spread([]) == {}
    assert spread([4.0, 1.0, 2.0]) == {"min": 1.0, "median": 2.0, "max": 4.0}


def part(**values):
    return {**dict.fromkeys(PART, 0), "return_mean": None, "actors": {}, **values}


HOME = part(episodes=4, pool_rows=100, policy_age_s=0.5, return_mean=10.0, returns=1, actors={"arm-0": {"env_steps_s": 5.0}})


def test_what_further_shards_tell_is_added_to_what_the_home_shard_has():
    theirs = part(episodes=6, pool_rows=50, policy_age_s=2.0, return_mean=20.0, returns=3, actors={"arm-1": {"host": "lab"}})
    told = joined(HOME, [theirs, part()])
    assert (told["episodes"], told["pool_rows"], told["policy_age_s"], told["return_mean"]) == (10, 150, 2.0, 17.5)
    assert told["actors"] == {"arm-0": {"env_steps_s": 5.0}, "arm-1": {"host": "lab"}}


@pytest.mark.parametrize(
    "hostile",
    [
        {},
        {"episodes": "6", "pool_rows": True, "policy_age_s": float("inf"), "return_mean": [], "returns": -1, "actors": 3},
        {"episodes": -6, "return_mean": float("nan"), "returns": 5, "actors": {"arm-1": 7, "arm-2": None}},
        {"return_mean": 3.0, "returns": 0},
    ],
)
def test_what_is_not_what_it_should_be_counts_nothing(hostile):
    assert joined(HOME, [hostile]) == joined(HOME, [])


def test_a_part_brings_no_more_actors_and_no_other_values_than_the_metrics_hold():
    many = {f"arm-{n:03}": {"env_steps_s": 1.0, "other": 2.0, "host": ["lab"]} for n in range(MOST_ACTORS + 5)}
    told = joined(part(), [part(actors=many)])["actors"]
    assert list(told) == list(many)[:MOST_ACTORS]
    assert told["arm-000"] == {"env_steps_s": 1.0}
