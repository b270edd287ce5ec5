"""States that no pool can have had are refused by the name of what is wrong before anything is given up; and other odd uses."""

import copy
import os
import pickle
import signal

import numpy as np
import pytest
from helpers.lane_rows import Lane, lane_spec, prove_pool

from headrace.buffer import PoolConfig, SACReplayPool, export_pool
from headrace.common.errors import ArgumentError, ConfigError, PoolDamaged, PoolError, SpecError

SPEC = lane_spec(image=2)
ROWS = 20


def filled(capacity=64, rows=ROWS, path=None):
    pool = SACReplayPool(capacity, spec=SPEC, config=PoolConfig(max_actors=4), path=path)
    lane = Lane(SPEC, 0)
    for _ in range(rows // 10):
        pool.insert(lane.block(10), "arm-0", 1, lane.seq - 10)
    return pool


def array(name, change):
    def spoil(state):
        state["arrays"][name] = spoilt = state["arrays"][name].copy()
        change(spoilt)

    return spoil


def put(field, value, at=3):
    def change(rows):
        rows[field][at] = value

    return change


def entry(field, value):
    def change(table):
        table[field] = value

    return change


def every(value):
    def change(values):
        values[...] = value

    return change


def without_actors(state):
    state["arrays"]["ledger.npy"] = state["arrays"]["ledger.npy"][:0]


def twice(state):
    state["arrays"]["ledger.npy"] = np.concatenate([state["arrays"]["ledger.npy"]] * 2)


SPOILT = {
    "ledger.npy: 'utf-8'": array("ledger.npy", entry("actor", b"\xff")),
    "ledger.npy: actor arm-0: streams": array("ledger.npy", entry("stream", 1 << 63)),
    "ledger.npy: row 20 of actor 0 stream 1 is beyond": array("ledger.npy", entry("last", 19)),
    "ledger.npy: row 20 of actor 0": without_actors,
    "ledger.npy: an actor is there twice": twice,
    "rows.npy: non-finite: rewards holds NaN": array("rows.npy", put("rewards", np.nan)),
    "rows.npy: non-finite: action holds NaN": array("rows.npy", put("action", np.inf, 19)),
    "rows.npy: steps: steps must be 1 to 1": array("rows.npy", put("steps", 0)),
    "rows.npy: flag: terminated must be 0 or 1": array("rows.npy", put("terminated", 2)),
    "frames.obs.npy: non-finite: obs.obs holds NaN": array("frames.obs.npy", every(np.nan)),
    "outcome.npy: numbers above 2": array("outcome.npy", every(255)),
    "discarded.npy: numbers above 1": array("discarded.npy", every(2)),
    "statistics.npy: no moments": array("statistics.npy", every(-1.0)),
    "statistics.npy: no moments.": array("statistics.npy", every(np.nan)),
    "not the state of a pool: AttributeError": lambda state: state.update(numbers=None),
    "not the state of a pool: TypeError": lambda state: state.update(arrays=None),
}


@pytest.mark.parametrize("on_disk", [False, True], ids=["memory", "files"])
def test_a_state_that_no_pool_can_have_had_is_refused_by_name_and_changes_nothing(on_disk, tmp_path):
    good = filled().get_state()
    pool = filled(rows=10, path=tmp_path / "pool" if on_disk else None)
    before = list(pool.dump())
    for why, spoil in SPOILT.items():
        state = {**good, "arrays": dict(good["arrays"])}
        spoil(state)
        with pytest.raises(PoolDamaged) as refused:
            pool.set_state(state)
        assert why.rstrip(".") in str(refused.value)
        assert list(pool.dump()) == before, why
        assert pool.check_valid() == (True, ""), why
    pool.set_state(good)
    assert len(pool) == ROWS
    prove_pool(pool)
    pool.close()
    if on_disk:
        with SACReplayPool(64, path=tmp_path / "pool") as again:
            assert len(again) == ROWS


@pytest.mark.parametrize("on_disk", [False, True], ids=["memory", "files"])
def test_a_state_of_more_actors_than_there_are_places_changes_nothing(on_disk, tmp_path):
    many = filled()
    many.insert(Lane(SPEC, 1).block(10), "arm-1", 1, 1)
    with SACReplayPool(64, spec=SPEC, config=PoolConfig(max_actors=1), path=tmp_path if on_disk else None) as pool:
        pool.insert(Lane(SPEC, 2).block(10), "arm-2", 1, 1)
        before = list(pool.dump())
        with pytest.raises(ConfigError, match="max_actors: 1, but 2 actors are stored"):
            pool.set_state(many.get_state())
        assert list(pool.dump()) == before
        assert pool.check_valid() == (True, "")


def test_a_refused_state_fixes_nothing_of_an_empty_pool():
    t = np.arange(4, dtype=np.float32)
    plain = {"state": t, "action": t, "reward": t, "next_state": t + 1, "done": t > 2}
    other, pool = SACReplayPool(64), SACReplayPool(64)
    other.add_batch({**plain, "colour": t})
    state = other.get_state()
    array("outcome.npy", every(255))(state)
    with pytest.raises(PoolDamaged, match="outcome"):
        pool.set_state(state)
    pool.add_batch(plain)  # without the key that the other's first batch had
    assert sorted(pool.sample_batch(2)) == sorted(plain)


@pytest.mark.parametrize("on_disk", [False, True], ids=["memory", "files"])
def test_a_load_that_is_cut_short_closes_the_pool_and_says_so(on_disk, tmp_path, monkeypatch):
    filled().save(tmp_path / "snapshots")
    where = tmp_path / "pool" if on_disk else None
    pool = filled(rows=10, path=where)

    def interrupted(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr("headrace.buffer.live_rows.bury", interrupted)
    with pytest.raises(KeyboardInterrupt):
        pool.load(tmp_path / "snapshots")
    monkeypatch.undo()
    for call in (lambda: pool.size, lambda: pool.sample(3), lambda: pool.load(tmp_path / "snapshots")):
        with pytest.raises(PoolError, match="a load into this pool was cut short; open it again, and load once more"):
            call()
    pool.close()
    with SACReplayPool(64, spec=SPEC, config=PoolConfig(max_actors=4), path=where) as again:
        assert again.check_valid() == (True, "")
        again.load(tmp_path / "snapshots")
        assert len(again) == ROWS
        prove_pool(again)


def test_forked_processes_draw_batches_of_their_own_and_the_pool_goes_on_as_if_there_were_none():
    pool, mirror = (SACReplayPool(64, spec=SPEC, rng=np.random.default_rng(3)) for _ in range(2))
    for one in (pool, mirror):
        one.insert(Lane(SPEC, 0).block(60), "arm-0", 1, 1)
    drawn = [child(pool) for _ in range(3)]
    own = pool.sample(8).ids.tolist()
    assert own == mirror.sample(8).ids.tolist()
    assert len({tuple(ids) for ids in (*drawn, own)}) == 4
    assert all(len(set(ids)) == 8 for ids in drawn)


def child(pool):
    """What a forked process draws."""
    reads, writes = os.pipe()
    pid = os.fork()
    if not pid:
        os.write(writes, bytes(pool.sample(8).ids.tolist()))
        os.kill(os.getpid(), signal.SIGKILL)
    os.close(writes)
    os.waitpid(pid, 0)
    with os.fdopen(reads, "rb") as file:
        return list(file.read())


@pytest.mark.parametrize("copied", [pickle.dumps, copy.copy, copy.deepcopy])
def test_a_pool_is_not_copied_by_accident(copied):
    with pytest.raises(PoolError, match="neither pickled nor copied; use save"):
        copied(filled())


def test_what_a_pool_is_like_must_say_it():
    body = {**filled().made_of(), "spec": SPEC.to_dict()}
    assert SACReplayPool.like(body).spec == SPEC
    for spec in ({}, None):
        with pytest.raises(SpecError, match="not a transition spec"):
            SACReplayPool.like({**body, "spec": spec})
    for plain in ([{"path": ["a"]}], 3):
        with pytest.raises(PoolDamaged, match="not the plain form of a pool"):
            SACReplayPool.like({**body, "plain": plain})
    with pytest.raises(ArgumentError, match="body"):
        SACReplayPool.like({})


def test_masked_values_are_refused_and_arrays_that_could_have_some_are_not():
    pool, t = SACReplayPool(64), np.arange(4, dtype=np.float32)
    batch = {"state": t, "action": t, "reward": t, "next_state": t + 1, "done": t > 2}
    with pytest.raises(SpecError, match="transitions.reward: has masked values"):
        pool.add_batch({**batch, "reward": np.ma.masked_array(t, t > 1)})
    pool.add_batch({**batch, "reward": np.ma.masked_array(t)})
    assert len(pool) == 4


def test_an_export_does_not_go_into_the_pool_itself(tmp_path):
    with filled(path=tmp_path / "pool") as pool:
        for out in (tmp_path / "pool" / "shards", tmp_path / "pool"):
            with pytest.raises(PoolError, match="lies in the pool itself|exists already"):
                export_pool(pool, out)
        assert export_pool(pool, tmp_path / "pool-shards").rows == ROWS
