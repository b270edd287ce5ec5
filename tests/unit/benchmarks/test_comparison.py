"""Comparisons of gates: each condition can fail alone, and only seeds that both have count."""

from __future__ import annotations

import pytest
from campaign import gate as gates
from campaign.comparison import compare, share_bar
from campaign.registry import COMPARISONS, GATES
from helpers.gate_records import SETTINGS, missed, of

SYNC, SB3, CROSSQ = "halfcheetah: async = sync", "halfcheetah: async >= sb3", "halfcheetah-100k: crossq >= sac"
THREE, FIVE = [4100.0, 3950.0, 4150.0], [4100.0, 3950.0, 4150.0, 4000.0, 4200.0]


def verdict(name, ours, theirs, **changes):
    comparison = COMPARISONS[name]
    return compare(comparison, of(comparison.ours.name, ours, **changes) + of(comparison.theirs.name, theirs))


@pytest.mark.parametrize(
    ("name", "ours", "theirs"),
    [
        (SYNC, [4000.0, 4200.0, 3900.0], THREE),
        (SYNC, [4000.0, 4200.0, 3900.0, 0.0, 0.0], THREE),  # seeds 3 and 4 have no synchronous run beside them
        (SB3, [4000.0, 3900.0, 4150.0, 4100.0, 4000.0], FIVE),
        (SB3, [9000.0, 9100.0, 9050.0, 9000.0, 8900.0], FIVE),
        (CROSSQ, [4100.0, 4100.0, 4000.0], THREE),
    ],
)
def test_what_learns_as_well_passes(name, ours, theirs):
    assert verdict(name, ours, theirs).state == gates.PASSED


@pytest.mark.parametrize(
    ("name", "ours", "theirs", "changes", "condition"),
    [
        (SYNC, [5000.0, 5010.0, 5020.0], THREE, {}, ["95 % interval of the difference"]),
        (SYNC, [4100.0, 3300.0, 2500.0], [4100.0, 3900.0, 4150.0], {}, ["mean of halfcheetah-async"]),
        (SYNC, [4000.0, 4200.0, 4100.0], THREE, {"env_steps": 49_999}, ["env steps"]),
        (SYNC, [4000.0, 4200.0, 4100.0], THREE, {"achieved_ratio": 0.975}, ["achieved ratio"]),
        (SB3, [3900.0, 3880.0, 3890.0, 3870.0, 3910.0], FIVE, {}, ["95 % interval of the difference"]),
        (SB3, [4200.0, 4200.0, 4200.0, 2600.0, 2600.0], FIVE, {}, ["mean of halfcheetah-async"]),
        (SB3, FIVE, FIVE, {"episodes": 1}, ["episodes"]),
        (SB3, FIVE, FIVE, {"settings": {**SETTINGS, "learner": {"lr": 0.003}}}, ["settings"]),
        (CROSSQ, [4060.0, 4060.0, 4060.0], THREE, {}, ["mean of halfcheetah-100k-crossq"]),
    ],
)
def test_each_condition_fails_alone(name, ours, theirs, changes, condition):
    found = verdict(name, ours, theirs, **changes)
    assert (found.state, missed(found)) == (gates.FAILED, condition)


def test_seeds_that_are_missing_make_it_unfinished():
    assert verdict(SYNC, [], []).state == gates.NOT_RUN
    assert verdict(SYNC, [], [1.0] * 3).state == gates.UNFINISHED
    assert verdict(SB3, FIVE[:4], FIVE).state == gates.UNFINISHED


def test_what_is_only_reported_is_measured_unless_the_runs_cannot_be_compared():
    name = "hopper: async beside sb3"
    found = verdict(name, [1.0, 2.0, 3.0], [100.0, 200.0, 300.0])
    assert (found.state, found.checks[1].bar) == (gates.MEASURED, "beside 200.0")
    assert verdict(name, [1.0, 2.0, 3.0], [1.0, 2.0, 3.0], env_steps=1).state == gates.FAILED


def test_other_options_are_what_crossq_is_compared_for():
    other = {"settings": {**SETTINGS, "learner": {"lr": 0.003}}}
    assert verdict(CROSSQ, [4100.0, 4100.0, 4000.0], THREE, **other).state == gates.PASSED


def test_the_share_of_a_cost_allows_more_cost():
    assert share_bar(4000.0, 0.85) == pytest.approx(3400.0)
    assert share_bar(-150.0, 0.85) == pytest.approx(-176.47, abs=0.01)


def test_each_comparison_is_of_one_env_at_one_length():
    for comparison in COMPARISONS.values():
        ours, theirs = comparison.ours, comparison.theirs
        assert (ours.env, ours.env_steps, ours.episodes) == (theirs.env, theirs.env_steps, theirs.episodes)
        assert comparison.ours.name in GATES
