"""Progress of long work: drawn over on a terminal, in lines elsewhere, and ended when somebody asks."""

import io
import itertools

import pytest

from headrace.launch.counting import Counting


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def every(monkeypatch):
    """Each look at the clock finds it so many seconds later."""

    def set_to(seconds):
        now = itertools.count(0, seconds)
        monkeypatch.setattr("headrace.launch.counting.time.monotonic", lambda: next(now))

    return set_to


def count(stream, **options):
    with Counting("reading", stream=stream, **options) as counting:
        for done in (1000, 2000, 4000):
            counting(done, 4000)
    return stream.getvalue()


def test_a_terminal_has_one_line_that_ends(every):
    every(1)
    said = "\rreading: 25 % of 4,000 rows\rreading: 50 % of 4,000 rows\rreading: 100 % of 4,000 rows\n"
    assert count(Terminal()) == said


def test_elsewhere_there_is_a_line_every_few_seconds(every):
    every(3)
    assert count(io.StringIO()) == "reading: 50 % of 4,000 rows\nreading: 100 % of 4,000 rows\n"


def test_short_work_says_nothing(every):
    every(0)
    assert count(io.StringIO()) == count(Terminal()) == ""


def test_things_that_are_counted_twice_and_bytes_are_told_as_what_they_are(every):
    every(6)
    assert count(io.StringIO(), passes=2).splitlines()[0] == "reading: 25 % of 2,000 rows"
    assert count(io.StringIO(), unit="KiB", size=1000).splitlines()[0] == "reading: 25 % of 4 KiB"


def test_the_line_on_a_terminal_ends_when_the_work_fails(every):
    every(6)
    stream = Terminal()
    with pytest.raises(ValueError, match="no"), Counting("reading", stream=stream) as counting:
        counting(1, 2)
        raise ValueError("no")
    assert stream.getvalue().endswith(" rows\n")


def test_a_request_ends_the_work():
    with pytest.raises(KeyboardInterrupt), Counting("reading", stop=lambda: True) as counting:
        counting(1, 2)
