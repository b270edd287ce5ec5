import numpy as np
import pytest
import torch
from helpers.lane_rows import Lane, die, lane_spec, prove, prove_pool

from headrace.buffer import PoolConfig, SACReplayPool, SamplingConfig
from headrace.common.errors import ArgumentError, ConfigError, PoolDamaged, PoolError, PoolTooSmall, PriorityRefused

SPEC = lane_spec(stack=2)
BY_PRIORITY = SamplingConfig("prioritised", priority_exponent=1.0, priority_eps=1e-12)


def make(capacity, path=None, sampling=BY_PRIORITY, **config):
    settings = PoolConfig(**config) if config else None
    rng = np.random.default_rng(0)
    return SACReplayPool(capacity, path=path, spec=SPEC, config=settings, sampling=sampling, rng=rng)


def put(pool, lane, n, priorities=None):
    return pool.insert(lane.block(n), f"actor-{lane.actor}", 1, lane.seq - n, priorities)


def priorities(pool):
    column = pool._store.files.columns["priority"]
    return {i: float(column[i % len(column)]) for i in range(pool.tail, pool.head)}


def file_of(path):
    found = list(path.rglob("priority.npy"))
    assert len(found) <= 1
    return found[0] if found else None


def fill(pool, n, seed=0):
    lane = Lane(SPEC, 1)
    put(pool, lane, n)
    pool.update_priorities(np.arange(pool.tail, pool.head), np.random.default_rng(seed).integers(1, 1000, pool.size))
    return lane


def test_a_batch_carries_weights_and_a_uniform_one_does_not():
    pool, uniform = make(8), make(8, sampling=None)
    for p in (pool, uniform):
        put(p, Lane(SPEC, 1), 4)
    pool.update_priorities(np.arange(4), [1, 1, 1, 3])
    batch = next(b for b in iter(lambda: pool.sample(4), None) if 3 in b.ids and (b.ids < 3).any())
    prove(batch, SPEC)
    assert batch.weights[batch.ids == 3][0] == pytest.approx(3**-0.4)
    assert batch.weights[batch.ids < 3].tolist() == [1.0] * (batch.ids < 3).sum()
    assert batch[batch.ids == 3].weights.tolist() == batch.weights[batch.ids == 3].tolist()
    assert uniform.sample(4).weights is None
    with pytest.raises(PoolError, match="uniform has no priorities"):
        uniform.update_priorities([0], [1.0])
    with pytest.raises(PoolTooSmall, match="batch of 5 .* 4 stored"):
        pool.sample(5)


def test_a_row_that_was_overwritten_between_sample_and_update_keeps_its_successors_priority():
    pool, lane = make(4), Lane(SPEC, 1)
    put(pool, lane, 4)
    epoch = pool.epoch
    for _ in range(5):
        put(pool, lane, 1)
    assert pool.update_priorities([1], [50.0], epoch) == 1
    assert set(priorities(pool).values()) == {1.0}
    assert pool.counters()["stale_updates"] == 1
    prove_pool(pool)


def test_a_row_does_not_inherit_the_priority_of_the_row_whose_slot_it_takes():
    pool, lane = make(4), Lane(SPEC, 1)
    put(pool, lane, 4)
    pool.update_priorities(np.arange(4), [0.25] * 4)
    put(pool, lane, 9)
    assert set(priorities(pool).values()) == {1.0}
    prove_pool(pool)


def test_rows_come_with_the_priority_that_their_actor_supplies():
    pool, lane = make(6, max_block_rows=2), Lane(SPEC, 1)
    put(pool, lane, 3, [5.0, 0.25, 7.0])
    put(pool, lane, 2)
    assert priorities(pool) == {0: 5.0, 1: 0.25, 2: 7.0, 3: 7.0, 4: 7.0}
    put(pool, lane, 8, np.arange(8))
    assert list(priorities(pool).values()) == pytest.approx([2, 3, 4, 5, 6, 7])
    again = Lane(SPEC, 1)
    assert pool.insert(again.block(15), "actor-1", 1, 1, np.arange(15)).duplicates == 13
    assert list(priorities(pool).values()) == pytest.approx([4, 5, 6, 7, 13, 14])
    assert pool.counters()["stale_updates"] == 0
    prove_pool(pool)


