import collections
import random
import sys
import threading

import numpy as np
import pytest
from helpers.lane_pool import SPECS, make, put
from helpers.lane_rows import Lane, die, lane_spec, prove, prove_pool, seqs

from headrace.buffer import SACReplayPool
from headrace.buffer.header import Field
from headrace.buffer.reader import row_digests
from headrace.common.block import Block
from headrace.common.errors import BlockRefused, PoolError, PoolTooSmall


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS.keys())
def test_what_goes_in_comes_out_whole(spec):
    pool, lane = make(100, spec), Lane(spec, 4)
    for n in (1, 5, 30):
        put(pool, lane, n)
    assert (pool.size, pool.head, pool.tail, len(pool)) == (36, 36, 0, 36)
    prove_pool(pool)
    batch = pool.sample(36)
    prove(batch, spec)
    assert sorted(batch.rows["seq"].tolist()) == list(range(1, 37))
    assert set(batch.rows["stream"].tolist()) == {1}


@pytest.mark.parametrize("rows", [4, 5, 8, 9, 23])
def test_an_oversized_block_leaves_its_newest_rows_in_order(rows):
    pool, lane = make(4), Lane(SPECS["plain"], 1)
    done = put(pool, lane, rows)
    assert (done.rows, done.last_seq, done.env_steps) == (rows, rows, rows)
    assert seqs(pool, "actor-1") == list(range(rows - 3, rows + 1))
    prove_pool(pool)


def test_blocks_above_the_commit_size_are_split_without_a_difference():
    split, whole = make(200, SPECS["stack"], max_block_rows=7), make(200, SPECS["stack"])
    for pool in (split, whole):
        put(pool, Lane(SPECS["stack"], 2), 90)
        prove_pool(pool)
    assert [r["digest"] for r in split.dump()] == [r["digest"] for r in whole.dump()]


def test_frames_that_no_row_uses_are_not_kept():
    spec = SPECS["plain"]
    lane, pool = Lane(spec, 1), make(8, max_block_rows=4)
    block = lane.block(3)
    padding = np.full((500, 3), 77, np.float32)
    rows = block.rows.copy()
    rows["obs"] += 500
    rows["next_obs"] += 500
    pool.insert(Block(rows, {"obs": np.concatenate([padding, block.frames["obs"]])}), "actor-1", 1, 1)
    put(pool, lane, 5)
    assert pool.size == 8
    prove_pool(pool)


def test_duplicates_are_dropped_and_a_partly_new_block_brings_only_its_new_rows():
    pool, lane = make(100, SPECS["stack"]), Lane(SPECS["stack"], 1)
    blocks = [(lane.seq, lane.block(10)) for _ in range(3)]
    for first, block in blocks[:2]:
        pool.insert(block, "a", 1, first)
    again = pool.insert(blocks[0][1], "a", 1, blocks[0][0])
    assert (again.rows, again.duplicates, again.last_seq) == (0, 10, 20)
    joined = Lane(SPECS["stack"], 1)
    done = pool.insert(joined.block(25), "a", 1, 1)
    assert (done.rows, done.duplicates, done.last_seq, done.env_steps) == (5, 20, 25, 5)
    assert seqs(pool, "a") == list(range(1, 26))
    assert pool.counters()["rows_duplicate"] == 30
    assert pool.statistics().count == 25
    prove_pool(pool)


def test_duplicates_stay_out_after_eviction_and_restart(tmp_path):
    lane = Lane(SPECS["plain"], 1)
    blocks = [(lane.seq, lane.block(5)) for _ in range(10)]
    with make(8, path=tmp_path) as pool:
        for first, block in blocks:
            pool.insert(block, "a", 1, first)
    for restart in (die, SACReplayPool.close):
        pool = make(8, path=tmp_path)
        for first, block in blocks:
            assert pool.insert(block, "a", 1, first).rows == 0
        assert seqs(pool, "a") == list(range(43, 51))
        restart(pool)


def test_a_gap_is_taken_and_counted():
    pool, lane = make(100), Lane(SPECS["plain"], 1)
    pool.insert(lane.block(2), "a", 1, 5)
    done = pool.insert(lane.block(2), "a", 1, 1 << 40)
    assert done.lost_before == (1 << 40) - 7
    assert pool.counters()["lost_before"] == 4 + done.lost_before
    assert pool.last_seq("a", 1) == (1 << 40) + 1


@pytest.mark.parametrize("first", [0, -1, 1 << 48, 1 << 64])
def test_sequence_numbers_out_of_range_are_refused(first):
    pool, lane = make(10), Lane(SPECS["plain"], 1)
    with pytest.raises(BlockRefused) as error:
        pool.insert(lane.block(2), "a", 1, first)
    assert error.value.reason == "sequence"
    assert (pool.size, pool.actors()) == (0, [])


