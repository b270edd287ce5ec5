import numpy as np
import pytest
from helpers.set_rows import ACTORS, expected, random_rows, set_spec
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.buffer.config import SetConfig
from headrace.buffer.row_set import SetIndex, source_of
from headrace.common.config import load
from headrace.common.errors import ConfigError, PoolTooSmall

NONE = np.empty(0, np.int64)
CAPACITY, LARGEST = 24, 8
CONFIGS = st.builds(
    SetConfig,
    share=st.just(0.5),
    source=st.sampled_from([(), ("human",), ("policy", "demo")]),
    outcome=st.sampled_from([(), ("success",), ("unknown", "failure")]),
    task=st.sampled_from([(), (0, 2)]),
    actor=st.sampled_from([(), ("sim-*",), ("demo", "robot-0")]),
    newest_rows=st.sampled_from([0, 0, 1, 9, 40]),
    newest_versions=st.sampled_from([0, 1, 2, 4]),
    balance=st.sampled_from(["none", "task"]),
)
STEP = st.tuples(st.sampled_from(["commit", "commit", "commit", "label", "discard", "retire", "reopen"]), st.integers(0, 99))


class Ring:
    """The live rows as a plain dict beside a set that follows them."""

    def __init__(self, config, window, human_rows):
        self.config, self.window, self.human_rows = config, window, human_rows
        self.rows, self.dead, self.head, self.newest = {}, set(), 1000, 5
        self.set = self._make()

    def _make(self):
        return SetIndex("s", self.config, CAPACITY + LARGEST, self.human_rows, lambda: ACTORS)

    def step(self, kind, seed):
        rng = np.random.default_rng(seed)
        if kind == "commit":
            self._commit(rng)
        elif kind == "retire":
            self._retire(self.head - rng.integers(0, len(self.rows) + 1))
        elif kind == "reopen":
            self.set = self._make()
            self._feed()
        elif self.rows:
            ids = np.sort(rng.choice(list(self.rows), rng.integers(1, len(self.rows) + 1), replace=False))
            if kind == "label":
                for i in ids:
                    self.rows[i]["outcome"] = rng.integers(0, 3)
                self.set.amended(ids, self._stack(ids))
            else:
                ids = np.array([i for i in ids if i not in self.dead], np.int64)
                self.dead |= set(ids.tolist())
                self.set.discarded(ids)
        self.agree()

    def _commit(self, rng):
        n = int(rng.integers(1, LARGEST + 1))
        self.newest += int(rng.integers(0, 3))
        rows = random_rows(n, rng, self.window, self.newest)
        if rng.integers(0, 2):
            rows[["learner", "learner_epoch", "learner_step"]] = rows[["learner", "learner_epoch", "learner_step"]][0]
        self._retire(self.head + n - CAPACITY)
        for i in range(n):
            self.rows[self.head + i] = rows[i : i + 1].copy()[0]
        self.set.committed(self.head, rows)
        self.head += n

    def _retire(self, tail):
        if self.rows and tail > min(self.rows):
            self.rows = {i: row for i, row in self.rows.items() if i >= tail}
            self.dead = {i for i in self.dead if i >= tail}
            self.set.retired(int(tail))

    def _feed(self):
        self.set.cleared()
        ids = np.array(list(self.rows), np.int64)
        for part in np.array_split(ids, 3):
            if len(part):
                self.set.committed(int(part[0]), self._stack(part))
        if self.dead:
            self.set.discarded(np.array(sorted(self.dead)))

    def _stack(self, ids):
        return np.array([self.rows[i] for i in ids], set_spec(self.window).row_dtype)

    def agree(self):
        want = expected(self.config, self.rows, self.dead, self.head, self.human_rows)
        groups = {task: set(self.set.ids(task).tolist()) for task in range(4)}
        assert self.set.check_valid() == (True, "")
        assert set().union(*groups.values()) == want
        assert len(self.set) == sum(map(len, groups.values())) == len(want)
        if self.config.balance == "task":
            assert all(self.rows[i]["task"] == task for task, ids in groups.items() for i in ids)


@settings(max_examples=150, deadline=None)
@given(CONFIGS, st.sampled_from([1, 3]), st.sampled_from(["any", "most"]), st.lists(STEP, max_size=30))
def test_a_set_holds_exactly_what_its_definition_says(config, window, human_rows, steps):
    ring = Ring(config, window, human_rows)
    for kind, seed in steps:
        ring.step(kind, seed)


