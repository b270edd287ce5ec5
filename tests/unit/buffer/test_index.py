import random

import numpy as np
import pytest
from helpers.lane_rows import Lane, die, lane_spec, prove_pool
from helpers.mirror import Mirror, agree, attach

from headrace.buffer import PoolConfig, SACReplayPool, live_rows
from headrace.buffer.index import Indexes

SPEC = lane_spec(stack=2)


def make(capacity, path=None, **config):
    return SACReplayPool(capacity, path=path, spec=SPEC, config=PoolConfig(**config), rng=np.random.default_rng(0))


@pytest.mark.parametrize("max_block_rows", [3, 64])
@pytest.mark.parametrize("seed", range(3))
def test_an_index_holds_what_is_live_over_wraps_and_oversized_blocks(seed, max_block_rows):
    draw = random.Random(seed)
    pool, lane = make(16, max_block_rows=max_block_rows), Lane(SPEC, 1)
    mirror = attach(pool)
    for _ in range(60):
        first = lane.seq
        pool.insert(lane.block(draw.choice([1, 2, 7, 16, 17, 40])), "a", 1, first)
        agree(mirror, pool)
    assert pool.tail > 100


def test_rows_retired_for_their_frames_leave_the_index():
    pool, lane = make(64, min_block_rows=8, max_block_rows=8), Lane(SPEC, 1, (1,))
    mirror = attach(pool)
    for _ in range(60):
        first = lane.seq
        pool.insert(lane.block(3), "a", 1, first)
        agree(mirror, pool)
    assert pool.counters()["rows_retired"] > 0


def test_an_index_that_comes_late_is_fed_what_is_live_in_bounded_pieces(monkeypatch):
    monkeypatch.setattr(live_rows, "COPY_ROWS", 10)
    pool = make(64)
    pool.insert(Lane(SPEC, 1).block(200), "a", 1, 1)
    mirror = attach(pool)
    agree(mirror, pool)
    assert (mirror.tail, mirror.head, mirror.largest) == (136, 200, 10)


@pytest.mark.parametrize("end", [die, SACReplayPool.close])
def test_a_reopened_pool_feeds_the_same_rows(tmp_path, end):
    pool, lane = make(10, tmp_path), Lane(SPEC, 1)
    before = attach(pool)
    pool.insert(lane.block(37), "a", 1, 1)
    end(pool)
    pool = make(10, tmp_path)
    after = attach(pool)
    agree(after, pool)
    assert after.rows == before.rows
    pool.insert(lane.block(4), "a", 1, 38)
    agree(after, pool)
    pool.close()


@pytest.mark.parametrize("capacity", [4, 10, 30])
def test_a_load_clears_and_feeds_again(tmp_path, capacity):
    pool = make(10)
    pool.insert(Lane(SPEC, 1).block(25), "a", 1, 1)
    pool.save(tmp_path)
    other, lane = make(capacity), Lane(SPEC, 2)
    mirror = attach(other)
    for _ in range(9):
        first = lane.seq
        other.insert(lane.block(7), "b", 1, first)
    other.load(tmp_path)  # back to lower ids
    agree(mirror, other)
    assert other.actors() == ["a"]
    other.insert(Lane(SPEC, 3).block(3), "c", 1, 1)
    agree(mirror, other)
    prove_pool(other)


def test_an_index_that_does_not_agree_with_itself_is_found():
    pool = make(10)
    pool.insert(Lane(SPEC, 1).block(3), "a", 1, 1)
    attach(pool)
    assert pool.check_valid() == (True, "")
    attach(pool).dead.add(77)
    assert pool.check_valid() == (False, "a row is discarded that is not live")


def test_all_indexes_follow():
    mirrors = [Mirror(), Mirror()]
    indexes = Indexes()
    assert not indexes
    for mirror in mirrors:
        indexes.add(mirror)
    rows = np.zeros(4, SPEC.row_dtype)
    indexes.committed(5, rows)
    rows["outcome"][1] = 2
    indexes.amended(np.array([6]), rows[1:2])
    indexes.discarded(np.array([6, 8]))
    indexes.retired(7)
    for mirror in mirrors:
        assert sorted(mirror.rows) == [7, 8]
        assert mirror.dead == {8}
    indexes.cleared()
    assert [m.rows for m in indexes] == [{}, {}]
