"""What a pool's own trials say together, for the results page: rows by mapping, the stall by a snapshot, damaged files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from campaign.damaging import FAULTS, HARMS, KINDS
from campaign.gate import FAILED, NOT_RUN, PASSED, UNFINISHED
from campaign.intervals import failure_bound
from campaign.markdown import Line, Records, commit, commits, table
from campaign.records import Record, latest
from campaign.stalling import MET, MISSED, MOST_STALL, judge

ROWS = 100_000  # of one trial by mapping
FLIPS = 100  # of one trial of damage


@dataclass(frozen=True)
class Trials:
    """One campaign: the name of its records, the keys of a trial, and how many of each of its kinds are asked for."""

    file: str
    keys: tuple[str, ...]
    trials: int


TORN = Trials("torn.jsonl", ("trial",), 10)
STALLS = Trials("snapshots.jsonl", ("trial",), 3)
DAMAGE = Trials("damage.jsonl", ("kind", "trial"), 10)
FILES = (TORN.file, STALLS.file, DAMAGE.file)


def newest(trials: Trials, known: Sequence[Record]) -> list[Record]:
    """The newest record of each trial, in order."""
    return [record for _, record in sorted(latest(list(known), *trials.keys).items())]


def pool_lines(found: Mapping[str, Records]) -> list[Line]:
    """The verdicts; ``found``: records by the name of their file."""
    torn, stalls, damage = (found.get(name, ()) for name in FILES)
    return [_torn_line(torn), _stall_line(stalls), _damage_line(damage)]


def pool_sections(found: Mapping[str, Records]) -> list[str]:
    """A table of each."""
    torn, stalls, damage = (found.get(name, ()) for name in FILES)
    return [
        "## Rows sampled by mapping while they are written over",
        _torn(torn),
        "## What a snapshot takes from inserts",
        _stalls(stalls),
        "## Damaged snapshots and exports",
        _damage(damage),
    ]


def sum_torn(known: Sequence[Record]) -> dict[str, int]:
    """Counts over all trials."""
    own = newest(TORN, known)
    counts = {name: sum(r[name] for r in own) for name in ("rows", "mixed", "bad", "written")}
    return {"trials": len(own), "failures": sum(not r["passed"] for r in own), **counts}


def sum_damage(known: Sequence[Record]) -> dict[str, dict[str, int]]:
    """Kind of files -> counts."""
    out = {}
    for kind in KINDS:
        if own := [r for r in newest(DAMAGE, known) if r["kind"] == kind]:
            counts = {name: sum(r[name] for r in own) for name in (*HARMS, *FAULTS)}
            out[kind] = {"trials": len(own), "failures": sum(not r["passed"] for r in own), **counts}
    return out


def sum_stalls(known: Sequence[Record]) -> dict[str, Any]:
    """The verdict over the windows of all trials, and what it stands on."""
    own = newest(STALLS, known)
    return {"trials": len(own), **judge([(r["alone"], r["beside"]) for r in own])}


def _torn_line(lines: Records) -> Line:
    own, said, name = newest(TORN, lines), sum_torn(lines), "rows sampled by mapping"
    if not own:
        return Line(name, NOT_RUN, "", ())
    bound = failure_bound(said["mixed"], said["rows"])
    text = f"{said['rows']:,} rows while {said['written']:,} were written into a pool of 64: {said['mixed']} mixed"
    text += f", 95 % upper bound {bound:.1g}; {said['bad']:,} reported as bad and drawn anew"
    whole = len(own) >= TORN.trials
    return Line(name, FAILED if said["failures"] else PASSED if whole else UNFINISHED, text, tuple(own))


def _torn(lines: Records) -> str:
    head = ("trial", "rows", "mixed", "reported as bad", "written meanwhile", "s", "commit", "date")
    rows = [
        (r["trial"], *(f"{r[k]:,}" for k in ("rows", "mixed", "bad", "written")), r["seconds"], commit(r), r["date"][:10])
        for r in newest(TORN, lines)
    ]
    return table(head, rows) if rows else NOT_RUN


def _stall_line(lines: Records) -> Line:
    own, name = newest(STALLS, lines), "stall of inserts by a snapshot"
    if not own:
        return Line(name, NOT_RUN, "", ())
    said = sum_stalls(lines)
    low, high = said["interval"]
    text = f"a snapshot adds {said['added']:.2%} of wall time [{low:.2%}, {high:.2%}] over {said['pairs']} pairs of windows"
    text += f"; windows alone differ by {said['noise']:.2%}; bar: <= {MOST_STALL:.0%}"
    state = {MET: PASSED if len(own) >= STALLS.trials else UNFINISHED, MISSED: FAILED}.get(said["verdict"], said["verdict"])
    return Line(name, state, text, tuple(own))


def _stalls(lines: Records) -> str:
    head = ("trial", "rows", "snapshot, s", "stall beside, median", "stall alone, median", "added", "95 % interval")
    rows = []
    for r in newest(STALLS, lines):
        low, high = r["interval"]
        shares = (float(np.median(r["beside"])), float(np.median(r["alone"])), r["added"])
        said = (*(f"{share:.2%}" for share in shares), f"{low:.2%} to {high:.2%}", f"{r['noise']:.2%}", r["verdict"])
        rows.append((r["trial"], f"{r['rows']:,}", f"{r['snapshot_s']:.2f}", *said, commit(r), r["date"][:10]))
    return table((*head, "noise", "verdict", "commit", "date"), rows) if rows else NOT_RUN


def _damage_line(lines: Records) -> Line:
    own, said, name = newest(DAMAGE, lines), sum_damage(lines), "damaged snapshots and exports"
    if not own:
        return Line(name, NOT_RUN, "", ())
    harms, faults = ({k: sum(s[k] for s in said.values()) for k in names} for names in (HARMS, FAULTS))
    counts = ", ".join(f"{count:,} {harm}" for harm, count in harms.items())
    text = f"{counts}: {', '.join(f'{count} {_spoken(fault)}' for fault, count in faults.items())}"
    whole = all(said.get(kind, {}).get("trials", 0) >= DAMAGE.trials for kind in KINDS)
    state = FAILED if any(s["failures"] for s in said.values()) else PASSED if whole else UNFINISHED
    return Line(name, state, text, tuple(own))


def _damage(lines: Records) -> str:
    rows = []
    for kind, said in sum_damage(lines).items():
        own = [r for r in newest(DAMAGE, lines) if r["kind"] == kind]
        counts = [f"{said[name]:,}" for name in (*HARMS, *FAULTS)]
        rows.append((kind, said["trials"], *counts, commits(own)))
    return table(("files of", "trials", *HARMS, *map(_spoken, FAULTS), "commit"), rows) if rows else NOT_RUN


def _spoken(name: str) -> str:
    return name.replace("_", " ")
