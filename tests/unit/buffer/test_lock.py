import os
import subprocess
import sys

import pytest
from helpers.lane_rows import cpu_only

from headrace.buffer.lock import PoolLock
from headrace.common.errors import PoolLocked

HOLD = """
import sys, pathlib
from headrace.buffer.lock import PoolLock
lock = PoolLock(pathlib.Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""


def test_a_second_owner_in_this_process_is_refused(tmp_path):
    first = PoolLock(tmp_path)
    with pytest.raises(PoolLocked, match=str(os.getpid())):
        PoolLock(tmp_path)
    first.release()
    first.release()
    PoolLock(tmp_path).release()


def test_another_process_is_named_and_its_death_releases(tmp_path):
    child = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=cpu_only()
    )
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == b"held\n"
        with pytest.raises(PoolLocked, match=f"pid {child.pid} on "):
            PoolLock(tmp_path)
    finally:
        child.kill()
        child.communicate(timeout=20)
    PoolLock(tmp_path).release()


def test_who_holds_a_lock_can_be_asked_without_taking_it(tmp_path):
    PoolLock.require_free(tmp_path / "nowhere")
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=cpu_only()
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"held\n"
        with pytest.raises(PoolLocked, match=f"pid {child.pid} on "):
            PoolLock.require_free(tmp_path)
        child.kill()
    PoolLock.require_free(tmp_path)
    PoolLock(tmp_path).release()
