"""SIGKILL of a real process: at every line of an insert, and at random times while one inserts flat out."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest
from helpers.lane_rows import Lane, cpu_only, lane_spec, prove_pool, seqs

from headrace.buffer import PoolConfig, SACReplayPool, generations

# From Python 3.12 on a fork beside threads (of another test's library) warns; the child here runs only this pool's code.
pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
SPEC = lane_spec(stack=2)
CODE = (
    "/buffer/home.py",
    "/buffer/store.py",
    "/buffer/live_rows.py",
    "/buffer/books.py",
    "/buffer/segment.py",
    "/buffer/stamps.py",
    "/buffer/files.py",
    "/buffer/ledger.py",
    "/buffer/snapshot.py",
    "/buffer/capture.py",
    "/buffer/contents.py",
    "/buffer/generations.py",
    "/buffer/manifest.py",
    "/buffer/labels.py",
    "/buffer/journal.py",
)


@pytest.fixture
def memory(tmp_path):
    """A directory in memory where there is one: these tests make hundreds of pools, and a disk syncs each."""
    if not os.access("/dev/shm", os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        yield Path(name)


def open_pool(path, capacity=8, **config):
    return SACReplayPool(capacity, path=path, spec=SPEC, config=PoolConfig(**config), rng=np.random.default_rng(0))


def kill_at_line(k, work):
    """Run ``work`` in a forked child that kills itself at the k-th line of the pool's own code; whether it got that far."""
    pid = os.fork()
    if pid == 0:
        left = k

        def trace(frame, event, arg):
            nonlocal left
            if not frame.f_code.co_filename.endswith(CODE):
                return None
            if event == "line":
                left -= 1
                if left == 0:
                    os.kill(os.getpid(), signal.SIGKILL)
            return trace

        try:
            work(lambda: sys.settrace(trace))
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL


@pytest.mark.parametrize(
    ("before", "rows", "capacity", "stride", "config"),
    [
        (11, 1, 8, 2, {}),
        (14, 5, 8, 2, {}),
        (9, 21, 8, 9, {}),
        (0, 3, 8, 3, {}),
        (120, 8, 64, 3, {"min_block_rows": 8, "max_block_rows": 8}),
    ],
    ids=["one", "wrapping", "larger-than-capacity", "first", "retiring"],
)
def test_a_kill_at_any_line_of_an_insert_loses_nothing(memory, before, rows, capacity, stride, config):
    """One block is acknowledged, the next is cut; then the pool must hold the first, and all, part or nothing of the second."""
    k, killed, retiring = 0, True, bool(config)
    while killed:
        k += stride
        path = memory / str(k)
        lane = Lane(SPEC, 1, (1,) if retiring else (7, 1, 12))  # one-row episodes need more frames than regular ones
        with open_pool(path, capacity, **config) as pool:
            for first in range(1, before + 1, 4):
                pool.insert(lane.block(min(4, before + 1 - first)), "a", 1, first)
            retired = pool.counters()["rows_retired"]
        block = lane.block(rows)

        def work(start, path=path, block=block):
            pool = open_pool(path, capacity, **config)
            start()
            pool.insert(block, "a", 1, before + 1)

        killed = kill_at_line(k, work)
        pool = open_pool(path, capacity, **config)
        prove_pool(pool)
        last = pool.last_seq("a", 1)
        assert before <= last <= before + rows
        assert seqs(pool, "a") == list(range(last - pool.size + 1, last + 1))
        assert pool.counters()["rows_accepted"] == pool.env_steps == pool.statistics().count == last
        missing = min(capacity, last) - pool.size
        assert 0 <= missing <= pool.counters()["rows_retired"]
        pool.insert(block, "a", 1, before + 1)
        assert pool.last_seq("a", 1) == before + rows
        prove_pool(pool)
        assert (pool.size < capacity and pool.counters()["rows_retired"] > retired > 0) == retiring
        assert retiring or pool.size == min(capacity, before + rows)
        pool.close()
    assert k > 40


