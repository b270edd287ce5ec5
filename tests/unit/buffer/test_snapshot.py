import json
import random

import numpy as np
import pytest
from helpers.lane_rows import Lane, lane_spec, prove_pool, seqs

from headrace.buffer import PoolConfig, SACReplayPool, snapshot, space
from headrace.common.errors import ConfigError, DiskFailed, NoSpace, PoolDamaged, PoolError, SpecError

SPEC = lane_spec(stack=2, image=4)


def filled(capacity, rows, path=None, seed=0, **config):
    pool = SACReplayPool(capacity, path=path, spec=SPEC, config=PoolConfig(**config), rng=np.random.default_rng(seed))
    lane = Lane(SPEC, 1)
    for _ in range(rows):
        pool.insert(lane.block(1), "a", 1, lane.seq - 1)
    pool.grant_updates(17)
    return pool, lane


def digests(pool):
    return [(r["id"], r["seq"], r["digest"]) for r in pool.dump()]


def damage_cases(path):
    """Every file of the snapshot."""
    return sorted(p for p in path.rglob("*") if p.is_file())


@pytest.mark.parametrize("rows", [0, 1, 9, 10, 25])
def test_everything_comes_back(tmp_path, rows):
    pool, _ = filled(10, rows)
    pool.save(tmp_path / "s")
    again = SACReplayPool.from_path(tmp_path / "s", rng=np.random.default_rng(99))
    assert again.config == pool.config
    assert digests(again) == digests(pool)
    assert again.counters() == pool.counters()
    assert again.streams("a") == pool.streams("a")
    assert again.spec == SPEC
    for key in pool.statistics().mean:
        np.testing.assert_array_equal(again.statistics().var[key], pool.statistics().var[key])
    prove_pool(again)


@pytest.mark.parametrize("mapped", [False, True])
def test_a_restored_pool_goes_on_bit_for_bit(tmp_path, mapped):
    """N + save + load + N inserts and batches = 2 N uninterrupted, in every array and random draw."""

    def go_on(pool, lane, n):
        out = []
        for _ in range(n):
            first = lane.seq
            pool.insert(lane.block(3), "a", 1, first)
            out.append(pool.sample(4))
            pool.grant_updates(1)
        return out

    straight, lane = filled(20, 30)
    go_on(straight, lane, 10)
    wanted = go_on(straight, lane, 10)
    first, lane = filled(20, 30)
    go_on(first, lane, 10)
    first.save(tmp_path / "s")
    second = SACReplayPool(20, path=tmp_path / "pool" if mapped else None, rng=np.random.default_rng(5))
    assert second.load(tmp_path / "s")
    for ours, theirs in zip(wanted, go_on(second, lane, 10), strict=True):
        np.testing.assert_array_equal(ours.ids, theirs.ids)
        assert ours.rows.tobytes() == theirs.rows.tobytes()
        for key in ours.obs:
            assert ours.obs[key].tobytes() == theirs.obs[key].tobytes()
    a, b = straight.get_state(), second.get_state()
    assert a.keys() == b.keys()
    for name, array in a["arrays"].items():
        assert array.tobytes() == b["arrays"][name].tobytes(), name
    assert {k: v for k, v in a.items() if k != "arrays"} == {k: v for k, v in b.items() if k != "arrays"}
    second.close()


@pytest.mark.parametrize("rows", [3, 8, 13, 20])
@pytest.mark.parametrize("capacity", [1, 4, 7, 50])
def test_the_config_wins_over_the_file(tmp_path, rows, capacity):
    pool, lane = filled(8, rows)
    pool.save(tmp_path / "s")
    other = SACReplayPool(capacity)
    assert other.load(tmp_path / "s")
    kept = min(capacity, 8, rows)
    assert seqs(other, "a") == list(range(rows - kept + 1, rows + 1))
    assert digests(other) == digests(pool)[-kept:]
    prove_pool(other)
    for _ in range(capacity + 10):
        other.insert(lane.block(1), "a", 1, lane.seq - 1)
        prove_pool(other)
        kept = min(capacity, kept + 1)
        assert other.size == kept
    assert other.counters()["rows_retired"] == 0


def test_a_frame_ring_too_small_for_the_file_costs_its_oldest_rows(tmp_path):
    pool = SACReplayPool(300, spec=SPEC)
    lane = Lane(SPEC, 1, (1,))
    for _ in range(300):
        pool.insert(lane.block(1), "a", 1, lane.seq - 1)
    pool.save(tmp_path / "s")
    other = SACReplayPool(300, config=PoolConfig(min_block_rows=10, max_block_rows=10))
    assert other.load(tmp_path / "s")
    prove_pool(other)
    assert other.size == 300 - other.counters()["rows_retired"] < 300
    assert seqs(other, "a") == list(range(301 - other.size, 301))


