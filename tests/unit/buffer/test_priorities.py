import mmap

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headrace.buffer.config import SamplingConfig
from headrace.buffer.header import Field, Header
from headrace.buffer.priorities import Priorities
from headrace.buffer.random_source import RandomSource
from headrace.common.errors import PoolTooSmall, PriorityRefused

EPS = 1e-12
ROWS = np.zeros(1000, [("x", "u1")])


class Ring:
    """What a store does with its index: rows come, the oldest go, and all of it may be opened again."""

    def __init__(self, capacity, slack=2, seed=0, **config):
        self.capacity, self.config, self.seed = capacity, SamplingConfig("prioritised", priority_eps=EPS, **config), seed
        self.column = np.zeros(capacity + slack, np.float32)
        self.header = Header(mmap.mmap(-1, Header.SIZE))
        self.header[Field.CAPACITY] = capacity
        self.dead = set()
        self.open()

    def open(self):
        self.header[Field.EPOCH] += 1
        self.index = Priorities(self.config, self.column, self.header, RandomSource(np.random.default_rng(self.seed)))
        self.index.cleared()
        tail, head = self.header.tail, self.header.head
        for low in range(tail, head, 3):
            self.index.committed(low, ROWS[: min(3, head - low)])
        dead = np.array(sorted(i for i in self.dead if i >= tail), np.int64)
        if len(dead):
            self.index.discarded(dead)

    def commit(self, n, *, killed=False):
        head, tail = self.header.head, self.header.tail
        if head + n - self.capacity > tail:
            self.index.retired(head + n - self.capacity)
        self.column[np.arange(head, head + n) % len(self.column)] = 0
        self.header[Field.HEAD] = head + n
        if not killed:
            self.index.committed(head, ROWS[:n])

    def discard(self, *ids):
        self.dead |= set(ids)
        self.index.discarded(np.array(ids))

    def update(self, ids, priorities, epoch=None):
        now = self.header[Field.EPOCH]
        return self.index.update(now if epoch is None else epoch, np.array(ids, np.int64), np.array(priorities, float))

    def priority(self, i):
        return float(self.column[i % len(self.column)])

    @property
    def ids(self):
        return range(self.header.tail, self.header.head)