def test_a_kill_at_any_line_of_a_creation_leaves_nothing_that_is_in_the_way(memory):
    k, killed, stages = 0, True, set()
    while killed:
        k += 7
        path = memory / str(k)

        def work(start, path=path):
            start()
            open_pool(path)

        killed = kill_at_line(k, work)
        stages.add((generations.is_pool(path), any(path.glob("generation-*/header.bin"))))
        with open_pool(path) as pool:
            assert pool.head == 0
            pool.insert(Lane(SPEC, 1).block(11), "a", 1, 1)
            prove_pool(pool)
            assert pool.size == 8
    assert stages == {(False, False), (False, True), (True, True)}
    assert k > 60


REWARDS = np.arange(1, 6, dtype="<f4") * 100
LABELS = {
    "outcome": [lambda pool: pool.label("a", 1, 8, 12, 2)],
    "rewards": [lambda pool: pool.amend_rewards("a", 1, 8, REWARDS)],
    "discard": [lambda pool: pool.discard("a", 1, 8, 12)],
    "a-second": [lambda pool: pool.label("a", 1, 4, 12, 1), lambda pool: pool.discard("a", 1, 8, 12)],
}


def facts(pool):
    """What labels change."""
    rows = [(r["seq"], r["outcome"], r["discarded"], r["digest"]) for r in pool.dump()]
    counters = pool.counters()
    return rows, counters["rows_discarded"], counters["labels_gone"], pool.size


@pytest.mark.parametrize("name", LABELS)
def test_a_kill_at_any_line_of_a_label_leaves_it_whole_or_absent(memory, name):
    """Two streams interleave in a ring that has wrapped, and part of the labelled range is gone."""
    labels, k, killed, seen = LABELS[name], 0, True, []

    def filled(path):
        pool, lanes = open_pool(path), [Lane(SPEC, 1), Lane(SPEC, 2)]
        for first in range(1, 13):
            for lane in lanes:
                pool.insert(lane.block(1), "ab"[lane.actor - 1], 1, first)
        return pool

    with filled(memory / "expected") as pool:
        states = [facts(pool)]
        for label in labels:
            label(pool)
            states.append(facts(pool))
    while killed:
        k += len(labels)
        path = memory / str(k)
        filled(path).close()

        def work(start, path=path):
            pool = open_pool(path)
            start()
            for n, label in enumerate(labels):
                label(pool)
                (path / f"acknowledged-{n}").touch()

        killed = kill_at_line(k, work)
        pool = open_pool(path)
        prove_pool(pool)
        seen.append(states.index(facts(pool)))
        assert seen[-1] >= len(list(path.glob("acknowledged-*")))
        for label in labels[seen[-1] :]:  # as an actor that was not acknowledged sends it again
            label(pool)
        assert facts(pool)[0] == states[-1][0]
        assert pool.counters()["rows_discarded"] == states[-1][1]
        prove_pool(pool)
        pool.close()
    assert seen == sorted(seen)
    assert set(seen) == set(range(len(states)))
    assert k > 40


FLAT_OUT = """
import sys
sys.path.insert(0, sys.argv[2])
from pathlib import Path
from helpers.lane_rows import Lane, lane_spec
from headrace.buffer import SACReplayPool
spec = lane_spec(stack=2)
pool = SACReplayPool(500, path=Path(sys.argv[1]), spec=spec)
lanes = [Lane(spec, i) for i in range(3)]
for lane in lanes:
    while lane.seq <= pool.last_seq(f"a{lane.actor}", 1):
        lane.block(1)
out = sys.stdout
out.write("ready\\n")
i = 0
while True:
    lane = lanes[i % 3]
    i += 1
    first, n = lane.seq, 1 + i % 13
    pool.insert(lane.block(n), f"a{lane.actor}", 1, first)
    out.write(f"{lane.actor} {first + n - 1}\\n")
    out.flush()
"""