def test_load_replaces_what_was_there_and_voids_old_ids(tmp_path):
    pool, _ = filled(10, 12)
    pool.save(tmp_path / "s")
    with SACReplayPool(10, path=tmp_path / "pool", spec=SPEC) as other:
        other.insert(Lane(SPEC, 2).block(30), "b", 1, 1)
        epoch = other.epoch
        assert other.load(tmp_path / "s")
        assert other.epoch == epoch + 1
        assert other.actors() == ["a"]
        assert digests(other) == digests(pool)
    with SACReplayPool(10, path=tmp_path / "pool") as other:
        assert digests(other) == digests(pool)
        assert other.counters() == pool.counters()


def test_only_live_rows_and_frames_are_written(tmp_path):
    pool, _ = filled(1000, 5)
    pool.save(tmp_path / "s")
    body, arrays = snapshot.read(tmp_path / "s")
    assert len(arrays["rows.npy"]) == 5
    assert len(arrays["frames.obs.npy"]) <= 5 * 4
    assert body["numbers"]["head"] == 5
    for path in (tmp_path / "s").rglob("*.npy"):
        np.load(path, allow_pickle=False)


def test_no_snapshot_is_false(tmp_path):
    pool, _ = filled(5, 3)
    before = digests(pool)
    (tmp_path / "empty").mkdir()
    for path in (tmp_path / "none", tmp_path / "empty"):
        assert pool.load(path) is False
        with pytest.raises(PoolError, match="no snapshot"):
            SACReplayPool.from_path(path)
    assert digests(pool) == before


def test_a_flipped_bit_anywhere_is_found_and_named(tmp_path):
    pool, _ = filled(6, 20)
    pool.save(tmp_path / "s")
    draw = random.Random(0)
    other, _ = filled(6, 3)
    before = digests(other)
    for path in damage_cases(tmp_path / "s"):
        good = path.read_bytes()
        for _ in range(130):  # 1,000 and more over all files
            bad = bytearray(good)
            bad[draw.randrange(len(bad))] ^= 1 << draw.randrange(8)
            path.write_bytes(bad)
            with pytest.raises(PoolDamaged, match=path.name):
                other.load(tmp_path / "s")
        for cut in (0, 1, len(good) // 2, len(good) - 1):
            path.write_bytes(good[:cut])
            with pytest.raises(PoolDamaged, match=path.name):
                other.load(tmp_path / "s")
        path.write_bytes(good + b"\0")
        with pytest.raises(PoolDamaged, match=path.name):
            other.load(tmp_path / "s")
        path.write_bytes(good)
    assert digests(other) == before
    assert other.load(tmp_path / "s")


def test_swapped_deleted_and_linked_files_are_found(tmp_path):
    for name, rows in (("one", 5), ("two", 6)):
        filled(6, rows)[0].save(tmp_path / name)
    other = SACReplayPool(6)
    one, two = (tmp_path / n / "snapshot-000001" for n in ("one", "two"))
    rows = (one / "rows.npy").read_bytes()
    (one / "rows.npy").write_bytes((two / "rows.npy").read_bytes())
    with pytest.raises(PoolDamaged, match=r"rows\.npy"):
        other.load(tmp_path / "one")
    (one / "rows.npy").unlink()
    with pytest.raises(PoolDamaged, match=r"rows\.npy"):
        other.load(tmp_path / "one")
    (tmp_path / "elsewhere").write_bytes(rows)
    (one / "rows.npy").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(PoolDamaged, match=r"rows\.npy"):
        other.load(tmp_path / "one")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": 99}, "format 99, this build reads 2"),
        ({"number": 2}, "not the manifest of this snapshot"),
        ({"files": {"other.npy": {"sha256": ""}}}, "No such file"),
        ({"files": {"../../elsewhere": {"sha256": ""}}}, "is not a file name"),
        ({"files": {}}, "missing from the snapshot"),
        ({"numbers": {}}, "not the state of a pool"),
        ({"spec": None}, "not a transition spec"),
    ],
)
def test_manifests_that_lie_are_refused(tmp_path, change, message):
    pool, _ = filled(6, 5)
    pool.save(tmp_path)
    folder = tmp_path / "snapshot-000001"
    body = json.loads((folder / "manifest.json").read_text())
    del body["sha256"]
    snapshot.manifest.write(folder, {**body, **change})
    with pytest.raises((PoolDamaged, SpecError), match=message):
        SACReplayPool(6).load(tmp_path)


def test_numbers_that_do_not_fit_the_arrays_are_refused(tmp_path):
    pool, _ = filled(6, 9)
    state = pool.get_state()
    other, _ = filled(6, 2)
    before = digests(other)
    for name, value in (("frame_head", 3), ("head", 2), ("head", -1)):
        with pytest.raises(PoolDamaged, match=r"rows\.npy"):
            other.set_state({**state, "numbers": {**state["numbers"], name: value}})
    assert digests(other) == before
    other.set_state(state)
    assert digests(other) == digests(pool)


