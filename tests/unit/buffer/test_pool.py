import gc
import inspect
import subprocess
import sys

import numpy as np
import pytest
from helpers.lane_pool import SPECS, make, put
from helpers.lane_rows import Lane, cpu_only

from headrace.buffer import SACReplayPool
from headrace.common.errors import ConfigError, NoSpace, PoolError
from headrace.common.label import Kind, Label


@pytest.mark.parametrize("capacity", [0, -3, 1 << 60])
def test_impossible_capacities_are_refused(capacity):
    with pytest.raises(ConfigError, match=r"pool\.capacity"):
        SACReplayPool(capacity)


ARGUMENTS = {
    "actor": "a",
    "add_batch.transitions": {},
    "adopt.other": SACReplayPool(1),
    "amend.label": Label(Kind.DISCARD, 1, 1, 1),
    "batch_size": 1,
    "block": Lane(SPECS["plain"], 1).block(1),
    "first": 1,
    "first_seq": 1,
    "ids": np.zeros(1, np.int64),
    "last": 1,
    "n": 1,
    "new_data": {},
    "outcome": 1,
    "path": "nowhere",
    "priorities": np.ones(1),
    "rewards": np.ones(1),
    "rows": 1,
    "start": 0,
    "state": {},
    "stop": 1,
    "stream": 1,
}
STILL = {"close", "from_path", "like"}  # what a closed pool needs not be open for


def public(cls):
    """Names of the methods and properties that a user may call."""
    return sorted(name for name in {*dir(cls)} - {*dir(object)} if not name.startswith("_") and name not in STILL)


def called(pool, name):
    """Call a method, or look at a property, with arguments that a pool could take."""
    if isinstance(getattr(type(pool), name), property):
        return getattr(pool, name)
    method = getattr(pool, name)
    needed = [p.name for p in inspect.signature(method).parameters.values() if p.default is p.empty]
    done = method(*(ARGUMENTS.get(f"{name}.{each}", ARGUMENTS.get(each)) for each in needed))
    return list(done) if inspect.isgenerator(done) else done


@pytest.mark.parametrize("on_disk", [False, True])
@pytest.mark.parametrize("name", [*public(SACReplayPool), "__len__"])
def test_a_closed_pool_says_so_whatever_it_is_asked(tmp_path, name, on_disk):
    pool = make(5, path=tmp_path / "pool" if on_disk else None)
    put(pool, Lane(SPECS["plain"], 1), 3)
    pool.close()
    pool.close()
    with pytest.raises(PoolError, match="the pool is closed"):
        len(pool) if name == "__len__" else called(pool, name)


def test_a_pool_without_a_spec_says_so():
    with pytest.raises(PoolError, match="no spec"):
        SACReplayPool(5).grant_updates(1)


def plain(n):
    t = np.arange(n, dtype="<f4")
    return {"state": t, "action": t, "reward": t, "next_state": t, "done": t < 0}


def test_an_open_that_fails_and_a_pool_that_is_dropped_leave_the_directory_free(tmp_path):
    body = {"config": {"capacity": 1 << 40}, "spec": SPECS["plain"].to_dict(), "plain": None}
    first = SACReplayPool(1 << 40, path=tmp_path / "first batch")
    for name, opened in (
        ("made", lambda path: make(1 << 40, path=path)),
        ("like", lambda path: SACReplayPool.like(body, path=path)),
        ("first batch", lambda _: first.add_batch(plain(3))),
    ):
        with pytest.raises(NoSpace) as error:
            opened(tmp_path / name)
        if name == "first batch":
            del first, opened, error  # nobody can close it any more
            gc.collect()
        SACReplayPool(5, path=tmp_path / name).close()
    make(5, path=tmp_path / "kept").close()
    with pytest.raises(NoSpace):
        SACReplayPool(1 << 40, path=tmp_path / "kept")
    SACReplayPool(5, path=tmp_path / "kept").close()


def test_a_path_that_can_be_no_directory_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(PoolError, match=f"{path}: cannot hold a pool, which needs a directory"):
            SACReplayPool(5, path=path)


def test_info_is_plain(tmp_path):
    with make(5, path=tmp_path) as pool:
        info = pool.info()
        assert {type(v) for v in info.values()} <= {int, float, str}
        assert info["nbytes"] <= sum(p.stat().st_size for p in tmp_path.rglob("*"))
        assert info["epoch"] == 1
    with make(5, path=tmp_path) as pool:
        assert pool.info()["epoch"] == 2
        assert pool.info()["uuid"] == info["uuid"]


def test_importing_the_pool_needs_only_numpy():
    code = (
        "import sys\nfor name in ('torch', 'gymnasium', 'zmq', 'msgpack', 'uvloop'): sys.modules[name] = None\n"
        "from headrace.buffer import SACReplayPool\nSACReplayPool(5).size"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env=cpu_only(), timeout=60)