def test_kills_at_random_times_lose_no_acknowledged_row(memory):
    draw = np.random.default_rng(0)
    acked = {0: 0, 1: 0, 2: 0}
    total_before = 0
    for _ in range(6):
        command = [sys.executable, "-c", FLAT_OUT, str(memory / "pool"), str(Path(__file__).parents[2])]
        child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=cpu_only())
        assert child.stdout is not None
        try:
            assert child.stdout.readline() == "ready\n"
            time.sleep(float(draw.uniform(0.02, 0.2)))
        finally:
            child.kill()
        for line in child.stdout.read().splitlines(keepends=True):
            if line.endswith("\n"):  # the last one may be cut
                actor, seq = line.split()
                acked[int(actor)] = int(seq)
        child.wait(20)
        child.stdout.close()
        start = time.perf_counter()
        pool = SACReplayPool(500, path=memory / "pool")
        assert time.perf_counter() - start < 5
        prove_pool(pool)
        committed = {actor: pool.last_seq(f"a{actor}", 1) for actor in acked}
        live = {actor: seqs(pool, f"a{actor}") for actor in acked}
        for actor, last in acked.items():
            assert last <= committed[actor] <= last + 13  # one block may be in flight
            assert live[actor] == list(range(committed[actor] - len(live[actor]) + 1, committed[actor] + 1))
        assert pool.size == min(500, sum(committed.values()))
        assert pool.counters()["rows_accepted"] == sum(committed.values()) > total_before
        assert pool.counters()["lost_before"] == pool.counters()["rows_retired"] == 0
        total_before = pool.head
        pool.close()


def test_a_kill_at_any_line_of_a_load_leaves_a_pool_that_can_load_again(memory):
    lane = Lane(SPEC, 1)
    with SACReplayPool(8, spec=SPEC) as source:
        source.insert(lane.block(20), "a", 1, 1)
        source.save(memory / "snapshot")
        expected = [r["digest"] for r in source.dump()]
    k, killed = 0, True
    while killed:
        k += 7
        path = memory / str(k)
        with open_pool(path) as pool:
            pool.insert(Lane(SPEC, 2).block(5), "b", 1, 1)

        def work(start, path=path):
            pool = open_pool(path)
            start()
            pool.load(memory / "snapshot")

        killed = kill_at_line(k, work)
        pool = open_pool(path)
        prove_pool(pool)
        assert (pool.actors(), pool.size) in ((["b"], 5), ([], 0), (["a"], 8))
        assert pool.load(memory / "snapshot")
        assert [r["digest"] for r in pool.dump()] == expected
        prove_pool(pool)
        pool.close()
    assert k > 60


def test_a_kill_at_any_line_of_a_save_leaves_the_old_snapshot_or_the_new(memory):
    where = memory / "snapshot"
    pool = SACReplayPool(8, spec=SPEC)
    lane = Lane(SPEC, 1)
    pool.insert(lane.block(3), "a", 1, 1)
    pool.save(where)
    pool.insert(lane.block(2), "a", 1, 4)

    def work(start):
        start()
        pool.save(where)

    k, killed, sizes = 0, True, []
    while killed:
        k += 3
        killed = kill_at_line(k, work)
        sizes.append(SACReplayPool.from_path(where).size)
    assert set(sizes) == {3, 5}
    assert sizes == sorted(sizes)
    pool.save(where)
    assert len(list(where.iterdir())) == 2  # leftovers are gone
    assert SACReplayPool.from_path(where).size == 5


@pytest.mark.parametrize("capacity", [5, 30], ids=["smaller", "larger"])
def test_a_kill_at_any_line_of_a_capacity_change_loses_nothing(memory, capacity):
    k, killed, stages = 0, True, set()
    while killed:
        k += 11
        path = memory / str(k)
        lane = Lane(SPEC, 1)
        with open_pool(path, 12) as pool:
            pool.insert(lane.block(20), "a", 1, 1)
            pool.grant_updates(7)
            before, counters = list(pool.dump()), pool.counters()

        def work(start, path=path):
            start()
            open_pool(path, capacity)

        killed = kill_at_line(k, work)
        stages.add((generations.read(path)[1].name, len(list(path.glob("generation-*")))))
        pool = open_pool(path, capacity)
        prove_pool(pool)
        assert list(pool.dump()) == before[-capacity:]
        assert {**counters, "rows_live": 0, "rows_evicted": 0} == {**pool.counters(), "rows_live": 0, "rows_evicted": 0}
        assert len(list(path.glob("generation-*"))) == 1
        pool.insert(lane.block(20), "a", 1, 21)
        assert pool.size == min(capacity, 12 + 20)
        prove_pool(pool)
        pool.close()
    old, new = "generation-000001", "generation-000002"
    assert stages == {(old, 1), (old, 2), (new, 2), (new, 1)}
