#!/usr/bin/env python
"""Survival: does a supervised run outlive SIGKILL of each of its roles, with no experience lost, doubled or invented?

    .venv/bin/python benchmarks/survival.py                      # 10 kills of each role
    .venv/bin/python benchmarks/survival.py --only buffer,actor  # of some roles
    .venv/bin/python benchmarks/survival.py --quick              # one kill of each, a smoke run
    .venv/bin/python benchmarks/survival.py --selftest           # only: does the checker find sabotage?

What it measures: each trial starts `headrace train` on an environment that logs its own steps, kills one process of the role
(buffer, learner, actor or evaluator) at a random time, and lets the run end. It passes when the run exits with 0 at its goal
and the checker (campaign/conservation.py) accounts for every step that the environments logged: acked = live + evicted +
retired, no (actor, stream, seq) twice, every row proved by the log, a missing step only at the end of a killed process;
when the updates granted are those that the ratio allows, and the learner made all of them but for what one that was killed had
not saved.

Before any trial a run without a kill is checked, then its dump is sabotaged (a row removed, doubled, replayed, a byte of the
pool flipped): the checker must find each, or nothing it says counts and the campaign does not start.

How long: about half a minute a trial, 20 minutes in all. Each trial adds one line to docs/results/survival.jsonl. A role's
trial that passed is not repeated; a failed one only on another commit, so that failures are not tried away.

The last line on stdout is one JSON object: role -> trials, failures, the 95 % upper bound of the failure probability, and
median and longest time from the kill to the first work that was acknowledged again. Exit code 0: no trial failed.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import yaml
from campaign import conservation, intervals, provenance, records, runs
from campaign.choosing import add_only
from campaign.conservation import SABOTAGES, Balance, Evidence
from campaign.killing import ROLES, Killer
from campaign.process import ProcessFailed, guarded, headrace

from headrace.buffer import generations
from headrace.launch.chaos.scripted import ENV

FILE = records.RESULTS / "survival.jsonl"
TRIALS = 10
SPAN_S = 12.0  # a kill comes at a random time within this of the start of the roles; a run takes at least twice as long
DEADLINE_S = 240.0
TOOL_S = 60.0
SEED = 2
ENV_STEPS, STEP_S, ACTORS = 8_000, 0.005, 2
RATIO, RATIO_TOLERANCE, MIN_FILL = 0.25, 0.02, 200
CHECKPOINT_EVERY, PREFETCH = 200, 8
MOST_LOST = CHECKPOINT_EVERY + 2 * PREFETCH  # what a dead learner had not saved, and what was on its way; never refunded
HERE = str(Path(__file__).resolve().parent)
FOUND = [place for place in (HERE, os.environ.get("PYTHONPATH")) if place]
ENVIRONMENT = {"PYTHONPATH": os.pathsep.join(FOUND), "OMP_NUM_THREADS": "1"}
CONFIG: dict[str, Any] = {
    "env": {"id": ENV},
    "actor": {"count": ACTORS, "block_rows": 16},
    "pool": {"capacity": 20_000},
    "pacing": {"env_steps": ENV_STEPS, "min_fill": MIN_FILL, "random_steps": MIN_FILL, "ratio": RATIO},
    "learner": {"batch_size": 32, "checkpoint_every_updates": CHECKPOINT_EVERY, "prefetch_batches": PREFETCH},
    "model": {"options": {"hidden": [32, 32]}},
    "eval": {"every": 1_000, "episodes": 1, "final_episodes": 1},
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_only(parser, ROLES, "role")
    parser.add_argument("--quick", action="store_true", help="one trial of each role, not recorded")
    parser.add_argument("--selftest", action="store_true", help="check the checker and exit")
    args = parser.parse_args()
    origin = provenance.commit()
    if not selftest():
        print(json.dumps({"selftest": "FAILED"}))
        return 1
    if args.selftest:
        print(json.dumps({"selftest": "passed"}))
        return 0
    trials = [(role, 0) for role in args.only] if args.quick else pending(args.only, records.read(FILE), origin["commit"])
    print(f"{len(trials)} trials to do", flush=True)
    done = []
    for number, (role, trial) in enumerate(trials, 1):
        record = {**run_trial(role, trial), **origin, "machine": provenance.machine()}
        done.append(record)
        if not args.quick:
            records.append(FILE, record)
        print(f"[{number}/{len(trials)}] {role} {trial}: {said(record)}", flush=True)
    summary = summarise(done if args.quick else records.read(FILE))
    print(json.dumps(summary))
    return 1 if any(s["failures"] for s in summary.values()) else 0


def pending(roles: list[str], known: list[records.Record], commit: str) -> list[tuple[str, int]]:
    """Trials that have not passed, role after role in turn; one that failed on this very commit stays failed."""
    return records.unpassed([(role, n) for n in range(TRIALS) for role in roles], known, commit, "role", "trial")


def run_trial(role: str, trial: int) -> records.Record:
    """One run with one kill, judged."""
    rng = np.random.default_rng([SEED, ROLES.index(role), trial])
    path, config, log_dir = prepare(f"survival-{role}{trial}", trial)
    killer = Killer(path, role, float(rng.uniform(0, SPAN_S)), 3 + ACTORS, rng)
    problems: list[str] = []
    try:
        runs.train(config, {}, path, deadline_s=DEADLINE_S, environment=ENVIRONMENT, watch=killer.watch)
    except ProcessFailed as error:
        problems.append(str(error).replace(f"{records.ROOT}/", ""))  # a record names no place of this machine
    finally:
        killer.close()
    counts: dict[str, int] = {}
    if killer.victim is None:
        problems.append("no process was killed: the run ended first")
    if not problems:
        killed = frozenset([killer.victim] if killer.victim is not None else [])
        balance = examine(path, log_dir, killed, killer.acked)
        problems, counts = list(balance.problems), balance.counts
    if not problems:
        clean(path, log_dir)
    at_s, env_steps = killer.killed_at or (None, None)
    verdict = {"passed": not problems, "problems": problems, "counters": counts}
    when = {"killed_at_s": at_s, "killed_at_env_steps": env_steps, "recovered_s": killer.recovered_s}
    return {"role": role, "trial": trial, "seed": SEED, **when, **verdict, "date": provenance.stamp()}


def prepare(name: str, seed: int) -> tuple[Path, Path, Path]:
    """Run directory, config file and log directory of a new trial; only the last two exist."""
    path = runs.new_place(name)
    log_dir = path.with_suffix(".steps")
    log_dir.mkdir(parents=True)
    steps = {"lengths": [7, 13, 40], "ends": ["terminated", "truncated"], "action_dim": 2, "bounds": [-1, 1], "delay_s": STEP_S}
    kwargs = {**steps, "actor": None, "history": str(log_dir)}
    config = path.with_suffix(".yaml")
    config.write_text(yaml.safe_dump({**CONFIG, "seed": seed, "env": {**CONFIG["env"], "kwargs": kwargs}}), encoding="utf-8")
    return path, config, log_dir


def examine(path: Path, log_dir: Path, killed: frozenset[int], acked: dict[tuple[str, int], int]) -> Balance:
    """Judge a run that has ended."""
    result = runs.read_result(path)
    rejected = {k: v for k, v in result["counters"].items() if k.startswith("rejected")}
    counters = {**pool_info(path), **rejected}
    balance = conservation.check(Evidence(pool_dump(path), counters, conservation.read_lives(log_dir), killed, acked))
    problems = list(balance.problems)
    if result["env_steps"] != ENV_STEPS:
        problems.append(f"env_steps {result['env_steps']}, the goal was {ENV_STEPS}")
    granted, lost = result["updates_granted"], result["updates_lost"]
    if abs(granted / (RATIO * (ENV_STEPS - MIN_FILL)) - 1) > RATIO_TOLERANCE:
        problems.append(f"{granted} updates granted, the target was {RATIO} a step within {RATIO_TOLERANCE:.0%}")
    if lost > MOST_LOST or result["updates"] != granted - lost:
        problems.append(f"{result['updates']} updates made and {lost} lost of {granted}; at most {MOST_LOST} may be lost")
    return Balance(tuple(problems), {**balance.counts, "env_steps": result["env_steps"], "updates": result["updates"]})


def pool_dump(path: Path) -> list[dict[str, Any]]:
    """`headrace pool dump` of a run or pool directory."""
    return [json.loads(line) for line in _tool("pool", "dump", str(path), "--json").splitlines()]


def pool_info(path: Path) -> dict[str, Any]:
    """`headrace pool info` of a run or pool directory."""
    info: dict[str, Any] = json.loads(_tool("pool", "info", str(path), "--json"))
    return info


def selftest() -> bool:
    """A run without a kill must pass, and must not pass once its dump is sabotaged; whether that is so."""
    path, config, log_dir = prepare("survival-control", 0)
    print("control run, without a kill", flush=True)
    try:
        runs.train(config, {}, path, deadline_s=DEADLINE_S, environment=ENVIRONMENT)
    except ProcessFailed as error:
        print(f"control run: {error}")
        return False
    balance = examine(path, log_dir, frozenset(), {})
    print(f"control run: {'; '.join(balance.problems) or 'all accounted for'} {balance.counts}", flush=True)
    found = {kind: bool(checked(path, log_dir, kind).problems) for kind in (*SABOTAGES, "flip on disk")}
    print(f"sabotage found: {found}", flush=True)
    clean(path, log_dir)
    return not balance.problems and all(found.values())


def checked(path: Path, log_dir: Path, kind: str) -> Balance:
    """The checker's verdict on a sabotaged dump of a run; ``flip on disk`` flips one byte of a copy of its pool."""
    rng = np.random.default_rng([SEED, len(kind)])
    counters = pool_info(path)
    rows: list[Any] = pool_dump(path)
    if kind == "flip on disk":
        copy = path.with_suffix(".flipped")
        shutil.copytree(path / "pool", copy)
        found = generations.read(copy)
        assert found is not None, f"{copy} is no pool"
        frames = np.load(found[1] / "frames.obs.npy", mmap_mode="r+")
        frames.view(np.uint8)[int(rng.integers(1, counters["size"])), 0] ^= 1  # frame ids begin at 0, and none was overwritten
        frames.flush()
        rows = pool_dump(copy)
        shutil.rmtree(copy)
    else:
        rows = conservation.sabotage(rows, kind, rng)
    return conservation.check(Evidence(rows, counters, conservation.read_lives(log_dir)))


