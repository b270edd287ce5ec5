import subprocess
import sys

import pytest
from helpers.lane_pool import SPECS, make, put
from helpers.lane_rows import Lane, cpu_only

from headrace.buffer import SACReplayPool
from headrace.common.errors import ConfigError, PoolError


@pytest.mark.parametrize("capacity", [0, -3, 1 << 60])
def test_impossible_capacities_are_refused(capacity):
    with pytest.raises(ConfigError, match=r"pool\.capacity"):
        SACReplayPool(capacity)


def test_a_closed_pool_says_so(tmp_path):
    pool = make(5, path=tmp_path)
    put(pool, Lane(SPECS["plain"], 1), 3)
    pool.close()
    pool.close()
    for call in (
        lambda: pool.sample(1),
        lambda: pool.add_batch({}),
        lambda: pool.grant_updates(1),
        lambda: pool.save(tmp_path / "s"),
    ):
        with pytest.raises(PoolError, match="closed"):
            call()
    with pytest.raises(PoolError, match="no spec"):
        SACReplayPool(5).grant_updates(1)


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
