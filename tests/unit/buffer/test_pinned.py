"""Demonstrations beside the ring: never evicted, drawn and gathered with it, and changed by nobody."""

import numpy as np
import pytest
from helpers.lane_pool import SPECS, make, put
from helpers.lane_rows import Lane, prove, prove_pool
from helpers.pinned_pool import HALVES, SPEC, demos_of, is_demo, with_demos

from headrace.buffer import SACReplayPool
from headrace.buffer.files import ROWS, frame_file
from headrace.buffer.handles import PINNED
from headrace.buffer.pinned import DEMOS
from headrace.common.errors import LabelRefused, PoolError, PoolTooSmall
from headrace.common.specs import SOURCE_DEMO


@pytest.fixture(params=["memory", "disk"])
def path(request, tmp_path):
    return None if request.param == "memory" else tmp_path / "pool"


@pytest.mark.parametrize("kind", SPECS)
def test_demonstrations_stay_when_the_ring_has_wrapped_many_times(kind, path):
    spec = SPECS[kind]
    pool, lane, seen = with_demos(demos_of(20, spec), path=path), Lane(spec, 1), set()
    for _ in range(20):
        put(pool, lane, 17)
        batch = pool.sample(30)
        prove(batch, spec)
        np.testing.assert_array_equal(batch.ids >= PINNED, is_demo(batch))
        np.testing.assert_array_equal(pool.gather(batch.ids).rows, batch.rows)
        assert len(set(batch.ids.tolist())) == 30
        seen |= set(batch.ids[batch.ids >= PINNED].tolist())
    assert seen == set(range(PINNED, PINNED + 20))
    assert (len(pool), pool.demo_rows, pool.drawable) == (50, 20, 70)
    assert pool.counters()["rows_accepted"] == 340
    prove_pool(pool)
    pool.close()


def test_every_row_of_ring_and_demonstrations_is_equally_likely():
    pool, lane = with_demos(demos_of(10), capacity=30), Lane(SPEC, 1)
    put(pool, lane, 47)
    pool.discard("actor-1", 1, 20, 24)
    drawn = np.concatenate([pool.sample(7).ids for _ in range(4000)])
    rows, counts = np.unique(drawn, return_counts=True)
    assert len(rows) == 35
    expected = len(drawn) / 35
    assert ((counts - expected) ** 2 / expected).sum() < 34 + 4 * np.sqrt(2 * 34)
    assert len(set(pool.sample(35).ids.tolist())) == 35
    with pytest.raises(PoolTooSmall, match="36 rows was asked of 35 stored rows"):
        pool.sample(36)


def test_arrays_hold_exactly_the_rows_and_frames_that_are_live_in_the_source(tmp_path):
    spec = SPECS["stack"]
    source, lane = make(30, spec), Lane(spec, 9, (12,))
    put(source, lane, 100)
    source.discard("actor-9", 1, 80, 83)
    frames = source._store.segment.frame_head - source._store.segment.first_frame()
    pool = with_demos(source, path=tmp_path / "pool")
    folder = tmp_path / "pool" / DEMOS / "snapshot-000001"
    assert len(np.load(folder / ROWS)) == pool.demo_rows == 26
    assert len(np.load(folder / frame_file("obs"))) == frames
    batch = pool.gather(np.arange(PINNED, PINNED + 26))
    prove(batch, spec)
    assert batch.rows["seq"].tolist() == [seq for seq in range(71, 101) if not 80 <= seq <= 83]
    assert pool.info()["demo_nbytes"] == sum(np.load(p).nbytes for p in folder.glob("*.npy"))
    pool.close()


@pytest.mark.parametrize("window", ["plain", "n-step"])
def test_what_is_pinned_counts_as_demonstrated_whoever_acted(window):
    spec = SPECS[window]
    pool = with_demos(demos_of(30, spec, source=1), sets=HALVES)
    batch = pool.gather(np.arange(PINNED, PINNED + 30))
    executed = np.arange(spec.window) < batch.rows["steps"][:, None]
    np.testing.assert_array_equal(batch.rows["source"], np.where(executed, SOURCE_DEMO, 0))
    assert pool.sampling_info()["sets"] == {"demo": 30, "online": 0}


