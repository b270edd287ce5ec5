"""Demonstrations beside the ring: never evicted, drawn and gathered with it, named and not copied."""

import json
import os
import shutil

import numpy as np
import pytest
from helpers.lane_pool import SPECS, make, put
from helpers.lane_rows import Lane, die, prove, prove_pool

from headrace.buffer import PoolConfig, SACReplayPool, SamplingConfig, export_pool, manifest
from headrace.buffer.files import ROWS, frame_file
from headrace.buffer.handles import PINNED
from headrace.buffer.pinned import DEMOS, Origin, Pinned
from headrace.buffer.view import PoolView
from headrace.common.config import load
from headrace.common.errors import ConfigError, LabelRefused, NoSpace, PoolDamaged, PoolError, PoolTooSmall, SpecError
from headrace.common.specs import SOURCE_DEMO

SPEC = SPECS["plain"]
HALVES = {
    "demo": {"share": 0.5, "source": ["demo"], "when_small": "replace"},
    "online": {"share": 0.5, "source": ["policy", "human"]},
}


def demos_of(n, spec=SPEC, actor=9, **columns):
    """A pool of n decisions of one lane."""
    pool, lane = make(n, spec), Lane(spec, actor)
    block = lane.block(n)
    for name, value in columns.items():
        block.rows[name] = value
    pool.insert(block, f"teacher-{actor}", 1, 1)
    return pool


def with_demos(demos, capacity=50, path=None, sets=None, **options):
    sampling = load(SamplingConfig, {"sets": sets or {}, **options}, "sampling")
    rng = np.random.default_rng(0)
    return SACReplayPool(capacity, path=path, demos=demos, sampling=sampling, rng=rng)


def is_demo(batch):
    """Which rows say themselves that they are the teacher's."""
    return batch.obs["obs"].reshape(len(batch), -1, 3)[:, -1, 0] == 9


@pytest.fixture(params=["memory", "disk"])
def path(request, tmp_path):
    return None if request.param == "memory" else tmp_path / "pool"


@pytest.mark.parametrize("kind", SPECS)
def test_demonstrations_stay_when_the_ring_has_wrapped_many_times(kind, path):
    spec = SPECS[kind]
    pool, lane, seen = with_demos(demos_of(20, spec), path=path), Lane(spec, 1), set()
    for _ in range(20):
        put(pool, lane, 17)
        batch = pool.sample(30)
        prove(batch, spec)
        np.testing.assert_array_equal(batch.ids >= PINNED, is_demo(batch))
        np.testing.assert_array_equal(pool.gather(batch.ids).rows, batch.rows)
        assert len(set(batch.ids.tolist())) == 30
        seen |= set(batch.ids[batch.ids >= PINNED].tolist())
    assert seen == set(range(PINNED, PINNED + 20))
    assert (len(pool), pool.demo_rows, pool.drawable) == (50, 20, 70)
    assert pool.counters()["rows_accepted"] == 340
    prove_pool(pool)
    pool.close()


def test_every_row_of_ring_and_demonstrations_is_equally_likely():
    pool, lane = with_demos(demos_of(10), capacity=30), Lane(SPEC, 1)
    put(pool, lane, 47)
    pool.discard("actor-1", 1, 20, 24)
    drawn = np.concatenate([pool.sample(7).ids for _ in range(4000)])
    rows, counts = np.unique(drawn, return_counts=True)
    assert len(rows) == 35
    expected = len(drawn) / 35
    assert ((counts - expected) ** 2 / expected).sum() < 34 + 4 * np.sqrt(2 * 34)
    assert len(set(pool.sample(35).ids.tolist())) == 35
    with pytest.raises(PoolTooSmall, match="36 rows was asked of 35 stored rows"):
        pool.sample(36)


def test_arrays_hold_exactly_the_rows_and_frames_that_are_live_in_the_source(tmp_path):
    spec = SPECS["stack"]
    source, lane = make(30, spec), Lane(spec, 9, (12,))
    put(source, lane, 100)
    source.discard("actor-9", 1, 80, 83)
    frames = source._store.segment.frame_head - source._store.segment.first_frame()
    pool = with_demos(source, path=tmp_path / "pool")
    folder = tmp_path / "pool" / DEMOS / "snapshot-000001"
    assert len(np.load(folder / ROWS)) == pool.demo_rows == 26
    assert len(np.load(folder / frame_file("obs"))) == frames
    batch = pool.gather(np.arange(PINNED, PINNED + 26))
    prove(batch, spec)
    assert batch.rows["seq"].tolist() == [seq for seq in range(71, 101) if not 80 <= seq <= 83]
    assert pool.info()["demo_nbytes"] == sum(np.load(p).nbytes for p in folder.glob("*.npy"))
    pool.close()


