"""Whom the killer finds in the process table, and when it says that a role's work goes on."""

from __future__ import annotations

import pytest
from campaign.killing import role_of, works_again

VICTIM = 50


def status(uptime_s=9.0, env_steps=100, updates=40, learner=60, actors=(), evaluators=()):
    base = {"uptime_s": uptime_s, "env_steps": env_steps, "updates": updates, "evaluators": [{"pid": p} for p in evaluators]}
    return {**base, "learner": None if learner is None else {"pid": learner}, "actors": list(actors)}


def actor(pid, acked, name="actor-0"):
    return {"id": name, "pid": pid, "acked": acked}


@pytest.mark.parametrize(
    ("words", "role"),
    [
        ("python -P -m headrace buffer runs/a", "buffer"),
        ("python -P -m headrace learner runs/a --id learner", "learner"),
        ("python -P -m headrace actor runs/a --id actor-0", "actor"),
        ("python -P -m headrace actor runs/a --id evaluator --evaluate", "evaluator"),
        ("python -P -m headrace status runs/a", ""),
        ("python -m headrace", ""),
        ("tail -f buffer", ""),
    ],
)
def test_roles_are_known_by_their_command_line(words, role):
    assert role_of(words.split()) == role


def test_a_buffer_works_again_when_a_younger_one_has_more_rows():
    before = status(uptime_s=9.0, env_steps=100)
    assert works_again("buffer", "", before, status(uptime_s=1.0, env_steps=101), VICTIM, 2.0)
    assert not works_again("buffer", "", before, status(uptime_s=1.0, env_steps=100), VICTIM, 2.0)
    assert not works_again("buffer", "", before, status(uptime_s=9.5, env_steps=120), VICTIM, 2.0)  # the dead one's last words


def test_a_learner_works_again_when_another_process_updates():
    before = status(updates=40, learner=VICTIM)
    assert works_again("learner", "learner", before, status(updates=41, learner=61), VICTIM, 2.0)
    assert not works_again("learner", "learner", before, status(updates=41, learner=VICTIM), VICTIM, 2.0)
    assert not works_again("learner", "learner", before, status(updates=40, learner=61), VICTIM, 2.0)
    assert not works_again("learner", "learner", before, status(updates=41, learner=None), VICTIM, 2.0)


def test_an_actor_works_again_when_its_own_successor_has_rows_acknowledged():
    before = status(actors=[actor(VICTIM, {"1": 30}), actor(51, {"2": 30}, "actor-1")])
    assert works_again("actor", "actor-0", before, status(actors=[actor(70, {"1": 30, "3": 2})]), VICTIM, 2.0)
    assert not works_again("actor", "actor-0", before, status(actors=[actor(70, {"1": 31, "3": 0})]), VICTIM, 2.0)
    assert not works_again("actor", "actor-0", before, status(actors=[actor(51, {"2": 60, "4": 9}, "actor-1")]), VICTIM, 2.0)
    assert not works_again("actor", "actor-0", before, status(actors=[actor(VICTIM, {"1": 40})]), VICTIM, 2.0)


def test_an_evaluator_works_again_when_another_process_is_connected():
    assert works_again("evaluator", "", status(), status(evaluators=[71]), VICTIM, 2.0)
    assert not works_again("evaluator", "", status(), status(evaluators=[VICTIM]), VICTIM, 2.0)
