"""Named sets over ring and pinned demonstrations: shares, tasks and newest rows, with each row drawn once."""

import numpy as np
import pytest
from helpers.lane_pool import put
from helpers.lane_rows import Lane, die, prove
from helpers.pinned_pool import HALVES, SPEC, demos_of, is_demo, with_demos

from headrace.buffer import SACReplayPool
from headrace.buffer.handles import PINNED
from headrace.common.errors import ConfigError, PoolError


def test_half_of_each_batch_are_demonstrations_long_after_the_ring_has_wrapped():
    pool, lane = with_demos(demos_of(10), sets=HALVES), Lane(SPEC, 1)
    for _ in range(30):
        put(pool, lane, 23)
        batch = pool.sample(32)
        prove(batch, SPEC)
        assert (batch.sets == 0).sum() == 16
        np.testing.assert_array_equal(batch.sets == 0, is_demo(batch))
        assert [(s == 0).sum() for s in np.split(batch.sets, 4)] == [4] * 4
        assert pool.check_valid() == (True, "")
    assert pool.sampling_info()["sets"] == {"demo": 10, "online": 50}
    assert pool.sampling_info()["mixes"]["critic"]["demo"]["realised"] == 0.5


def test_an_empty_ring_leaves_the_batch_to_the_demonstrations():
    pool = with_demos(demos_of(10), sets=HALVES)
    assert pool.drawable > 64
    batch = pool.sample(64)
    assert set(batch.ids.tolist()) == set(range(PINNED, PINNED + 10))
    only = with_demos(demos_of(10))
    assert sorted(only.sample(10).ids.tolist()) == list(range(PINNED, PINNED + 10))


def test_a_set_without_a_source_holds_both_and_no_row_comes_twice():
    sets = {
        "good": {"share": 0.5, "outcome": ["success"]},
        "teachers": {"share": 0.25, "actor": ["teacher-*"]},
        "all": {"share": 0.25},
    }
    pool, lane = with_demos(demos_of(20, outcome=1), sets=sets), Lane(SPEC, 1)
    put(pool, lane, 80)
    pool.label("actor-1", 1, 61, 80, 1)
    assert pool.sampling_info()["sets"] == {"good": 40, "teachers": 20, "all": 70}
    for _ in range(200):
        batch = pool.sample(48)
        prove(batch, SPEC)
        assert len(set(batch.ids.tolist())) == 48
        assert (batch.rows["outcome"][batch.sets == 0] == 1).all()
        assert (batch.ids[batch.sets == 1] >= PINNED).all()
    pool.discard("actor-1", 1, 41, 80)
    assert pool.sampling_info()["sets"] == {"good": 20, "teachers": 20, "all": 30}
    assert sorted(pool.sample(30).ids.tolist()) == [*range(30, 40), *range(PINNED, PINNED + 20)]


def test_rows_of_both_segments_are_equally_likely_in_a_set_that_holds_both():
    pool = with_demos(demos_of(10), sets={"all": {"share": 1.0}})
    put(pool, Lane(SPEC, 1), 25)
    rows, counts = np.unique(np.concatenate([pool.sample(7).ids for _ in range(4000)]), return_counts=True)
    assert len(rows) == 35
    expected = counts.sum() / 35
    assert ((counts - expected) ** 2 / expected).sum() < 34 + 4 * np.sqrt(2 * 34)


def test_tasks_are_balanced_over_both_segments():
    sets = {"all": {"share": 1.0, "balance": "task", "when_small": "replace"}}
    tasks = np.repeat([0, 1], 10)
    pool, lane = with_demos(demos_of(20, task=tasks), sets=sets), Lane(SPEC, 1)
    block = lane.block(20)
    block.rows["task"] = np.repeat([1, 2], 10)
    pool.insert(block, "sim", 1, 1)
    batch = pool.sample(27)
    assert np.bincount(batch.rows["task"]).tolist() == [9, 9, 9]
    assert ((batch.rows["task"] == 0) <= (batch.ids >= PINNED)).all()


