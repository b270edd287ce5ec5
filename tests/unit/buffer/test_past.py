"""An older pool's rows as the beginning of a new one."""

import numpy as np
import pytest
from helpers.lane_rows import Lane, die, lane_spec, prove_pool

from headrace.buffer import PoolConfig, SACReplayPool
from headrace.buffer.header import Field
from headrace.buffer.opening import existing
from headrace.buffer.pacing import PacingConfig
from headrace.buffer.settings import BufferSettings
from headrace.common.errors import ConfigError, SpecError
from headrace.common.wire.network import NetworkConfig

SPEC = lane_spec(stack=2)


def old_pool(rows, path=None, capacity=20, spec=SPEC):
    pool = SACReplayPool(capacity, path=path, spec=spec, rng=np.random.default_rng(0))
    lanes = {name: Lane(spec, number) for number, name in enumerate(["a", "b"])}
    for turn in range(rows):
        name = "ab"[turn % 2]
        pool.insert(lanes[name].block(1), name, 1, lanes[name].seq - 1)
    pool.grant_updates(17)
    return pool


def content(pool):
    return [(row["seq"], row["digest"]) for row in pool.dump()]


@pytest.mark.parametrize("capacity", [5, 20, 100])
def test_rows_are_kept_and_nothing_is_counted(capacity):
    old = old_pool(33)
    pool = SACReplayPool(capacity, spec=SPEC)
    pool.adopt(old)
    assert content(pool) == content(old)[-capacity:]
    assert (pool.env_steps, pool.updates, pool.offline_updates) == (0, 0, 0)
    assert {k: n for k, n in pool.counters().items() if n} == {"rows_accepted": 20, "rows_live": pool.size} | (
        {"rows_evicted": 15} if capacity == 5 else {}
    )
    assert pool.statistics().count == old.statistics().count
    prove_pool(pool)


def test_a_new_actor_may_have_the_name_and_the_numbers_of_an_old_one():
    pool = SACReplayPool(100, spec=SPEC)
    pool.adopt(old_pool(20))
    assert pool.actors() == ["past-0/a", "past-1/b"]
    fresh = Lane(SPEC, 0)
    assert pool.insert(fresh.block(5), "a", 1, 1).rows == 5
    assert (pool.size, pool.env_steps, pool.last_seq("a", 1)) == (25, 5, 5)
    again = SACReplayPool(100, spec=SPEC)
    again.adopt(pool)
    assert again.actors() == ["past-0/past-0/a", "past-1/past-1/b", "past-2/a"]
    prove_pool(again)


def test_long_names_stay_apart():
    old = SACReplayPool(20, spec=SPEC)
    for number in range(3):
        old.insert(Lane(SPEC, number).block(2), "ä" * 63 + str(number), 1, 1)
    pool = SACReplayPool(20, spec=SPEC)
    pool.adopt(old)
    assert len(set(pool.actors())) == 3
    assert pool.check_valid() == (True, "")


def test_what_does_not_fit_is_refused_and_changes_nothing():
    pool = old_pool(4)
    before = content(pool)
    with pytest.raises(SpecError, match="stack"):
        pool.adopt(old_pool(4, spec=lane_spec(stack=3)))
    with pytest.raises(ConfigError, match="max_actors: 1, but 2 actors"):
        SACReplayPool(20, spec=SPEC, config=PoolConfig(max_actors=1)).adopt(pool)
    assert content(pool) == before


@pytest.mark.parametrize("killed", [False, True])
def test_a_buffer_adopts_once_and_again_only_after_a_kill_in_the_middle(tmp_path, killed):
    old = old_pool(12, tmp_path / "old")
    expected = content(old)
    old.close()
    opened = []

    def past():
        opened.append(1)
        return SACReplayPool(20, path=tmp_path / "old")

    config = PoolConfig(capacity=20)
    settings = BufferSettings(NetworkConfig(), config, tmp_path / "new", PacingConfig(), "run", 0, None, past)
    pool = existing(settings)
    assert content(pool) == expected
    pool.grant_updates(3, offline=True)
    if killed:
        pool._store.header[Field.RESTORING] = 1
    pool.close()
    pool = existing(settings)
    assert content(pool) == expected
    assert (len(opened), pool.offline_updates) == ((2, 0) if killed else (1, 3))
    pool.close()
    assert content(SACReplayPool(20, path=tmp_path / "old")) == expected


def test_offline_updates_are_counted_apart_and_for_ever(tmp_path):
    pool = old_pool(5, tmp_path / "pool")
    assert pool.grant_updates(4, offline=True) == 21
    pool.save(tmp_path / "snapshot")
    die(pool)
    again = SACReplayPool(20, path=tmp_path / "pool")
    for kept in (again, SACReplayPool.from_path(tmp_path / "snapshot")):
        assert (kept.updates, kept.offline_updates) == (21, 4)
        assert (kept.counters()["updates"], kept.counters()["offline_updates"]) == (21, 4)
    again.close()