def test_a_refused_block_changes_nothing_and_a_rejected_one_is_passed_over(tmp_path):
    lane = Lane(SPECS["plain"], 1)
    pool = make(10, path=tmp_path)
    poison = lane.block(3)
    poison.frames["obs"][1, 2] = np.nan
    with pytest.raises(BlockRefused) as error:
        pool.insert(poison, "a", 1, 1)
    assert error.value.reason == "non-finite"
    assert (pool.size, pool.actors(), pool.statistics().count) == (0, [], 0)
    pool.reject("a", 1, 1, 3)
    pool.reject("a", 1, 1, 3)
    put(pool, lane, 2, "a")
    die(pool)
    pool = make(10, path=tmp_path)
    counters = pool.counters()
    assert (counters["rows_rejected"], counters["lost_before"], counters["rows_accepted"]) == (3, 0, 2)
    pool.reject("x" * 1000, 1, 1, 2)
    assert pool.counters()["rows_rejected"] == 5
    pool.close()


def test_more_actors_than_declared_are_refused_by_name():
    pool = make(10, max_actors=2)
    for actor in (1, 2):
        put(pool, Lane(SPECS["plain"], actor), 1)
    pool.admit("actor-1")
    with pytest.raises(BlockRefused, match="'actor-3'.*max_actors 2"):
        pool.admit("actor-3")
    with pytest.raises(BlockRefused, match="'actor-3'.*max_actors 2"):
        put(pool, Lane(SPECS["plain"], 3), 1)
    assert pool.size == 2


def test_old_streams_close_and_stay_closed_over_a_restart(tmp_path):
    pool = make(50, path=tmp_path)
    for stream in range(1, 12):
        put(pool, Lane(SPECS["plain"], 1), 1, "a", stream)
    die(pool)
    pool = make(50, path=tmp_path)
    assert pool.streams("a") == dict.fromkeys(range(4, 12), 1)
    with pytest.raises(BlockRefused) as error:
        put(pool, Lane(SPECS["plain"], 1), 1, "a", 3)
    assert error.value.reason == "stream-closed"
    prove_pool(pool)
    pool.close()


def test_short_pools_say_both_numbers():
    pool, lane = make(10), Lane(SPECS["plain"], 1)
    with pytest.raises(PoolTooSmall, match="batch of 3 .* 0 stored"):
        pool.sample(3)
    put(pool, lane, 3)
    assert len(pool.sample(3)) == 3
    with pytest.raises(PoolTooSmall, match="batch of 4 .* 3 stored"):
        pool.sample(4)
    with pytest.raises(PoolTooSmall, match="0 stored"):
        SACReplayPool(10).sample(1)


def test_ids_that_are_gone_are_refused():
    pool, lane = make(4), Lane(SPECS["plain"], 1)
    put(pool, lane, 6)
    assert pool.gather(np.array([5, 2])).rows["seq"].tolist() == [6, 3]
    for gone in (1, 6):
        with pytest.raises(PoolError, match=r"live are \[2, 6\)"):
            pool.gather(np.array([3, gone]))


@pytest.mark.parametrize("spec", [SPECS["images"], SPECS["plain"]])
def test_gather_into_given_arrays(spec):
    pool, lane = make(50, spec), Lane(spec, 1)
    put(pool, lane, 40)
    out = pool.sample(8)
    ids = np.arange(10, 18)
    got = pool.gather(ids, out)
    assert np.shares_memory(got.rows, out.rows)
    assert all(got.obs[k] is out.obs[k] and got.next_obs[k] is out.next_obs[k] for k in out.obs)
    prove(got, spec)
    assert got.rows["seq"].tolist() == list(range(11, 19))


def test_regular_blocks_keep_every_row_of_the_capacity():
    draw = random.Random(0)
    for spec in SPECS.values():
        for small in (1, 4, 16):
            pool = make(100, spec, min_block_rows=small, max_block_rows=32)
            steps = spec.window if spec.kind == "chunk" else 1
            lanes = [Lane(spec, i, (steps * small, steps * small + 3)) for i in range(3)]
            for _ in range(60):
                put(pool, draw.choice(lanes), draw.randint(small, 32))
                assert pool.size == min(100, pool.head)
            assert pool.counters()["rows_retired"] == 0
            prove_pool(pool)


def test_irregular_blocks_cost_old_rows_and_these_are_counted():
    pool = make(1000, min_block_rows=50, max_block_rows=50)
    lane = Lane(SPECS["plain"], 1, (1,))
    for _ in range(80):
        put(pool, lane, 30)
        prove_pool(pool)
    counters = pool.counters()
    assert counters["rows_retired"] > 0
    assert 500 < pool.size < 1000
    assert seqs(pool, "actor-1") == list(range(2401 - pool.size, 2401))


