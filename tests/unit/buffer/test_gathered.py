"""What a run's metrics hold of every actor."""

from __future__ import annotations

from headrace.buffer.gathered import MOST_ACTORS, of_actors, spread, told_apart


def test_the_first_actors_by_name_are_told_one_by_one_however_many_there_are():
    names = [f"arm-{n:03}" for n in range(MOST_ACTORS + 5)]
    assert told_apart(reversed(names)) == names[:MOST_ACTORS]


def test_what_the_status_has_of_an_actor_is_told_under_the_names_of_the_metrics():
    status = {"id": "arm-0", "host": "lab", "rate": 9.5, "age_s": 0.5, "spooled_steps": 3, "acked": {"1": 4}}
    assert of_actors([status]) == {"arm-0": {"host": "lab", "env_steps_s": 9.5, "policy_age_s": 0.5, "waiting_steps": 3}}


def test_the_spread_of_nobody_is_nothing():
    assert spread([]) == {}
    assert spread([4.0, 1.0, 2.0]) == {"min": 1.0, "median": 2.0, "max": 4.0}