def counts(ring, draws, batch):
    total = np.zeros(ring.header.head)
    for _ in range(draws // batch):
        np.add.at(total, ring.index.draw(batch).ids, 1)
    return total


def test_probabilities_and_weights_checked_by_hand():
    ring = Ring(3, priority_exponent=0.6, importance_exponent=0.4)
    ring.commit(3)
    ring.update([0, 1, 2], [1, 2, 4])
    leaves = ring.index._tree.get(np.arange(3))
    np.testing.assert_allclose(leaves / ring.index._tree.total, [0.2078, 0.3149, 0.4773], atol=5e-5)
    weights = {}
    while len(weights) < 3:
        drawn = ring.index.draw(3)
        weights |= dict(zip(drawn.ids.tolist(), drawn.weights.tolist(), strict=True)) if 0 in drawn.ids else {}
    np.testing.assert_allclose([weights[i] for i in range(3)], [1, 0.8467, 0.7170], atol=5e-5)
    assert (drawn.ids.dtype, drawn.weights.dtype) == (np.int64, np.float32)


@pytest.mark.parametrize(("batch", "draws"), [(1, 20_000), (500, 1_000_000)])
def test_frequencies_are_the_probabilities(batch, draws):
    ring = Ring(500, slack=200, seed=1)
    ring.commit(500)
    ring.commit(200)
    p = 0.1 + np.random.default_rng(0).random(500) ** 3
    ring.update(ring.ids, p)
    expected = p**0.6 / (p**0.6).sum() * draws
    found = counts(ring, draws, batch)
    assert found[:200].sum() == 0
    assert ((found[200:] - expected) ** 2 / expected).sum() < 499 + 4 * np.sqrt(2 * 499)


def test_a_batch_is_drawn_in_strata_and_in_no_order():
    ring = Ring(10_000, priority_exponent=1.0)
    for _ in range(10):
        ring.commit(1000)
    ids = np.array([ring.index.draw(10).ids for _ in range(300)])
    np.testing.assert_array_equal(np.sort(ids, axis=1) // 1000, np.broadcast_to(np.arange(10), ids.shape))
    assert abs(ids[:, 0].mean() - 5000) < 5 * 2887 / np.sqrt(300)


def test_weights_are_one_for_equal_rows_and_follow_the_declared_exponent():
    ring = Ring(4, importance_exponent=0.5, importance_anneal_updates=100, priority_exponent=1.0)
    ring.commit(4)
    assert ring.index.draw(4).weights.tolist() == [1.0] * 4
    ring.update([0, 1, 2, 3], [1, 1, 1, 4])
    for updates, b in ((0, 0.5), (50, 0.75), (100, 1.0), (10**9, 1.0)):
        ring.header[Field.UPDATES] = updates
        drawn = next(d for d in iter(lambda: ring.index.draw(4), None) if (d.ids < 3).any() and 3 in d.ids)
        assert drawn.weights[drawn.ids == 3][0] == pytest.approx(4**-b)


def test_new_rows_get_the_running_maximum():
    ring = Ring(4)
    ring.commit(2)
    assert (ring.priority(0), ring.index.maximum) == (1.0, 1.0)
    ring.update([0], [0.5])
    ring.commit(1)
    assert ring.priority(2) == 1.0
    ring.update([1], [9.0])
    ring.update([1], [2.0])
    ring.commit(1)
    assert (ring.priority(3), ring.priority(1)) == (9.0, 2.0)
    ring.open()
    ring.commit(1)
    assert ring.priority(4) == 9.0


def test_a_priority_for_a_row_that_was_overwritten_changes_nothing():
    ring = Ring(4, slack=1)
    ring.commit(4)
    epoch = ring.header[Field.EPOCH]
    for _ in range(5):
        ring.commit(1)
    assert ring.update([1], [77.0], epoch) == 1
    assert {ring.priority(i) for i in ring.ids} == {1.0}
    assert ring.index.stale_updates == 1
    assert ring.update([1, 6, 5], [77.0, 3.0, 2.0]) == 1
    assert [ring.priority(i) for i in ring.ids] == [2.0, 3.0, 1.0, 1.0]
    assert ring.index.stale_updates == 2


def test_updates_of_an_earlier_epoch_are_stale_whatever_they_name():
    ring = Ring(4)
    ring.commit(4)
    ring.open()
    assert ring.update([0, 1, 99], [5.0, 5.0, 5.0], epoch=ring.header[Field.EPOCH] - 1) == 3
    assert (ring.column.max(), ring.index.stale_updates) == (1.0, 3)


def test_a_discarded_row_is_never_drawn_and_its_updates_are_stale():
    ring = Ring(6)
    ring.commit(6)
    ring.discard(2, 3)
    for _ in range(2):
        assert ring.update([3, 4], [1e6, 2.0]) == 1
        assert counts(ring, 4000, 4)[[2, 3]].sum() == 0
        assert ring.index.check_valid() == (True, "")
        ring.open()
    with pytest.raises(PoolTooSmall, match="batch of 5 .* 4 stored"):
        ring.index.draw(5)
    ring.commit(3)
    assert ring.index.draw(5).weights.shape == (5,)


def test_of_a_row_named_twice_the_last_priority_stays():
    ring = Ring(4)
    ring.commit(4)
    assert ring.update([1, 2, 1], [5.0, 6.0, 7.0]) == 0
    assert [ring.priority(i) for i in range(4)] == [1.0, 7.0, 6.0, 1.0]
    assert ring.index.check_valid() == (True, "")


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, -1e-30, 1e300, 3.1e38])
def test_a_number_that_is_no_priority_is_refused_with_all_of_its_message(bad):
    ring = Ring(4)
    ring.commit(4)
    with pytest.raises(PriorityRefused, match="value") as refused:
        ring.update([0, 1], [5.0, bad])
    assert refused.value.reason == "value"
    assert ring.column.max() == 1.0


def test_ids_of_the_future_and_wrong_lengths_are_refused():
    ring = Ring(4)
    ring.commit(3)
    with pytest.raises(PriorityRefused, match="id: row 3 was never given out, the next one is 3"):
        ring.update([1, 3], [5.0, 5.0])
    with pytest.raises(PriorityRefused, match="shape"):
        ring.update([1, 2], [5.0])
    assert ring.update([], []) == 0
    assert ring.update([-1, -(1 << 62)], [5.0, 5.0]) == 2
    assert ring.column.max() == 1.0


def test_extreme_priorities_keep_sampling_sound():
    ring = Ring(40, priority_exponent=1.0)
    ring.commit(40)
    ring.update(range(40), [0.0, 1e-45, 1e-38, 3e38] * 10)
    drawn = ring.index.draw(40)
    assert set(drawn.ids % 4) == {3}
    assert np.isfinite(drawn.weights).all()
    ring.update(range(40), [0.0] * 40)
    assert ring.index.draw(40).weights.tolist() == [1.0] * 40
    assert ring.index.check_valid() == (True, "")


