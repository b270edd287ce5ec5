"""What happens as often as a stranger likes is told now and then, with how often it happened."""

from __future__ import annotations

from headrace.common.throttle import Throttle


def test_the_first_is_told_at_once_and_the_others_together_when_it_is_time():
    throttle = Throttle(10.0)
    assert [throttle.count(now) for now in (0.0, 1.0, 9.9, 10.0, 10.1)] == [1, 0, 0, 3, 0]
    assert throttle.count(30.0, 5) == 6


def test_nothing_is_never_told():
    throttle = Throttle(10.0)
    assert [throttle.count(now, 0) for now in (0.0, 50.0)] == [0, 0]
    assert throttle.count(51.0) == 1


def test_what_never_ends_is_told_ever_more_rarely_and_what_comes_back_at_once():
    throttle = Throttle(10.0, 100.0)
    told = [now for now in range(0, 1000, 5) if throttle.count(float(now))]
    assert told == [0, 10, 30, 70, 150, *range(250, 1000, 100)]
    assert [throttle.count(now) > 0 for now in (1094.0, 1194.0, 1199.0, 1204.0)] == [True, True, False, True]
