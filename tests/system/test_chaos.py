"""`headrace chaos` in small: its controls fire, and a job that is killed and cut off keeps every row.

What shows itself only in time is left to the command: two minutes with all faults are `headrace chaos`, an hour is recorded.
"""

from __future__ import annotations

import json
import subprocess
import sys

from headrace.launch.chaos.sabotage import FINDS
from headrace.launch.chaos.schedule import Schedule
from headrace.launch.chaos.verdict import KINDS as FAULTS

KINDS, SEED, SECONDS = ["kill", "reset", "noise"], 22, 9


def test_a_short_campaign_passes_its_controls_and_finds_nothing(tmp_path):
    words = ["--minutes", str(SECONDS / 60), "--seed", str(SEED), "--only", ",".join(KINDS), "--dir", str(tmp_path / "chaos")]
    command = [sys.executable, "-P", "-m", "headrace", "chaos", *words, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    assert said["controls_fired"] == len(FINDS)
    assert all(said["controls"].values())
    assert said["trials"] > 500
    assert {said[kind] for kind in FAULTS} == {0}
    planned = [fault.role for fault in Schedule(SEED, KINDS).due(SECONDS) if fault.kind == "kill"]
    assert "buffer" in planned
    assert "actor" in planned
    assert 0 < said["kills"] <= len(planned)
    assert said["figures"]["produced"] == said["figures"]["committed"] + said["figures"]["abandoned"]
    assert "passed" in done.stdout
    again = [*command[:5], "--judge", str(tmp_path / "chaos"), "--json"]
    judged = subprocess.run(again, capture_output=True, text=True, timeout=60, check=True, cwd=tmp_path)
    assert json.loads(judged.stdout.splitlines()[-1]) == said
