"""Intervals contain what they must, and the bound on failures is the textbook's."""

from __future__ import annotations

import numpy as np
import pytest
from campaign.intervals import difference_interval, failure_bound, mean_interval, pair_ratio


def test_the_mean_lies_inside_and_one_value_is_its_own_interval():
    low, high = mean_interval([1.0, 2.0, 3.0, 4.0])
    assert 1.0 <= low < 2.5 < high <= 4.0
    assert mean_interval([7.0]) == (7.0, 7.0)
    low, high = mean_interval(np.array([[0.0, 10.0], [2.0, 30.0]]))
    assert low.tolist() == [0.0, 10.0]
    assert high.tolist() == [2.0, 30.0]


def test_the_interval_covers_about_as_often_as_it_says():
    rng = np.random.default_rng(5)
    hits = 0
    for _ in range(200):
        low, high = mean_interval(rng.normal(3.0, 1.0, 30))
        hits += int(low <= 3.0 <= high)
    assert 180 <= hits <= 198  # 95 % of 200, and the percentile bootstrap is a little narrow


def test_a_difference_of_equal_lists_includes_zero_and_a_plain_shift_does_not():
    values = [-150.0, -160.0, -140.0, -155.0]
    low, high = difference_interval(values, values)
    assert low < 0 < high
    low, high = difference_interval([v + 100 for v in values], values)
    assert 80 < low < 100 < high < 120


def test_the_ratio_of_pairs_is_their_geometric_mean():
    ratio, low, high = pair_ratio([1.0, 4.0], [2.0, 2.0])
    assert ratio == pytest.approx(1.0)  # halves and doubles cancel
    assert (low, high) == pytest.approx((0.5, 2.0))
    assert pair_ratio([40.0, 44.0], [50.0, 55.0]) == pytest.approx((0.8, 0.8, 0.8))


@pytest.mark.parametrize(("ours", "theirs"), [([], []), ([1.0], [1.0, 2.0]), ([1.0], [0.0]), ([-1.0], [1.0])])
def test_a_ratio_of_what_is_no_pair_is_refused(ours, theirs):
    with pytest.raises(ValueError, match="pairs of positive values"):
        pair_ratio(ours, theirs)


def test_the_failure_bound_is_clopper_and_pearsons():
    assert failure_bound(0, 10) == pytest.approx(1 - 0.05 ** (1 / 10), abs=1e-6)
    assert failure_bound(0, 100) == pytest.approx(3 / 100, rel=0.02)
    assert failure_bound(1, 10) == pytest.approx(0.394, abs=1e-3)
    assert failure_bound(10, 10) == 1.0
    with pytest.raises(ValueError, match="11 failures of 10 trials"):
        failure_bound(11, 10)