def clean(path: Path, log_dir: Path) -> None:
    """Delete what a passed trial leaves, but its small files."""
    runs.drop_pool(path)
    shutil.rmtree(log_dir, ignore_errors=True)


def summarise(known: list[records.Record]) -> dict[str, dict[str, Any]]:
    """Role -> trials, failures and recovery times, over the newest record of each trial."""
    out = {}
    for role in ROLES:
        own = [r for (kind, _), r in records.latest(known, "role", "trial").items() if kind == role]
        if own:
            failures = sum(not r["passed"] for r in own)
            times = [r["recovered_s"] for r in own if r["recovered_s"] is not None]
            spread = {"recovered_median_s": median(times), "recovered_max_s": max(times)} if times else {}
            bound = round(intervals.failure_bound(failures, len(own)), 3)
            out[role] = {"trials": len(own), "failures": failures, "failure_bound_95": bound, **spread}
    return out


def said(record: records.Record) -> str:
    """A trial in one line."""
    at = f"killed at {record['killed_at_s']} s, {record['killed_at_env_steps']} env steps; back after {record['recovered_s']} s"
    return f"{'passed' if record['passed'] else 'FAILED: ' + ' | '.join(record['problems'])}; {at}; {record['counters']}"


def _tool(*words: str) -> str:
    done = subprocess.run(headrace(*words), capture_output=True, text=True, timeout=TOOL_S, check=False)
    if done.returncode != 0:
        raise ProcessFailed(f"headrace {' '.join(words[:2])}: {done.stderr.strip()}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(guarded(main))
