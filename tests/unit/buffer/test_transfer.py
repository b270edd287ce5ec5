"""Export and import: the same rows under the same names, plain numpy files, and nothing at all when something is wrong."""

import json
import zipfile

import numpy as np
import pytest
from helpers.lane_rows import Lane, lane_spec, prove_pool

from headrace.buffer import PoolConfig, SACReplayPool, export_pool, import_pool, manifest, shards, transfer
from headrace.buffer.view import PoolView
from headrace.common.errors import ArgumentError, BlockRefused, PoolDamaged, PoolError, SpecError


def filled(spec, blocks=9, capacity=64, actors=2, first_stream=1):
    """A pool with interleaved blocks of ``actors`` lanes; outcome, task and source say which lane it was."""
    pool = SACReplayPool(capacity, spec=spec, config=PoolConfig(max_actors=8))
    lanes = [Lane(spec, actor) for actor in range(actors)]
    for i in range(blocks):
        lane = lanes[i % actors]
        block = lane.block(5 + i)
        block.rows["outcome"], block.rows["task"], block.rows["source"] = lane.actor % 3, lane.actor, 2
        pool.insert(block, f"arm-{lane.actor}", first_stream, lane.seq - block.n_rows)
    return pool


def rows_of(pool):
    """Every live row but its id, which belongs to the pool."""
    return [{k: v for k, v in row.items() if k != "id"} for row in pool.dump()]


def labels_of(pool):
    rows = pool.gather(np.arange(pool.tail, pool.head)).rows
    return [rows[name].tolist() for name in ("outcome", "source", "task", "health", "learner_step")]


SPECS = {
    "plain": lane_spec(),
    "stacked images": lane_spec(stack=3, image=4),
    "n-step": lane_spec(window=3),
    "chunks": lane_spec(window=4, kind="chunk", stack=2),
}


@pytest.mark.parametrize("flat", [False, True], ids=["frames", "flat"])
@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_rows_come_back_with_content_identity_and_labels(spec, flat, tmp_path):
    pool = filled(spec)
    done = export_pool(pool, tmp_path / "out", flat=flat)
    assert (done.rows, done.gone, done.shards) == (pool.size, 0, 1)
    again = SACReplayPool.like(manifest.read(tmp_path / "out"))
    result = import_pool(tmp_path / "out", again)
    assert (result.rows, result.evicted, result.renamed) == (pool.size, 0, {})
    assert rows_of(again) == rows_of(pool)
    assert labels_of(again) == labels_of(pool)
    assert again.config == pool.config
    prove_pool(again)


def test_many_shards_are_one_pool(tmp_path, monkeypatch):
    monkeypatch.setattr(transfer, "SHARD_BYTES", 1)
    monkeypatch.setattr(transfer, "MIN_SHARD_ROWS", 7)
    pool = filled(lane_spec(stack=2))
    steps = []
    assert export_pool(pool, tmp_path / "out", progress=lambda *at: steps.append(at)).shards == 10
    assert steps[-1] == (64, 64)
    assert steps == sorted(steps)
    again = SACReplayPool.like(manifest.read(tmp_path / "out"))
    import_pool(tmp_path / "out", again)
    assert rows_of(again) == rows_of(pool)
    prove_pool(again)


def test_a_shard_opens_with_numpy_alone(tmp_path):
    spec = lane_spec(stack=2, image=4)
    pool = filled(spec)
    export_pool(pool, tmp_path / "frames")
    export_pool(pool, tmp_path / "flat", flat=True)
    wanted = pool.gather(np.arange(pool.tail, pool.head))
    body = json.loads((tmp_path / "frames" / "manifest.json").read_text())
    assert (body["rows"], body["first"], body["stop"]) == (64, pool.tail, pool.head)
    with np.load(tmp_path / "frames" / body["shards"][0]["file"], allow_pickle=False) as shard:
        np.testing.assert_array_equal(shard["id"], wanted.ids)
        np.testing.assert_array_equal(shard["action"], wanted.rows["action"])
        for name, arrays in (("obs", wanted.obs), ("next_obs", wanted.next_obs)):
            for key, values in arrays.items():
                np.testing.assert_array_equal(shard[f"frames/{key}"][shard[name]], values)
        frames = len(shard["frames/obs"])
        assert frames == len(np.unique(np.concatenate([wanted.rows["obs"], wanted.rows["next_obs"]])))
        assert [body["actors"][i] for i in shard["actor"]] == [row["actor"] for row in rows_of(pool)]
    with np.load(tmp_path / "flat" / "rows-00000.npz", allow_pickle=False) as shard:
        for key in wanted.obs:
            np.testing.assert_array_equal(shard[f"obs/{key}"], wanted.obs[key])
            np.testing.assert_array_equal(shard[f"next_obs/{key}"], wanted.next_obs[key])


