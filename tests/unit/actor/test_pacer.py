"""Periods begin at absolute times: lateness does not add up, and what was missed is left out."""

import numpy as np
import pytest

from headrace.actor.pacer import Pacer


def test_lateness_does_not_add_up():
    pacer, begun = Pacer(0.1, 5.0), []
    for late in (0.0, 0.03, 0.06, 0.02, 0.0):
        begun.append(pacer.due)
        assert pacer.begin(pacer.due + late) == 0
    assert np.allclose(begun, [5.0, 5.1, 5.2, 5.3, 5.4])
    assert pacer.overruns == 0


@pytest.mark.parametrize(("late", "missed"), [(0.05, 0), (0.15, 1), (0.39, 3), (100.05, 1000)])
def test_periods_that_were_missed_are_counted_and_never_made_up_for(late, missed):
    pacer = Pacer(0.1, 5.0)
    now = 5.0 + late
    assert pacer.begin(now) == missed
    assert pacer.overruns == missed
    assert now < pacer.due <= now + 0.1
    assert pacer.due == pytest.approx(5.0 + 0.1 * (missed + 1))


def test_jitter_is_told_in_milliseconds():
    pacer = Pacer(0.1, 0.0)
    assert pacer.report() == {"overruns": 0, "jitter_ms_p50": 0.0, "jitter_ms_p99": 0.0}
    for n in range(100):
        pacer.begin(pacer.due + n / 10_000)
    report = pacer.report()
    assert report["jitter_ms_p50"] == pytest.approx(4.95)
    assert report["jitter_ms_p99"] == pytest.approx(9.801)


def test_after_a_restart_nothing_counts_as_missed():
    pacer = Pacer(0.1, 0.0)
    pacer.begin(0.0)
    pacer.restart(77.0)
    assert pacer.begin(77.02) == 0
    assert pacer.due == pytest.approx(77.1)
