"""When rows were committed."""

import numpy as np
import pytest

from headrace.learner import row_clock
from headrace.learner.row_clock import RowClock


def ages(clock, now, *ids):
    return clock.age(np.array(ids), now).tolist()


def test_between_two_moments_rows_came_evenly():
    clock = RowClock()
    clock.note(100, 1000.0)
    clock.note(300, 1020.0)  # ten rows a second
    clock.note(310, 1021.0)
    assert ages(clock, 1021.0, 100, 199, 299) == pytest.approx([20.95, 11.05, 1.05])
    assert ages(clock, 1025.0, 309) == pytest.approx([4.05])
    assert ages(clock, 1021.0, 400) == [0.0]  # committed since the last word of it


def test_of_rows_from_before_the_first_moment_the_age_is_the_least_that_it_can_be():
    clock = RowClock()
    assert ages(clock, 5.0, 7) == [0.0]
    clock.note(100, 1000.0)
    assert ages(clock, 1060.0, 0, 99) == [60.0, 60.0]


def test_a_pause_counts():
    clock = RowClock()
    for rows, now in [(100, 0.0), (200, 10.0), (200, 20.0), (200, 500.0), (200, 1000.0), (300, 1010.0)]:
        clock.note(rows, now)
    assert ages(clock, 1010.0, 199, 200) == pytest.approx([1000.05, 9.95])
    assert len(clock.get_state()["marks"]) == 4


def test_a_pool_that_went_back_begins_anew():
    clock = RowClock()
    clock.note(100, 0.0)
    clock.note(50, 10.0)
    assert clock.get_state() == {"marks": [(50, 10.0)]}
    assert clock.check_valid() == (True, "")


def test_marks_are_bounded_and_the_ends_stay(monkeypatch):
    monkeypatch.setattr(row_clock, "MOST_MARKS", 16)
    clock = RowClock()
    for i in range(1000):
        clock.note(10 * i, float(i))
        assert len(clock.get_state()["marks"]) <= 16
    marks = clock.get_state()["marks"]
    assert (marks[0], marks[-1]) == ((0, 0.0), (9990, 999.0))
    assert ages(clock, 999.0, 5000, 9000) == pytest.approx([498.95, 98.95])  # they came evenly
    again = RowClock()
    again.set_state(clock.get_state())
    assert again.get_state() == clock.get_state()
    again.set_state({"marks": [(5, 1.0), (4, 2.0)]})
    assert again.check_valid() == (False, "mark (4, 2.0) is behind (5, 1.0)")
