#!/usr/bin/env python
"""headrace beside stable-baselines3 and SBX on this machine, in interleaved pairs at equal settings.

    PEERS_VENVS=DIR .venv/bin/python benchmarks/peers.py                     # everything that is not done yet
    PEERS_VENVS=DIR .venv/bin/python benchmarks/peers.py --only halfcheetah-rate
    PEERS_VENVS=DIR .venv/bin/python benchmarks/peers.py --quick             # seconds long, not recorded

DIR holds a virtual environment a peer, ``sb3`` and ``sbx``, with torch==2.13.0 and stable-baselines3 or sbx-rl in them, and
``gymnasium[mujoco]`` of the version that headrace uses in ``sb3``. Nothing of them is a dependency of headrace.

What it measures, every time from process start, with evaluations excluded:
- ``pendulum-wall``: seconds to the last env step and update of 10,000 env steps of Pendulum-v1 at one update a step. For
  headrace the end is the moment at which the run is reported done, after its final checkpoint.
  Bar: <= 0.8 of stable-baselines3.
- ``pendulum-to-200``: seconds to the env steps whose policy first had a mean return >= -200 over 10 deterministic episodes,
  evaluated every 500 env steps; SBX too. headrace's evaluator runs beside the training, so its load stays in.
- ``halfcheetah-rate``: env steps and updates a second on HalfCheetah-v4 at one update a step, between two marks of env steps
  behind the warm-up, with actors running. Bar: >= 1.15 of stable-baselines3.
Equal settings: lr 1e-3, batch 256, two layers of 256, gamma 0.99, tau 0.005, automatic temperature, 256 random warm-up steps (a
batch is drawn without replacement, so headrace refuses to begin with fewer rows than one batch).
headrace runs as it comes, with its metrics, TensorBoard events and learning curve; the peers write nothing.
``threads`` comes first: each side runs with 1 and with 2 torch threads, and takes the faster from then on.

How long: threads 5 minutes, and a pair 3 to 4 (pendulum-wall), 4 (pendulum-to-200) and 2 (halfcheetah-rate): 60 minutes for
5 pairs. Each pair adds one line to docs/results/peers.jsonl and is not run again while its settings stay the same.

The last line on stdout is one JSON object: measure -> ``pairs``, and for each compared value the median of each side, ``ratio``
(geometric mean over pairs of headrace / stable-baselines3) and its 95 % bootstrap ``interval`` over pairs; ``target``, and from
5 pairs on ``passed`` (judged by the ratio of every value).
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import Any

from campaign import measures, peer, provenance, records
from campaign.choosing import add_only
from campaign.measures import MEASURES, Measure, Side
from campaign.process import guarded

FILE = records.RESULTS / "peers.jsonl"
THREADS = (1, 2)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_only(parser, MEASURES, "measure")
    parser.add_argument("--pairs", type=int, default=measures.MIN_PAIRS, metavar="N", help="pairs of each measure (count)")
    parser.add_argument("--quick", action="store_true", help="one short pair of each, not recorded: a smoke run")
    args = parser.parse_args()
    chosen = [MEASURES[name] for name in args.only]
    peer.find_pythons(os.environ.get("PEERS_VENVS", ""), sorted({s for m in chosen for s in m.sides} - {"headrace"}))
    if args.quick:
        lines = [measure(m.shortened(), 0, dict.fromkeys(m.sides, 1)) for m in chosen]
    else:
        for m in chosen:
            campaign(m, args.pairs, best_threads(m))
        lines = records.read(FILE)
    print(json.dumps({m.name: measures.summarise(m, lines) for m in chosen}))
    return 0


def best_threads(m: Measure) -> dict[Side, int]:
    """The faster of 1 and 2 torch threads for each side, measured once and recorded."""
    best: dict[Side, int] = {}
    for side in m.sides:
        rates: dict[int, float] = {}
        for threads in THREADS:
            known = records.latest(records.read(FILE), "measure", "env", "side", "threads").get(
                ("threads", m.env, side, threads)
            )
            if known is None:
                print(f"threads: {side} on {m.env} with {threads}", flush=True)
                rate = peer.probe(m, side, threads)
                known = {"measure": "threads", "env": m.env, "side": side, "threads": threads, "env_steps_s": rate, **origin()}
                records.append(FILE, known)
            rates[threads] = known["env_steps_s"]
        best[side] = max(rates, key=lambda n: rates[n])
        print(f"threads: {side} on {m.env}: {rates}, so {best[side]}", flush=True)
    return best


def campaign(m: Measure, pairs: int, threads: dict[Side, int]) -> None:
    """Run the pairs of one measure that are not done."""
    known = records.latest(records.read(FILE), "measure", "pair")
    for pair in range(pairs):
        record = known.get((m.name, pair))
        if record is not None and records.same_settings(record["settings"], measures.settings(m, threads)):
            continue
        record = measure(m, pair, threads)
        records.append(FILE, record)
        print(f"{m.name} pair {pair}: {json.dumps({side: record[side] for side in m.sides})}", flush=True)


def measure(m: Measure, pair: int, threads: dict[Side, int]) -> records.Record:
    """One pair, one side after the other; who begins changes from pair to pair."""
    shift = pair % len(m.sides)
    order = [*m.sides[shift:], *m.sides[:shift]]
    values: dict[str, Any] = {}
    for side in order:
        print(f"{m.name} pair {pair}: {side}", flush=True)
        values[side] = peer.run_side(m, side, seed=pair, threads=threads[side])
    return {"measure": m.name, "pair": pair, "order": order, **values, "settings": measures.settings(m, threads), **origin()}


def origin() -> dict[str, Any]:
    """Where and when a record is made."""
    return {"date": provenance.stamp(), **provenance.commit(), "machine": provenance.machine()}


if __name__ == "__main__":
    sys.exit(guarded(main))
