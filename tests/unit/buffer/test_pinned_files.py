"""Pinned demonstrations on disk: opened, checked and named there, in snapshots, exports and views, and never copied."""

import json
import os
import shutil

import numpy as np
import pytest
from helpers.lane_pool import SPECS, make, put
from helpers.lane_rows import Lane, die, prove, prove_pool
from helpers.pinned_pool import HALVES, SPEC, demos_of, is_demo, with_demos

from headrace.buffer import PoolConfig, SACReplayPool, export_pool, manifest
from headrace.buffer.files import ROWS, frame_file
from headrace.buffer.handles import PINNED
from headrace.buffer.pinned import DEMOS, Origin, Pinned
from headrace.buffer.view import PoolView
from headrace.common.errors import ConfigError, NoSpace, PoolDamaged, PoolError, SpecError


@pytest.mark.parametrize("end", [die, SACReplayPool.close])
def test_they_are_there_again_when_the_pool_opens(tmp_path, end):
    pool, lane = with_demos(demos_of(20), path=tmp_path, sets=HALVES), Lane(SPEC, 1)
    put(pool, lane, 70)
    facts = pool.info()["demos"]
    end(pool)
    for capacity in (50, 80, 30):  # other sizes are other files of the ring
        pool = with_demos(None, capacity, tmp_path, HALVES)
        assert (pool.demo_rows, pool.info()["demos"]) == (20, facts)
        put(pool, lane, 10)
        batch = pool.sample(20)
        prove(batch, SPEC)
        assert is_demo(batch).sum() == 10
        prove_pool(pool)
        pool.close()
    with_demos(demos_of(20), 30, tmp_path).close()


def test_others_than_it_began_with_are_refused_by_name(tmp_path):
    with_demos(demos_of(20), path=tmp_path / "with").close()
    make(50, path=tmp_path / "without").close()
    for other in (demos_of(21), demos_of(20, actor=8), demos_of(20, task=1)):
        with pytest.raises(ConfigError, match=r"has demonstrations of digest (\w+) .* to have demonstrations of digest (?!\1)"):
            with_demos(other, path=tmp_path / "with")
    with pytest.raises(ConfigError, match="has no demonstrations, and is now to have"):
        with_demos(demos_of(20), path=tmp_path / "without")
    with pytest.raises(SpecError, match=r"another spec .*stack"):
        SACReplayPool(50, spec=SPECS["stack"], demos=demos_of(20))
    with pytest.raises(PoolError, match="not in"):
        SACReplayPool(50, path=tmp_path / "new", demos=demos_of(20).pinned(tmp_path / "elsewhere"))


def test_a_damaged_file_is_named(tmp_path):
    with_demos(demos_of(20), path=tmp_path).close()
    folder = tmp_path / DEMOS / "snapshot-000001"
    for name in (ROWS, frame_file("obs"), "outcome.npy", manifest.NAME):
        whole = (folder / name).read_bytes()
        (folder / name).write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
        with pytest.raises(PoolDamaged, match=name):
            SACReplayPool(50, path=tmp_path)
        (folder / name).write_bytes(whole[:-1])
        for reader in (lambda: SACReplayPool(50, path=tmp_path), lambda: PoolView(tmp_path)):
            with pytest.raises(PoolDamaged, match=name):
                reader()
        (folder / name).write_bytes(whole)
    SACReplayPool(50, path=tmp_path).close()
    shutil.move(tmp_path / DEMOS, tmp_path / "away")
    with pytest.raises(PoolDamaged, match="are gone; put them back"):
        SACReplayPool(50, path=tmp_path)
    demos_of(20, actor=8).pinned(tmp_path / DEMOS)
    with pytest.raises(PoolDamaged, match="but the pool's manifest names"):
        SACReplayPool(50, path=tmp_path)