@pytest.mark.parametrize("bad", [[1.0], [1.0, np.nan], [1.0, -1.0], ["a", "b"]])
def test_a_block_with_priorities_that_are_none_does_not_enter(bad):
    pool = make(6)
    with pytest.raises((PriorityRefused, ArgumentError)):
        put(pool, Lane(SPEC, 1), 2, bad)
    with pytest.raises(PoolError, match="no priorities"):
        put(make(6, sampling=None), Lane(SPEC, 1), 2, [1.0, 1.0])
    assert (pool.size, pool.last_seq("actor-1", 1)) == (0, 0)


def test_priorities_survive_a_kill_and_epochs_do_not(tmp_path):
    pool = make(50, tmp_path)
    lane = fill(pool, 60)
    before, epoch, top = priorities(pool), pool.epoch, pool.sampling_info()["priority_max"]
    die(pool)
    pool = make(50, tmp_path)
    assert priorities(pool) == before
    assert pool.update_priorities(np.arange(20, 60), np.ones(40), epoch) == 40
    put(pool, lane, 1)
    assert priorities(pool)[60] == top
    prove_pool(pool)
    column = np.load(file_of(tmp_path), mmap_mode="r")
    assert (column.dtype, column.shape) == (np.dtype("<f4"), (pool.info()["row_slots"],))


def test_discarded_rows_are_never_drawn_whatever_their_priority_and_amended_ones_keep_it(tmp_path):
    pool = make(50, tmp_path)
    fill(pool, 30)
    pool.update_priorities([4, 5, 6], [1e6, 1e6, 1e6])
    pool.discard("actor-1", 1, 5, 7)
    pool.amend_rewards("actor-1", 1, 1, np.full((1, 1), 9.0))
    for _ in range(2):
        drawn = np.concatenate([pool.sample(27).ids for _ in range(40)])
        assert not np.isin([4, 5, 6], drawn).any()
        assert len(np.unique(drawn)) > 20
        assert pool.update_priorities([5, 7], [2.0, 2.0]) == 1
        prove_pool(pool)
        with pytest.raises(PoolTooSmall):
            pool.sample(28)
        die(pool)
        pool = make(50, tmp_path)
    assert priorities(pool)[0] == np.float32(np.random.default_rng(0).integers(1, 1000, 30)[0])


def test_an_existing_pool_may_be_opened_with_another_way_of_sampling(tmp_path):
    with make(20, tmp_path, sampling=None) as pool:
        lane = Lane(SPEC, 1)
        put(pool, lane, 15)
    assert file_of(tmp_path) is None
    with make(20, tmp_path) as pool:
        assert set(priorities(pool).values()) == {1.0}
        pool.update_priorities(np.arange(15), np.full(15, 9.0))
    with make(20, tmp_path, sampling=None) as pool:
        put(pool, lane, 3)
    assert file_of(tmp_path) is None
    with make(20, tmp_path) as pool:
        assert set(priorities(pool).values()) == {9.0}
        prove_pool(pool)


def test_a_column_that_is_cut_is_named_and_one_that_was_never_finished_is_made_again(tmp_path):
    make(20, tmp_path).close()
    column = file_of(tmp_path)
    with open(column, "r+b") as file:
        file.truncate(100)
    with pytest.raises(PoolDamaged, match=r"priority\.npy"):
        make(20, tmp_path)
    column.rename(column.with_suffix(".part"))
    with make(20, tmp_path) as pool:
        prove_pool(pool)


@pytest.mark.parametrize("capacity", [30, 50, 200])
def test_a_snapshot_holds_priorities_and_a_loaded_pool_draws_the_same(tmp_path, capacity):
    pool = make(50)
    fill(pool, 70)
    pool.update_priorities([2], [1.0])
    pool.save(tmp_path / "s")
    other = make(capacity)
    fill(other, 23, seed=5)
    assert other.load(tmp_path / "s")
    kept = {i: p for i, p in priorities(pool).items() if i >= 70 - capacity}
    assert priorities(other) == kept
    assert other.counters()["stale_updates"] == 1
    assert other.sampling_info()["priority_max"] == pool.sampling_info()["priority_max"]
    prove_pool(other)
    if capacity >= 50:
        same = SACReplayPool.from_path(tmp_path / "s", sampling=BY_PRIORITY)
        assert same.sampling_info() == pool.sampling_info()
        np.testing.assert_array_equal(same.sample(50).ids, pool.sample(50).ids)
        assert other.update_priorities(np.arange(other.tail, other.head), np.ones(other.size), epoch=1) == other.size


