"""A snapshot while others go on inserting: every interleaving is made by hand, between two pieces or inside one."""

import threading

import numpy as np
import pytest
from helpers.lane_rows import Lane, lane_spec, prove_pool, seqs

from headrace.buffer import PoolConfig, SACReplayPool, capture, snapshot
from headrace.common.errors import PoolError

SPEC = lane_spec(stack=3, image=4)


def filled(capacity, rows, **config):
    pool = SACReplayPool(capacity, spec=SPEC, config=PoolConfig(**config), rng=np.random.default_rng(0))
    lane = Lane(SPEC, 1)
    put(pool, lane, rows)
    return pool, lane


def put(pool, lane, rows):
    for _ in range(rows):
        pool.insert(lane.block(1), "a", 1, lane.seq - 1)


@pytest.fixture
def small_pieces(monkeypatch):
    """Three rows a piece."""
    monkeypatch.setattr(capture, "PIECE_BYTES", 3 * (SPEC.row_dtype.itemsize + SPEC.frame_nbytes))


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("each", [0, 1, 2, 3])
@pytest.mark.parametrize("rows", [5, 40, 55])
def test_rows_live_at_both_ends_are_held_as_of_the_beginning(tmp_path, each, rows):
    """``each`` rows come in between two pieces, of which each takes three."""
    pool, lane = filled(40, rows)
    counters, statistics, head = pool.counters(), pool.statistics(), pool.head
    other = SACReplayPool(40)
    pool.save(tmp_path, lambda done, total: put(pool, lane, each))
    body, arrays = snapshot.read(tmp_path)
    assert other.load(tmp_path)
    prove_pool(other)
    held = body["rows"]
    assert held["head"] == other.head == head
    assert held["first"] <= max(pool.tail, 0) or held["first"] == max(0, rows - 40)
    assert seqs(other, "a") == list(range(held["first"] + 1, head + 1))
    assert len(arrays["rows.npy"]) == other.size == head - held["first"]
    assert other.counters()["env_steps"] == counters["env_steps"] == head
    assert other.streams("a") == {1: head}
    np.testing.assert_array_equal(other.statistics().var["obs"], statistics.var["obs"])


@pytest.mark.usefixtures("small_pieces")
def test_an_overtaken_copy_begins_again_at_the_tail(tmp_path):
    pool, lane = filled(40, 40)
    bursts = iter([0, 30, 0, 0])
    pool.save(tmp_path, lambda done, total: put(pool, lane, next(bursts, 0)))
    body, arrays = snapshot.read(tmp_path)
    assert body["rows"] == {"first": 30, "head": 40}
    other = SACReplayPool(40)
    assert other.load(tmp_path)
    prove_pool(other)
    assert seqs(other, "a") == list(range(31, 41))
    assert len(arrays["frames.obs.npy"]) <= 10 * 4


@pytest.mark.usefixtures("small_pieces")
def test_a_copy_that_lost_every_row_fails_and_leaves_what_was_there(tmp_path):
    pool, lane = filled(10, 10)
    pool.save(tmp_path)
    with pytest.raises(PoolError, match="evicted before it was copied"):
        pool.save(tmp_path, lambda done, total: put(pool, lane, 20))
    assert [p.name for p in tmp_path.iterdir()] == ["snapshot-000001"]
    assert SACReplayPool.from_path(tmp_path).head == 10


@pytest.mark.usefixtures("small_pieces")
def test_rows_retired_for_their_frames_drop_out(tmp_path):
    pool = SACReplayPool(60, spec=SPEC, config=PoolConfig(min_block_rows=12, max_block_rows=12))
    lane = Lane(SPEC, 1)  # one-row blocks take more frames than the ring is made for
    put(pool, lane, 200)
    assert pool.counters()["rows_retired"] > 0
    pool.save(tmp_path, lambda done, total: put(pool, lane, 2))
    other = SACReplayPool.from_path(tmp_path)
    prove_pool(other)
    assert other.head == 200


@pytest.mark.usefixtures("small_pieces")
def test_a_pool_that_is_loaded_meanwhile_fails_the_snapshot(tmp_path):
    pool, _ = filled(10, 10)
    pool.save(tmp_path / "a")
    with pytest.raises(PoolError, match="loaded anew"):
        pool.save(tmp_path / "b", lambda done, total: pool.load(tmp_path / "a"))
    assert not snapshot.is_snapshot(tmp_path / "b")


def test_inserts_flat_out_in_another_thread(tmp_path, monkeypatch):
    """Each snapshot is given a burst that overtakes it, but cannot evict all that it began with."""
    monkeypatch.setattr(capture, "PIECE_BYTES", 4096)
    pool, _ = filled(2000, 2000)
    lane = Lane(SPEC, 2)

    def insert():
        for _ in range(300):
            pool.insert(lane.block(5), "b", 1, lane.seq - 5)

    for i in range(12):
        thread = threading.Thread(target=insert)
        thread.start()
        try:
            pool.save(tmp_path / str(i))
        finally:
            thread.join(20)
        other = SACReplayPool.from_path(tmp_path / str(i))
        prove_pool(other)
        assert other.size >= 500
        assert other.counters()["env_steps"] == other.head == other.statistics().count


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("when", range(14))
def test_labels_given_meanwhile_are_not_in_the_snapshot(tmp_path, when):
    """Each label reaches over several pieces, copied before and after it."""
    pool, _ = filled(40, 40)
    pool.label("a", 1, 10, 20, 1)
    pool.discard("a", 1, 30, 33)
    rows, counters = list(pool.dump()), pool.counters()
    calls = iter(range(1000))

    def meanwhile(done, total):
        if next(calls) == when:
            pool.label("a", 1, 5, 25, 2)
            pool.amend_rewards("a", 1, 5, np.arange(15) + 100)
            pool.discard("a", 1, 12, 37)
            pool.label("a", 1, 5, 8, 1)

    pool.save(tmp_path, meanwhile)
    assert pool.counters()["rows_discarded"] == 26
    other = SACReplayPool(40)
    assert other.load(tmp_path)
    assert (list(other.dump()), other.counters()) == (rows, counters)
    prove_pool(other)
    assert not pool._store.captures  # it is over
