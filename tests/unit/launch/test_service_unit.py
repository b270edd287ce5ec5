"""The systemd unit of a robot's actor: its command line is one that we read, and its exit codes are ours."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.launch.cli import make_parser, own_options, split_overrides
from headrace.launch.config import make_config
from headrace.launch.exits import MUST_NOT_RESTART, USAGE

UNIT = Path(__file__).resolve().parents[3] / "launch" / "systemd" / "headrace-robot@.service"
GUARD = {"low": [-1], "high": [1], "max_delta": [1], "max_rate": [1]}


def values(name):
    return [line.partition("=")[2] for line in UNIT.read_text().splitlines() if line.startswith(f"{name}=")]


def test_the_command_line_is_an_actors():
    words = shlex.split(values("ExecStart")[0])[1:]
    parser = make_parser()
    known, overrides = split_overrides(words, own_options(parser, words))
    args = parser.parse_args(known)
    assert (args.command, args.id, str(args.target)) == ("actor", "%i", "robot.yaml")
    config = make_config({"env": {"id": "x:y"}, "actor": {"robot": True}, "robot": {"guard": GUARD}}, overrides)
    assert (config.actor.spool, config.network.keys) == ("/var/lib/headrace", "keys")
    assert config.actor.spool.endswith(f"/{values('StateDirectory')[0]}")


def test_what_would_fail_again_is_not_started_again_and_every_process_hears_of_the_end():
    assert values("RestartPreventExitStatus") == [f"{USAGE} {MUST_NOT_RESTART}"]
    assert values("KillMode") == ["control-group"]  # the robot's own process stops it, also where the actor has crashed


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd's own check is not on this machine")
def test_systemd_finds_nothing_wrong(tmp_path):
    unit = tmp_path / "headrace-robot@arm-0.service"
    text = UNIT.read_text().replace("/opt/headrace/bin/headrace", sys.executable).replace("User=robot", "User=root")
    unit.write_text(text)
    done = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, timeout=60)
    assert [line for line in done.stderr.splitlines() if unit.name in line] == []
    broken = tmp_path / "headrace-robot@arm-1.service"
    broken.write_text(text.replace("KillMode=control-group", "KillMode=sometimes"))
    done = subprocess.run(["systemd-analyze", "verify", str(broken)], capture_output=True, text=True, timeout=60)
    assert f"{broken.name}:" in done.stderr
