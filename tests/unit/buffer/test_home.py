import subprocess
import sys

import pytest
from helpers.lane_pool import SPECS, make
from helpers.lane_rows import cpu_only, die

from headrace.buffer import SACReplayPool
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
