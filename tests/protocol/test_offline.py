"""The offline phase: updates on rows that were there before the run, counted apart, and no burst after it."""

from __future__ import annotations

import pytest

from headrace.buffer.pacing import Pacing, PacingConfig


def make(**options):
    return Pacing(PacingConfig(**{"min_fill": 100, "env_steps": 1000, "random_steps": 0, "lead_steps": 40, **options}))


@pytest.mark.parametrize("hold_learner", [True, False])
@pytest.mark.parametrize("hold_actors", [True, False])
def test_offline_updates_come_first_and_owe_nothing_to_the_ratio(hold_learner, hold_actors):
    pacing = make(offline_updates=50, hold_learner=hold_learner, hold_actors=hold_actors)
    pacing.join("a", executed=0, pending=0)
    for made in (0, 20, 49):
        pacing.observe(0, made, made)
        assert (pacing.offline, pacing.updates_allowed()) == (True, 50 - made)
        assert pacing.allowances()["a"].granted == 0
    pacing.observe(0, 50, 50)
    assert (pacing.offline, pacing.updates_allowed(), pacing.updates) == (False, 0, 0)
    assert pacing.allowances()["a"].granted == 40
    pacing.observe(101, 50, 50)
    assert pacing.updates_allowed() == (1 if hold_learner else 1 << 62)


def test_a_run_may_be_nothing_but_its_offline_phase():
    pacing = make(offline_updates=50, env_steps=0)
    pacing.join("a", executed=0, pending=0)
    assert pacing.allowances()["a"].final
    assert not pacing.finished
    pacing.observe(0, 50, 50)
    assert pacing.finished
    assert pacing.updates_allowed() == 0


@pytest.mark.parametrize("env_steps", [0, 1000])
def test_an_offline_phase_without_a_batch_holds_nobody(env_steps):
    pacing = make(offline_updates=50, env_steps=env_steps)
    pacing.join("a", executed=0, pending=0)
    pacing.observe(0, 20, 20)
    assert pacing.allowances()["a"].granted == 0
    pacing.drawable = False
    assert pacing.allowances()["a"].granted == (40 if env_steps else 0)
    assert pacing.finished == (env_steps == 0)
    pacing.observe(env_steps, 20, 20)
    assert pacing.finished
    pacing.drawable = True
    assert not pacing.finished


def test_a_run_without_an_end_has_none():
    pacing = make(env_steps=0)
    pacing.observe(10**9, 10**9)
    assert not pacing.collected
    assert not pacing.finished
