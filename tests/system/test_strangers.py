"""A real buffer and peers that mean no good: its memory ends at the cap, its open files suffice, and honest actors go on."""

from __future__ import annotations

import contextlib
import subprocess
import threading
import time
from pathlib import Path

from helpers import strangers
from helpers.roles import roles, scripted

FAST = {"env_steps": 0, "random_steps": 1 << 40, "hold_actors": False, "hold_learner": False}
NETWORK = {"heartbeat_s": 0.1, "lease_s": 1.0, "connect_s": 60, "credit_bytes": 1 << 20, "message_bytes": 1 << 20}


def test_a_message_that_never_ends_costs_no_row_and_no_more_than_the_cap(tmp_path):
    config = scripted(pool={"capacity": 3000, "max_actors": 4}, pacing=FAST, network=NETWORK)
    with roles(tmp_path, config) as run:
        buffer = run.buffer()
        run.actor("actor-0")
        before = run.wait(lambda s: s["env_steps"] > 300, 60)
        cap = before["memory"]["cap_bytes"]
        assert before["memory"]["bound_bytes"] < cap < 1 << 30
        done = threading.Event()
        thread = threading.Thread(target=_flood, args=(run.endpoint, done))
        thread.start()
        most = 0
        end = time.monotonic() + 40
        while buffer.poll() is None and not done.is_set():
            assert time.monotonic() < end
            most = max(most, _resident(buffer.pid))
            time.sleep(0.002)
        thread.join()
        assert cap / 2 < most < before["memory"]["rss_bytes"] + cap
        with contextlib.suppress(subprocess.TimeoutExpired):
            buffer.wait(3)  # a buffer that is about to end has closed the connection before
        if buffer.poll() is not None:  # else its library hung up on who asked for more
            assert buffer.returncode != 0
            run.buffer()
        after = run.wait(lambda s: s["env_steps"] > before["env_steps"] + 300, 20, watch=("actor-0", "buffer"))
        assert after["counters"]["lost_before"] == 0
        for stream, seq in before["actors"][0]["acked"].items():
            assert after["actors"][0]["acked"][stream] >= seq


def test_strangers_that_only_connect_keep_nobody_out(tmp_path):
    with (
        roles(tmp_path, scripted(pool={"capacity": 3000, "max_actors": 4}, pacing=FAST)) as run,
        contextlib.ExitStack() as open_,
    ):
        run.buffer(before=["prlimit", "--nofile=64:2000"])
        run.wait(lambda s: s["memory"]["open_files"] == 2000, 60)
        for _ in range(400):
            open_.enter_context(strangers.dial(run.endpoint, strangers.GREETING[:20]))
        for data in (strangers.HTTP, strangers.GREETING + strangers.READY + strangers.HUGE):
            open_.enter_context(strangers.dial(run.endpoint, data))
        for _ in range(200):
            strangers.reset(run.endpoint, strangers.GREETING + strangers.READY + b"\x02" + bytes(7) + b"\xff" + b"x")
        begun = time.monotonic()
        run.status(2.0)
        run.actor("actor-0")
        run.wait(lambda s: s["env_steps"] > 100, 60, watch=("buffer", "actor-0"))
        assert time.monotonic() - begun < 20


def _flood(endpoint, done):
    strangers.flood(endpoint, 256 << 10, 30.0)
    done.set()


def _resident(pid):
    with contextlib.suppress(OSError, StopIteration):
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS:"))
    return 0
