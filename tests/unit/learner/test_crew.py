"""A crew does every share, in order, and meets again also when one of them fails."""

import threading
import time

import pytest

from headrace.learner.crew import Crew


@pytest.mark.parametrize("size", [1, 2, 4])
def test_results_come_in_the_order_of_the_shares(size):
    assert Crew(size).run(lambda share: share * 10, range(size)) == [10 * i for i in range(size)]


def test_shares_run_at_once_and_the_first_is_the_callers():
    meeting = threading.Barrier(3)

    def meet(share):
        meeting.wait(timeout=10)
        return share, threading.current_thread().name

    found = Crew(3).run(meet, range(3))
    assert [share for share, _ in found] == [0, 1, 2]
    assert found[0][1] == threading.current_thread().name
    assert all(name.startswith("crew") for _, name in found[1:])


@pytest.mark.parametrize("failing", [0, 1])
def test_a_failure_is_raised_after_every_share_has_ended(failing):
    ended = []

    def work(share):
        if share == failing:
            raise ArithmeticError(f"share {share}")
        time.sleep(0.05)
        ended.append(share)

    with pytest.raises(ArithmeticError, match=f"share {failing}"):
        Crew(2).run(work, range(2))
    assert ended == [1 - failing]