def test_flat_rows_share_their_frames_again(tmp_path):
    pool = filled(lane_spec(stack=3))
    export_pool(pool, tmp_path / "frames")
    export_pool(pool, tmp_path / "flat", flat=True)
    counts = []
    for name in ("frames", "flat"):
        reader = shards.ShardReader(tmp_path / name)
        counts.append(reader.block(reader.shards[0]).n_frames)
    assert counts[0] == counts[1]


def test_plain_dictionaries_keep_their_form(tmp_path):
    pool = SACReplayPool(16)
    column = np.arange(6.0)
    states = {"state": column[:, None], "next_state": column[:, None] + 1}
    pool.add_batch({**states, "action": column[:, None], "reward": column, "done": column > 4, "note": column.astype("f8")})
    export_pool(pool, tmp_path / "out")
    again = SACReplayPool.like(manifest.read(tmp_path / "out"))
    import_pool(tmp_path / "out", again)
    batch = again.sample_batch(6)
    assert batch["note"].dtype == np.float64
    np.testing.assert_array_equal(np.sort(batch["note"]), column)
    np.testing.assert_array_equal(batch["next_state"][:, 0], batch["state"][:, 0] + 1)


def test_a_known_actor_is_renamed_whole(tmp_path):
    spec = lane_spec()
    pool = filled(spec)
    export_pool(pool, tmp_path / "out")
    there = SACReplayPool(200, spec=spec, config=PoolConfig(max_actors=8))
    there.insert(Lane(spec, 1).block(40), "arm-1", 1, 1)
    for k in (2, 3):
        renamed = import_pool(tmp_path / "out", there).renamed
        assert renamed == ({"arm-1": "arm-1@2"} if k == 2 else {"arm-0": "arm-0@2", "arm-1": "arm-1@3"})
    wanted = [{**row, "actor": row["actor"] if row["actor"] == "arm-0" else "arm-1@2"} for row in rows_of(pool)]
    assert rows_of(there)[40 : 40 + pool.size] == wanted
    prove_pool(there)


def test_one_known_stream_renames_the_actor_with_all_its_streams(tmp_path):
    spec = lane_spec()
    pool, there = SACReplayPool(64, spec=spec), SACReplayPool(64, spec=spec)
    for stream in (1, 2):
        pool.insert(Lane(spec, 0).block(3), "arm", stream, 1)
    there.insert(Lane(spec, 0).block(3), "arm", 2, 1)
    export_pool(pool, tmp_path / "out")
    assert import_pool(tmp_path / "out", there).renamed == {"arm": "arm@2"}
    assert [(row["actor"], row["stream"]) for row in there.dump()] == [("arm", 2)] * 3 + [("arm@2", 1)] * 3 + [("arm@2", 2)] * 3


def test_an_actor_that_goes_on_where_the_pool_stands_keeps_its_name(tmp_path):
    spec = lane_spec()
    lane, old, new = Lane(spec, 0), SACReplayPool(64, spec=spec), SACReplayPool(64, spec=spec)
    old.insert(lane.block(20), "arm", 1, 1)
    new.insert(lane.block(10), "arm", 1, 21)
    export_pool(new, tmp_path / "out")
    assert import_pool(tmp_path / "out", old).renamed == {}
    assert [row["seq"] for row in old.dump()] == list(range(1, 31))
    assert old.counters()["lost_before"] == 0


def test_streams_that_do_not_fit_beside_the_open_ones_rename_the_actor(tmp_path):
    spec = lane_spec()
    pool, there = SACReplayPool(64, spec=spec), SACReplayPool(64, spec=spec)
    for stream in range(1, 7):
        pool.insert(Lane(spec, 0).block(2), "arm", stream, 1)
        there.insert(Lane(spec, 0).block(2), "arm", stream + 10, 1)
    export_pool(pool, tmp_path / "out")
    assert import_pool(tmp_path / "out", there).renamed == {"arm": "arm@2"}
    prove_pool(there)


def test_too_many_actors_are_refused_before_a_row_enters(tmp_path):
    spec = lane_spec()
    export_pool(filled(spec, actors=3), tmp_path / "out")
    there = SACReplayPool(64, spec=spec, config=PoolConfig(max_actors=2))
    with pytest.raises(PoolError, match=r"pool.max_actors: 2, but with the imported ones there are 3 actors"):
        import_pool(tmp_path / "out", there)
    assert there.size == 0


def test_another_spec_is_refused_by_field(tmp_path):
    export_pool(filled(lane_spec()), tmp_path / "out")
    there = SACReplayPool(64, spec=lane_spec(stack=2))
    with pytest.raises(SpecError, match=r"spec.stack: 2 != 1"):
        import_pool(tmp_path / "out", there)


