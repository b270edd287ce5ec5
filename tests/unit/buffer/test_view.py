"""The mapped view: what it reads beside a living owner, what it refuses, and that it disturbs nobody."""

import hashlib
import platform

import numpy as np
import pytest
from helpers.lane_rows import Lane, die, lane_spec, prove

from headrace.buffer import PoolConfig, SACReplayPool
from headrace.buffer.header import Field
from headrace.buffer.reader import Reader
from headrace.buffer.view import PoolView
from headrace.common.errors import PoolDamaged, PoolError

SPEC = lane_spec(stack=2, image=4)


def make(path, capacity=32, **config):
    return SACReplayPool(capacity, path=path, spec=SPEC, config=PoolConfig(**config), rng=np.random.default_rng(0))


def fill(pool, rows, actor="a", lane=None):
    lane = lane or Lane(SPEC, 1)
    while rows > 0:
        first, n = lane.seq, min(rows, 8)
        pool.insert(lane.block(n), actor, 1, first)
        rows -= n
    return lane


def contents(path):
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in path.iterdir() if file.is_file()}


def test_it_reads_the_living_owners_rows_and_changes_no_byte(tmp_path):
    with make(tmp_path) as pool:
        lane = fill(pool, 40)
        before = contents(tmp_path)
        view = PoolView(tmp_path, pool.nonce)
        ids = np.arange(pool.tail, pool.head)
        batch, bad = view.gather(ids)
        assert not bad.any()
        prove(batch, SPEC)
        expected = pool.gather(ids)
        np.testing.assert_array_equal(batch.rows, expected.rows)
        assert view.info() == pool.info()
        assert view.counters() == pool.counters()
        assert list(view.dump()) == list(pool.dump())
        assert contents(tmp_path) == before
        fill(pool, 24, lane=lane)  # what comes later is seen through the same map
        assert (view.tail, view.head) == (pool.tail, pool.head)
        batch, bad = view.gather(ids)
        assert bad.tolist() == (ids < pool.tail).tolist()
        prove(batch[~bad], SPEC)


def test_rows_that_never_were_are_bad(tmp_path):
    with make(tmp_path) as pool:
        fill(pool, 8)
        view = PoolView(tmp_path)
        _, bad = view.gather(np.array([0, 7, 8, 1 << 40, -1]))
        assert bad.tolist() == [False, False, True, True, True]


def test_it_gathers_into_given_arrays(tmp_path):
    with make(tmp_path) as pool:
        fill(pool, 20)
        view = PoolView(tmp_path)
        out = view.staging(5)
        ids = np.array([3, 1, 19, 0, 7])
        batch, bad = view.gather(ids, out)
        assert not bad.any()
        prove(batch, SPEC)
        assert np.shares_memory(batch.rows, out.rows)
        assert all(batch.obs[key] is out.obs[key] for key in out.obs)
        np.testing.assert_array_equal(out.obs["obs"], pool.gather(ids).obs["obs"])


def test_a_pool_that_was_left_is_read_without_raising_its_epoch(tmp_path):
    with make(tmp_path) as pool:
        fill(pool, 40)
        epoch, rows, counters = pool.epoch, list(pool.dump()), pool.counters()
    before = contents(tmp_path)
    with PoolView(tmp_path) as view:
        assert (view.info()["epoch"], list(view.dump()), view.counters()) == (epoch, rows, counters)
    assert contents(tmp_path) == before


def test_what_the_last_stamp_misses_is_counted_too(tmp_path):
    pool = make(tmp_path)
    fill(pool, 40)
    pool.reject("a", 1, 41, 2)
    fill(pool, 5, "b")
    counters, rows = pool.counters(), list(pool.dump())
    die(pool)
    view = PoolView(tmp_path)
    assert view.counters() == counters
    assert list(view.dump()) == rows
    assert {row["actor"] for row in rows} == {"a", "b"}


def test_a_new_owner_makes_every_row_bad(tmp_path):
    with make(tmp_path) as pool:
        fill(pool, 20)
        view = PoolView(tmp_path, pool.nonce)
        nonce = pool.nonce
    with make(tmp_path) as pool:
        assert pool.nonce != nonce
        assert not view.is_current
        assert view.gather(np.arange(4))[1].all()
        with pytest.raises(PoolError, match=f"the owner's {nonce}"):
            PoolView(tmp_path, nonce)
        assert not PoolView(tmp_path, pool.nonce).gather(np.arange(4))[1].any()


