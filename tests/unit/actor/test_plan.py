"""Chunks in a loop of one's own: which action is next, and with which step a row begins, whatever ends a chunk early."""

import numpy as np
import pytest

from headrace.actor.config import WindowConfig
from headrace.actor.plan import Plan
from headrace.common.errors import EnvError, SpecError
from headrace.common.specs import SOURCE_HUMAN, SOURCE_POLICY, TransitionSpec

SPEC = TransitionSpec.like({"obs": np.zeros(2, np.float32)}, [-100], [100], chunk=3)


class Loop:
    """Decision n is the actions 10 n + 1, 10 n + 2, 10 n + 3."""

    def __init__(self):
        self.plan, self.made = Plan(SPEC), 0

    def decide(self):
        self.made += 1
        return np.array([[10 * self.made + i] for i in (1, 2, 3)], np.float32)

    def act(self):
        return int(self.plan.next(self.decide)[0])

    def record(self, source=SOURCE_POLICY, own=None):
        """First action of the decision that begins here; 0 where the step goes on."""
        found = self.plan.beginning(source, own)
        self.plan.executed(source, began=found is not None, own=own is not None)
        return 0 if found is None else int(found[0, 0])

    def ticks(self, *sources):
        return [(self.act(), self.record(source)) for source in sources]


P, H = SOURCE_POLICY, SOURCE_HUMAN


def test_a_chunk_is_executed_to_its_end_and_asking_again_changes_nothing():
    loop = Loop()
    assert loop.ticks(P, P) == [(11, 11), (12, 0)]
    assert [loop.act(), loop.act()] == [13, 13]
    assert [loop.record(), *loop.ticks(P, P)] == [0, (21, 21), (22, 0)]


def test_an_episode_begins_with_a_decision_of_its_own():
    loop = Loop()
    assert loop.ticks(P, P) == [(11, 11), (12, 0)]
    loop.plan.restart()
    assert loop.ticks(P) == [(21, 21)]


@pytest.mark.parametrize(
    ("sources", "expected"),
    [
        (
            (P, H, P, P, P, P),
            [(11, 11), (12, 0), (21, 21), (22, 0), (23, 0), (31, 31)],
        ),  # behind a human's the policy decides anew
        ((H, H, H, H, P), [(11, 11), (21, 0), (31, 0), (41, 41), (51, 51)]),  # rows of humans are as long as others
        ((P, P, P, H, H, P), [(11, 11), (12, 0), (13, 0), (21, 21), (31, 0), (41, 41)]),
    ],
)
def test_a_humans_step_goes_on_with_the_row_that_runs(sources, expected):
    assert Loop().ticks(*sources) == expected


def test_a_loop_that_decides_by_itself_says_where_each_decision_begins():
    loop = Loop()
    own = np.array([[7], [8], [9]], np.float32)
    assert [loop.record(own=own), loop.record(), loop.record(own=own)] == [7, 0, 7]  # one may begin early
    assert loop.ticks(P, P) == [(11, 11), (12, 0)]  # and what the policy decides next is whole
    assert loop.record(own=own) == 7
    assert loop.ticks(P) == [(21, 21)]


def test_a_step_without_a_decision_is_told_what_is_missing_and_changes_nothing():
    loop = Loop()
    with pytest.raises(EnvError, match="0 steps of a chunk of 3 .* call act"):
        loop.record()
    assert loop.ticks(P, P, P) == [(11, 11), (12, 0), (13, 0)]
    for source in (P, H):
        with pytest.raises(EnvError, match="3 steps of a chunk of 3"):
            loop.record(source)
    assert loop.ticks(P) == [(21, 21)]


def test_chunks_that_are_none_are_refused():
    with pytest.raises(SpecError, match=r"spec.action.shape: \(1,\), expected \(3, A\)"):
        Plan(TransitionSpec(SPEC.obs, TransitionSpec.like({"o": 0.0}, [0], [1]).action, 3, "chunk"))
    with pytest.raises(SpecError, match="window: 2, but with chunk 3"):
        TransitionSpec.like({"o": 0.0}, [0], [1], window=2, chunk=3)


def test_the_spec_is_that_of_a_run_with_such_chunks():
    one = TransitionSpec.like({"obs": np.zeros(2, np.float32)}, [-100], [100])
    assert WindowConfig(chunk=3).spec(one.obs, one.action) == SPEC