def test_a_snapshot_of_other_rows_or_actors_is_refused_by_name(tmp_path):
    pool, _ = filled(6, 5)
    pool.insert(Lane(SPEC, 2).block(1), "b", 1, 1)
    pool.save(tmp_path)
    with pytest.raises(SpecError, match=r"spec\.stack: 1 != 2"):
        SACReplayPool(6, spec=lane_spec(image=4)).load(tmp_path)
    with pytest.raises(ConfigError, match="max_actors: 1, but 2"):
        SACReplayPool(6, config=PoolConfig(max_actors=1)).load(tmp_path)
    with pytest.raises(ConfigError, match="PCG64"):
        SACReplayPool(6, rng=np.random.Generator(np.random.MT19937(0))).load(tmp_path)


def test_a_failed_save_leaves_the_previous_snapshot(tmp_path, monkeypatch):
    pool, lane = filled(6, 5)
    pool.save(tmp_path)
    before = digests(pool)
    pool.insert(lane.block(1), "a", 1, lane.seq - 1)
    for step in range(6):
        real, calls = snapshot.os.fsync, []

        def fsync(fd, step=step, real=real, calls=calls):
            calls.append(fd)
            if len(calls) == step + 1:
                raise OSError(5, "Input/output error")
            real(fd)

        monkeypatch.setattr(snapshot.os, "fsync", fsync)
        with pytest.raises(DiskFailed, match="Input/output"):
            pool.save(tmp_path)
        monkeypatch.undo()
        assert digests(SACReplayPool.from_path(tmp_path)) == before
        assert [p.name for p in tmp_path.iterdir()] == ["snapshot-000001"]


def test_a_full_medium_is_known_before_anything_is_written(tmp_path, monkeypatch):
    pool, _ = filled(6, 5)

    def refuse(needed, directory, **_):
        raise NoSpace(f"needs {needed}")

    monkeypatch.setattr(space, "require", refuse)
    with pytest.raises(NoSpace, match="needs"):
        pool.save(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_progress_is_told(tmp_path):
    pool, _ = filled(6, 5)
    seen = []
    pool.save(tmp_path, lambda done, total: seen.append((done, total)))
    assert seen[-1][0] == seen[-1][1] > 0
    assert seen == sorted(seen)


def test_pools_and_snapshots_are_not_taken_for_each_other(tmp_path):
    pool, _ = filled(6, 5, tmp_path / "pool")
    with pytest.raises(PoolError, match="is a pool"):
        pool.save(tmp_path / "pool")
    with pytest.raises(PoolDamaged, match="is a pool and not a snapshot"):
        pool.load(tmp_path / "pool")
    pool.save(tmp_path / "s")
    with pytest.raises(PoolError, match="holds snapshots"):
        SACReplayPool(6, path=tmp_path / "s")
    assert SACReplayPool.from_path(tmp_path / "s").size == 5
    pool.close()
    SACReplayPool(6, path=tmp_path / "pool").close()


def test_a_file_in_the_place_of_a_snapshot_is_named(tmp_path):
    path = tmp_path / "pool.pt"
    path.write_bytes(b"PK")
    pool, _ = filled(6, 5)
    with pytest.raises(PoolDamaged, match=r"pool\.pt"):
        pool.load(path)
    with pytest.raises(PoolError, match=r"pool\.pt is a file"):
        pool.save(path)


def test_the_newest_two_stay_and_a_damaged_one_is_passed_over(tmp_path, caplog):
    pool, lane = filled(6, 5)
    for _ in range(3):
        pool.save(tmp_path)
        pool.insert(lane.block(1), "a", 1, lane.seq - 1)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["snapshot-000002", "snapshot-000003"]
    other = SACReplayPool(6)
    (tmp_path / "snapshot-000003" / "rows.npy").write_bytes(b"")
    assert other.load(tmp_path)
    assert other.head == 6
    assert "snapshot-000003/rows.npy" in caplog.text
    (tmp_path / "snapshot-000002" / "outcome.npy").unlink()
    with pytest.raises(PoolDamaged, match=r"snapshot-000003/rows\.npy"):
        other.load(tmp_path)
    pool.save(tmp_path, keep=1)
    assert [p.name for p in tmp_path.iterdir()] == ["snapshot-000004"]
    assert other.load(tmp_path)
    assert other.head == 8


def test_whole_snapshots_that_were_swapped_are_found(tmp_path):
    pool, _ = filled(6, 5)
    pool.save(tmp_path)
    pool.save(tmp_path)
    (tmp_path / "snapshot-000001").rename(tmp_path / "x")
    (tmp_path / "snapshot-000002").rename(tmp_path / "snapshot-000001")
    (tmp_path / "x").rename(tmp_path / "snapshot-000002")
    with pytest.raises(PoolDamaged, match=r"snapshot-000002/manifest\.json"):
        pool.load(tmp_path)