def test_a_loaded_snapshot_makes_every_row_bad(tmp_path):
    with make(tmp_path / "pool") as pool:
        fill(pool, 20)
        pool.save(tmp_path / "snapshot")
        view = PoolView(tmp_path / "pool", pool.nonce)
        pool.load(tmp_path / "snapshot")
        assert view.gather(np.arange(4))[1].all()
        pool._store.header[Field.RESTORING] = 1
        with pytest.raises(PoolError, match="being loaded"):
            PoolView(tmp_path / "pool")


def test_a_dump_ends_with_an_error_when_the_pool_changes_hands(tmp_path):
    with make(tmp_path, 600) as pool:
        fill(pool, 600)
        dump = PoolView(tmp_path).dump()
        next(dump)
    with make(tmp_path, 600), pytest.raises(PoolError, match="new owner"):
        list(dump)


def test_what_is_no_pool_is_refused(tmp_path):
    with pytest.raises(PoolError, match="there is no pool"):
        PoolView(tmp_path)
    with make(tmp_path / "pool") as pool:
        fill(pool, 8)
        pool.save(tmp_path / "snapshot")
    with pytest.raises(PoolError, match="a snapshot is loaded"):
        PoolView(tmp_path / "snapshot")
    with (tmp_path / "pool" / "generation-000001" / "rows.npy").open("ab") as file:
        file.write(b"x")
    with pytest.raises(PoolDamaged, match=r"rows\.npy"):
        PoolView(tmp_path / "pool")


def test_a_ledger_that_is_damaged_is_named(tmp_path):
    with make(tmp_path) as pool:
        fill(pool, 8)
    with (tmp_path / "generation-000001" / "ledger.bin").open("r+b") as file:
        file.write(b"\xff" * (tmp_path / "generation-000001" / "ledger.bin").stat().st_size)
    view = PoolView(tmp_path)
    with pytest.raises(PoolDamaged, match=r"ledger\.bin"):
        view.counters()


def test_a_processor_without_ordered_stores_maps_no_live_pool(tmp_path, monkeypatch):
    with make(tmp_path) as pool:
        monkeypatch.setattr(platform, "machine", lambda: "aarch64")
        with pytest.raises(PoolError, match="x86_64 or amd64 only, this is aarch64"):
            PoolView(tmp_path, pool.nonce)
        PoolView(tmp_path)


def test_labels_are_seen_and_rows_that_change_meanwhile_are_bad(tmp_path, monkeypatch):
    with make(tmp_path) as pool:
        fill(pool, 40)
        view = PoolView(tmp_path)
        ids = np.arange(pool.tail, pool.head)
        pool.label("a", 1, 20, 30, 1)
        pool.discard("a", 1, 35, 38)
        assert (view.size, view.counters(), list(view.dump())) == (28, pool.counters(), list(pool.dump()))
        real, left = Reader.gather, [3]

        def meanwhile(self, *args):
            out = real(self, *args)
            if self is view._reader and left[0]:
                left[0] -= 1
                pool.label("a", 1, 20, 30, 2 - left[0] % 2)
            return out

        monkeypatch.setattr(Reader, "gather", meanwhile)
        assert view.gather(ids)[1].all()  # it tried as often as it may
        left[0] = 2
        batch, bad = view.gather(ids)
        assert not bad.any()
        np.testing.assert_array_equal(batch.rows, pool.gather(ids).rows)
        assert list(view.dump()) == list(pool.dump())


def test_a_label_that_a_dead_owner_left_unfinished_hides_rows_from_a_gather_but_not_from_a_dump(tmp_path):
    with make(tmp_path) as pool:
        fill(pool, 10)
        rows = list(pool.dump())
        pool._store.header[Field.AMENDS] += 1
        view = PoolView(tmp_path)
        ids = np.arange(10)
        assert view.gather(ids)[1].all()
        assert list(view.dump()) == rows
        pool._store.header[Field.AMENDS] += 1
        assert not view.gather(ids)[1].any()
