"""A further rank between rank 0's orders, with a feed, a link and a learner that only count."""

from __future__ import annotations

import types

import pytest

from headrace.common.errors import DeadlineExceeded, SessionRefused
from headrace.learner import rank as ranks
from headrace.learner.config import LearnerConfig
from headrace.learner.group import Order
from headrace.learner.rank import RankLoop


class Feed:
    """Gives what it is told, then nothing."""

    must_draw = False

    def __init__(self, batches):
        self.batches, self.waited, self.said = list(batches), 0.0, {}

    def start_drawing(self):
        pass

    def get(self, timeout_s):
        batch = self.batches.pop(0) if self.batches else None
        self.waited += 0.0 if batch else timeout_s
        return batch

    def report(self, values):
        self.said = values


class Link:
    failure = None

    def wake(self):
        pass

    def check(self):
        if self.failure is not None:
            raise self.failure


class SAC:
    td_error, device = None, types.SimpleNamespace(type="cpu")

    def __init__(self):
        self.model, self.step, self.made = types.SimpleNamespace(close=self.close), 0, []
        self.closed = False

    def close(self):
        self.closed = True

    def begin(self):
        pass

    def update(self, batch, statistics, *actor_batch, counts):
        self.step += 1
        self.made.append((batch, counts))


class Group:
    """Orders so many updates, then the end."""

    def __init__(self, updates):
        self.left = [Order.UPDATE] * updates + [Order.STOP]

    def order(self):
        return self.left.pop(0)


@pytest.fixture
def make():
    def rank(batches, updates):
        sac = SAC()
        settings = types.SimpleNamespace(learner=LearnerConfig(rank_timeout_s=4.0), make_sac=lambda welcome, group: sac)
        feed, link = Feed(batches), Link()
        return RankLoop(settings, None, feed, link, Group(updates)), feed, link, sac

    return rank


def test_a_rank_updates_when_told_and_takes_part_with_its_last_rows_where_none_are_new(make, caplog):
    caplog.set_level("INFO")
    loop, feed, _, sac = make([["a"], ["b"], None, ["c"]], 4)
    loop.run()
    assert sac.made == [("a", True), ("b", True), ("b", False), ("c", True)]
    assert feed.said == {"learner/updates": 4, "updates_without_rows": 1}
    assert sac.closed
    assert caplog.messages == ["leaving: rank 0 said so, at update 4"]


def test_a_rank_that_never_had_rows_says_so_when_the_others_give_it_up(make):
    loop, feed, _, sac = make([], 1)
    with pytest.raises(DeadlineExceeded, match=r"not one batch within 4 s, and the others wait \(learner.rank_timeout_s\)"):
        loop.run()
    assert feed.waited == 4 * ranks.PATIENCE_S
    assert (sac.made, sac.closed) == ([], True)


def test_a_rank_that_the_buffer_turned_away_says_why(make):
    loop, _, link, sac = make([], 1)
    link.failure = SessionRefused("fenced", "learner-1 is another process now")
    with pytest.raises(SessionRefused):
        loop.run()
    assert sac.closed
