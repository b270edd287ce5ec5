import mmap
import shutil

import numpy as np
import pytest
from helpers.lane_rows import Lane, lane_spec, prove_pool

from headrace.buffer import PoolConfig, SACReplayPool, export_pool, files, generations, manifest, space
from headrace.buffer.header import Field, Header
from headrace.buffer.view import PoolView
from headrace.common.errors import ConfigError, NoSpace, PoolDamaged

SPEC = lane_spec(stack=2)


def filled(path, capacity=10, rows=25, **config):
    pool = SACReplayPool(capacity, path=path, spec=SPEC, config=PoolConfig(**config) if config else None)
    lane = Lane(SPEC, 1)
    for _ in range(rows):
        pool.insert(lane.block(1), "a", 1, lane.seq - 1)
    return pool, lane


def facts(pool):
    return [(r["id"], r["seq"], r["digest"]) for r in pool.dump()]


@pytest.mark.parametrize("rows", [0, 3, 10, 25])
@pytest.mark.parametrize("capacity", [1, 4, 9, 11, 60])
def test_another_capacity_keeps_the_newest_rows_in_order(tmp_path, capacity, rows, caplog):
    pool, lane = filled(tmp_path, 10, rows)
    pool.grant_updates(5)
    before, counters, epoch, uuid = facts(pool), pool.counters(), pool.epoch, pool.info()["uuid"]
    statistics = pool.statistics()
    pool.close()
    with SACReplayPool(capacity, path=tmp_path) as pool:
        over = max(0, len(before) - capacity)
        assert (f"the oldest {over} rows are evicted" in caplog.text) == (over > 0)
        assert facts(pool) == before[-capacity:]
        assert pool.epoch > epoch
        assert pool.info()["uuid"] == uuid
        changed = {"rows_live": len(before[-capacity:]), "rows_evicted": rows - len(before[-capacity:])}
        assert pool.counters() == {**counters, **changed}
        np.testing.assert_array_equal(pool.statistics().var["obs"], statistics.var["obs"])
        prove_pool(pool)
        for _ in range(capacity + 20):
            pool.insert(lane.block(1), "a", 1, lane.seq - 1)
        assert pool.size == capacity
        prove_pool(pool)
    with SACReplayPool(capacity, path=tmp_path) as pool:
        assert pool.size == capacity


def test_the_config_wins_in_every_size(tmp_path):
    pool, _ = filled(tmp_path, max_actors=3, max_block_rows=4)
    before = facts(pool)
    pool.close()
    with SACReplayPool(10, path=tmp_path, config=PoolConfig(max_actors=5, max_block_rows=7)) as pool:
        assert (pool.config.max_actors, pool.config.max_block_rows) == (5, 7)
        assert facts(pool) == before
    with SACReplayPool(10, path=tmp_path) as pool:
        assert (pool.config.max_actors, pool.config.max_block_rows) == (5, 7)
    assert [p.name for p in tmp_path.glob("generation-*")] == ["generation-000002"]


def test_fewer_actors_than_are_known_are_refused_and_nothing_changes(tmp_path):
    pool, _ = filled(tmp_path, max_actors=3)
    pool.insert(Lane(SPEC, 2).block(1), "b", 1, 1)
    before = facts(pool)
    pool.close()
    with pytest.raises(ConfigError, match="max_actors: 1, but 2"):
        SACReplayPool(10, path=tmp_path, config=PoolConfig(max_actors=1))
    with SACReplayPool(10, path=tmp_path) as pool:
        assert facts(pool) == before


def test_no_room_for_both_generations_leaves_the_old_one(tmp_path, monkeypatch):
    pool, _ = filled(tmp_path)
    before = facts(pool)
    pool.close()

    def refuse(needed, directory):
        raise NoSpace(f"needs {needed}")

    monkeypatch.setattr(space, "require", refuse)
    with pytest.raises(NoSpace):
        SACReplayPool(99, path=tmp_path)
    with SACReplayPool(10, path=tmp_path) as pool:
        assert facts(pool) == before
        assert len(list(tmp_path.glob("generation-*"))) == 1


