#!/usr/bin/env python
"""Does SAC improve a cloned flow policy that sees, reads and acts in chunks? Three ways, on the tabletop, with their controls.

    .venv/bin/python benchmarks/vla.py                          # everything that is not done yet
    .venv/bin/python benchmarks/vla.py --only teacher           # the cloned policy alone
    .venv/bin/python benchmarks/vla.py --list                   # what there is and what is done
    .venv/bin/python benchmarks/vla.py --dry                    # what would run
    .venv/bin/python benchmarks/vla.py --table                  # what has been found

What it measures, each with 2 seeds, asynchronously, with the real pool:
- ``teacher``: cloned from 50 scripted demonstrations a task, with a chunk from each of their steps on; wanted is a success of
  30 to 60 %.
- ``flow-sde``, ``dsrl``, ``residual``: SAC from that teacher on (examples/tabletop_rl.yaml). Start and end are judged by 400
  episodes, in between there are evaluations of 200. Asked: 15 points more, never more than 15 below the start, and no task
  more than 10 below its own. ``shuffled`` (the words are those of any task) and ``blank`` (no images) judge the end again by
  200 episodes: they must be near chance, which a quarter of the end and uniform actions are.
- ``bc-continued``: the teacher cloned on for as many updates, which must gain less than 5 points.

How long: the teacher about 15 minutes on two idle cores; no run may take more than 90. Each finished run adds one line to
docs/results/vla.jsonl and is not run again while its settings and its teacher stay the same. Runs and teachers lie in runs/.

The last line on stdout is one JSON object: arm -> "passed", "FAILED", "unfinished" or "not run yet". Exit code 0: none failed
and no run broke.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from campaign import provenance, records, runs
from campaign.choosing import add_only
from campaign.gate import FAILED, LONGEST_S
from campaign.process import ProcessFailed, guarded, headrace, run
from campaign.records import ROOT, RUNS, Record
from campaign.table_arms import ARMS, DEMOS, EPISODES_A_TASK, SEEDS, TASKS, TEACHER, Arm, judge, table

from headrace.actor.config import WindowConfig
from headrace.actor.evaluate import EvalResult, evaluate
from headrace.actor.policy import RandomPolicy
from headrace.common.exported import read_export
from headrace.launch.config import RunConfig
from headrace.launch.play import find_policy, make_player, read_policy

FILE = records.RESULTS / "vla.jsonl"
EPISODES, CONTROLS = 400, 200
JUDGED_BY = 1_000_000  # seed of episodes that nobody has trained on
TOOL_S = 900.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_only(parser, ARMS, "arm")
    parser.add_argument("--list", action="store_true", help="show the arms and which seeds are done, and exit")
    parser.add_argument("--dry", action="store_true", help="show what would run, and exit")
    parser.add_argument("--table", action="store_true", help="show what has been found, and exit")
    args = parser.parse_args()
    if args.list:
        show([ARMS[name] for name in args.only])
        return 0
    if args.table:
        print(table(records.read(FILE)))
        return 0
    torch.set_num_threads(1)
    broken = 0
    for name in ARMS if TEACHER in args.only else [TEACHER, *ARMS]:
        for seed in SEEDS if name in args.only else ():
            try:
                one(ARMS[name], seed, dry=args.dry)
            except ProcessFailed as error:
                broken += 1
                print(f"{name} seed {seed}: BROKE: {error}", flush=True)
    known = records.read(FILE)
    verdicts = {name: judge(arm, known) for name, arm in ARMS.items()}
    for name, (_, found) in verdicts.items():
        for problem in found:
            print(f"{name}: {problem}")
    print(json.dumps({name: state for name, (state, _) in verdicts.items()}))
    return 1 if broken or any(state == FAILED for state, _ in verdicts.values()) else 0


def show(chosen: list[Arm]) -> None:
    """Print the arms and their done seeds."""
    known = records.read(FILE)
    for arm in chosen:
        ends = {r["seed"]: r["end"]["rate"] for r in known if r["arm"] == arm.name}
        done = ", ".join(f"{seed}: {rate:.0%}" for seed, rate in sorted(ends.items())) or "none done"
        print(f"{arm.name:<14} {arm.example}, {arm.preset or 'no preset'}, seeds {SEEDS}; {done}")


def teacher_of(seed: int) -> Path:
    """Where the teacher of a seed is exported to; below the root, as a setting that is the same on each machine."""
    return RUNS / f"vla-teacher-{seed}"


def one(arm: Arm, seed: int, *, dry: bool) -> None:
    """Run it, unless that is done, and leave a record.

    Raises:
        ProcessFailed: it did not end well, or there is no teacher yet.
    """
    teacher = teacher_of(seed)
    where = str(teacher.relative_to(ROOT))
    begins = digest_of(teacher) if arm.teacher else ""
    overrides = arm.overrides(seed, where)
    settings = runs.settings(runs.resolve(arm.config, overrides, arm.preset_file))
    done = [r for r in records.read(FILE) if (r["arm"], r["seed"], r["teacher"]) == (arm.name, seed, begins)]
    kept = arm.name != TEACHER or teacher.exists()
    if done and kept and records.same_settings(done[-1]["settings"], settings):
        return
    path = runs.new_place(f"vla-{arm.name}-seed{seed}")
    if dry:
        print(" ".join(runs.command(arm.config, overrides, path, arm.preset_file)))
        return
    if arm.teacher and not begins:
        raise ProcessFailed(f"{where} is not there; run --only teacher first")
    print(f"{arm.name} seed {seed}: started", flush=True)
    origin = {**provenance.commit(), "machine": provenance.machine()}
    if arm.clones:
        make_demos()
    finished = runs.train(arm.config, overrides, path, preset=arm.preset_file, deadline_s=LONGEST_S)
    runs.drop_pool(path)
    config = runs.resolve(arm.config, overrides, arm.preset_file)
    found: Record = {"arm": arm.name, "seed": seed, "teacher": begins}
    if arm.name == TEACHER:
        shutil.rmtree(teacher, ignore_errors=True)
        run(headrace("export", str(path), str(teacher), "--ema"), path.with_suffix(".export.log"), deadline_s=TOOL_S)
    else:
        found["start"] = success(bare(config), teacher, EPISODES, ema=False)
    found["end"] = success(config, path, EPISODES, ema=config.eval.ema)
    if not arm.clones:
        found["chance"] = chance(bare(config), CONTROLS)
        for key, what in (("shuffled", "shuffle"), ("blank", "blank")):
            covered = runs.resolve(arm.config, {**overrides, f"env.kwargs.{what}": True}, arm.preset_file)
            found[key] = success(covered, path, CONTROLS, ema=config.eval.ema)
    found["curve"] = runs.evaluations(runs.read_metrics(path), "success_rate")
    told = {key: finished.result[key] for key in ("env_steps", "updates", "achieved_ratio")}
    found |= {**told, "wall_s": round(finished.ended.seconds, 1), "settings": settings, **origin, "date": provenance.stamp()}
    records.append(FILE, found)
    print(f"{arm.name} seed {seed}: {found['end']['rate']:.0%} in {found['wall_s'] / 60:.0f} min", flush=True)


def digest_of(teacher: Path) -> str:
    """Of the teacher, as rows and policies name it; empty where there is none."""
    return read_export(teacher)[0].digest()[:16] if teacher.exists() else ""


def make_demos() -> None:
    """Scripted demonstrations, the same in each run."""
    place = ROOT / DEMOS
    if not place.exists():
        words = [sys.executable, "-m", "examples.envs.tabletop_demos", DEMOS, "--episodes", str(EPISODES_A_TASK * TASKS)]
        run([*words, "--chunk", "4", "--overlap"], place.with_suffix(".log"), deadline_s=TOOL_S)


def bare(config: RunConfig) -> RunConfig:
    """The same without what the arm's own policy adds to rows: a teacher and random actions know of no noise and no prefix."""
    return replace(config, window=WindowConfig(chunk=config.window.chunk))


def success(config: RunConfig, policy: Path, episodes: int, *, ema: bool) -> dict[str, Any]:
    """Success of a run's or an export's policy, acting deterministically: over all episodes, and of each task."""
    player, _ = make_player(config, read_policy(find_policy(policy, best=False), ema=ema))
    return told(evaluate(player, config.env, config.window, episodes, JUDGED_BY))


def chance(config: RunConfig, episodes: int) -> float:
    """Success of uniformly random actions."""
    from headrace.actor.envs import make_spec

    random = RandomPolicy(make_spec(config.env, config.window))
    return float(told(evaluate(random, config.env, config.window, episodes, JUDGED_BY))["rate"])


def told(result: EvalResult) -> dict[str, Any]:
    """An evaluation as a record tells it."""
    assert result.successes is not None, "the tabletop always says it"
    assert result.tasks is not None, "and which task it is"
    tasks = {str(task): round(float(result.successes[result.tasks == task].mean()), 4) for task in range(TASKS)}
    return {"rate": round(float(result.successes.mean()), 4), "episodes": len(result.successes), "tasks": tasks}


if __name__ == "__main__":
    sys.exit(guarded(main))