@pytest.mark.parametrize("window", ["plain", "n-step"])
def test_what_is_pinned_counts_as_demonstrated_whoever_acted(window):
    spec = SPECS[window]
    pool = with_demos(demos_of(30, spec, source=1), sets=HALVES)
    batch = pool.gather(np.arange(PINNED, PINNED + 30))
    executed = np.arange(spec.window) < batch.rows["steps"][:, None]
    np.testing.assert_array_equal(batch.rows["source"], np.where(executed, SOURCE_DEMO, 0))
    assert pool.sampling_info()["sets"] == {"demo": 30, "online": 0}


def test_they_count_as_no_env_steps_and_nothing_else_that_the_ring_counts():
    pool = with_demos(demos_of(20))
    assert not any(pool.counters().values())
    assert (pool.size, pool.head, pool.tail, pool.env_steps, pool.actors()) == (0, 0, 0, 0, [])
    put(pool, Lane(SPEC, 1), 5)
    assert (pool.counters()["env_steps"], pool.counters()["rows_live"]) == (5, 5)
    assert pool.streams("teacher-9") == {}


def test_statistics_are_over_demonstrations_and_rows_once_a_decision(path):
    pool = with_demos(demos_of(20), capacity=8, path=path)
    assert pool.statistics().count == 20  # so that an offline phase sees normalised observations
    ring = make(1000)
    for target in (pool, ring):
        put(target, Lane(SPEC, 1), 30)
    values = [pool.gather(np.arange(PINNED, PINNED + 20)).obs["obs"], ring.gather(np.arange(30)).obs["obs"]]
    wanted = np.concatenate(values).astype(np.float64)
    for _ in range(2):
        result = pool.statistics()
        assert result.count == 50
        np.testing.assert_allclose(result.mean["obs"], wanted.mean(0), rtol=1e-6)
        np.testing.assert_allclose(result.var["obs"], wanted.var(0), rtol=1e-5)
        if path is not None:
            pool.close()
            pool = SACReplayPool(8, path=path)
    pool.close()


# sets


def test_half_of_each_batch_are_demonstrations_long_after_the_ring_has_wrapped():
    pool, lane = with_demos(demos_of(10), sets=HALVES), Lane(SPEC, 1)
    for _ in range(30):
        put(pool, lane, 23)
        batch = pool.sample(32)
        prove(batch, SPEC)
        assert (batch.sets == 0).sum() == 16
        np.testing.assert_array_equal(batch.sets == 0, is_demo(batch))
        assert [(s == 0).sum() for s in np.split(batch.sets, 4)] == [4] * 4
        assert pool.check_valid() == (True, "")
    assert pool.sampling_info()["sets"] == {"demo": 10, "online": 50}
    assert pool.sampling_info()["mixes"]["critic"]["demo"]["realised"] == 0.5


def test_an_empty_ring_leaves_the_batch_to_the_demonstrations():
    pool = with_demos(demos_of(10), sets=HALVES)
    assert pool.drawable > 64
    batch = pool.sample(64)
    assert set(batch.ids.tolist()) == set(range(PINNED, PINNED + 10))
    only = with_demos(demos_of(10))
    assert sorted(only.sample(10).ids.tolist()) == list(range(PINNED, PINNED + 10))


def test_a_set_without_a_source_holds_both_and_no_row_comes_twice():
    sets = {
        "good": {"share": 0.5, "outcome": ["success"]},
        "teachers": {"share": 0.25, "actor": ["teacher-*"]},
        "all": {"share": 0.25},
    }
    pool, lane = with_demos(demos_of(20, outcome=1), sets=sets), Lane(SPEC, 1)
    put(pool, lane, 80)
    pool.label("actor-1", 1, 61, 80, 1)
    assert pool.sampling_info()["sets"] == {"good": 40, "teachers": 20, "all": 70}
    for _ in range(200):
        batch = pool.sample(48)
        prove(batch, SPEC)
        assert len(set(batch.ids.tolist())) == 48
        assert (batch.rows["outcome"][batch.sets == 0] == 1).all()
        assert (batch.ids[batch.sets == 1] >= PINNED).all()
    pool.discard("actor-1", 1, 41, 80)
    assert pool.sampling_info()["sets"] == {"good": 20, "teachers": 20, "all": 30}
    assert sorted(pool.sample(30).ids.tolist()) == [*range(30, 40), *range(PINNED, PINNED + 20)]


def test_rows_of_both_segments_are_equally_likely_in_a_set_that_holds_both():
    pool = with_demos(demos_of(10), sets={"all": {"share": 1.0}})
    put(pool, Lane(SPEC, 1), 25)
    rows, counts = np.unique(np.concatenate([pool.sample(7).ids for _ in range(4000)]), return_counts=True)
    assert len(rows) == 35
    expected = counts.sum() / 35
    assert ((counts - expected) ** 2 / expected).sum() < 34 + 4 * np.sqrt(2 * 34)


