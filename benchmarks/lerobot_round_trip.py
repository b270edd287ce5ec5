#!/usr/bin/env python
"""LeRobotDatasets through a pool: does the ``lerobot`` package read in an export what was in the data set that was imported?

    .venv/bin/python benchmarks/lerobot_round_trip.py PYTHON             # PYTHON: of an environment with lerobot 0.4
    .venv/bin/python benchmarks/lerobot_round_trip.py PYTHON --data DIR  # a data set of layout 3.0 of your own

What it measures: each data set (by default those that lerobot wrote in tests/data/lerobot, layouts 2.1 and 3.0) is imported
into a pool and exported again, by the command line: cameras as pictures and as videos, ends of episodes read as terminated and
as truncated, in layout 3.0 and in layout 2.1. lerobot reads the export, of layout 2.1 what its own converter makes of it, and
what it reads of the data set of layout 3.0 itself is what must come out: every number, text and flag of every frame, pictures
exactly where they were kept as such, videos within the codec's error.

PYTHON comes from an environment of its own, of several GB:
``python3.11 -m venv VENV; VENV/bin/pip install torch==2.9.1 'lerobot==0.4.*'``.

How long: one to two minutes of processor time. A record goes to docs/results/lerobot.jsonl.

The last line on stdout is one JSON object. Exit code 0: everything came back.
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

import numpy as np
from campaign import provenance, records

from headrace.launch import cli
from headrace.launch.demo_lerobot import LeRobot
from headrace.launch.demos import ReadOptions

FILE = records.RESULTS / "lerobot.jsonl"
DATA = records.ROOT / "tests" / "data" / "lerobot"
SIDE = Path(__file__).resolve().parent / "campaign" / "lerobot_side.py"
SIDE_S = 300.0
MAX_ERROR = 16.0  # levels of 255, mean of a frame


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("python", type=Path, help="interpreter of an environment with lerobot 0.4")
    parser.add_argument("--data", type=Path, help="a data set of layout 3.0; default: those of the tests")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="headrace-lerobot-") as place:
        work = Path(place)
        original = args.data or DATA / "v3.0"
        truth = read(args.python, original, work / "original.npz")
        trips = [
            trip(args.python, source, work / f"trip-{number}", cameras, dones, layout, truth)
            for number, (source, cameras, dones, layout) in enumerate(
                (source, cameras, dones, layout)
                for source in ([args.data] if args.data else [DATA / "v3.0", DATA / "v2.1"])
                for cameras in ("image", "video")
                for dones in ("terminated", "truncated")
                for layout in ("3.0", "2.1")
            )
        ]
    about = json.loads(str(truth["about"]))
    passed = all(not found["wrong"] for found in trips)
    verdict = {"passed": passed, "lerobot": about["lerobot"], "frames": about["frames"], "trips": trips}
    if args.data is None:
        origin = {**provenance.commit(), "machine": provenance.machine(), "date": provenance.stamp()}
        records.append(FILE, {**verdict, **origin})
    print(json.dumps(verdict))
    return 0 if passed else 1


def trip(python: Path, source: Path, work: Path, cameras: str, dones: str, layout: str, truth: Any) -> dict[str, Any]:
    """Import, export, read back; what is wrong, by name, and how far videos are off."""
    work.mkdir()
    low, high = action_bounds(source)
    headrace("pool", "import", source, work / "pool", "--dones", dones, "--low", low, "--high", high)
    words = ("--format", "lerobot", "--cameras", cameras, "--layout", layout)
    headrace("pool", "export", work / "pool", work / "out", *words)
    if layout == "2.1":
        lerobot(python, work, "convert", work / "out")
    found = read(python, work / "out", work / "out.npz")
    wrong, errors = compare(truth, found)
    about, wanted = (json.loads(str(z["about"])) for z in (found, truth))
    facts = ("fps", "episodes", "frames")
    wrong += [f"{name}: {about[name]}, not {wanted[name]}" for name in facts if about[name] != wanted[name]]
    name = "data" if source.parent != DATA else source.name
    print(
        f"{name} as {cameras} in layout {layout}, ends {dones}: {'; '.join(wrong) or 'all there'}; off by {errors}", flush=True
    )
    return {"source": name, "cameras": cameras, "dones": dones, "layout": layout, "wrong": wrong, "worst_frame": errors}


def compare(truth: Any, found: Any) -> tuple[list[str], dict[str, float]]:
    """Columns that are not equal, and camera -> mean error of its worst frame where pictures are not equal."""
    wrong, errors = [], {}
    for name in truth.files:
        if name in ("about", "task_index"):  # tasks are compared by their texts
            continue
        if name not in found.files or found[name].shape != truth[name].shape:
            wrong.append(f"{name}: missing, or of another shape")
        elif truth[name].dtype == np.uint8 and truth[name].ndim == 4:
            far = np.abs(truth[name].astype(np.int16) - found[name]).mean(axis=(1, 2, 3)).max()
            errors[name] = round(float(far), 2)
            if far > MAX_ERROR:
                wrong.append(f"{name}: off by {far:.1f}")
        elif not (found[name] == truth[name]).all():
            wrong.append(f"{name}: {int((found[name] != truth[name]).sum())} values differ")
    return wrong, errors


def action_bounds(source: Path) -> tuple[float, float]:
    """Bounds that hold every action."""
    demos = LeRobot(source, ReadOptions())
    try:
        sizes = [np.abs(episode.actions.read(0, len(episode.actions))).max() for episode in demos.episodes()]
    finally:
        demos.close()
    return -float(max(sizes)) - 1, float(max(sizes)) + 1


def headrace(*words: object) -> None:
    if cli.main([str(word) for word in words]) != 0:
        raise SystemExit(f"headrace {' '.join(map(str, words))} failed")


def read(python: Path, root: Path, out: Path) -> Any:
    """Every frame of a data set, as lerobot gives it."""
    lerobot(python, out.parent, "read", root, out)
    return np.load(out, allow_pickle=False)


def lerobot(python: Path, work: Path, *words: object) -> None:
    """Have lerobot do something, with its caches below ``work``."""
    command = [str(python), str(SIDE), *map(str, words)]
    offline = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(work / "caches")}
    own = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run(command, env={**own, **offline}, capture_output=True, text=True, timeout=SIDE_S, check=False)
    if done.returncode:
        raise SystemExit(f"lerobot could not {' '.join(map(str, words))}:\n{done.stderr[-4000:]}")


if __name__ == "__main__":
    sys.exit(main())
