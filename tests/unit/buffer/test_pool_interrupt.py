"""Ctrl-C at any line of a change: the pool goes on, and the change was made whole, in part by rows, or not at all."""

import sys

import numpy as np
import pytest
from helpers.lane_rows import Lane, lane_spec, prove_pool, seqs

from headrace.buffer import PoolConfig, SACReplayPool
from headrace.buffer.config import SamplingConfig, SetConfig

SPEC = lane_spec(stack=2)
SAMPLING = SamplingConfig(
    "prioritised",
    sets={"late": SetConfig(0.5, newest_rows=4, when_small="replace"), "won": SetConfig(0.5, outcome=("success",))},
)


def interrupt_at_line(k, work):
    """Raise KeyboardInterrupt at the k-th line of the store's own code, and of what follows it, that ``work`` runs.

    Whether it got that far.
    """
    left = k

    def trace(frame, event, arg):
        nonlocal left
        name = frame.f_code.co_filename
        if "/buffer/" not in name or "/tests/" in name or name.endswith("pool.py"):  # the pool's own lines change nothing
            return None
        if event == "line":
            left -= 1
            if left == 0:
                raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return False


def filled(rows, capacity=8, **config):
    pool = SACReplayPool(capacity, spec=SPEC, config=PoolConfig(**config), sampling=SAMPLING, rng=np.random.default_rng(0))
    lane = Lane(SPEC, 1, (1,) if config else (7, 1, 12))
    for first in range(1, rows + 1, 4):
        pool.insert(lane.block(min(4, rows + 1 - first)), "a", 1, first)
    return pool, lane


@pytest.mark.parametrize(
    ("before", "rows", "capacity", "stride", "config"),
    [(14, 5, 8, 7, {}), (0, 3, 8, 31, {}), (120, 8, 64, 41, {"min_block_rows": 8, "max_block_rows": 8})],
    ids=["wrapping", "first", "retiring"],
)
def test_an_interrupted_insert_leaves_all_in_step(before, rows, capacity, stride, config):
    k, interrupted = 0, True
    while interrupted:
        k += stride
        pool, lane = filled(before, capacity, **config)
        block = lane.block(rows)
        interrupted = interrupt_at_line(k, lambda pool=pool, block=block: pool.insert(block, "a", 1, before + 1))
        prove_pool(pool)
        last = pool.last_seq("a", 1)
        assert before <= last <= before + rows
        assert seqs(pool, "a") == list(range(last - pool.size + 1, last + 1))
        assert pool.counters()["rows_accepted"] == pool.env_steps == pool.statistics().count == last
        pool.insert(block, "a", 1, before + 1)  # again, as one does
        assert pool.last_seq("a", 1) == before + rows
        prove_pool(pool)
    assert k > 60


def numbered(*numbers):
    t = np.array(numbers, "<f4")
    return {"state": t[:, None], "action": t[:, None] / 1024, "reward": t, "next_state": t[:, None] + 1, "done": t < 0}


@pytest.mark.parametrize("capacity", [7, 8, 50])
def test_what_add_batch_returned_for_stays_when_the_next_look_is_interrupted(capacity):
    k, interrupted = 0, True
    while interrupted:
        k += 1
        pool = SACReplayPool(capacity, rng=np.random.default_rng(0))
        pool.add_batch(numbered(*range(10)))
        for t in range(10, 14):
            pool.add_batch(numbered(t))
        assert pool._staging.n_rows
        interrupted = interrupt_at_line(k, lambda pool=pool: pool.sample_batch(2))
        assert pool.head == 14
        pool.add_batch(numbered(14))
        pool.add_batch(numbered(15, 16))
        live = np.arange(pool.tail, pool.head)
        assert live.tolist() == list(range(17 - min(capacity, 17), 17))
        batch = pool.gather(live)
        np.testing.assert_array_equal(batch.rows["rewards"][:, 0], live)
        np.testing.assert_array_equal(batch.obs["state"][:, 0], live)
        np.testing.assert_array_equal(batch.next_obs["state"][:, 0], live + 1)
        assert pool.check_valid() == (True, "")
        assert pool.statistics().count == pool.last_seq("local", 1) == 17
    assert k > 60


@pytest.mark.parametrize("on_disk", [False, True])
def test_of_a_batch_that_is_interrupted_the_first_rows_are_there(tmp_path, on_disk):
    k, interrupted, seen = 0, True, set()
    while interrupted:
        k += 97 if on_disk else 13
        path = tmp_path / str(k) if on_disk else None
        with SACReplayPool(50, path=path, config=PoolConfig(max_block_rows=4)) as pool:
            pool.add_batch(numbered(0, 1))
            interrupted = interrupt_at_line(k, lambda pool=pool: pool.add_batch(numbered(*range(2, 14))))
            seen.add(pool.size)
            np.testing.assert_array_equal(pool.gather(np.arange(pool.size)).rows["rewards"][:, 0], np.arange(pool.size))
            assert pool.check_valid() == (True, "")
            assert pool.last_seq("local", 1) == pool.statistics().count == pool.size
            pool.add_batch(numbered(*range(pool.size, 16)))
            assert pool.size == 16
    assert {5, 8, 11, 14} <= seen
    assert seen <= {2, 5, 8, 11, 14}


LABELS = {"outcome": lambda pool: pool.label("a", 1, 7, 10, 1), "discard": lambda pool: pool.discard("a", 1, 7, 10)}


@pytest.mark.parametrize("kind", LABELS)
def test_an_interrupted_label_is_whole_or_absent(kind):
    k, interrupted, seen = 0, True, set()
    while interrupted:
        k += 7
        pool, _ = filled(12)
        interrupted = interrupt_at_line(k, lambda pool=pool: LABELS[kind](pool))
        prove_pool(pool)
        changed = [r["seq"] for r in pool.dump() if r["outcome"] == 1 or r["discarded"]]
        assert changed in ([], [7, 8, 9, 10])
        seen.add(len(changed))
        LABELS[kind](pool)
        assert [r["seq"] for r in pool.dump() if r["outcome"] == 1 or r["discarded"]] == [7, 8, 9, 10]
        prove_pool(pool)
    assert seen == {0, 4}
    assert k > 40


def test_an_interrupted_update_of_priorities_leaves_all_in_step():
    k, interrupted, seen = 0, True, set()
    while interrupted:
        k += 1
        pool, _ = filled(14)
        ids = np.arange(pool.tail, pool.head)
        interrupted = interrupt_at_line(k, lambda pool=pool, ids=ids: pool.update_priorities(ids, ids + 1.0))
        prove_pool(pool)
        column = pool._store.files.columns["priority"][ids % len(pool._store.files.rows)]
        seen.add(column.round().astype(int).tolist() == (ids + 1).tolist())
        assert pool.update_priorities(ids, ids + 2.0) == 0
        prove_pool(pool)
    assert seen == {False, True}
    assert k > 20


def test_an_interrupted_insert_with_priorities_leaves_all_in_step():
    k, interrupted = 0, True
    while interrupted:
        k += 5
        pool, lane = filled(14)
        block = lane.block(3)
        interrupted = interrupt_at_line(k, lambda pool=pool, block=block: pool.insert(block, "a", 1, 15, np.full(3, 7.0)))
        prove_pool(pool)
    assert k > 60


def test_an_interrupted_draw_leaves_the_next_one_right():
    k, interrupted = 0, True
    while interrupted:
        k += 1
        pool, _ = filled(14)
        interrupted = interrupt_at_line(k, lambda pool=pool: pool.sample(4))
        assert len(pool.sample(4)) == 4
        prove_pool(pool)
    assert k > 30
