#!/usr/bin/env python
"""Learning gates: does headrace learn, asynchronously as synchronously, as others do, and what do its options bring?

    .venv/bin/python benchmarks/gates.py                                    # everything that is not done yet
    .venv/bin/python benchmarks/gates.py --only pendulum-async,pendulum-sync
    .venv/bin/python benchmarks/gates.py --only hopper-async --seeds 1,2
    .venv/bin/python benchmarks/gates.py --list                             # what there is and what is done
    .venv/bin/python benchmarks/gates.py --dry                              # what would run
    PEERS_VENVS=DIR .venv/bin/python benchmarks/gates.py --only halfcheetah-sb3,hopper-sb3,walker2d-sb3

What it measures, each run judged by a deterministic evaluation in an environment of its own:
- ``pendulum-*`` (10,000 env steps, 5 seeds) and ``halfcheetah-*`` (HalfCheetah-v4, 50,000; 5 seeds, ``sync`` 3) in asynchronous
  mode (processes) and synchronous mode (one process); ``*-bf16``: asynchronous with ``learner.precision: bf16``, under the same
  bars (3 seeds of HalfCheetah; only on a processor that multiplies bfloat16).
- ``halfcheetah-100k``: 100,000 env steps, 3 seeds; ``halfcheetah-100k-crossq``: the same with examples/presets/crossq.yaml.
- ``*-sb3``: stable-baselines3 at the settings of the ``*-async`` gate of that name, so far as it takes them: 5 seeds of
  HalfCheetah-v4, and 3 of Hopper-v4 and Walker2d-v4 at 30,000, which are reported and not judged.
- ``reach-rlpd``: success with 50 demonstrations where a touch alone is rewarded; ``reach-sac``: the same without any.
- ``pixel-reach-shift`` and ``pixel-reach-still``: success from pictures of 48 x 48, moved at random in training, and not;
  100,000 env steps, an update for each four of them.

DIR holds a virtual environment ``sb3`` with torch==2.13.0, stable-baselines3 and ``gymnasium[mujoco]`` of the version that
headrace uses. Nothing of it is a dependency of headrace.

How long: on two cores a Pendulum run takes about 2 to 6 minutes, 50,000 env steps of HalfCheetah 10 to 20 (stable-baselines3
likewise), 100,000 twice that, with crossq 40 to 90; 30,000 of the others 6 to 12; a reach run 5 to 15, one of pixels 12 to
35. That is some 15 hours in all, and no run may take more than 90 minutes.
Each finished run adds one line to docs/results/gates.jsonl and is not run again while its settings stay the same, so a
campaign can be stopped (Ctrl-C) and gone on with later, and two may run beside each other with different gates or seeds; a
run that did not finish leaves no line. Runs lie in runs/, their pools are deleted when they have ended well.

The last line on stdout is one JSON object: gate or comparison -> "passed", "FAILED", "measured" (nothing was asked),
"unfinished" or "not run yet". Exit code 0: no gate failed and no run broke. benchmarks/report.py makes tables and curves.
"""

from __future__ import annotations

import argparse
import json
import os
import sys

from campaign import gate as gates
from campaign import learning, peer, peer_learning, records
from campaign.choosing import add_only
from campaign.comparison import compare
from campaign.gate import SB3, Gate
from campaign.process import ProcessFailed, guarded
from campaign.registry import COMPARISONS, GATES

from headrace.common.errors import ConfigError
from headrace.launch.train_command import parse_seeds

FILE = records.RESULTS / "gates.jsonl"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_only(parser, GATES, "gate")
    parser.add_argument("--seeds", help="only these, such as 0..2 or 1,2; default: all that a gate asks for")
    parser.add_argument("--list", action="store_true", help="show the gates and which seeds are done, and exit")
    parser.add_argument("--dry", action="store_true", help="show what would run, and exit")
    args = parser.parse_args()
    chosen = [GATES[name] for name in args.only]
    if args.list:
        show(chosen)
        return 0
    try:
        seeds = None if args.seeds is None else parse_seeds(args.seeds)
    except ConfigError as error:
        parser.error(str(error))
    wanted = [(gate, seed) for gate in chosen for seed in gate.seeds if seeds is None or seed in seeds]
    todo = pending(wanted, records.read(FILE))
    print(f"{len(todo)} runs to do, {len(wanted) - len(todo)} done before", flush=True)
    if args.dry:
        for gate, seed in todo:
            print(learning.command(gate, seed))
        return 0
    if any(gate.mode == SB3 for gate, _ in todo):
        peer.find_pythons(os.environ.get("PEERS_VENVS", ""), [peer_learning.SIDE])
    broken = campaign(todo)
    verdicts = judge_all()
    print(json.dumps({name: verdict.state for name, verdict in verdicts.items()}))
    return 1 if broken or any(v.state == gates.FAILED for v in verdicts.values()) else 0


def pending(wanted: list[tuple[Gate, int]], known: list[records.Record]) -> list[tuple[Gate, int]]:
    """Of runs those without a record of the same settings, short gates first, one seed of each gate after the other."""
    todo = [(g, seed) for g, seed in wanted if not gates.done(g, seed, learning.settings(g, seed), known)]
    return sorted(todo, key=lambda item: (item[0].env_steps, item[1]))


def campaign(todo: list[tuple[Gate, int]]) -> int:
    """Run one after the other; how many broke."""
    broken = 0
    for number, (gate, seed) in enumerate(todo, 1):
        title = f"[{number}/{len(todo)}] {gate.name} seed {seed}"
        print(f"{title}: started", flush=True)
        try:
            record = learning.run_one(gate, seed, title)
        except ProcessFailed as error:
            broken += 1
            print(f"{title}: BROKE: {error}", flush=True)
            continue
        records.append(FILE, record)
        spread = f"{gate.measured} {gate.text(record[gate.value])} over {record['episodes']} episodes"
        print(f"{title}: {spread}, {record['wall_s']:.0f} s", flush=True)
    return broken


def judge_all() -> dict[str, gates.Verdict]:
    """The verdict of every gate and of every comparison."""
    known = records.read(FILE)
    verdicts = {name: gates.judge(gate, known) for name, gate in GATES.items()}
    return verdicts | {name: compare(comparison, known) for name, comparison in COMPARISONS.items()}


def show(chosen: list[Gate]) -> None:
    """Print the gates and their done seeds."""
    known = records.read(FILE)
    for gate in chosen:
        own = gates.of_gate(gate, known)
        seeds = ", ".join(f"{r['seed']}: {gate.text(r[gate.value])}" for r in own) or "none done"
        print(f"{gate.name:<24} {gate.env}, {gate.env_steps:,} env steps, seeds {gate.seeds}; {seeds}")


if __name__ == "__main__":
    sys.exit(guarded(main))
