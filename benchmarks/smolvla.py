#!/usr/bin/env python
"""LeRobot's SmolVLA behind headrace: does it act as LeRobot has it act, and does it learn?

    .venv/bin/python benchmarks/smolvla.py PYTHON        # PYTHON: of an environment with lerobot 0.4

What it measures: a SmolVLA of two layers with random weights, with a backbone and a tokenizer made on the spot, is saved by
LeRobot as it saves policies; nothing is downloaded. headrace reads it (``headrace.learner.smolvla:SmolVLA``) and both act on
the same 16 tables from the same noise, LeRobot by its own processors and its own sampling: ``worst_difference`` is the largest
one of any number of their actions, asked to be at most 1e-4; ``between_tables`` says by how much actions at two tables differ.
Then it is cloned (the loss must fall), exported, and trained by Flow-SDE SAC, by thin matrices (LoRA), by a residual actor
and in its noise (DSRL): every part that should have moved has, and no other. ``travels`` is the share of its bytes that actors
are sent.

pi0 of that package is left out: its class there refuses to be made with any released ``transformers`` (it looks for a module
of a fork, ``transformers.models.siglip.check``, which no package registry has), and its sizes are two fixed ones, of 0.3 and 2
thousand million parameters, so that no small one can be made.

PYTHON comes from an environment of its own, of several GB:
``python3.11 -m venv VENV; VENV/bin/pip install torch==2.9.1 'lerobot[smolvla]==0.4.*' pyzmq msgpack msgpack-numpy``.

How long: half a minute. A record goes to docs/results/smolvla.jsonl.

The last line on stdout is one JSON object. Exit code 0: all of this holds.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from campaign import provenance, records
from campaign.process import guarded

FILE = records.RESULTS / "smolvla.jsonl"
SIDE = Path(__file__).resolve().parent / "campaign" / "smolvla_side.py"
SIDE_S = 900.0
MAX_DIFFERENCE, MIN_BETWEEN = 1e-4, 1e-3
FLOW, STEERED = {"expert", "pool", "critics"}, {"actor", "actor_pool", "pool", "critics"}
MOVED = {"flow-sde": FLOW, "lora": FLOW, "residual": STEERED, "dsrl": STEERED}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("python", type=Path, help="interpreter of an environment with lerobot 0.4 and its extra smolvla")
    args = parser.parse_args()
    origin = {**provenance.commit(), "machine": provenance.machine()}
    with tempfile.TemporaryDirectory(prefix="headrace-smolvla-") as place:
        found = ask(args.python, Path(place))
    wrong = problems(found)
    verdict = {"passed": not wrong, "wrong": wrong, **found}
    records.append(FILE, {**verdict, **origin, "date": provenance.stamp()})
    print(json.dumps(verdict))
    return 1 if wrong else 0


def ask(python: Path, place: Path) -> dict[str, Any]:
    """What the other environment has found."""
    paths = os.pathsep.join(map(str, (records.ROOT / "src", records.ROOT)))
    env = {**os.environ, "PYTHONPATH": paths, "HF_HUB_OFFLINE": "1", "HF_HOME": str(place / "cache"), "OMP_NUM_THREADS": "1"}
    words = [str(python), str(SIDE), str(place)]
    done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=SIDE_S, check=False)
    if done.returncode:
        raise SystemExit(f"{SIDE.name} failed:\n{done.stderr[-4000:]}")
    return dict(json.loads(done.stdout.splitlines()[-1]))


def problems(found: dict[str, Any]) -> list[str]:
    """What does not hold."""
    first, last = found["cloning_loss"]
    told = {
        f"acts otherwise than LeRobot, by {found['worst_difference']:.2g}": found["worst_difference"] > MAX_DIFFERENCE,
        f"acts alike at all tables, to {found['between_tables']:.2g}": found["between_tables"] < MIN_BETWEEN,
        f"does not learn to clone: loss {first:.3g}, then {last:.3g}": last > 0.9 * first,
    }
    for name, parts in MOVED.items():
        moved = set(found[name]["moved"])
        wanted = {*parts, *(f"target_{part}" for part in ("pool", "critics"))}
        told[f"{name}: {sorted(moved ^ wanted)} moved or did not"] = moved != wanted or bool(found[name]["skipped"])
    return [problem for problem, holds in told.items() if holds]


if __name__ == "__main__":
    sys.exit(guarded(main))
