#!/usr/bin/env python
"""Learning gates: does headrace learn, and does it learn asynchronously as it does synchronously?

    .venv/bin/python benchmarks/gates.py                                    # everything that is not done yet
    .venv/bin/python benchmarks/gates.py --only pendulum-async,pendulum-sync
    .venv/bin/python benchmarks/gates.py --list                             # what there is and what is done
    .venv/bin/python benchmarks/gates.py --dry                              # what would run

What it measures: Pendulum-v1 at 10,000 env steps (5 seeds) and HalfCheetah-v4 at 50,000 (3 seeds), each in asynchronous
mode (processes) and synchronous mode (one process), judged by a deterministic evaluation in an environment of its own.

How long: on two cores a Pendulum run takes about 2 to 3 minutes and a HalfCheetah run 10 to 20, so 2 to 3 hours in all.
Each finished run adds one line to docs/results/gates.jsonl and is not run again while its settings stay the same, so a
campaign can be stopped (Ctrl-C) and gone on with later; a run that did not finish leaves no line. Runs lie in runs/, their
pools are deleted when they have ended well.

The last line on stdout is one JSON object: gate -> "passed", "FAILED", "unfinished" or "not run yet", with "pendulum" and
"halfcheetah" for asynchronous = synchronous. Exit code 0: no gate failed and no run broke. benchmarks/report.py makes tables.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

from campaign import gate as gates
from campaign import provenance, records, runs
from campaign.choosing import add_only
from campaign.gate import GATES, PAIRS, Gate
from campaign.process import ProcessFailed, guarded

FILE = records.RESULTS / "gates.jsonl"
SAY_EVERY_S = 10.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_only(parser, GATES, "gate")
    parser.add_argument("--list", action="store_true", help="show the gates and which seeds are done, and exit")
    parser.add_argument("--dry", action="store_true", help="show the commands that would run, and exit")
    args = parser.parse_args()
    chosen = [GATES[name] for name in args.only]
    if args.list:
        show(chosen)
        return 0
    todo = pending(chosen, records.read(FILE))
    print(f"{len(todo)} runs to do, {sum(len(g.seeds) for g in chosen) - len(todo)} done before", flush=True)
    if args.dry:
        for gate, seed in todo:
            print(" ".join(runs.command(gate.config, gate.overrides(seed), runs.new_place(f"{gate.name}-seed{seed}"))))
        return 0
    broken = campaign(todo)
    verdicts = judge_all()
    print(json.dumps({name: verdict.state for name, verdict in verdicts.items()}))
    return 1 if broken or any(v.state == gates.FAILED for v in verdicts.values()) else 0


def pending(chosen: list[Gate], known: list[records.Record]) -> list[tuple[Gate, int]]:
    """Runs without a record of the same settings, short gates first, one seed of each gate after the other."""
    todo = []
    for gate in chosen:
        for seed in gate.seeds:
            settings = runs.settings(runs.resolve(gate.config, gate.overrides(seed)))
            if not gates.done(gate, seed, settings, known):
                todo.append((gate, seed))
    return sorted(todo, key=lambda item: (item[0].env_steps, item[1]))


def campaign(todo: list[tuple[Gate, int]]) -> int:
    """Run one after the other; how many broke."""
    broken = 0
    for number, (gate, seed) in enumerate(todo, 1):
        title = f"[{number}/{len(todo)}] {gate.name} seed {seed}"
        print(f"{title}: started", flush=True)
        try:
            record = run_one(gate, seed, title)
        except ProcessFailed as error:
            broken += 1
            print(f"{title}: BROKE: {error}", flush=True)
            continue
        records.append(FILE, record)
        spread = f"{record['return_mean']:.1f} ± {record['return_std']:.1f} over {record['episodes']} episodes"
        print(f"{title}: {spread}, {record['wall_s']:.0f} s", flush=True)
    return broken


def run_one(gate: Gate, seed: int, title: str) -> records.Record:
    """One run and its record."""
    overrides = gate.overrides(seed)
    resolved = runs.resolve(gate.config, overrides)
    origin = {**provenance.commit(), "machine": provenance.machine()}
    path = runs.new_place(f"{gate.name}-seed{seed}")
    said = time.monotonic()

    def watch(pid: int) -> None:
        nonlocal said
        if time.monotonic() - said >= SAY_EVERY_S:
            said = time.monotonic()
            print(f"{title}: {progress(path, gate.env_steps)}", flush=True)

    finished = runs.train(gate.config, overrides, path, deadline_s=gate.deadline_s, watch=watch)
    metrics = runs.read_metrics(path)
    runs.drop_pool(path)
    result = finished.result
    last = (result["env_steps"], round(result["eval_return_mean"], 3))  # the evaluation at the end belongs to the curve
    curve = [point for point in runs.evaluations(metrics) if point[0] < last[0]] + [last]
    return {
        **{"gate": gate.name, "env": gate.env, "mode": gate.mode, "seed": seed},
        **{"return_mean": result["eval_return_mean"], "return_std": result["eval_return_std"]},
        **{key: result[key] for key in ("episodes", "env_steps", "updates", "achieved_ratio")},
        "wall_s": round(result["wall_s"], 1),
        "started": provenance.stamp(finished.ended.started),
        "date": provenance.stamp(),
        **origin,
        **{"example": gate.example, "overrides": overrides, "settings": runs.settings(resolved)},
        "marks": {str(steps): runs.at(curve, steps) for steps in gate.marks},
        **{"evaluations": curve, "training": runs.training_returns(metrics)},
    }


def progress(path: Path, goal: int) -> str:
    """How far a run is, from its metrics."""
    last = next((m for m in reversed(runs.read_metrics(path)) if "run/env_steps" in m), None)
    if last is None:
        return "starting"
    value = last.get("run/return_mean")
    shown = "-" if value is None else f"{value:.1f}"
    return f"env steps {last['run/env_steps']:,} of {goal:,}, training return {shown}"


def judge_all() -> dict[str, gates.Verdict]:
    """The verdict of every gate and of every comparison."""
    known = records.read(FILE)
    verdicts = {name: gates.judge(gate, known) for name, gate in GATES.items()}
    return verdicts | {name: gates.compare(GATES[a], GATES[b], known) for name, (a, b) in PAIRS.items()}


def show(chosen: list[Gate]) -> None:
    """Print the gates and their done seeds."""
    known = records.read(FILE)
    for gate in chosen:
        seeds = ", ".join(f"{r['seed']}: {r['return_mean']:.1f}" for r in gates.of_gate(gate, known)) or "none done"
        print(f"{gate.name:<18} {gate.env}, {gate.env_steps:,} env steps, seeds {gate.seeds}; {seeds}")


if __name__ == "__main__":
    sys.exit(guarded(main))