@pytest.mark.parametrize("capacity", [12, 90])
def test_a_pool_of_another_size_keeps_its_priorities(tmp_path, capacity):
    with make(50, tmp_path) as pool:
        fill(pool, 70)
        before, top = priorities(pool), pool.sampling_info()["priority_max"]
    with make(capacity, tmp_path) as pool:
        assert priorities(pool) == {i: p for i, p in before.items() if i >= 70 - capacity}
        assert pool.sampling_info()["priority_max"] == top
        prove_pool(pool)
    assert file_of(tmp_path) is not None


def test_rows_of_the_past_begin_with_equal_priorities():
    old, new = make(20), make(20)
    fill(old, 12)
    new.adopt(old)
    assert priorities(new) == dict.fromkeys(range(12), 1.0)
    assert new.counters()["stale_updates"] == 0
    prove_pool(new)


def test_snapshots_cross_between_ways_of_sampling(tmp_path):
    uniform, by_priority = make(20, sampling=None), make(20)
    put(uniform, Lane(SPEC, 1), 9)
    fill(by_priority, 12)
    uniform.save(tmp_path / "u")
    by_priority.save(tmp_path / "p")
    top = 1.0
    by_priority.load(tmp_path / "u")
    assert priorities(by_priority) == dict.fromkeys(range(9), top)
    uniform.load(tmp_path / "p")
    assert uniform.size == 12
    for pool in (uniform, by_priority):
        prove_pool(pool)


def test_a_snapshot_whose_priorities_do_not_fit_is_refused_and_changes_nothing(tmp_path):
    pool, other = make(20), make(20)
    fill(pool, 12)
    fill(other, 7)
    state = pool.get_state()
    state["arrays"]["priority.npy"] = state["arrays"]["priority.npy"][1:]
    before = priorities(other)
    with pytest.raises(PoolDamaged, match=r"priority\.npy"):
        other.set_state(state)
    assert (priorities(other), other.size) == (before, 7)
    state = pool.get_state()
    state["arrays"]["priority.npy"][3:5] = [np.nan, 1e30]
    other.set_state(state)
    prove_pool(other)


def test_plain_dictionaries_with_torch_in_and_out():
    pool = SACReplayPool(100, sampling=BY_PRIORITY, rng=np.random.default_rng(0))
    rows = {"state": torch.rand(8, 3), "action": torch.rand(8, 1), "reward": torch.rand(8)}
    rows |= {"next_state": torch.rand(8, 3), "done": torch.zeros(8)}
    pool.add_batch(rows, priorities=np.arange(8))
    batch = pool.sample_batch(8)
    assert isinstance(batch["state"], torch.Tensor)
    assert batch["weights"].shape == (8,)
    assert 7 in batch["ids"]
    assert pool.update_priorities(batch["ids"], (batch["reward"] ** 2).numpy()) == 0
    assert "weights" not in SACReplayPool(8, spec=SPEC).sampling_info()


def test_options_out_of_range_are_named():
    with pytest.raises(ConfigError, match=r"sampling\.priority_exponent: 2 is above"):
        make(4, sampling=SamplingConfig(priority_exponent=2))
    with pytest.raises(ConfigError, match=r"sampling\.method: 'prioritized'.*prioritised"):
        make(4, sampling=SamplingConfig("prioritized"))


def test_sampling_info_follows():
    pool = make(10, sampling=SamplingConfig("prioritised", priority_exponent=1.0, importance_anneal_updates=10))
    put(pool, Lane(SPEC, 1), 4)
    pool.update_priorities(np.arange(4), [1, 2, 3, 4])
    pool.grant_updates(5)
    info = pool.sampling_info()
    assert info == {"method": "prioritised", "priority_mean": 2.5, "priority_max": 4.0, "importance_exponent": 0.7} or info[
        "priority_mean"
    ] == pytest.approx(2.5, rel=1e-5)
    assert make(10, sampling=None).sampling_info() == {"method": "uniform"}
