#!/usr/bin/env python
"""Jitter of a robot's control periods while learner and buffer work at full load on the same cores, and while the buffer hangs.

    .venv/bin/python benchmarks/robot_jitter.py              # four minutes in each state, recorded
    .venv/bin/python benchmarks/robot_jitter.py --quick      # ten seconds each, not recorded: a smoke run

What it measures: the job of benchmarks/robot_learning.py on two hosts (network namespaces), a fake arm with two cameras of
128 x 128 at 20 Hz, with a learner that never waits (pacing.hold_learner false) and a buffer on the same cores. Of each control
period how late it began, by the robot's own report: p50 and p99 of the last 4,096 periods, which are longer ago than a state
lasts; and of each command of the policy how far the time since the one before is from a period. ``loaded``: as described;
``stopped``: then the buffer is stopped (SIGSTOP), and the arm goes on by the weights that it has.

How long: 9 minutes. Each finished run adds a line to docs/results/robot_jitter.jsonl and is not repeated on the same commit. It
needs root, iproute2 and two cores of its own.

The last line on stdout is that record as one JSON object. Exit code 0: stopping the buffer moves p99 by 1 ms at most.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import yaml
from campaign import provenance, records
from campaign.process import ProcessFailed, Unable, guarded
from campaign.robot_course import ALONE, READY_S
from campaign.robot_figures import off_period_ms
from campaign.robot_job import RobotJob
from campaign.robot_run import CONFIG
from campaign.spaces import move_in
from campaign.two_hosts import two_hosts

from headrace.common.config import merge
from headrace.launch.chaos.robot_log import RobotLog

FILE = records.RESULTS / "robot_jitter.jsonl"
RATE_HZ, STATE_S, QUICK_S, MOST_MS = 20.0, 215.0, 10.0, 1.0
FULL_LOAD = {
    "pacing": {"env_steps": 0, "hold_learner": False},
    "pool": {"demos": [], "capacity": 20_000},
    "sampling": {"sets": {}},
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_S:g} seconds each, not recorded")
    args = parser.parse_args()
    origin = provenance.commit()
    if not args.quick and any(r["commit"] == origin["commit"] for r in records.read(FILE)):
        print(json.dumps({"done": True}))
        return 0
    try:
        move_in()
    except Unable as error:
        print(f"cannot run: {error}", file=sys.stderr)
        return 1
    records.RUNS.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=records.RUNS, prefix="jitter-") as place:
        found = measure(Path(place), QUICK_S if args.quick else STATE_S)
    record = {**found, **origin, "machine": provenance.machine(), "date": provenance.stamp()}
    if not args.quick:
        records.append(FILE, record)
    print(json.dumps(record))
    return 0 if record["passed"] else 1


def measure(place: Path, seconds: float) -> dict[str, Any]:
    """Both states, one after the other."""
    plain = merge(yaml.safe_load(CONFIG.read_text(encoding="utf-8")), FULL_LOAD)
    with two_hosts() as hosts, contextlib.closing(RobotJob(hosts, place, plain)) as job:
        job.guard(ALONE)
        for role in ("buffer", "learner", "actor"):
            job.start(role)
        if not job.wait(lambda: _learns(job), READY_S, 0.5):
            raise ProcessFailed(f"the job did not learn within {READY_S:.0f} s")
        states = {"loaded": _state(job, seconds, "loaded"), "stopped": _state(job, seconds, "stopped")}
        job.end()
    change = round(abs(states["stopped"]["late_ms_p99"] - states["loaded"]["late_ms_p99"]), 3)
    return {**states, "rate_hz": RATE_HZ, "seconds": seconds, "change_ms": change, "passed": change <= MOST_MS}


def _learns(job: RobotJob) -> bool:
    status = job.status()
    return bool(status and status["updates"] > 0 and job.arm(status).get("version", [0, 0])[1] > 0)


def _state(job: RobotJob, seconds: float, name: str) -> dict[str, Any]:
    print(f"{name}: {seconds:.0f} s", flush=True)
    begun, before = time.monotonic(), job.status()
    if name == "stopped":
        job.hurt("buffer", "stop")
    job.wait(lambda: False, seconds)
    ended = time.monotonic()
    if name == "stopped":
        job.mend("buffer", "stop")
    after: dict[str, Any] = {}

    def reported() -> bool:
        after.update(job.status())
        return "jitter_ms_p99" in job.arm(after).get("station", {})

    if not job.wait(reported, READY_S):
        raise ProcessFailed("the arm's actor did not come back")
    station = job.arm(after)["station"]
    p50, p99 = off_period_ms(RobotLog.read(job.record), begun, ended, RATE_HZ)
    return {
        **{"late_ms_p50": station["jitter_ms_p50"], "late_ms_p99": station["jitter_ms_p99"], "overruns": station["overruns"]},
        **{"off_ms_p50": p50, "off_ms_p99": p99},
        "updates_s": round((after["updates"] - before.get("updates", 0)) / (time.monotonic() - begun), 2),
    }


if __name__ == "__main__":
    sys.exit(guarded(main))
