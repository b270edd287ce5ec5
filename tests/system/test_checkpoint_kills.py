"""A process that writes checkpoints in a loop, killed at random instants: one is always there, and it is never a wrong one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "checkpoints.py"


def test_twenty_kills_leave_a_whole_checkpoint(tmp_path):
    words = [sys.executable, str(SCRIPT), "--quick", "--place", str(tmp_path)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, env=environment, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    summary = json.loads(done.stdout.splitlines()[-1])
    assert (summary["kills"], summary["failures"]) == (20, 0)
    assert summary["half_written"] > 0  # so they came in time