def test_open_after_a_kill_in_the_middle_of_a_commit_gives_the_maximum_and_no_strangers_priority():
    ring = Ring(4, slack=4)
    ring.commit(4)
    ring.update(range(4), [1, 2, 3, 4])
    ring.commit(3, killed=True)
    ring.open()
    assert [ring.priority(i) for i in ring.ids] == [4.0] * 4
    assert ring.index.check_valid() == (True, "")


def test_a_damaged_column_is_repaired_at_open():
    ring = Ring(4)
    ring.commit(4)
    ring.column[:4] = [np.nan, -1, 3.0, 0.25]
    ring.open()
    assert [ring.priority(i) for i in range(4)] == [1, 1, 1, 0.25]
    assert ring.index.check_valid() == (True, "")


def test_open_rebuilds_the_tree_to_the_bit():
    ring = Ring(3000, slack=100)
    for _ in range(50):
        ring.commit(100)
        ring.update(ring.ids, np.random.default_rng(ring.header.head).random(len(ring.ids)) * 9)
    before = [level.copy() for level in ring.index._tree._levels]
    first = ring.index.draw(64, np.random.default_rng(7)).ids
    ring.open()
    assert all(np.array_equal(a, b) for a, b in zip(before, ring.index._tree._levels, strict=True))
    np.testing.assert_array_equal(ring.index.draw(64, np.random.default_rng(7)).ids, first)


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (lambda r: r.index._tree.set(np.array([0]), 5.0), "a leaf is not its row's priority"),
        (lambda r: r.index._tree.set(np.array([5]), 5.0), "without a live row"),
        (lambda r: r.index._tree.set(np.array([0]), 0.0), "3 rows can be drawn, 4 are counted"),
        (lambda r: r.column.__setitem__(0, 1.0000001), "above the running maximum"),
    ],
)
def test_check_valid_sees(damage, why):
    ring = Ring(4)
    ring.commit(4)
    damage(ring)
    assert why in ring.index.check_valid()[1]


class Interleavings(RuleBasedStateMachine):
    """Commits, updates true and stale, discards, kills and opens against a plain dictionary."""

    @initialize(capacity=st.integers(1, 12), slack=st.integers(1, 12))
    def start(self, capacity, slack):
        self.ring = Ring(capacity, slack=min(slack, capacity), priority_exponent=1.0)
        self.slack = min(slack, capacity)
        self.model, self.top, self.stale = {}, 1.0, 0

    @rule(data=st.data(), killed=st.booleans())
    def commit(self, data, killed):
        n = data.draw(st.integers(1, self.slack))
        head = self.ring.header.head
        self.ring.commit(n, killed=killed)
        self.model |= {head + i: self.top for i in range(n)}
        if killed:
            self.ring.open()
        self.model = {i: p for i, p in self.model.items() if i in self.ring.ids}

    @rule(data=st.data(), value=st.sampled_from([0.0, 0.25, 2.0, 50.0, 3e38]), old=st.booleans())
    def update(self, data, value, old):
        ids = data.draw(st.lists(st.integers(0, max(0, self.ring.header.head - 1)), max_size=6))
        if not self.ring.header.head:
            return
        values = [np.float32(value + i + EPS) for i in range(len(ids))]
        self.ring.update(ids, [value + i for i in range(len(ids))], self.ring.header[Field.EPOCH] - old)
        for i, v in zip(ids, values, strict=True):
            if old or i not in self.model or i in self.ring.dead:
                self.stale += 1
            else:
                self.model[i], self.top = float(v), max(self.top, float(v))

    @precondition(lambda self: set(self.model) - self.ring.dead)
    @rule(data=st.data())
    def discard(self, data):
        self.ring.discard(data.draw(st.sampled_from(sorted(set(self.model) - self.ring.dead))))

    @rule()
    def reopen(self):
        self.ring.open()

    @invariant()
    def agrees(self):
        index = self.ring.index
        assert index.check_valid() == (True, "")
        assert {i: self.ring.priority(i) for i in self.ring.ids} == pytest.approx(self.model)
        assert (index.maximum, index.stale_updates) == (pytest.approx(self.top), self.stale)
        alive = sorted(set(self.model) - self.ring.dead)
        if alive:
            assert set(index.draw(len(alive)).ids.tolist()) <= set(alive)


TestInterleavings = Interleavings.TestCase
TestInterleavings.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