def test_a_kill_while_they_are_written_leaves_nothing(tmp_path, monkeypatch):
    def killed(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(manifest, "write", killed)
    with pytest.raises(KeyboardInterrupt):
        with_demos(demos_of(20), path=tmp_path / "pool")
    monkeypatch.undo()
    pool = with_demos(demos_of(20), path=tmp_path / "pool")
    assert os.listdir(tmp_path / "pool" / DEMOS) == ["snapshot-000001"]
    assert pool.demo_rows == 20
    pool.close()


def test_space_is_looked_for_before_anything_is_written(tmp_path, monkeypatch):
    def full(needed, directory, **_):
        raise NoSpace(f"{needed} bytes for {directory}")

    demos = demos_of(20)
    monkeypatch.setattr("headrace.buffer.space.require", full)
    with pytest.raises(NoSpace, match=r"\d+ bytes for .*demos"):
        with_demos(demos, path=tmp_path / "pool")
    assert os.listdir(tmp_path / "pool" / DEMOS) == []


# snapshots, exports, views


@pytest.mark.parametrize("on_disk", [False, True])
def test_snapshots_name_them_and_hold_none(tmp_path, on_disk):
    pool = with_demos(demos_of(20), path=tmp_path / "pool" if on_disk else None)
    put(pool, Lane(SPEC, 1), 30)
    pool.save(tmp_path / "snapshot")
    body = json.loads((tmp_path / "snapshot" / "snapshot-000001" / manifest.NAME).read_text())
    assert body["demos"] == pool._pinned.facts()
    assert body["demos"]["rows"] == 20
    assert len(np.load(tmp_path / "snapshot" / "snapshot-000001" / ROWS)) == 30
    same, other, none = with_demos(demos_of(20)), with_demos(demos_of(21)), make(50)
    assert same.load(tmp_path / "snapshot")
    again = SACReplayPool.from_path(tmp_path / "snapshot", demos=demos_of(20))
    for target in (same, again):
        assert (target.size, target.demo_rows) == (30, 20)
    for refused in (lambda: none.load(tmp_path / "snapshot"), lambda: SACReplayPool.from_path(tmp_path / "snapshot")):
        with pytest.raises(ConfigError, match=r"has demonstrations of digest \w+ .* to have no demonstrations; .* put the old"):
            refused()
    assert none.size == 0
    put(none, Lane(SPEC, 1), 30)
    with pytest.raises(ConfigError, match=r"what is loaded has demonstrations of digest \w+ .* to have demonstrations"):
        other.load(tmp_path / "snapshot")
    assert (other.size, other.demo_rows) == (0, 21)
    none.save(tmp_path / "plain")
    assert other.load(tmp_path / "plain")
    pool.close()


def test_exports_and_dumps_are_of_the_ring(tmp_path):
    pool = with_demos(demos_of(20), path=tmp_path / "pool")
    put(pool, Lane(SPEC, 1), 30)
    for i, source in enumerate((pool, PoolView(tmp_path / "pool"))):
        export_pool(source, tmp_path / f"out-{i}")
        body = manifest.read(tmp_path / f"out-{i}")
        assert (body["rows"], body["demos"]) == (30, pool._pinned.facts())
        assert len(list(source.dump())) == 30
    pool.close()


def test_their_folder_is_a_snapshot_that_opens_as_a_pool(tmp_path):
    source = demos_of(20)
    with_demos(source, path=tmp_path).close()
    pool = SACReplayPool.from_path(tmp_path / DEMOS)
    prove_pool(pool)
    assert [row["digest"] for row in pool.dump()] == [row["digest"] for row in source.dump()]
    assert pool.counters()["rows_evicted"] == 0


@pytest.mark.parametrize("kind", SPECS)
def test_a_view_gathers_mixed_batches_and_knows_what_is_gone(tmp_path, kind):
    spec = SPECS[kind]
    pool, lane = with_demos(demos_of(20, spec), path=tmp_path), Lane(spec, 1)
    put(pool, lane, 50)
    with PoolView(tmp_path, pool.nonce) as view:
        assert view.info() == pool.info()
        batch = pool.sample(40)
        found, bad = view.gather(batch.ids, view.staging(40))
        assert not bad.any()
        np.testing.assert_array_equal(found.rows, batch.rows)
        prove(found, spec)
        put(pool, lane, 30)
        ids = np.array([29, PINNED, 30, PINNED + 19, PINNED + 20, 79, 80, -1, 3 * PINNED])
        found, bad = view.gather(ids)
        assert bad.tolist() == [True, False, False, False, True, False, True, True, True]
        prove(found[~bad], spec)
        pool.close()
        pool = SACReplayPool(50, path=tmp_path)
        assert view.gather(ids)[1].all()  # handles of an epoch that is over
    pool.close()


def test_origins_say_what_they_are():
    origin = Origin("ab" * 32, ("/data/a.hdf5", "b"))
    assert Origin.of(json.loads(json.dumps(origin.to_dict()))) == origin
    assert str(origin) == "demonstrations of digest abababababababab (/data/a.hdf5, b)"
    assert Origin.of({}) is None
    demos = demos_of(20)
    assert demos.pinned(None, origin).origin == origin
    assert demos.pinned().origin == demos_of(20).pinned().origin != demos_of(20, actor=8).pinned().origin


def test_a_pinned_segment_can_be_read_twice(tmp_path):
    demos_of(20).pinned(tmp_path / DEMOS)
    one, two = Pinned.read(tmp_path / DEMOS), Pinned.read(tmp_path / DEMOS, verify=False)
    assert one.facts() == two.facts()
    pool = SACReplayPool(10, path=tmp_path, config=PoolConfig(max_block_rows=4), demos=one)
    assert pool.demo_rows == 20
    pool.close()