def test_they_count_as_no_env_steps_and_nothing_else_that_the_ring_counts():
    pool = with_demos(demos_of(20))
    assert not any(pool.counters().values())
    assert (pool.size, pool.head, pool.tail, pool.env_steps, pool.actors()) == (0, 0, 0, 0, [])
    put(pool, Lane(SPEC, 1), 5)
    assert (pool.counters()["env_steps"], pool.counters()["rows_live"]) == (5, 5)
    assert pool.streams("teacher-9") == {}


def test_statistics_are_over_demonstrations_and_rows_once_a_decision(path):
    pool = with_demos(demos_of(20), capacity=8, path=path)
    assert pool.statistics().count == 20  # so that an offline phase sees normalised observations
    ring = make(1000)
    for target in (pool, ring):
        put(target, Lane(SPEC, 1), 30)
    values = [pool.gather(np.arange(PINNED, PINNED + 20)).obs["obs"], ring.gather(np.arange(30)).obs["obs"]]
    wanted = np.concatenate(values).astype(np.float64)
    for _ in range(2):
        result = pool.statistics()
        assert result.count == 50
        np.testing.assert_allclose(result.mean["obs"], wanted.mean(0), rtol=1e-6)
        np.testing.assert_allclose(result.var["obs"], wanted.var(0), rtol=1e-5)
        if path is not None:
            pool.close()
            pool = SACReplayPool(8, path=path)
    pool.close()


# what cannot be done to them


def test_labels_and_discards_are_refused_with_a_reason():
    pool = with_demos(demos_of(20))
    before = pool.gather(np.arange(PINNED, PINNED + 20)).rows
    for refused in (
        lambda: pool.label("teacher-9", 1, 1, 5, 2),
        lambda: pool.discard("teacher-9", 1, 1, 5),
        lambda: pool.amend_rewards("teacher-9", 1, 1, [1.0]),
    ):
        with pytest.raises(LabelRefused, match="never change") as caught:
            refused()
        assert caught.value.reason == "pinned"
    with pytest.raises(LabelRefused) as caught:
        pool.label("nobody", 1, 1, 5, 2)
    assert caught.value.reason == "actor"
    put(pool, Lane(SPEC, 1), 5, actor="teacher-9")  # who now has rows of the same numbers in the ring
    assert pool.discard("teacher-9", 1, 1, 5).rows == 5
    np.testing.assert_array_equal(pool.gather(np.arange(PINNED, PINNED + 20)).rows, before)
    assert (pool.size, pool.drawable) == (0, 20)


def test_ids_that_are_not_live_are_refused():
    pool = with_demos(demos_of(20))
    put(pool, Lane(SPEC, 1), 5)
    assert len(pool.gather(np.array([4, PINNED, PINNED + 19, 0]))) == 4
    for bad in (-1, 5, PINNED - 1, PINNED + 20, PINNED * 2):
        with pytest.raises(PoolError, match="were asked for"):
            pool.gather(np.array([0, bad, PINNED]))


def test_the_source_is_free_afterwards_and_changes_nothing():
    source = demos_of(20)
    pool = with_demos(source)
    source.discard("teacher-9", 1, 1, 20)
    put(source, Lane(SPEC, 3), 20)
    source.close()
    assert is_demo(pool.sample(20)).all()
    with pytest.raises(PoolError, match="no demonstrations"):
        with_demos(make(5))


# the class for scripts


@pytest.mark.parametrize("path_too", [True, False])
def test_plain_dictionaries(tmp_path, path_too):
    def batch(first, n):
        t = np.arange(first, first + n, dtype=np.float32)
        return {
            "state": t[:, None],
            "action": t[:, None],
            "reward": t,
            "next_state": t[:, None] + 1,
            "done": t % 5 == 4,
            "tag": t,
        }

    demos = SACReplayPool(100)
    demos.add_batch(batch(1000, 30))
    pool = SACReplayPool(20, path=tmp_path if path_too else None, demos=demos, rng=np.random.default_rng(1))
    assert sorted(pool.sample_batch(30)["tag"]) == list(range(1000, 1030))
    for first in range(0, 100, 10):
        pool.add_batch(batch(first, 10))
    out = pool.sample_batch(50)
    assert sorted(out["tag"]) == [*range(80, 100), *range(1000, 1030)]
    np.testing.assert_array_equal(out["next_state"][:, 0], out["tag"] + 1)
    assert pool.insert_and_resample(batch(100, 20), 50)["state"].shape == (50, 1)
    pool.close()