def test_a_smaller_pool_keeps_the_newest(tmp_path):
    pool = filled(lane_spec())
    export_pool(pool, tmp_path / "out")
    there = SACReplayPool.like(manifest.read(tmp_path / "out"), capacity=10)
    assert import_pool(tmp_path / "out", there).evicted == 54
    assert rows_of(there) == rows_of(pool)[-10:]


class Moving:
    """A pool whose rows are evicted between two reads of an export."""

    def __init__(self, pool, spec, left):
        self.pool, self.lane, self.left = pool, Lane(spec, 7), left

    def __getattr__(self, name):
        return getattr(self.pool, name)

    def live(self, start, stop):
        if self.left:
            self.left -= 1
            self.pool.insert(self.lane.block(20), "fast", 1, self.lane.seq - 20)
        return self.pool.live(start, stop)


def test_rows_that_are_evicted_meanwhile_are_counted(tmp_path, monkeypatch):
    monkeypatch.setattr(transfer, "SHARD_BYTES", 1)
    monkeypatch.setattr(transfer, "MIN_SHARD_ROWS", 16)
    spec = lane_spec()
    pool = filled(spec)
    wanted = rows_of(pool)
    done = export_pool(Moving(pool, spec, 2), tmp_path / "out")
    assert (done.rows, done.gone) == (24, 40)
    again = SACReplayPool.like(manifest.read(tmp_path / "out"))
    import_pool(tmp_path / "out", again)
    assert rows_of(again) == wanted[40:]


def test_an_export_is_complete_or_invisible(tmp_path, monkeypatch):
    pool = filled(lane_spec())
    monkeypatch.setattr(transfer, "MIN_SHARD_ROWS", 16)
    monkeypatch.setattr(transfer, "SHARD_BYTES", 1)

    def fail(done, total):
        if done > 32:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        export_pool(pool, tmp_path / "out", progress=fail)
    assert list(tmp_path.iterdir()) == []
    export_pool(pool, tmp_path / "out")
    with pytest.raises(PoolError, match="exists already"):
        export_pool(pool, tmp_path / "out")


