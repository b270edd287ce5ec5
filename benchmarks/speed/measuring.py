"""Measuring the rows of a speed table: all that takes part is started, measured in turn, and judged."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path

from campaign import provenance, records

from speed.children import Child
from speed.rows import Row, Setup, Subject, digits, figures, judge

QUICK_ROUNDS, QUICK_S = 3, 0.3
MEMORY = Path("/dev/shm")


def add_place(parser: argparse.ArgumentParser) -> None:
    """Add ``--place``, where pools lie."""
    place = MEMORY if MEMORY.is_dir() else Path(tempfile.gettempdir())
    parser.add_argument("--place", type=Path, default=place, help="directory for pools; default: shared memory")


def find_pythons(place: str, peers: Iterable[str]) -> dict[str, Path]:
    """The interpreter of each peer that has an environment of its own below ``place``."""
    found = {peer: Path(place) / peer / "bin" / "python" for peer in peers} if place else {}
    return {peer: python for peer, python in found.items() if python.exists()}


def measure_rows(table: Mapping[str, Row], names: Iterable[str], setup: Setup, file: Path) -> dict[str, records.Record]:
    """Measure rows and add them to ``file``, unless they were measured quickly."""
    out = {}
    for name in names:
        out[name] = measure(table[name], setup)
        if not setup.quick:
            origin = {"date": provenance.stamp(), **provenance.commit(), "machine": provenance.machine()}
            records.append(file, {"row": name, **out[name], **origin})
    return out


def measure(row: Row, setup: Setup) -> records.Record:
    """One row: start everything, measure in turn, judge."""
    rounds, seconds = (QUICK_ROUNDS, QUICK_S) if setup.quick else (row.rounds, row.window_s)
    print(f"{row.name}: {row.title}", flush=True)
    with ExitStack() as stack:
        subjects = row.open(setup, stack)
        children = {name: s for name, s in subjects.items() if isinstance(s, Child)}
        versions = {k: v for child in children.values() for k, v in child.ready.items()}
        rates = windows(subjects, rounds, seconds)
        parts = {name: child.last["parts"] for name, child in children.items() if "parts" in child.last}
    found = figures(rates)
    for name, f in found.items():
        print(f"  {name:<32} {f['median']:>14,.6g} {row.unit}  ({f['low']:,.6g} to {f['high']:,.6g})", flush=True)
    for name, ms in parts.items():
        print(f"  {name}, ms each: {', '.join(f'{part} {value:.3f}' for part, value in ms.items())}", flush=True)
    checks = judge(row, rates)
    for c in checks:
        state = "met" if c["met"] else "MISSED"
        print(f"  {c['what']}: {c['value']:g} ({c['low']:g} to {c['high']:g}), bar {c['bar']}: {state}", flush=True)
    record = {"rounds": rounds, "window_s": digits(seconds), "figures": found, "checks": checks, "peers": versions}
    return {**record, "parts": parts} if parts else record


def windows(subjects: dict[str, Subject], rounds: int, seconds: float) -> dict[str, list[float]]:
    """Rates of each subject, round by round, after one short window each that warms it up."""
    names = list(subjects)
    rates: dict[str, list[float]] = {name: [] for name in names}
    for name in names:
        subjects[name].window(seconds / 2)
    for r in range(rounds):
        shift = r % len(names)
        for name in [*names[shift:], *names[:shift]]:
            rates[name].append(subjects[name].window(seconds))
        print(f"  round {r + 1} of {rounds}", flush=True)
    return rates