def test_a_mapped_reader_of_the_old_files_notices(tmp_path):
    pool, _ = filled(tmp_path)
    pool.close()
    with open(tmp_path / "generation-000001" / "header.bin", "rb") as file:
        mapped = Header(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    epoch = mapped[Field.EPOCH]
    SACReplayPool(20, path=tmp_path).close()
    assert mapped[Field.EPOCH] > epoch
    assert mapped[Field.NONCE] == 0
    assert not (tmp_path / "generation-000001").exists()


@pytest.mark.parametrize(
    "change", [{"generation": "../x"}, {"generation": None}, {"format": 1}, {"uuid": "x"}, {"generation": "generation-000009"}]
)
def test_manifests_that_lie_are_refused(tmp_path, change):
    filled(tmp_path)[0].close()
    body = manifest.read(tmp_path)
    manifest.write(tmp_path, {**body, **change})
    with pytest.raises((PoolDamaged, ConfigError)):
        SACReplayPool(10, path=tmp_path)
    assert (tmp_path / "generation-000001" / files.ROWS).exists()
    assert generations.is_pool(tmp_path)


def test_what_lies_there_in_place_of_a_pool_is_named_with_the_way_out(tmp_path):
    pool, _ = filled(tmp_path / "pool")
    pool.save(tmp_path / "snapshots")
    export_pool(pool, tmp_path / "out")
    pool.close()
    one = tmp_path / "snapshots" / "snapshot-000001"
    for reading in (PoolView, SACReplayPool.from_path, lambda place: SACReplayPool(10, path=place)):
        with pytest.raises(
            PoolDamaged, match=rf"of one snapshot; name the directory that they are in, {one.parent}: the newest"
        ):
            reading(one)
        with pytest.raises(PoolDamaged, match=rf"of an export; .*headrace pool import {tmp_path / 'out'} POOL.*pool\.demos"):
            reading(tmp_path / "out")


def test_a_larger_min_block_rows_that_costs_rows_is_refused_and_the_pool_stays(tmp_path, caplog):
    """Each of these rows ends an episode, and so brings two frames."""
    lane = Lane(SPEC, 1, (1,))
    with SACReplayPool(300, path=tmp_path, spec=SPEC, config=PoolConfig(max_block_rows=10)) as pool:
        for _ in range(300):
            pool.insert(lane.block(1), "a", 1, lane.seq - 1)
        before = facts(pool)
    longer = PoolConfig(min_block_rows=10, max_block_rows=10)
    said = r"pool\.min_block_rows: 10 in place of 1 leaves room for .* \d+ of the newest 300 rows only; nearest valid: 1, or"
    with pytest.raises(ConfigError, match=said):
        SACReplayPool(300, path=tmp_path, config=longer)
    with SACReplayPool(300, path=tmp_path) as pool:
        assert facts(pool) == before
        prove_pool(pool)
    with SACReplayPool(50, path=tmp_path, config=longer) as pool:  # rows that are given up need no frames
        assert (facts(pool), pool.counters()["rows_retired"]) == (before[-50:], 0)
    assert "retired" not in caplog.text


def everything(path):
    return {p.relative_to(path): p.read_bytes() for p in sorted(path.rglob("*")) if p.is_file() and p.name != "lock"}


@pytest.mark.parametrize("capacity", [10, 7])
@pytest.mark.parametrize("spec", [SPEC, None])
def test_rows_without_a_manifest_are_refused_and_stay(tmp_path, spec, capacity):
    filled(tmp_path)[0].close()
    text = (tmp_path / "manifest.json").read_bytes()
    (tmp_path / "manifest.json").unlink()
    before = everything(tmp_path)
    for _ in range(2):
        with pytest.raises(PoolDamaged, match=r"manifest\.json: missing, but .*generation-000001 holds rows; put .* back"):
            SACReplayPool(capacity, path=tmp_path, spec=spec)
    with pytest.raises(PoolDamaged, match="missing, but"):
        PoolView(tmp_path)
    assert generations.is_pool(tmp_path)
    assert everything(tmp_path) == before
    (tmp_path / "manifest.json").write_bytes(text)
    with SACReplayPool(10, path=tmp_path) as pool:
        assert pool.size == 10


def test_a_pool_that_was_removed_is_made_anew(tmp_path):
    filled(tmp_path)[0].close()
    generations.remove(tmp_path)
    assert not generations.is_pool(tmp_path)
    generations.remove(tmp_path)
    with SACReplayPool(10, path=tmp_path, spec=SPEC) as pool:
        assert (pool.size, pool.head) == (0, 0)


def test_a_column_of_more_than_4_gib(tmp_path):
    """Ids are moved so that rows and frames lie beyond 4 GiB of the ring and wrap; only the pages in use are touched."""
    spec = lane_spec(image=256)
    config = PoolConfig(min_block_rows=1024)
    if shutil.disk_usage(tmp_path).free < 8 << 30 or space.filesystem(tmp_path) in ("tmpfs", "ramfs"):
        pytest.skip("needs 8 GiB free on a disk")
    lane = Lane(spec, 1)
    with SACReplayPool(20, spec=spec) as small:
        small.insert(lane.block(20), "a", 1, 1)
        state = small.get_state()
    with SACReplayPool(66_000, path=tmp_path, spec=spec, config=config) as pool:
        slots = pool.info()["frame_slots"]
        assert slots * 256 * 256 > 4 << 30
        shift = slots - 40
        rows = state["arrays"]["rows.npy"]
        for name in ("obs", "next_obs"):
            rows[name] += shift
        numbers = {**state["numbers"], "head": 20 + shift, "frame_head": state["numbers"]["frame_head"] + shift}
        pool.set_state({**state, "numbers": numbers})
        for _ in range(4):  # over the end of the ring
            pool.insert(lane.block(10), "a", 1, lane.seq - 10)
        prove_pool(pool)
        before = facts(pool)
        assert len(before) == 60
    with SACReplayPool(66_000, path=tmp_path) as pool:
        assert facts(pool) == before
        prove_pool(pool)
