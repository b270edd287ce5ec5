"""Named sets through the pool: every option of a definition together with evictions, restarts and priorities."""

import json

import numpy as np
import pytest
from helpers.lane_rows import Lane, die, lane_spec

from headrace.buffer import SACReplayPool
from headrace.buffer.config import SamplingConfig
from headrace.common.config import load
from headrace.common.errors import ConfigError, PoolError, PoolTooSmall

SPEC = lane_spec()
DEMO, POLICY = 2, 0
HALVES = {
    "demo": {"share": 0.5, "source": ["demo"], "when_small": "replace"},
    "online": {"share": 0.5, "source": ["policy"]},
}


def sampling(sets, **options):
    return load(SamplingConfig, {"sets": sets, **options}, "sampling")


def make(sets, capacity=1000, path=None, **options):
    return SACReplayPool(capacity, path=path, spec=SPEC, sampling=sampling(sets, **options), rng=np.random.default_rng(0))


def insert(pool, actor, n, seq=1, lane=None, **labels):
    block = (lane or Lane(SPEC, 1)).block(n)
    for name, value in labels.items():
        block.rows[name] = value
    pool.insert(block, actor, 1, seq)


def demo_and_online(pool, demos=10, online=500):
    insert(pool, "demos", demos, source=DEMO)
    insert(pool, "sim", online, lane=Lane(SPEC, 2), source=POLICY)
    return pool


def test_half_demonstrations_half_online():
    pool = demo_and_online(make(HALVES))
    for _ in range(5):
        batch = pool.sample(256)
        assert (batch.sets == 0).sum() == 128
        assert np.array_equal(batch.sets == 0, batch.rows["source"][:, 0] == DEMO)
        online = batch.ids[batch.sets == 1]
        assert len(set(online.tolist())) == 128
        assert [(s == 0).sum() for s in np.split(batch.sets, 16)] == [8] * 16
    info = pool.sampling_info()
    assert info["sets"] == {"demo": 10, "online": 500}
    assert info["mixes"]["critic"]["demo"]["realised"] == 0.5
    assert pool.check_valid() == (True, "")


def test_evicted_rows_leave_their_sets(tmp_path):
    pool = demo_and_online(make(HALVES, capacity=100, path=tmp_path), online=5)
    for seq in range(6, 300, 7):
        insert(pool, "sim", 7, seq=seq, lane=Lane(SPEC, 2))
        assert pool.check_valid() == (True, "")
    assert pool.sampling_info()["sets"] == {"demo": 0, "online": 100}
    with pytest.raises(PoolTooSmall, match="set 'demo' holds 0 rows of the 1"):
        pool.sample(8)
    pool.close()


@pytest.mark.parametrize("end", [die, SACReplayPool.close])
def test_sets_are_there_again_when_the_pool_opens(tmp_path, end):
    sets = {"robots": {"share": 0.5, "actor": ["robot-*"]}, "good": {"share": 0.5, "outcome": ["success"]}}
    pool = make(sets, path=tmp_path)
    insert(pool, "sim", 20, outcome=1)
    insert(pool, "robot-7", 30, lane=Lane(SPEC, 2))
    end(pool)
    pool = make(sets, path=tmp_path)
    insert(pool, "robot-8", 3, lane=Lane(SPEC, 3))
    assert pool.sampling_info()["sets"] == {"robots": 33, "good": 20}
    assert pool.check_valid() == (True, "")
    pool.close()


def test_a_load_brings_the_sets_and_the_remainders(tmp_path):
    sets = {"demo": {"share": 0.3, "source": ["demo"]}, "online": {"share": 0.7}}
    pool = demo_and_online(make(sets), demos=100)
    for _ in range(3):
        pool.sample(11)
    pool.save(tmp_path)
    other = make(sets)
    insert(other, "x", 400)
    assert other.load(tmp_path)
    assert other.sampling_info()["sets"] == {"demo": 100, "online": 600}
    for _ in range(5):
        ours, theirs = pool.sample(11), other.sample(11)
        np.testing.assert_array_equal(ours.ids, theirs.ids)
        np.testing.assert_array_equal(ours.sets, theirs.sets)
    uniform = SACReplayPool(1000, spec=SPEC, rng=np.random.default_rng(0))
    assert uniform.load(tmp_path)
    json.dumps(pool.get_state()["sampler"])


def test_the_actors_batch_has_its_own_shares():
    sets = {
        "success": {"share": 0.5, "actor_share": 0.9, "outcome": ["success"]},
        "failure": {"share": 0.5, "actor_share": 0.1, "outcome": ["failure"]},
    }
    pool = make(sets)
    insert(pool, "sim", 400, outcome=np.arange(400) % 2 + 1)
    for mix, share in (("critic", 50), ("actor", 90)):
        batch = pool.sample(100, mix=mix)
        assert (batch.rows["outcome"] == 1).sum() == share
    assert (pool.sample_batch(10, "actor")["sets"] == 0).sum() == 9


def test_what_cannot_be_asked_for_is_said():
    with pytest.raises(PoolError, match="mix 'actor': there are no named sets"):
        demo_and_online(make({})).sample(8, mix="actor")
    with pytest.raises(PoolError, match="mix 'actor': the sets have shares for critic; give some an actor_share"):
        demo_and_online(make(HALVES)).sample(8, mix="actor")
    with pytest.raises(ConfigError, match="min_fill: 1001 is above pool.capacity 1000"):
        make({"all": {"share": 1, "min_fill": 1001}})


def test_priorities_work_inside_each_set():
    pool = demo_and_online(make(HALVES, method="prioritised", priority_exponent=0.6, importance_exponent=0.4), online=100)
    low = pool.tail
    ids = np.arange(low, low + 110)
    p = np.where(ids < low + 10, 1.0 + ids - low, 0.5)
    p[20] = 4.0
    pool.update_priorities(ids, p)
    counts = np.zeros((2, 110))
    for _ in range(400):
        batch = pool.sample(64)
        np.add.at(counts, (batch.sets, batch.ids - low), 1)
    leaves = (p + 1e-6) ** 0.6
    for part, rows in ((0, slice(0, 10)), (1, slice(10, 110))):
        expected = leaves[rows] / leaves[rows].sum() * 400 * 32
        np.testing.assert_allclose(counts[part][rows], expected, atol=5 * np.sqrt(expected.max()))
        assert counts[part].sum() == 400 * 32
    odds = np.concatenate([leaves[:10] / leaves[:10].mean(), leaves[10:] / leaves[10:].mean()])[batch.ids - low]
    np.testing.assert_allclose(batch.weights, (odds / odds.min()) ** -0.4, rtol=1e-5)
    assert batch.weights.max() == 1
    assert pool.check_valid() == (True, "")


def test_priorities_follow_their_rows_through_evictions_and_loads(tmp_path):
    pool = make(HALVES, capacity=60, method="prioritised")
    demo_and_online(pool, demos=30, online=5)
    for seq in range(6, 200, 5):
        insert(pool, "sim", 5, seq=seq, lane=Lane(SPEC, 2), source=POLICY)
        pool.update_priorities(np.arange(pool.tail, pool.head, 3), np.full((pool.size + 2) // 3, 1.0 + seq))
        assert pool.check_valid() == (True, "")
    insert(pool, "demos", 20, seq=31, source=DEMO)
    pool.save(tmp_path)
    other = make(HALVES, capacity=60, method="prioritised")
    other.load(tmp_path)
    assert other.check_valid() == (True, "")
    np.testing.assert_array_equal(pool.sample(32).ids, other.sample(32).ids)