def test_tasks_are_balanced_over_both_segments():
    sets = {"all": {"share": 1.0, "balance": "task", "when_small": "replace"}}
    tasks = np.repeat([0, 1], 10)
    pool, lane = with_demos(demos_of(20, task=tasks), sets=sets), Lane(SPEC, 1)
    block = lane.block(20)
    block.rows["task"] = np.repeat([1, 2], 10)
    pool.insert(block, "sim", 1, 1)
    batch = pool.sample(27)
    assert np.bincount(batch.rows["task"]).tolist() == [9, 9, 9]
    assert ((batch.rows["task"] == 0) <= (batch.ids >= PINNED)).all()


@pytest.mark.parametrize("newest", [{"newest_rows": 5}, {"newest_versions": 1}])
def test_the_newest_are_rows_of_the_ring(newest):
    pool = with_demos(demos_of(20, learner=1, learner_epoch=7, learner_step=3), sets={"new": {"share": 1.0, **newest}})
    assert (pool.drawable, pool.sampling_info()["sets"]) == (0, {"new": 0})
    block = Lane(SPEC, 1).block(5)
    block.rows["learner"], block.rows["learner_epoch"] = 1, 1
    pool.insert(block, "sim", 1, 1)
    assert sorted(pool.sample(5).ids.tolist()) == [0, 1, 2, 3, 4]


def test_sampling_by_priority_is_refused_with_the_way_out(tmp_path):
    for _ in range(2):
        with pytest.raises(ConfigError, match=r"prioritised, but pinned demonstrations .* nearest valid: uniform"):
            with_demos(demos_of(5), path=tmp_path / "pool", method="prioritised")
    with_demos(demos_of(5), path=tmp_path / "pool").close()
    with pytest.raises(ConfigError, match="prioritised, but pinned"):
        with_demos(None, path=tmp_path / "pool", method="prioritised")
    with pytest.raises(PoolError, match="uniform has no priorities"):
        with_demos(demos_of(5)).update_priorities(np.array([PINNED]), np.ones(1))


@pytest.mark.parametrize("seed", range(4))
def test_whatever_happens_to_the_ring_sets_hold_what_matches_in_both_segments(tmp_path, seed):
    rng, lane = np.random.default_rng(seed), Lane(SPEC, 1)
    sets = {"good": {"share": 0.4, "outcome": ["success"]}, "taught": {"share": 0.2, "source": ["demo"]}, "all": {"share": 0.4}}
    pool = with_demos(demos_of(12, outcome=np.arange(12) % 3), 40, tmp_path / "pool", sets)
    demos = pool.gather(np.arange(PINNED, PINNED + 12)).rows
    dead = set()
    for step in range(80):
        kind = rng.choice(["insert", "insert", "label", "discard", "reopen", "load"])
        first = int(rng.integers(1, max(2, lane.seq)))
        last = min(first + int(rng.integers(0, 20)), lane.seq - 1)
        if kind == "insert":
            put(pool, lane, int(rng.integers(1, 60)))
        elif kind == "label" and last >= first:
            pool.label("actor-1", 1, first, last, int(rng.integers(0, 3)))
        elif kind == "discard" and last >= first:
            pool.discard("actor-1", 1, first, last)
            dead |= set(range(first - 1, last))
        elif kind == "reopen":
            (die if step % 2 else SACReplayPool.close)(pool)
            pool = with_demos(None, 40, tmp_path / "pool", sets)
        elif kind == "load" and pool.head:
            pool.save(tmp_path / "snapshots")
            pool.load(tmp_path / "snapshots")
        alive = np.array([i for i in range(pool.tail, pool.head) if i not in dead], np.int64)
        good = np.count_nonzero(pool.gather(alive).rows["outcome"] == 1)
        assert pool.sampling_info()["sets"] == {"good": good + 4, "taught": 12, "all": len(alive) + 12}
        np.testing.assert_array_equal(pool.gather(np.arange(PINNED, PINNED + 12)).rows, demos)
        batch = pool.sample(int(rng.integers(1, 12)))
        prove(batch, SPEC)
        assert set(batch.ids.tolist()) <= set(alive.tolist()) | set(range(PINNED, PINNED + 12))
        assert len(set(batch.ids.tolist())) == len(batch)
        assert (batch.rows["outcome"][batch.sets == 0] == 1).all()
        np.testing.assert_array_equal(batch.ids >= PINNED, is_demo(batch))
        assert pool.check_valid() == (True, "")
    pool.close()


# what cannot be done to them