@pytest.mark.parametrize("newest", [{"newest_rows": 5}, {"newest_versions": 1}])
def test_the_newest_are_rows_of_the_ring(newest):
    pool = with_demos(demos_of(20, learner=1, learner_epoch=7, learner_step=3), sets={"new": {"share": 1.0, **newest}})
    assert (pool.drawable, pool.sampling_info()["sets"]) == (0, {"new": 0})
    block = Lane(SPEC, 1).block(5)
    block.rows["learner"], block.rows["learner_epoch"] = 1, 1
    pool.insert(block, "sim", 1, 1)
    assert sorted(pool.sample(5).ids.tolist()) == [0, 1, 2, 3, 4]


def test_sampling_by_priority_is_refused_with_the_way_out(tmp_path):
    for _ in range(2):
        with pytest.raises(ConfigError, match=r"prioritised, but pinned demonstrations .* nearest valid: uniform"):
            with_demos(demos_of(5), path=tmp_path / "pool", method="prioritised")
    with_demos(demos_of(5), path=tmp_path / "pool").close()
    with pytest.raises(ConfigError, match="prioritised, but pinned"):
        with_demos(None, path=tmp_path / "pool", method="prioritised")
    with pytest.raises(PoolError, match="uniform has no priorities"):
        with_demos(demos_of(5)).update_priorities(np.array([PINNED]), np.ones(1))


@pytest.mark.parametrize("seed", range(4))
def test_whatever_happens_to_the_ring_sets_hold_what_matches_in_both_segments(tmp_path, seed):
    rng, lane = np.random.default_rng(seed), Lane(SPEC, 1)
    sets = {"good": {"share": 0.4, "outcome": ["success"]}, "taught": {"share": 0.2, "source": ["demo"]}, "all": {"share": 0.4}}
    pool = with_demos(demos_of(12, outcome=np.arange(12) % 3), 40, tmp_path / "pool", sets)
    demos = pool.gather(np.arange(PINNED, PINNED + 12)).rows
    dead = set()
    for step in range(80):
        kind = rng.choice(["insert", "insert", "label", "discard", "reopen", "load"])
        first = int(rng.integers(1, max(2, lane.seq)))
        last = min(first + int(rng.integers(0, 20)), lane.seq - 1)
        if kind == "insert":
            put(pool, lane, int(rng.integers(1, 60)))
        elif kind == "label" and last >= first:
            pool.label("actor-1", 1, first, last, int(rng.integers(0, 3)))
        elif kind == "discard" and last >= first:
            pool.discard("actor-1", 1, first, last)
            dead |= set(range(first - 1, last))
        elif kind == "reopen":
            (die if step % 2 else SACReplayPool.close)(pool)
            pool = with_demos(None, 40, tmp_path / "pool", sets)
        elif kind == "load" and pool.head:
            pool.save(tmp_path / "snapshots")
            pool.load(tmp_path / "snapshots")
        alive = np.array([i for i in range(pool.tail, pool.head) if i not in dead], np.int64)
        good = np.count_nonzero(pool.gather(alive).rows["outcome"] == 1)
        assert pool.sampling_info()["sets"] == {"good": good + 4, "taught": 12, "all": len(alive) + 12}
        np.testing.assert_array_equal(pool.gather(np.arange(PINNED, PINNED + 12)).rows, demos)
        batch = pool.sample(int(rng.integers(1, 12)))
        prove(batch, SPEC)
        assert set(batch.ids.tolist()) <= set(alive.tolist()) | set(range(PINNED, PINNED + 12))
        assert len(set(batch.ids.tolist())) == len(batch)
        assert (batch.rows["outcome"][batch.sets == 0] == 1).all()
        np.testing.assert_array_equal(batch.ids >= PINNED, is_demo(batch))
        assert pool.check_valid() == (True, "")
    pool.close()