def test_an_empty_pool_is_not_exported(tmp_path):
    with pytest.raises(PoolError, match="holds no rows"):
        export_pool(SACReplayPool(8, spec=lane_spec()), tmp_path / "out")
    with pytest.raises(PoolError, match="holds no rows"):
        export_pool(SACReplayPool(8), tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


# Damage


def remade(directory, change):
    """Write the first shard again with ``change(arrays)``, and a manifest that agrees: what a crafted export looks like."""
    body = manifest.read(directory)
    path = directory / body["shards"][0]["file"]
    with np.load(path, allow_pickle=False) as shard:
        arrays = dict(shard)
    change(arrays)
    np.savez(path, **arrays)
    body["shards"][0]["sha256"] = shards.file_digest(path)
    manifest.write(directory, body)


def set_value(name, value):
    def change(arrays):
        arrays[name][3] = value

    return change


def replace(name, value):
    def change(arrays):
        arrays[name] = value

    return change


CRAFTED = {
    "missing column": (lambda a: a.pop("action"), PoolDamaged, "action: missing"),
    "missing frames": (lambda a: a.pop("frames/obs"), PoolDamaged, "frames/obs: missing"),
    "wrong length": (lambda a: a.update(t=a["t"][:-1]), PoolDamaged, r"t: \(63,\)"),
    "wrong dtype": (lambda a: a.update(rewards=a["rewards"].astype("f8")), PoolDamaged, "rewards: .* of float64"),
    "objects": (replace("task", np.array([None] * 64)), PoolDamaged, "task: .* of object"),
    "not a number": (set_value("frames/obs", np.nan), BlockRefused, "obs.obs holds NaN"),
    "reference": (set_value("next_obs", 4000), BlockRefused, "next_obs points outside"),
    "negative reference": (set_value("obs", -1), BlockRefused, "obs points outside"),
    "actor": (set_value("actor", 9), PoolDamaged, "actor 9, but the manifest names 2"),
    "seq": (set_value("seq", 1), PoolDamaged, "does not rise"),
    "seq twice": (lambda a: a["seq"].__setitem__(3, a["seq"][2]), PoolDamaged, "does not rise"),
    "seq range": (set_value("seq", 1 << 60), PoolDamaged, "does not rise"),
    "outcome": (set_value("outcome", 7), BlockRefused, "outcome and source"),
}


@pytest.mark.parametrize("case", CRAFTED)
def test_a_crafted_shard_is_refused_by_column_and_nothing_is_loaded(case, tmp_path):
    change, error, text = CRAFTED[case]
    export_pool(filled(lane_spec()), tmp_path / "out")
    there = SACReplayPool.like(manifest.read(tmp_path / "out"))
    remade(tmp_path / "out", change)
    with pytest.raises(error, match=text):
        import_pool(tmp_path / "out", there)
    assert (there.size, there.actors()) == (0, [])


def test_huge_declared_rows_ask_for_no_memory(tmp_path):
    export_pool(filled(lane_spec()), tmp_path / "out")
    body = manifest.read(tmp_path / "out")
    body["shards"][0]["rows"] = shards.MAX_ROWS
    manifest.write(tmp_path / "out", body)
    with pytest.raises(PoolDamaged, match=r"id: 134217728 bytes are declared, a file of this size holds at most"):
        import_pool(tmp_path / "out", SACReplayPool.like(body))


@pytest.mark.parametrize("entry", [{"file": "../x.npz"}, {"rows": 0}, {"rows": "many"}, {"frames": 1 << 40}, {"extra": 1}])
def test_a_manifest_that_says_the_impossible_is_refused(entry, tmp_path):
    export_pool(filled(lane_spec()), tmp_path / "out")
    body = manifest.read(tmp_path / "out")
    body["shards"][0].update(entry)
    manifest.write(tmp_path / "out", body)
    with pytest.raises(PoolDamaged, match=r"manifest.json"):
        shards.ShardReader(tmp_path / "out")


def test_flipped_cut_missing_and_linked_files_are_named(tmp_path):
    export_pool(filled(lane_spec()), tmp_path / "out")
    there = SACReplayPool.like(manifest.read(tmp_path / "out"))
    path = tmp_path / "out" / "rows-00000.npz"
    data = path.read_bytes()
    rng = np.random.default_rng(0)
    for place in rng.integers(0, len(data), 20).tolist():
        path.write_bytes(data[:place] + bytes([data[place] ^ 4]) + data[place + 1 :])
        with pytest.raises(PoolDamaged, match=r"rows-00000.npz: its digest"):
            import_pool(tmp_path / "out", there)
    path.write_bytes(data[:-1])
    with pytest.raises(PoolDamaged, match=r"rows-00000.npz: its digest"):
        import_pool(tmp_path / "out", there)
    path.unlink()
    with pytest.raises(PoolDamaged, match=r"rows-00000.npz: No such file"):
        import_pool(tmp_path / "out", there)
    (tmp_path / "elsewhere").write_bytes(data)
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(PoolDamaged, match="rows-00000.npz"):
        import_pool(tmp_path / "out", there)
    assert there.size == 0


def test_a_compressed_copy_is_read_too(tmp_path):
    pool = filled(lane_spec())
    export_pool(pool, tmp_path / "out")
    body = manifest.read(tmp_path / "out")
    path = tmp_path / "out" / "rows-00000.npz"
    with np.load(path) as shard:
        np.savez_compressed(path, **dict(shard))
    assert zipfile.ZipFile(path).infolist()[0].compress_type == zipfile.ZIP_DEFLATED
    body["shards"][0]["sha256"] = shards.file_digest(path)
    manifest.write(tmp_path / "out", body)
    again = SACReplayPool.like(body)
    import_pool(tmp_path / "out", again)
    assert rows_of(again) == rows_of(pool)


@pytest.mark.parametrize("flat", [False, True], ids=["frames", "flat"])
def test_discarded_rows_stay_behind_and_late_labels_come_along(flat, tmp_path):
    pool = filled(lane_spec(stack=2))
    with SACReplayPool(64, path=tmp_path / "pool", spec=pool.spec, config=pool.config) as mapped:
        mapped.set_state(pool.get_state())
        live = [row["seq"] for row in mapped.dump() if row["actor"] == "arm-1"]
        mapped.label("arm-1", 1, live[0], live[4], 2)
        mapped.discard("arm-1", 1, live[8], live[12])
        for name, source in (("pool", mapped), ("view", PoolView(tmp_path / "pool"))):
            done = export_pool(source, tmp_path / f"{name}-out", flat=flat)
            again = SACReplayPool.like(manifest.read(tmp_path / f"{name}-out"))
            import_pool(tmp_path / f"{name}-out", again)
            kept = [row for row in rows_of(mapped) if not row["discarded"]]
            assert rows_of(again) == kept
            assert (done.rows, done.gone) == (len(kept), 5)
            prove_pool(again)


def test_arguments_of_another_kind_are_named(tmp_path):
    with filled(lane_spec()) as pool:
        cases = (
            (lambda: export_pool("pool", tmp_path / "out"), "source: 'pool'"),
            (lambda: export_pool(pool, 3), "out: 3"),
            (lambda: import_pool(3, pool), "source: 3"),
            (lambda: import_pool(tmp_path, "pool"), "pool: 'pool'"),
        )
        for call, said in cases:
            with pytest.raises(ArgumentError, match=f"^{said} "):
                call()
