"""Where the rows of an episode are, and what is said of them."""

import numpy as np

from headrace.actor.episodes import Episodes
from headrace.common.label import MAX_REWARD_BYTES, Kind


def rows(*episodes, window=1, rewards=(), steps=(), ends=()):
    columns = [("episode", "<u8"), ("rewards", "<f4", (window,)), ("steps", "<u2"), ("terminated", "u1"), ("truncated", "u1")]
    out = np.zeros(len(episodes), columns)
    out["episode"], out["steps"] = episodes, steps or window
    for name, values in (("rewards", rewards), ("terminated", ends)):
        out[name][: len(values)] = values or out[name][:0]
    return out


def test_the_span_of_an_episode_reaches_over_blocks_and_other_lanes():
    known = Episodes()
    known.sent(rows(0, 0), 1)
    known.sent(rows(1, 1, 1), 3)
    known.sent(rows(0, 2, 2), 6)
    spans = {e: (known.label(e, Kind.OUTCOME, 1).first, known.label(e, Kind.OUTCOME, 1).last) for e in range(3)}
    assert spans == {0: (1, 6), 1: (3, 5), 2: (7, 8)}
    label = known.label(2, Kind.DISCARD)
    assert (label.kind, label.episode, label.outcome) == (Kind.DISCARD, 2, 0)
    assert known.label(9, Kind.DISCARD) is None


def test_only_the_newest_are_remembered():
    known = Episodes(keep=3)
    for episode in range(5):
        known.sent(rows(episode), episode + 1)
        known.sent(rows(1), 100 + episode)
    assert [known.label(e, Kind.DISCARD) is not None for e in range(5)] == [False, True, False, True, True]


def test_the_last_step_is_amended_in_every_row_that_holds_it_and_nothing_else_is():
    known = Episodes()
    known.sent(rows(4, 4, window=3, rewards=[[1, 2, 3], [2, 3, 4]]), 1)
    known.sent(rows(5, window=3, rewards=[[9, 9, 9]], ends=[1]), 3)  # of another lane, between them
    known.sent(rows(4, 4, 4, window=3, rewards=[[3, 4, 5], [4, 5, 0], [5, 0, 0]], steps=[3, 2, 1], ends=[1, 1, 1]), 4)
    label = known.amend(4, 7.0, 3)
    assert (label.kind, label.first, label.last, label.episode) == (Kind.REWARDS, 4, 6, 4)
    assert label.rewards.tolist() == [[3, 4, 7], [4, 7, 0], [7, 0, 0]]
    assert known.amend(4, 0.5, 3).rewards.tolist() == [[3, 4, 0.5], [4, 0.5, 0], [0.5, 0, 0]]
    assert known.amend(6, 1.0, 3) is None
    known.sent(rows(6), 7)  # it runs
    assert known.amend(6, 1.0, 3) is None


def test_a_row_that_one_label_cannot_name_with_the_last_is_left_as_it_is():
    known, far = Episodes(), MAX_REWARD_BYTES // 4
    known.sent(rows(0, rewards=[[1]], ends=[1]), 1)
    known.sent(rows(0, rewards=[[2]], ends=[1]), far + 1)
    label = known.amend(0, 7.0, 1)
    assert (label.first, label.last, label.rewards.nbytes) == (2, far + 1, MAX_REWARD_BYTES)
    assert label.rewards[-1] == 7
    assert not label.rewards[:-1].any()
