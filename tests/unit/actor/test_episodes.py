"""Where the rows of an episode are, and what is said of them."""

import numpy as np

from headrace.actor.episodes import Episodes
from headrace.common.label import Kind


def rows(*episodes):
    out = np.zeros(len(episodes), [("episode", "<u8")])
    out["episode"] = episodes
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
