"""Plain batches that wait: nobody can tell, and nothing that is not plainly right waits."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from headrace.buffer import PoolConfig, SACReplayPool, SamplingConfig
from headrace.common.errors import BlockRefused, HeadraceError, SpecError


def batch(*times, dtype="<f4"):
    t = np.array(times, dtype)
    return {
        "state": np.stack([t, -t], 1),
        "action": t[:, None] / 1024,
        "reward": t + 0.25,
        "next_state": np.stack([t + 1, -t - 1], 1),
        "done": t % 3 == 0,
    }


def waiting(pool):
    return pool._staging.n_rows


def rows(pool):
    got = pool.gather(np.arange(pool.tail, pool.head))
    return [
        (s[0], s[1], n[0], n[1], r["action"][0] * 1024, r["rewards"][0] - 0.25, bool(r["terminated"]))
        for s, n, r in zip(got.obs["state"], got.next_obs["state"], got.rows, strict=True)
    ]


def expected(*times):
    return [(t, -t, t + 1, -t - 1, t, t, t % 3 == 0) for t in times]


@pytest.mark.parametrize("dtype", ["<f4", "<f8"])
def test_what_waits_is_there_for_everybody_who_looks(dtype):
    pool = SACReplayPool(100)
    pool.add_batch(batch(0, dtype=dtype))
    for t in range(1, 7):
        pool.add_batch(batch(t, dtype=dtype))
    pool.add_batch(batch(7, 8, 9, dtype=dtype))
    assert waiting(pool) == 9
    assert len(pool) == 10
    assert waiting(pool) == 0
    assert rows(pool) == expected(*range(10))
    assert pool.check_valid() == (True, "")
    assert (pool.last_seq("local", 1), pool.env_steps) == (10, 10)


@pytest.mark.parametrize(
    "look",
    [
        lambda p: p.head,
        lambda p: p.counters()["rows_accepted"],
        lambda p: p.info()["size"],
        lambda p: p.statistics().count,
        lambda p: max(r["id"] for r in p.dump()) + 1,
        lambda p: p.get_state()["numbers"]["head"],
        lambda p: p.sample_batch(5)["reward"].shape[0],
    ],
)
def test_every_way_to_look_sees_all_that_was_added(look):
    pool = SACReplayPool(100, rng=np.random.default_rng(0))
    for t in range(5):
        pool.add_batch(batch(t))
    assert waiting(pool) == 4
    assert look(pool) == 5


def test_a_saved_pool_holds_what_waited(tmp_path):
    pool = SACReplayPool(100)
    for t in range(5):
        pool.add_batch(batch(t))
    pool.save(tmp_path / "s")
    assert rows(SACReplayPool.from_path(tmp_path / "s")) == expected(*range(5))


def test_order_is_kept_between_what_waits_and_what_does_not():
    pool = SACReplayPool(5000)
    for t in range(0, 3000, 3):
        pool.add_batch(batch(t))
        pool.add_batch(batch(t + 1, t + 2))
    pool.add_batch(batch(*range(3000, 4500)))  # too long to wait
    assert rows(pool) == expected(*range(4500))


def test_a_small_pool_keeps_the_newest():
    pool = SACReplayPool(7)
    for t in range(600):
        pool.add_batch(batch(t))
    assert rows(pool) == expected(*range(593, 600))
    assert pool.counters()["rows_accepted"] == 600


def test_a_pool_with_files_never_lets_anything_wait(tmp_path):
    with SACReplayPool(100, path=tmp_path) as pool:
        pool.add_batch(batch(0))
        pool.add_batch(batch(1))
        assert pool._staging is None


@pytest.mark.parametrize("key", ["state", "next_state", "action", "reward"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_number_that_is_not_finite_is_refused_at_once_and_alone(key, value):
    pool = SACReplayPool(100)
    pool.add_batch(batch(0))
    pool.add_batch(batch(1))
    bad = batch(2)
    bad[key][..., -1] = value
    with pytest.raises(BlockRefused, match="non-finite"):
        pool.add_batch(bad)
    pool.add_batch(batch(2))
    assert rows(pool) == expected(0, 1, 2)


def test_numbers_whose_squares_are_not_finite_are_taken():
    pool = SACReplayPool(100)
    for _ in range(2):
        large = batch(0)
        large["state"][0, 0] = 3e38
        pool.add_batch(large)
    assert waiting(pool) == 1
    assert pool.gather(np.arange(2)).obs["state"][1, 0] == np.float32(3e38)


@pytest.mark.parametrize(
    "changed",
    [
        {"reward": np.zeros((1, 1), "f4")},
        {"reward": np.zeros(2, "f4")},
        {"state": np.zeros((1, 3), "f4")},
        {"done": np.array([2])},
        {"more": np.zeros(1)},
    ],
)
def test_what_is_wrong_is_refused_as_without_waiting(changed):
    def refusal(pool):
        with pytest.raises(HeadraceError) as error:
            pool.add_batch({**batch(1), **changed})
        return type(error.value), str(error.value)

    waits, anew = SACReplayPool(100), SACReplayPool(100)
    waits.add_batch(batch(0))
    anew.add_batch(batch(0))
    anew._staging = None
    assert refusal(waits) == refusal(anew)
    assert refusal(waits)[0] is SpecError
    assert rows(waits) == expected(0)


def test_lists_other_dtypes_and_left_out_rows_go_the_general_way():
    pool = SACReplayPool(100)
    pool.add_batch(batch(0))
    pool.add_batch({k: v.tolist() for k, v in batch(1).items()})
    pool.add_batch({k: v.astype("<f8") if v.dtype.kind == "f" else v.astype("u1") for k, v in batch(2).items()})
    assert waiting(pool) == 0
    assert rows(pool) == expected(0, 1, 2)


def test_a_float64_that_float32_cannot_hold_is_refused():
    pool = SACReplayPool(100)
    pool.add_batch(batch(0, dtype="<f8"))
    large = batch(1, dtype="<f8")
    large["reward"][0] = 1e200
    with warnings.catch_warnings(), pytest.raises(BlockRefused, match="non-finite"):
        warnings.simplefilter("ignore", RuntimeWarning)
        pool.add_batch(large)
    assert len(pool) == 1


@pytest.mark.parametrize("block_rows", [1, 8])
def test_a_refused_batch_leaves_every_row_as_it_was(block_rows):
    """Also where the promise of longer blocks was broken, so that hardly a frame is free."""
    pool = SACReplayPool(64, config=PoolConfig(min_block_rows=block_rows, max_block_rows=8))
    for t in range(200):
        pool.add_batch(batch(t))
        bad = batch(*range(1000, 1000 + 1 + t % 7))
        bad["reward"][-1] = np.nan
        with pytest.raises(BlockRefused):
            pool.add_batch(bad)
        if t % 10 == 0:
            assert rows(pool) == expected(*range(pool.tail, t + 1))
    assert pool.check_valid() == (True, "")
    assert (pool.counters()["rows_retired"] > 0) == (block_rows > 1)


@pytest.mark.parametrize("seed", range(5))
def test_any_order_of_batches_and_looks(seed, tmp_path):
    draw, pool = np.random.default_rng(seed), SACReplayPool(29, config=PoolConfig(max_block_rows=13))
    pool.add_batch(batch(0))
    t, saved = 1, 0
    for _ in range(300):
        n = int(draw.choice([1, 1, 2, 5, 13, 14, 40]))
        what = draw.random()
        if what < 0.8:
            pool.add_batch(batch(*range(t, t + n)))
            t += n
        elif what < 0.85:
            with pytest.raises(BlockRefused):
                pool.add_batch({**batch(*range(n)), "action": np.full((n, 1), np.inf, "f4")})
        elif what < 0.95:
            assert rows(pool) == expected(*range(max(0, t - 29), t))
        elif what < 0.97 or not saved:
            pool.save(tmp_path / "s")
            saved = t
        else:
            assert pool.load(tmp_path / "s")
            t = saved
    assert rows(pool) == expected(*range(max(0, t - 29), t))
    assert pool.check_valid() == (True, "")
    times, statistics = np.arange(t), pool.statistics()
    assert (statistics.count, pool.last_seq("local", 1)) == (t, t)
    np.testing.assert_allclose(statistics.mean["state"], [times.mean(), -times.mean()], rtol=1e-6)
    np.testing.assert_allclose(statistics.var["state"], [times.var()] * 2, rtol=1e-6)


def test_rows_that_wait_have_no_strangers_priority():
    pool = SACReplayPool(6, sampling=SamplingConfig("prioritised"), rng=np.random.default_rng(0))
    for t in range(6):
        pool.add_batch(batch(t))
    pool.update_priorities(np.arange(6), np.arange(1.0, 7.0))
    for t in range(6, 10):
        pool.add_batch(batch(t))
    assert waiting(pool) == 4
    assert pool.sampling_info()["priority_max"] == pytest.approx(6.0, abs=1e-5)
    assert rows(pool) == expected(*range(4, 10))
    assert pool.check_valid() == (True, "")
    assert pool._store.files.columns["priority"].max() == pytest.approx(6.0, abs=1e-5)


def test_two_flags_and_other_shapes_wait_too():
    def shaped(t):
        state = np.full((1, 2, 2), t, "f4")
        flags = {"terminated": np.array([[t % 2 == 0]]), "truncated": np.array([[t % 3 == 0]])}
        return {
            "state": state,
            "next_state": -state,
            "action": np.full((1, 2, 3), t, "f8"),
            "reward": np.array([[t]], "f4"),
            **flags,
        }

    pool = SACReplayPool(100, rng=np.random.default_rng(0))
    for t in range(6):
        pool.add_batch(shaped(t))
    assert waiting(pool) == 5
    got = pool.sample_batch(6)
    for i, t in enumerate(got["reward"][:, 0].astype(int)):
        for key, value in shaped(t).items():
            assert got[key].dtype == value.dtype
            np.testing.assert_array_equal(got[key][i], value[0], key)