def whole(n, **options):
    s = SetIndex("s", SetConfig(1.0, **options), 4 * n)
    rows = np.zeros(n, set_spec().row_dtype)
    rows["task"] = np.arange(n) % 3
    s.committed(100, rows)
    return s


def test_the_newest_rows_are_as_many_as_declared():
    s = whole(5, newest_rows=3)
    assert s.ids().tolist() == [102, 103, 104]
    s.committed(105, np.zeros(1, set_spec().row_dtype))
    assert s.ids().tolist() == [103, 104, 105]


def test_rows_are_equally_likely_whatever_was_removed_and_taken():
    s, rng = whole(60), np.random.default_rng(0)
    s.discarded(np.arange(100, 160, 3))
    taken = np.array([101, 104, 155, 3 * 60 + 100 + 5])  # the last is in no set
    counts = np.zeros(60)
    for _ in range(4000):
        ids = s.draw(6, rng, taken)
        assert len(set(ids.tolist())) == 6
        counts[ids - 100] += 1
    able = np.array([i % 3 != 0 and 100 + i not in taken for i in range(60)])
    assert not counts[~able].any()
    mean = 4000 * 6 / able.sum()
    assert ((counts[able] - mean) ** 2 / mean).sum() < able.sum() + 4 * np.sqrt(2 * able.sum())


@pytest.mark.parametrize("count", [1, 7, 8, 10, 11, 128])
def test_repeats_come_last_and_are_even(count):
    s = whole(10)
    ids = s.draw(count, np.random.default_rng(1), np.array([103, 107]))
    times = np.bincount(ids - 100, minlength=10)
    assert len(ids) == count
    if count <= 8:
        assert times.max() == 1
        assert times[3] == times[7] == 0
    else:
        others = np.delete(times, [3, 7])
        assert others.max() - others.min() <= 1
        assert others.min() >= max(1, (count - 8) // 10 + 1)


def test_groups_are_drawn_and_counted_apart():
    s = whole(30, balance="task")
    assert s.room(NONE) == {0: 10, 1: 10, 2: 10}
    assert s.room(np.array([100, 103, 101])) == {0: 8, 1: 9, 2: 10}
    assert {i % 3 for i in s.draw(8, np.random.default_rng(0), np.array([101]), task=1) - 100} == {1}


def test_an_empty_set_says_so():
    with pytest.raises(PoolTooSmall, match="set 's' holds no rows to draw 3 from"):
        SetIndex("s", SetConfig(1.0), 4).draw(3, np.random.default_rng(0), NONE)


def test_memory_follows_the_members():
    s = SetIndex("s", SetConfig(1.0, newest_rows=10), 1 << 20)
    empty = s.nbytes
    for first in range(0, 1 << 14, 1 << 10):
        s.committed(first, np.zeros(1 << 10, set_spec().row_dtype))
    assert s.nbytes - empty < 1 << 16
    assert empty < 6 << 20


@pytest.mark.parametrize(
    ("source", "steps", "rule", "counts_as"),
    [
        ([0, 1, 0, 0], 4, "any", 1),
        ([0, 1, 0, 0], 4, "most", 0),
        ([1, 1, 0, 0], 4, "most", 0),
        ([1, 1, 0, 0], 3, "most", 1),
        ([0, 0, 1, 1], 2, "any", 0),  # steps that were not executed do not count
        ([2, 2, 1, 2], 4, "any", 1),
        ([2, 2, 1, 2], 4, "most", 2),
        ([0, 2, 0, 0], 4, "any", 2),
    ],
)
def test_a_row_with_human_steps(source, steps, rule, counts_as):
    rows = np.zeros(1, set_spec(4).row_dtype)
    rows["source"], rows["steps"] = source, steps
    assert source_of(rows, rule).tolist() == [counts_as]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"source": ["hunam"]}, "set.source.*'hunam' is not one of policy, human, demo; nearest: human"),
        ({"when_small": "shrink"}, "set.when_small"),
        ({"newest_rows": 5, "min_fill": 6}, r"set.min_fill: 6 is above set.newest_rows 5.*nearest valid: 5"),
        ({"share": 1.5}, "set.share: 1.5 is above .* nearest valid: 1"),
        ({"outcomes": []}, "did you mean 'outcome'"),
    ],
)
def test_a_definition_that_cannot_be_is_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        load(SetConfig, {"share": 0.5, **options}, "set")
