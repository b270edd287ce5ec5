"""Gate verdicts: every bar can be missed, records that were tampered with fail, and finished runs are skipped."""

from __future__ import annotations

import dataclasses

import pytest
from campaign import gate as gates
from campaign.gate import Bars, Gate, done, judge
from campaign.registry import GATES
from helpers.gate_records import SETTINGS, missed, of, record

GOOD = [-150.0, -145.0, -160.0, -155.0, -170.0]


def test_no_record_is_not_run_yet_and_some_are_unfinished():
    assert judge(GATES["pendulum-async"], []).state == gates.NOT_RUN
    assert judge(GATES["pendulum-async"], of("pendulum-async", GOOD[:4])).state == gates.UNFINISHED


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("pendulum-async", GOOD),
        ("halfcheetah-sync", [3000.0, 4000.0, 3500.0]),
        ("halfcheetah-100k", [4000.0, 5000.0, 5941.0]),
        ("reach-rlpd", [0.9, 0.98, 1.0]),
        ("reach-sac", [0.0, 0.18, 0.02]),
        ("pixel-reach-shift", [0.8, 0.9, 1.0]),
    ],
)
def test_all_good_passes(name, values):
    assert judge(GATES[name], of(name, values)).state == gates.PASSED


@pytest.mark.parametrize(
    ("name", "values", "changes", "bar"),
    [
        ("pendulum-async", [*GOOD[:4], -200.1], {}, "worst seed"),
        ("halfcheetah-sync", [2499.0, 5000.0, 5000.0], {}, "worst seed"),
        ("halfcheetah-sync", [3400.0, 3450.0, 3500.0], {}, "mean"),
        ("halfcheetah-100k", [4979.0, 4979.0, 4981.0], {}, "mean"),
        ("reach-rlpd", [0.88, 1.0, 1.0], {}, "worst seed"),
        ("reach-sac", [0.0, 0.0, 0.2], {}, "best seed"),
        ("pixel-reach-still", [1.0, 1.0, 0.78], {}, "worst seed"),
        ("pendulum-async", GOOD, {"env_steps": 10_001}, "env steps"),
        ("pendulum-async", GOOD, {"wall_s": 5401.0}, "longest run"),
        ("pendulum-async", GOOD, {"episodes": 1}, "episodes"),
        ("halfcheetah-100k", [6000.0] * 3, {"env": "HalfCheetah-v5"}, "env"),
        ("reach-rlpd", [1.0] * 3, {"achieved_ratio": 4.1, "settings": {"pacing": {"ratio": 4.0}}}, "achieved ratio"),
        ("halfcheetah-sb3", [4000.0] * 5, {"env_steps": 49_000}, "env steps"),
    ],
)
def test_each_bar_fails_alone(name, values, changes, bar):
    verdict = judge(GATES[name], of(name, values, **changes))
    assert (verdict.state, missed(verdict)) == (gates.FAILED, [bar])


@pytest.mark.parametrize("name", ["reach-rlpd", "reach-sac"])
def test_a_seed_of_which_nobody_said_whether_it_succeeded_fails_whatever_is_asked(name):
    verdict = judge(GATES[name], [*of(name, [0.0, 0.0]), record(name, 2, None)])
    assert (verdict.state, missed(verdict)) == (gates.FAILED, ["success"])


def test_a_gate_that_asks_nothing_is_measured_and_its_mean_told():
    verdict = judge(GATES["hopper-sb3"], of("hopper-sb3", [300.0, 400.0, 500.0]))
    assert verdict.state == gates.MEASURED
    assert verdict.checks[0] == gates.Check("mean", "400.0", "reported", True)


def test_a_stretch_is_told_and_never_a_reason_to_fail():
    gate = GATES["halfcheetah-100k"]
    for values, said in (([5000.0] * 3, "stretch 6150.0 not reached"), ([6150.0] * 3, "stretch 6150.0 reached")):
        verdict = judge(gate, of(gate.name, values))
        assert (verdict.state, verdict.note) == (gates.PASSED, said)


def test_seeds_of_different_settings_do_not_make_a_gate():
    mixed = of("pendulum-async", GOOD)
    mixed[2]["settings"] = {**SETTINGS, "learner": {"lr": 0.003}}
    assert missed(judge(GATES["pendulum-async"], mixed)) == ["one set of settings"]


def test_the_newest_record_of_a_seed_counts():
    lines = [*of("pendulum-async", GOOD), record("pendulum-async", 1, -900.0)]
    assert missed(judge(GATES["pendulum-async"], lines)) == ["worst seed"]


def test_a_finished_run_is_skipped_until_its_settings_change():
    gate, lines = GATES["pendulum-async"], of("pendulum-async", GOOD)
    assert done(gate, 0, {"learner": {"lr": 0.001, "added": True}}, lines)
    assert not done(gate, 0, {"learner": {"lr": 0.002}}, lines)
    assert not done(gate, 0, {"learner": {"lr": 0.001}}, [])
    assert not done(GATES["pendulum-sync"], 0, {"learner": {"lr": 0.001}}, lines)


def test_words_of_a_gate_win_over_those_of_its_mode():
    gate = Gate("g", "E-v0", "e.yaml", gates.SYNC, (0,), 10, 1, (), Bars(), words={"actor.count": 3})
    assert gate.overrides(7) == {
        **{"env.id": "E-v0", "seed": 7, "pacing.env_steps": 10, "eval.final_episodes": 1, "run.mode": "sync", "actor.count": 3}
    }
    assert "run.mode" not in dataclasses.replace(gate, mode=gates.SB3).overrides(7)
