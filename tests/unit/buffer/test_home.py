import os
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest
from helpers.lane_pool import SPECS, make, put
from helpers.lane_rows import Lane, cpu_only, die, prove_pool

from headrace.buffer import SACReplayPool, SamplingConfig
from headrace.common.errors import NoSpace, PoolLocked, SpecError


def test_a_second_opener_gets_the_owners_pid(tmp_path):
    first = make(5, path=tmp_path)
    code = (
        "import sys\nfrom headrace.buffer import SACReplayPool\nfrom headrace.common.errors import PoolLocked\n"
        "try:\n    SACReplayPool(5, path=sys.argv[1])\nexcept PoolLocked as error:\n    print(error)"
    )
    child = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, env=cpu_only(), timeout=60
    )
    assert f"pid {first.info()['owner']} on" in child.stdout
    with pytest.raises(PoolLocked):
        make(5, path=tmp_path)
    first.close()
    make(5, path=tmp_path).close()


def test_reopening_keeps_the_sizes_and_refuses_another_spec_by_name(tmp_path):
    make(50, path=tmp_path, max_actors=3, max_block_rows=9).close()
    with pytest.raises(SpecError, match=r"spec\.window: 3 != 1"):
        SACReplayPool(50, path=tmp_path, spec=SPECS["n-step"])
    with SACReplayPool(50, path=tmp_path) as pool:
        assert pool.config.max_actors == 3
        assert pool.spec == SPECS["plain"]


def test_a_pool_that_does_not_fit_is_refused_and_leaves_the_directory_free(tmp_path):
    with pytest.raises(NoSpace, match="needs .* free are"):
        make(1 << 38, path=tmp_path)
    with pytest.raises(NoSpace, match="needs .* free are"):
        make(1 << 38)
    make(5, path=tmp_path).close()


def test_a_creation_killed_before_its_manifest_is_made_anew(tmp_path):
    die(make(5, path=tmp_path))
    (tmp_path / "manifest.json").unlink()
    with make(9, path=tmp_path) as pool:
        assert (pool.size, pool.config.capacity) == (0, 9)


def in_a_child(work):
    """What ``work`` says in a forked child: its result or its error, as text."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            text = str(work())
        except BaseException as error:
            text = f"{type(error).__name__}: {error}"
        os.write(write, text.encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as file:
        text = file.read()
    os.waitpid(pid, 0)
    return text.replace(str(pid), "CHILD").replace(str(os.getpid()), "OWNER")


WRITES = {
    "insert": lambda pool, lane: put(pool, lane, 2, "a"),
    "add": lambda pool, _: pool.add_batch({k: v for k, v in pool.sample_batch(2).items() if k not in ("ids", "weights")}),
    "reject": lambda pool, _: pool.reject("a", 1, 9, 1),
    "label": lambda pool, _: pool.label("a", 1, 1, 3, 1),
    "priorities": lambda pool, _: pool.update_priorities(np.arange(3), np.ones(3)),
    "sync": lambda pool, _: pool.sync(),
    "updates": lambda pool, _: pool.grant_updates(1),
    "settle": lambda pool, _: pool.settle_updates(),
    "state": lambda pool, _: pool.set_state(pool.get_state()),
    "adopt": lambda pool, _: pool.adopt(pool),
}


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_may_read_and_never_write(tmp_path):
    spec, lane = SPECS["plain"], Lane(SPECS["plain"], 1)
    with SACReplayPool(50, path=tmp_path, spec=spec, sampling=SamplingConfig("prioritised")) as pool:
        put(pool, lane, 8, "a")
        before = pool.counters()
        for name, change in WRITES.items():
            text = in_a_child(lambda change=change: change(pool, lane))
            assert text.startswith("PoolError: "), (name, text)
            assert "pid CHILD was forked from the owner, pid OWNER, and may only read" in text
        assert in_a_child(lambda: len(pool.sample(4))) == "4"
        assert in_a_child(pool.close) == "None"
        assert pool.counters() == before
        put(pool, lane, 3, "a")
        prove_pool(pool)
        assert pool.info()["owner"] == os.getpid()
    with SACReplayPool(50, path=tmp_path) as pool:
        assert pool.size == 11


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_makes_no_pool_where_its_parent_will(tmp_path):
    with SACReplayPool(50, path=tmp_path) as pool, SACReplayPool(50, spec=SPECS["plain"]) as other:
        put(other, Lane(SPECS["plain"], 1), 4)
        assert "may only read" in in_a_child(lambda: pool.add_batch(other.sample_batch(2)))
        assert "may only read" in in_a_child(lambda: pool.adopt(other))
        assert not list(tmp_path.glob("generation-*"))


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("on_disk", [False, True])
def test_a_fork_waits_for_other_threads_so_that_its_child_can_read(tmp_path, on_disk):
    lane, stop = Lane(SPECS["plain"], 1), threading.Event()
    with SACReplayPool(50, path=tmp_path if on_disk else None, spec=SPECS["plain"]) as pool:
        put(pool, lane, 8, "a")

        def read():
            while not stop.is_set():
                pool.sample(8)

        reader = threading.Thread(target=read)
        reader.start()
        try:
            for _ in range(6):
                pid = os.fork()
                if pid == 0:
                    signal.alarm(20)  # ends a child that hangs
                    pool.sample(4)
                    os._exit(0)
                assert os.waitpid(pid, 0)[1] == 0
        finally:
            stop.set()
            reader.join()
        assert pool.size == 8


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_is_told_whose_pool_it_is(tmp_path):
    with SACReplayPool(50, path=tmp_path, spec=SPECS["plain"]):
        text = in_a_child(lambda: SACReplayPool(50, path=tmp_path))
        assert "is owned by pid OWNER, from which this process, pid CHILD, was forked" in text
        with pytest.raises(PoolLocked, match="this very process"):
            SACReplayPool(50, path=tmp_path)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_has_its_own_copy_of_a_pool_in_memory():
    lane = Lane(SPECS["plain"], 1)
    with make(50) as pool:
        put(pool, lane, 4, "a")
        assert in_a_child(lambda: (put(pool, lane, 2, "a").rows, pool.size)) == "(2, 6)"
        assert pool.size == 4
