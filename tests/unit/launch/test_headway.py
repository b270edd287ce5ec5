"""Headway of each kind of role, from made-up statuses."""

import pytest

from headrace.launch.headway import Headway
from headrace.launch.supervision import RolePlan

PLANS = [
    RolePlan("learner", "learner"),
    RolePlan("buffer", "buffer"),
    RolePlan("actor-0", "actor"),
    RolePlan("actor-1", "actor"),
    RolePlan("evaluator", "evaluator"),
]


def status(phase="training", updates=5, owed=50, step=3, evaluations=(), **acked):
    actors = [{"id": name.replace("_", "-"), "acked": streams} for name, streams in acked.items()]
    return {
        "phase": phase,
        "updates": updates,
        "updates_owed": owed,
        "weights": {"step": step},
        "evaluations": list(evaluations),
        "actors": actors,
    }


def after(before, now):
    headway = Headway(PLANS)
    headway.note(before)
    return headway.note(now)


def test_of_a_run_that_stands_still_only_the_buffer_got_something_done():
    assert after(status(actor_0={"1": 40}), status(actor_0={"1": 40})) == ["buffer"]


@pytest.mark.parametrize(
    ("now", "who"),
    [
        (status(actor_0={"1": 41}), "actor-0"),
        (status(actor_0={"1": 40, "2": 1}), "actor-0"),
        (status(updates=6, actor_0={"1": 40}), "learner"),
        (status(evaluations=[{"step": 2}, {"step": 3}], actor_0={"1": 40}), "evaluator"),
    ],
    ids=["a row of a stream", "a row of a new stream", "an update", "an evaluation"],
)
def test_each_role_by_what_it_is_there_for(now, who):
    now["evaluations"] = now["evaluations"] or [{"step": 2}]
    assert sorted(after(status(evaluations=[{"step": 2}], actor_0={"1": 40}), now)) == sorted(["buffer", who])


def test_a_policy_server_has_done_its_deed_when_the_buffer_knows_it():
    headway = Headway([RolePlan("policy-server", "policy-server")])
    assert headway.note(status()) == []
    assert headway.note({**status(), "policy_servers": [{"id": "policy-server"}]}) == ["policy-server"]


def test_rows_of_an_actor_that_was_away_count_once():
    headway = Headway(PLANS)
    headway.note(status(actor_0={"1": 40}))
    headway.note(status())
    assert headway.note(status(actor_0={"1": 40})) == ["buffer"]


def test_a_new_stream_without_a_row_is_nothing_done():
    assert after(status(), status(actor_0={"7": 0})) == ["buffer"]


def test_actors_of_others_are_nobodys_headway():
    assert after(status(), status(stranger={"1": 9})) == ["buffer"]


@pytest.mark.parametrize("phase", ["offline", "finishing", "stopping"])
def test_an_actor_is_not_to_blame_while_no_rows_are_collected(phase):
    assert after(status(phase), status(phase)) == ["buffer", "actor-0", "actor-1"]


def test_a_learner_that_owes_no_update_is_not_to_blame():
    assert after(status(owed=5), status(owed=5)) == ["learner", "buffer"]


def test_an_evaluator_without_a_policy_is_not_to_blame():
    assert after(status(step=0), status(step=0)) == ["buffer", "evaluator"]


def test_a_status_that_says_nothing_blames_nobody_but_the_actors_phase():
    assert after({}, {}) == [plan.name for plan in PLANS]