def test_labels_and_discards_are_refused_with_a_reason():
    pool = with_demos(demos_of(20))
    before = pool.gather(np.arange(PINNED, PINNED + 20)).rows
    for refused in (
        lambda: pool.label("teacher-9", 1, 1, 5, 2),
        lambda: pool.discard("teacher-9", 1, 1, 5),
        lambda: pool.amend_rewards("teacher-9", 1, 1, [1.0]),
    ):
        with pytest.raises(LabelRefused, match="never change") as caught:
            refused()
        assert caught.value.reason == "pinned"
    with pytest.raises(LabelRefused) as caught:
        pool.label("nobody", 1, 1, 5, 2)
    assert caught.value.reason == "actor"
    put(pool, Lane(SPEC, 1), 5, actor="teacher-9")  # who now has rows of the same numbers in the ring
    assert pool.discard("teacher-9", 1, 1, 5).rows == 5
    np.testing.assert_array_equal(pool.gather(np.arange(PINNED, PINNED + 20)).rows, before)
    assert (pool.size, pool.drawable) == (0, 20)


def test_ids_that_are_not_live_are_refused():
    pool = with_demos(demos_of(20))
    put(pool, Lane(SPEC, 1), 5)
    assert len(pool.gather(np.array([4, PINNED, PINNED + 19, 0]))) == 4
    for bad in (-1, 5, PINNED - 1, PINNED + 20, PINNED * 2):
        with pytest.raises(PoolError, match="were asked for"):
            pool.gather(np.array([0, bad, PINNED]))


def test_the_source_is_free_afterwards_and_changes_nothing():
    source = demos_of(20)
    pool = with_demos(source)
    source.discard("teacher-9", 1, 1, 20)
    put(source, Lane(SPEC, 3), 20)
    source.close()
    assert is_demo(pool.sample(20)).all()
    with pytest.raises(PoolError, match="no demonstrations"):
        with_demos(make(5))


# homes


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
    def full(needed, directory):
        raise NoSpace(f"{needed} bytes for {directory}")

    demos = demos_of(20)
    monkeypatch.setattr("headrace.buffer.space.require", full)
    with pytest.raises(NoSpace, match=r"\d+ bytes for .*demos"):
        with_demos(demos, path=tmp_path / "pool")
    assert os.listdir(tmp_path / "pool" / DEMOS) == []


# snapshots, exports, views


def test_snapshots_name_them_and_hold_none(tmp_path, path):
    pool = with_demos(demos_of(20), path=path)
    put(pool, Lane(SPEC, 1), 30)
    pool.save(tmp_path / "snapshot")
    body = json.loads((tmp_path / "snapshot" / "snapshot-000001" / manifest.NAME).read_text())
    assert body["demos"] == pool._pinned.facts()
    assert body["demos"]["rows"] == 20
    assert len(np.load(tmp_path / "snapshot" / "snapshot-000001" / ROWS)) == 30
    same, other, none = with_demos(demos_of(20)), with_demos(demos_of(21)), make(50)
    for target in (same, none):
        assert target.load(tmp_path / "snapshot")
        assert target.size == 30
    assert (same.demo_rows, none.demo_rows, SACReplayPool.from_path(tmp_path / "snapshot").demo_rows) == (20, 0, 0)
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


# the class for scripts


@pytest.mark.parametrize("path_too", [True, False])
def test_plain_dictionaries(tmp_path, path_too):
    def batch(first, n):
        t = np.arange(first, first + n, dtype=np.float32)
        return {
            "state": t[:, None],
            "action": t[:, None],
            "reward": t,
            "next_state": t[:, None] + 1,
            "done": t % 5 == 4,
            "tag": t,
        }

    demos = SACReplayPool(100)
    demos.add_batch(batch(1000, 30))
    pool = SACReplayPool(20, path=tmp_path if path_too else None, demos=demos, rng=np.random.default_rng(1))
    assert sorted(pool.sample_batch(30)["tag"]) == list(range(1000, 1030))
    for first in range(0, 100, 10):
        pool.add_batch(batch(first, 10))
    out = pool.sample_batch(50)
    assert sorted(out["tag"]) == [*range(80, 100), *range(1000, 1030)]
    np.testing.assert_array_equal(out["next_state"][:, 0], out["tag"] + 1)
    assert pool.insert_and_resample(batch(100, 20), 50)["state"].shape == (50, 1)
    pool.close()


def test_a_pinned_segment_can_be_read_twice(tmp_path):
    demos_of(20).pinned(tmp_path / DEMOS)
    one, two = Pinned.read(tmp_path / DEMOS), Pinned.read(tmp_path / DEMOS, verify=False)
    assert one.facts() == two.facts()
    pool = SACReplayPool(10, path=tmp_path, config=PoolConfig(max_block_rows=4), demos=one)
    assert pool.demo_rows == 20
    pool.close()
