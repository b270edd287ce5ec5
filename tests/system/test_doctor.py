"""The doctor of a robot's computer beside a real buffer: by the robot's key, and without leaving anything behind."""

from __future__ import annotations

import json
import subprocess
import sys

from helpers.roles import roles, scripted

from headrace.common.wire.key_files import KeyFiles

GUARD = {"low": [-1.4], "high": [1.4], "max_delta": [0.15], "max_rate": [2.5]}


def doctor(run, *words):
    """What it found, and its exit code."""
    command = [
        sys.executable,
        "-P",
        "-m",
        "headrace",
        "doctor",
        str(run.config),
        "--robot",
        "--connect",
        run.endpoint,
        "--json",
    ]
    done = subprocess.run([*command, *words], cwd=run.directory, capture_output=True, text=True, timeout=120)
    return {one["what"]: one for one in json.loads(done.stdout)}, done.returncode


def test_a_robots_doctor_measures_its_link_by_the_robots_own_key(tmp_path):
    files = KeyFiles(tmp_path / "keys")
    files.new("arm-0", "actor")
    files.new("operator", "operator")
    config = scripted(network={"heartbeat_s": 0.1, "lease_s": 1.0, "connect_s": 60, "keys": str(tmp_path / "keys")})
    config = {**config, "env": {"id": "headrace.actor.fake_arm:FakeArm", "kwargs": {"size": 8}}, "actor": {"robot": True}}
    config |= {"robot": {"guard": GUARD}, "eval": {"every": 0, "final_episodes": 0}}
    with roles(tmp_path, config) as run:
        run.buffer()
        run.wait(lambda s: True, 60)
        found, code = doctor(run, "--id", "arm-0")
        assert code == 0, found
        assert {what: found[what]["verdict"] for what in ("network", "session", "versions", "clocks")} == dict.fromkeys(
            ("network", "session", "versions", "clocks"), "ok"
        )
        assert "MiB/s to the buffer" in found["bandwidth"]["seen"]
        status = run.status()
        assert status["env_steps"] == 0
        assert status["actors"] == [] or status["actors"][0]["state"] != "live"
        found, code = doctor(run, "--id", "arm-0", "--env.kwargs", "{size: 9}")
        assert code == 1
        assert "8 != 9" in found["session"]["seen"]
        run.stop()
