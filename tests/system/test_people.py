"""People beside a robot and far from it: a terminal whose actor is killed, and a run that is paused, labelled and changed."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest
from helpers.roles import roles

from headrace.buffer import SACReplayPool
from headrace.launch import cli
from headrace.launch.chaos.robot_log import RobotLog

TESTS = Path(__file__).resolve().parents[1]
DEADLINE_S = 60.0
CONFIG = {
    "env": {"id": "headrace.actor.fake_arm:FakeArm", "kwargs": {"size": 8, "cameras": ["top"]}, "max_episode_steps": 10_000},
    "actor": {"robot": True},
    "robot": {
        "rate_hz": 20,
        "operator": "headrace.actor.operator:Willing",
        "teleop": {"device": "headrace.actor.fake_human:FakeHuman", "kwargs": {"chance": 0.1, "periods": 3, "gain": 0.0}},
        "guard": {"low": [-0.5], "high": [0.5], "max_delta": [0.02], "max_rate": [1.0], "late": 1000, "hold_s": 60.0},
    },
    "pacing": {"env_steps": 0, "random_steps": 1_000_000},
    "pool": {"capacity": 10_000},
    "eval": {"every": 0, "final_episodes": 0},
    "network": {"heartbeat_s": 0.1, "lease_s": 10.0, "connect_s": 60},
}


def until(what):
    end = time.monotonic() + DEADLINE_S
    while not (found := what()):
        assert time.monotonic() < end
        time.sleep(0.02)
    return found


def test_the_terminal_of_an_actor_that_is_killed_is_as_it_was_and_its_arm_stops(tmp_path):
    ours, theirs = pty.openpty()
    before = termios.tcgetattr(ours)
    record = tmp_path / "record"
    path = os.pathsep.join(filter(None, (str(TESTS), os.environ.get("PYTHONPATH"))))
    words = [sys.executable, "-P", "-m", "helpers.robot_actor", str(record), "20", os.ttyname(theirs)]
    process = subprocess.Popen(words, start_new_session=True, env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"})
    try:
        until(lambda: RobotLog.read(record).count("policy") > 3)
        assert termios.tcgetattr(ours)[3] & termios.ECHO == 0
        os.write(ours, b" ")
        until(lambda: RobotLog.read(record).count("human") > 3)
        os.killpg(process.pid, signal.SIGKILL)
        stops = RobotLog.read(record).count("stop")
        log = until(lambda: (log := RobotLog.read(record)).count("stop") > stops and log)
        assert (log.stale_commands, log.crossed_resets) == (0, 0)
        until(lambda: termios.tcgetattr(ours) == before)
    finally:
        process.kill()
        process.wait(10)
        os.close(ours)
        os.close(theirs)


@pytest.fixture
def run(tmp_path):
    with roles(tmp_path, CONFIG) as made:
        made.buffer()
        made.actor("arm-0")
        made.wait(lambda s: s["env_steps"] > 5, DEADLINE_S, watch=("arm-0",))
        yield made


@pytest.fixture
def headrace(run, capsys):
    """Exit code and last line of a command."""

    def command(*words):
        code = cli.main([*words, run.endpoint])
        said = capsys.readouterr()
        return code, (said.out + said.err).strip().rpartition("\n")[2]

    return command


def arm(status, what):
    """What the station of the one robot reports, once it does."""
    return [actor.get("station", {}).get(what) for actor in status["actors"]]


def test_a_run_is_labelled_paused_through_a_restart_changed_and_resumed_from_elsewhere(run, headrace):
    assert headrace("label", "arm-0", "success") == (0, "done")
    run.wait(lambda s: (arm(s, "episode")[0] or 0) >= 1, DEADLINE_S)
    code, why = headrace("label", "arm-1", "success")
    assert (code, why) == (1, "headrace: error: actor 'arm-1' is not connected; there are: arm-0")

    assert headrace("pause") == (0, "done")
    paused = run.wait(lambda s: arm(s, "phase") == ["paused"] and not s["actors"][0]["spooled_steps"], DEADLINE_S)
    assert paused["phase"] == "paused"
    assert any(text.startswith("robot 'arm-0' is paused") for text in paused["waiting"])
    run.kill("buffer")
    run.buffer()
    again = run.wait(lambda s: arm(s, "phase") == ["paused"], DEADLINE_S)
    assert (again["phase"], again["env_steps"]) == ("paused", paused["env_steps"])

    assert headrace("set", "pacing.lead_steps", "77") == (0, "done")
    assert run.status()["set"] == {"pacing.lead_steps": 77}
    code, why = headrace("set", "robot.guard.max_rate", "9")
    assert code == 1
    assert "cannot be set while a run goes on; these can: pacing.env_steps" in why

    assert headrace("resume") == (0, "done")
    run.wait(lambda s: s["env_steps"] > paused["env_steps"] + 20 and s["actors"][0]["human_steps"], DEADLINE_S)
    assert set(run.stop().values()) == {0}
    with SACReplayPool(10_000, path=run.run / "pool") as pool:
        rows = list(pool.dump())
    assert {row["outcome"] for row in rows if row["episode"] == 0} == {1}
    assert {source for row in rows for source in row["source"]} == {"policy", "human"}
