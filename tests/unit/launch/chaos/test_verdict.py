"""Verdicts: the bound is the exact one, also of a million trials, and one fault is enough to fail."""

from __future__ import annotations

import math

import pytest

from headrace.launch.chaos.verdict import Verdict, failure_bound


@pytest.mark.parametrize("trials", [1, 10, 1000, 1_000_000])
def test_without_failures_the_bound_is_the_root_of_a_twentieth(trials):
    assert failure_bound(0, trials) == pytest.approx(1 - 0.05 ** (1 / trials), rel=1e-6)


@pytest.mark.parametrize(("failures", "trials"), [(1, 10), (3, 40), (9, 10)])
def test_with_failures_it_is_the_probability_at_which_so_few_are_one_in_twenty(failures, trials):
    p = failure_bound(failures, trials)
    assert sum(math.comb(trials, k) * p**k * (1 - p) ** (trials - k) for k in range(failures + 1)) == pytest.approx(0.05)


def test_every_trial_failed():
    assert failure_bound(4, 4) == 1.0


def test_five_of_a_million_are_bounded_near_ten():
    assert 1e6 * failure_bound(5, 1_000_000) == pytest.approx(10.51, abs=0.01)


def test_one_fault_fails_and_only_the_first_cases_are_told():
    verdict = Verdict()
    assert verdict.passed
    assert verdict.bound("lost") is None
    verdict.trials["lost"] = 10
    for i in range(9):
        verdict.blame("lost", f"case {i}")
    verdict.blame("torn", "none", 0)
    assert not verdict.passed
    assert (verdict.found["lost"], verdict.cases) == (9, {"lost": ["case 0", "case 1", "case 2"]})


def test_verdicts_of_two_jobs_are_one():
    one, other = Verdict(), Verdict()
    for verdict, cases in ((one, 2), (other, 2)):
        verdict.trials["lost"] = 10
        for case in range(cases):
            verdict.blame("lost", f"case {case}")
        verdict.figures |= {"acked": 10, "join_max_s": cases}
    other.blame("torn", "mixed")
    other.figures |= {"join_max_s": 0.5, "resent": 3}
    one.join(other)
    assert (one.found, one.trials["lost"]) == ({"lost": 4, "torn": 1}, 20)
    assert one.cases == {"lost": ["case 0", "case 1", "case 0"], "torn": ["mixed"]}
    assert one.figures == {"acked": 20, "join_max_s": 2, "resent": 3}
