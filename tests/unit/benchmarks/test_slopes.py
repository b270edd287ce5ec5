"""Whether something grows, in noise whose neighbours are alike."""

from __future__ import annotations

import numpy as np
import pytest
from campaign.slopes import slope

TIMES = np.arange(3600.0)


def walk(seed, size=1.0, memory=0.99):
    """Noise in which each value is near the one before."""
    rng, out = np.random.default_rng(seed), np.zeros(len(TIMES))
    for i, step in enumerate(rng.normal(0, size, len(TIMES))):
        out[i] = memory * out[i - 1] + step
    return 100 + out


def test_the_line_itself_is_found_exactly():
    found = slope(TIMES, 5 + 3 * TIMES / 3600)
    assert (found.value, found.low, found.high) == pytest.approx((3, 3, 3))
    assert slope(TIMES, np.full(len(TIMES), 7.0)).high == 0
    with pytest.raises(ValueError, match="3 samples, at least 12"):
        slope(TIMES[:3], TIMES[:3])


def test_intervals_of_correlated_noise_hold_the_truth_about_as_often_as_they_say():
    held = sum(found.low <= 10 <= found.high for found in (slope(TIMES, walk(i) + 10 * TIMES / 3600) for i in range(60)))
    assert held >= 50


def test_growth_counts_only_when_all_of_the_interval_is_beyond_the_tolerance():
    leak = slope(TIMES, walk(1) + 60 * TIMES / 3600)
    assert leak.grows(4.0)
    assert not leak.grows(100.0)
    assert not slope(TIMES, walk(1) - 60 * TIMES / 3600).grows(4.0)
    assert not slope(TIMES, walk(1)).grows(4.0)
