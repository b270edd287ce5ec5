"""A dry run of a few seconds: whatever happens to its processes and its network, nothing old is carried out or lost."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
import yaml

CONFIG = {
    "env": {"id": "headrace.actor.fake_arm:FakeArm", "kwargs": {"size": 8, "cameras": ["front"]}, "max_episode_steps": 40},
    "actor": {"robot": True},
    "robot": {"guard": {"low": [-1.4], "high": [1.4], "max_delta": [0.2], "max_rate": [4.0], "late": 5}},
    "pacing": {"min_fill": 50, "random_steps": 50},
    "learner": {"batch_size": 16},
    "model": {"options": {"hidden": [16]}},
    "eval": {"every": 0, "final_episodes": 0},
}
REPORT = {"stale_commands", "crossed_resets", "safe_ms_p99", "period_ms", "lost", "duplicated", "overruns", "spooled"}


def run(tmp_path, *words):
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(CONFIG))
    command = [sys.executable, "-P", "-m", "headrace", "dry-run", "config.yaml", "--dir", "dry", *words]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, capture_output=True, text=True, timeout=200, cwd=tmp_path, env=environment)


@pytest.mark.timeout(240)
def test_a_dry_run_ends_with_a_report_of_what_became_of_everything(tmp_path):
    done = run(tmp_path, "--seconds", "6", "--json")
    assert "actor killed" in done.stderr, done.stderr
    report = json.loads(done.stdout.splitlines()[-1])
    assert report.keys() > REPORT
    assert [report[name] for name in ("stale_commands", "crossed_resets", "lost", "duplicated")] == [0, 0, 0, 0]
    assert report["safe_ms_p99"] is not None
    assert done.returncode == (0 if report["passed"] else 1)
    assert report["rows"] > 10
    assert report["network"]["connections"] >= 2
    assert json.loads((tmp_path / "dry" / "report.json").read_text()) == report


def test_a_dry_run_that_is_too_short_is_refused(tmp_path):
    done = run(tmp_path, "--seconds", "1")
    assert done.returncode == 1
    assert "--seconds: 1 is too short for what happens; nearest valid: 5" in done.stderr