def test_kills_inside_commits_cost_no_frames(tmp_path):
    """Frames written but not published are written over: the frame head follows from the last committed row."""
    lane, pool = Lane(SPECS["plain"], 1, (1,)), make(20, path=tmp_path, max_block_rows=4)
    for _ in range(40):
        put(pool, lane, 4)
        write_ahead = pool._store.header
        write_ahead[Field.FRAME_HEAD] += 8  # as a kill between the two last stores of a commit leaves it
        die(pool)
        pool = make(20, path=tmp_path, max_block_rows=4)
    assert (pool.size, pool.counters()["rows_retired"]) == (20, 0)
    prove_pool(pool)
    pool.close()


def test_statistics_take_the_newest_frame_of_each_committed_row_once():
    spec = SPECS["stack"]
    pool, lane = make(20, spec), Lane(spec, 3)
    times = []
    for _ in range(10):
        first, block = lane.seq, lane.block(6)
        times += block.rows["t"].tolist()
        pool.insert(block, "a", 1, first)
        pool.insert(block, "a", 1, first)
    result = pool.statistics()
    assert result.count == 60
    np.testing.assert_allclose(result.mean["obs"][[0, 2]], [3, np.mean(times)], rtol=1e-6)
    np.testing.assert_allclose(result.var["obs"][2], np.var(times), rtol=1e-5)


def test_env_steps_count_overlapping_windows_once():
    for name, expected in (("n-step", 50), ("chunk", None)):
        pool, lane = make(100, SPECS[name]), Lane(SPECS[name], 1)
        done = put(pool, lane, 50)
        batch = pool.gather(np.arange(50))
        assert pool.env_steps == done.env_steps == (expected or batch.rows["steps"].sum())


def test_digests_do_not_depend_on_where_a_row_lies():
    spec = SPECS["images"]
    one, two = make(60, spec), make(200, spec)
    put(two, Lane(spec, 9), 33)
    for pool, actor, stream in ((one, "a", 1), (two, "other", 5)):
        put(pool, Lane(spec, 1), 50, actor, stream)
    ours = [r["digest"] for r in one.dump()]
    assert ours == [r["digest"] for r in two.dump() if r["actor"] == "other"]
    assert len(set(ours)) == 50
    assert all(len(d) == 16 and int(d, 16) >= 0 for d in ours)
    batch = one.gather(np.array([3]))
    for change in ("action", "rewards", "steps", "terminated", "truncated"):
        before = batch.rows[change].copy()
        batch.rows[change] += 1
        assert row_digests(batch) != [ours[3]], change
        batch.rows[change] = before
    batch.next_obs["camera/0"][0, 0, 0, 0] ^= 1
    assert row_digests(batch) != [ours[3]]


def test_dump_names_each_row_and_takes_a_range():
    pool, lane = make(5), Lane(SPECS["plain"], 1)
    put(pool, lane, 8, stream=6)
    rows = list(pool.dump())
    assert [(r["id"], r["actor"], r["stream"], r["seq"]) for r in rows] == [(i, "actor-1", 6, i + 1) for i in range(3, 8)]
    assert [(r["episode"], r["t"]) for r in rows] == [(0, 3), (0, 4), (0, 5), (0, 6), (1, 0)]
    assert [r["id"] for r in pool.dump(0, 5)] == [3, 4]
    assert [r["id"] for r in pool.dump(6, 99)] == [6, 7]
    assert list(pool.dump(7, 2)) == []


def test_updates_granted_survive_a_kill(tmp_path):
    pool = make(5, path=tmp_path)
    assert [pool.grant_updates(3), pool.grant_updates(4)] == [3, 7]
    die(pool)
    pool = make(5, path=tmp_path)
    assert pool.updates == 7
    pool.close()


def test_two_threads_never_see_a_mixed_row():
    spec = lane_spec(stack=2, image=64)
    pool = make(16, spec, max_block_rows=8)
    lanes = [Lane(spec, i) for i in range(2)]
    failures = []

    def insert(lane, blocks):
        try:
            for block in blocks:
                pool.insert(block, f"actor-{lane.actor}", 1, pool.last_seq(f"actor-{lane.actor}", 1) + 1)
        except BaseException as error:
            failures.append(error)

    work = [(lane, [lane.block(8) for _ in range(100)]) for lane in lanes]
    for lane in lanes:
        insert(lane, [lane.block(8)])
    threads = [threading.Thread(target=insert, args=args) for args in work]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        batches = collections.deque(maxlen=200)
        while any(thread.is_alive() for thread in threads):
            batches.append(pool.sample(16))
    finally:
        sys.setswitchinterval(before)
        for thread in threads:
            thread.join(30)
    for batch in batches:
        prove(batch, spec)
    assert failures == []
    prove_pool(pool)
