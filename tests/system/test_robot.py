"""A fake arm at 50 Hz, whose actor is killed or stopped: it holds, then it stops, and nothing old is ever carried out."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from headrace.launch.chaos.robot_log import RobotLog

TESTS = Path(__file__).resolve().parents[1]
DEADLINE_S = 60.0


def wait(record, what):
    """The log once ``what`` is true of it."""
    end = time.monotonic() + DEADLINE_S
    while time.monotonic() < end:
        log = RobotLog.read(record)
        if what(log):
            return log
        time.sleep(0.02)
    raise AssertionError(f"not within {DEADLINE_S} s: {log.lines[-5:]}")


@pytest.fixture
def actor(tmp_path):
    """Process and record of an actor that drives, in a process group of its own."""
    path = os.pathsep.join(filter(None, (str(TESTS), os.environ.get("PYTHONPATH"))))
    words = [sys.executable, "-P", "-m", "helpers.robot_actor", str(tmp_path / "record")]
    process = subprocess.Popen(words, start_new_session=True, env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"})
    try:
        wait(tmp_path / "record", lambda log: log.count("policy") > 30)
        yield process, tmp_path / "record"
    finally:
        process.kill()
        process.wait(10)


def after(log, moment):
    return [line.get("kind", line["what"]) for line in log.lines if line["at"] > moment]


def test_an_actor_that_is_killed_with_its_group_leaves_an_arm_that_holds_and_then_stops(actor):
    process, record = actor
    os.killpg(process.pid, signal.SIGKILL)
    killed = time.monotonic()
    stops = RobotLog.read(record).count("stop")
    log = wait(record, lambda log: log.count("stop") > stops)
    kinds = after(log, killed)
    assert "stop" in kinds
    tail = kinds[: kinds.index("stop")]
    tail = tail[tail.index("hold") :]
    assert tail == ["hold"]  # one period, and the next one stops
    assert (log.stale_commands, log.crossed_resets) == (0, 0)


def test_an_actor_that_is_stopped_makes_the_arm_stop_and_what_it_says_when_it_goes_on_is_not_carried_out(actor):
    process, record = actor
    os.kill(process.pid, signal.SIGSTOP)
    stops = RobotLog.read(record).count("stop")
    log = wait(record, lambda log: log.count("stop") > stops)
    stopped = len(log.lines)
    os.kill(process.pid, signal.SIGCONT)
    log = wait(record, lambda log: log.count("policy") > 60)
    following = [line.get("kind", line["what"]) for line in log.lines[stopped:]]
    assert "reset" in following[: following.index("policy")]  # a new episode, and nothing of the old one
    assert (log.stale_commands, log.crossed_resets) == (0, 0)
    assert log.count("reset") > 2
