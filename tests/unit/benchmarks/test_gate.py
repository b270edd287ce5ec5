"""Gate verdicts: every bar can be missed, an unfinished gate has none, and finished runs are skipped."""

from __future__ import annotations

import pytest
from campaign import gate as gates
from campaign.gate import GATES, PAIRS, compare, done, judge, share_bar


def record(name, seed, value, **changes):
    gate = GATES[name]
    steps = gate.env_steps
    base = {"gate": name, "seed": seed, "return_mean": value, "env_steps": steps, "achieved_ratio": 1.0, "wall_s": 100.0}
    return {**base, "settings": {"learner": {"lr": 0.001}}, **changes}


def of(name, values, **changes):
    return [record(name, seed, value, **changes) for seed, value in zip(GATES[name].seeds, values, strict=False)]


GOOD = [-150.0, -145.0, -160.0, -155.0, -170.0]


def states(verdict):
    return {c.what: c.holds for c in verdict.checks}


def test_no_record_is_not_run_yet_and_some_are_unfinished():
    assert judge(GATES["pendulum-async"], []).state == gates.NOT_RUN
    assert judge(GATES["pendulum-async"], of("pendulum-async", GOOD[:4])).state == gates.UNFINISHED


def test_all_good_passes():
    assert judge(GATES["pendulum-async"], of("pendulum-async", GOOD)).state == gates.PASSED
    assert judge(GATES["halfcheetah-async"], of("halfcheetah-async", [3000.0, 4000.0, 3500.0])).state == gates.PASSED


@pytest.mark.parametrize(
    ("name", "values", "changes", "missed"),
    [
        ("pendulum-async", [*GOOD[:4], -200.1], {}, "worst seed"),
        ("halfcheetah-async", [2499.0, 5000.0, 5000.0], {}, "worst seed"),
        ("halfcheetah-async", [3400.0, 3450.0, 3500.0], {}, "mean"),
        ("pendulum-async", GOOD, {"env_steps": 10_001}, "env steps"),
        ("pendulum-async", GOOD, {"wall_s": 5401.0}, "longest run"),
    ],
)
def test_each_bar_fails_alone(name, values, changes, missed):
    verdict = judge(GATES[name], of(name, values, **changes))
    assert verdict.state == gates.FAILED
    assert [what for what, holds in states(verdict).items() if not holds] == [missed]


def test_seeds_of_different_settings_do_not_make_a_gate():
    mixed = of("pendulum-async", GOOD)
    mixed[2]["settings"] = {"learner": {"lr": 0.003}}
    assert states(judge(GATES["pendulum-async"], mixed))["one set of settings"] is False


def test_the_newest_record_of_a_seed_counts():
    lines = [*of("pendulum-async", GOOD), record("pendulum-async", 1, -900.0)]
    assert states(judge(GATES["pendulum-async"], lines))["worst seed"] is False


def pair(ours, theirs, **changes):
    a, b = PAIRS["halfcheetah"]
    return compare(GATES[a], GATES[b], of(a, ours, **changes) + of(b, theirs))


def test_asynchronous_equals_synchronous():
    assert pair([4000.0, 4200.0, 3900.0], [4100.0, 3950.0, 4150.0]).state == gates.PASSED
    assert compare(*(GATES[n] for n in PAIRS["halfcheetah"]), []).state == gates.NOT_RUN
    assert compare(*(GATES[n] for n in PAIRS["halfcheetah"]), of("halfcheetah-sync", [1.0] * 3)).state == gates.UNFINISHED


@pytest.mark.parametrize(
    ("ours", "changes", "missed"),
    [
        ([5000.0, 5010.0, 5020.0], {}, "95 % interval of the difference"),
        ([4100.0, 3300.0, 2500.0], {}, "asynchronous mean"),
        ([4000.0, 4200.0, 4100.0], {"env_steps": 49_999}, "env steps"),
        ([4000.0, 4200.0, 4100.0], {"achieved_ratio": 0.975}, "achieved ratio"),
    ],
)
def test_each_condition_of_the_comparison_fails_alone(ours, changes, missed):
    verdict = pair(ours, [4100.0, 3950.0, 4150.0] if missed != "asynchronous mean" else [4100.0, 3900.0, 4150.0], **changes)
    assert verdict.state == gates.FAILED
    assert missed in [what for what, holds in states(verdict).items() if not holds]


def test_the_share_of_a_cost_allows_more_cost():
    assert share_bar(4000.0) == pytest.approx(3400.0)
    assert share_bar(-150.0) == pytest.approx(-176.47, abs=0.01)


def test_a_finished_run_is_skipped_until_its_settings_change():
    gate, lines = GATES["pendulum-async"], of("pendulum-async", GOOD)
    assert done(gate, 0, {"learner": {"lr": 0.001, "added": True}}, lines)
    assert not done(gate, 0, {"learner": {"lr": 0.002}}, lines)
    assert not done(gate, 0, {"learner": {"lr": 0.001}}, [])
    assert not done(GATES["pendulum-sync"], 0, {"learner": {"lr": 0.001}}, lines)
