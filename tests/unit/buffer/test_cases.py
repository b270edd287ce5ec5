"""Ways in which other replay pools went wrong, each as a check of this one (docs/cases.md)."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.lane_pool import SPECS, make, put
from helpers.lane_rows import Lane, lane_spec, prove, prove_pool, seqs

from headrace.buffer import SACReplayPool
from headrace.buffer.config import SamplingConfig
from headrace.common.block import Block
from headrace.common.specs import ActionSpec, ObsSpec, TransitionSpec


def test_in_a_pool_that_is_not_full_no_next_observation_is_empty_or_anothers():
    spec = SPECS["plain"]
    pool, lane = make(100), Lane(spec, 1)
    put(pool, lane, 10)
    for _ in range(1000):
        batch = pool.sample(10)
        np.testing.assert_array_equal(batch.next_obs["obs"][:, 2], batch.obs["obs"][:, 2] + 1)
        np.testing.assert_array_equal(batch.next_obs["obs"][:, :2], batch.obs["obs"][:, :2])
    prove(batch, spec)


@pytest.mark.parametrize("offset", range(10))
def test_windows_of_three_never_cross_the_write_pointer_or_an_episode(offset):
    spec = lane_spec(window=3)
    pool, lane = make(10, spec), Lane(spec, 1, (5, 3, 1, 8))
    put(pool, lane, 10 + offset)  # the pointer stands at this slot
    for _ in range(10):
        put(pool, lane, 1)
        rows = pool.sample(10).rows
        lengths = np.array([5, 3, 1, 8])[rows["episode"].astype(int) % 4]
        steps = np.minimum(3, lengths - rows["t"])  # brute force, from what the episodes are
        np.testing.assert_array_equal(rows["steps"], steps)
        rewards = rows["t"][:, None] + np.arange(3)
        np.testing.assert_array_equal(rows["rewards"], np.where(np.arange(3) < steps[:, None], rewards, 0))
        np.testing.assert_array_equal(rows["terminated"], rows["t"] + steps == lengths)
        prove_pool(pool)
    assert seqs(pool, "actor-1") == list(range(11 + offset, 21 + offset))


@pytest.mark.parametrize("stored", [0, 1, 15, 16, 40])
def test_a_snapshot_of_any_filling_restores_with_progress_and_the_same_rows(tmp_path, stored):
    spec = SPECS["plain"]
    pool, lane = make(16), Lane(spec, 1)
    if stored:
        put(pool, lane, stored)
    told = []
    pool.save(tmp_path, progress=lambda done, total: told.append((done, total)))
    again = make(16)
    again.load(tmp_path)
    assert again.size == pool.size == min(stored, 16)
    assert [row["digest"] for row in again.dump()] == [row["digest"] for row in pool.dump()]
    assert told[-1][0] == told[-1][1]


def test_priorities_of_evicted_rows_are_gone_and_the_sum_is_that_of_the_live_ones():
    spec = lane_spec()
    sampling = SamplingConfig("prioritised", priority_exponent=1.0, priority_eps=1e-6)
    pool = SACReplayPool(100, spec=spec, sampling=sampling, rng=np.random.default_rng(0))
    lanes = [Lane(spec, actor, (1 + actor,)) for actor in range(32)]
    rng = np.random.default_rng(1)
    for turn in range(600):
        lane = lanes[turn % 32]
        first = lane.seq
        n = 1 + turn % 37
        pool.insert(lane.block(n), f"actor-{lane.actor}", 1, first)
        ids = rng.integers(pool.tail, pool.head, 20)
        pool.update_priorities(ids, rng.random(20, np.float32), pool.epoch)
    info = pool.sampling_info()
    live = np.arange(pool.tail, pool.head)
    pool.update_priorities(live, np.full(len(live), 2.0, np.float32), pool.epoch)
    assert info["priority_mean"] < 2
    assert pool.sampling_info()["priority_mean"] == pytest.approx(2 + 1e-6, rel=1e-6)
    assert pool.check_valid() == (True, "")
    assert (pool.draw(100).ids >= pool.tail).all()


def test_a_row_of_three_large_images_is_stored_and_read_back():
    key = "camera"
    spec = TransitionSpec((ObsSpec(key, (3, 1080, 1920, 3), "|u1"),), ActionSpec((1,), (-1.0,), (1.0,)))
    assert spec.frame_nbytes > 18_000_000
    pool = SACReplayPool(2, spec=spec)
    rows = np.zeros(1, spec.row_dtype)
    rows["steps"], rows["next_obs"] = 1, 1
    image = np.zeros((2, 3, 1080, 1920, 3), np.uint8)
    image[1] = 7
    pool.insert(Block(rows, {key: image}), "a", 1, 1)
    batch = pool.sample(1)
    assert (int(batch.obs[key].max()), int(batch.next_obs[key].min())) == (0, 7)


def test_batches_that_become_longer_never_make_the_pool_grow(tmp_path):
    spec = SPECS["plain"]
    with SACReplayPool(100, path=tmp_path, spec=spec) as pool:
        taken = size_of(tmp_path)
        for length, blocks in ((1, 150), (1000, 3)):
            lane = Lane(spec, length, (length,))
            for _ in range(blocks):
                put(pool, lane, length)
                assert len(pool) <= 100
        assert len(pool) == 100
        assert size_of(tmp_path) == taken
        prove_pool(pool)


def size_of(directory):
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())
