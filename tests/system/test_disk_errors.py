"""A real buffer whose disk fails to sync: it says so in one line, acknowledges nothing more, and the next one goes on."""

from __future__ import annotations

import shutil

import pytest
from helpers.roles import roles, scripted

from headrace.buffer import SACReplayPool

needs_strace = pytest.mark.skipif(shutil.which("strace") is None, reason="strace makes the system call fail")


@needs_strace
@pytest.mark.parametrize("call", ["fdatasync:error=EIO:when=40+", "msync:error=ENOSPC:when=3+"])
def test_a_failed_sync_ends_the_buffer_and_loses_nothing_acknowledged(tmp_path, call):
    config = scripted(pool={"ack": "synced"}, pacing={"env_steps": 2000, "random_steps": 2000, "hold_actors": False})
    config["env"]["kwargs"]["success"] = True  # labels, whose journal is synced by msync
    with roles(tmp_path, config) as run:
        run.actor("actor-0")
        failing = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", f"trace={call.split(':')[0]}", "-e", f"inject={call}"]
        buffer = run.buffer(before=failing)
        assert buffer.wait(60) == 1, run.log("buffer")
        lines = [line for line in run.log("buffer").splitlines() if "error:" in line]
        assert len(lines) == 1, run.log("buffer")
        assert "the disk failed to take what was to be acknowledged" in lines[0]
        assert "Traceback" not in run.log("buffer")
        run.buffer()
        last = run.wait(lambda s: s["env_steps"] >= 2000, 60, watch=("buffer", "actor-0"))
        assert last["counters"]["lost_before"] == 0
        run.stop()
    with SACReplayPool(3000, path=run.run / "pool") as pool:
        assert pool.check_valid() == (True, "")
        rows = [(row["actor"], row["stream"], row["seq"]) for row in pool.dump()]
        assert len(set(rows)) == len(rows) == pool.env_steps
        assert [row[2] for row in rows] == list(range(1, len(rows) + 1))


@needs_strace
def test_a_disk_that_fails_at_the_start_is_one_line(tmp_path):
    with roles(tmp_path, scripted(pacing={"env_steps": 300, "random_steps": 300, "hold_actors": False})) as run:
        run.actor("actor-0")
        failing = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", "trace=msync", "-e", "inject=msync:error=EIO:when=1+"]
        assert run.buffer(before=failing).wait(60) == 1
        lines = [line for line in run.log("buffer").splitlines() if "error:" in line]
        assert len(lines) == 1, run.log("buffer")
        assert "the disk failed: Input/output error" in lines[0]
        assert "Traceback" not in run.log("buffer")
        run.buffer()
        run.wait(lambda s: s["env_steps"] >= 300, 60, watch=("buffer", "actor-0"))
