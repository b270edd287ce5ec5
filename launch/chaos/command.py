"""``headrace chaos``: controls, a campaign, its judgement, and one table."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headrace.common.errors import ConfigError
from headrace.launch.chaos import evidence
from headrace.launch.chaos.campaign import COUNTERS, run_chapter, to_stderr
from headrace.launch.chaos.checker import judge
from headrace.launch.chaos.controls import fired, run_controls
from headrace.launch.chaos.disk import Disk
from headrace.launch.chaos.job import FULL
from headrace.launch.chaos.sabotage import FINDS
from headrace.launch.chaos.schedule import FULL_DISK, KINDS, ROLES, chapters
from headrace.launch.chaos.verdict import KINDS as FAULTS
from headrace.launch.chaos.verdict import Verdict
from headrace.launch.exits import FAILED
from headrace.launch.machine import commit
from headrace.launch.rundir import read_json

ORIGIN = "origin.json"  # what was asked for, of a campaign that has ended
SHOWN_FIGURES = (
    *("produced", "acked", "spooled", "rejected", "abandoned", "rows_accepted", "rows_live", "rows_evicted", "rows_retired"),
    *("rows_discarded", "rows_duplicate", "lost_before", "unseen", "resent", "swaps", "joins", "join_p99_s", "join_max_s"),
    *("intruders_refused", "intruders_silent"),
)


def chaos_command(minutes: float, seed: int, only: str | None, place: Path | None, *, as_json: bool) -> int:
    """Run the controls and a campaign, judge both, and print the table; 0 when the controls fired and nothing is at fault.

    Raises:
        ConfigError: no such kind of fault, no time, or a directory that is there already.
        HeadraceError: the job could not go on.
    """
    kinds = parse_kinds(only)
    if minutes <= 0:
        raise ConfigError(f"--minutes: {minutes:g} is no time; nearest valid: 0.1")
    place = place or Path("runs") / time.strftime("chaos-%Y%m%d-%H%M%S")
    if place.exists():
        raise ConfigError(f"--dir: {place} is there already; name a new directory")
    place = place.absolute()
    to_stderr(f"histories are kept in {place}; first the controls")
    controls = run_controls(place / "controls", seed, to_stderr)
    to_stderr(f"controls: {fired(controls)} of {len(FINDS)} lies found; now {minutes:g} minutes of {', '.join(kinds)}")
    origin = {"seed": seed, "minutes": minutes, "kinds": kinds, "controls": controls, "commit": commit()}
    for number, chapter in enumerate(chapters(kinds, 60 * minutes)):
        run_chapter(place / chapter.name, seed + number, chapter, FULL, to_stderr)
    (place / ORIGIN).write_text(json.dumps(origin) + "\n", encoding="utf-8")
    return judge_again(place, as_json=as_json)


def judge_again(place: Path, *, as_json: bool) -> int:
    """Judge the histories of a campaign that has ended in ``place``, and print what came of it.

    Raises:
        HeadraceError: no campaign has ended there.
    """
    origin = read_json(place / ORIGIN)
    to_stderr("judging")
    verdict, faults = Verdict(), Counter[tuple[str, str]]()
    for chapter in chapters(origin["kinds"], 60 * origin["minutes"]):
        directory = place / chapter.name / "history"
        verdict.join(judge(evidence.load(directory, read_json(place / chapter.name / COUNTERS))))
        faults += evidence.faults(directory)
    summary = summarise(verdict, faults, origin)
    (place / "result.json").write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")
    print(table(verdict, summary))
    if as_json:
        print(json.dumps(summary))
    return 0 if summary["passed"] else FAILED


def parse_kinds(only: str | None) -> list[str]:
    """Kinds of faults by name; without one all that this user can make.

    Raises:
        ConfigError: there is no such kind, or it needs to be root.
    """
    possible = [kind for kind in KINDS if kind != FULL_DISK or Disk.is_possible()]
    kinds = possible if only is None else only.split(",")
    for kind in kinds:
        if kind not in KINDS:
            raise ConfigError(f"--only: {kind!r} is not one of {', '.join(KINDS)}")
        if kind not in possible:
            raise ConfigError(f"--only: {kind} needs a disk of its own, which only root may mount; nearest valid: leave it out")
    return kinds


def summarise(verdict: Verdict, faults: Counter[tuple[str, str]], origin: Mapping[str, Any]) -> dict[str, Any]:
    """All that is known as one object; a campaign whose controls did not fire does not pass."""
    found = fired(origin["controls"])
    kills = {role: faults["kill", role] for role in ROLES}
    by_kind: Counter[str] = Counter()
    for (kind, _), count in faults.items():
        by_kind[kind] += count
    return {
        "passed": verdict.passed and found == len(FINDS),
        "trials": verdict.trials["lost"],
        **{kind: verdict.found[kind] for kind in FAULTS},
        "kills": sum(kills.values()),
        "kills_by_role": kills,
        "controls_fired": found,
        "faults": dict(by_kind),
        "table": {k: {"trials": verdict.trials[k], "failures": verdict.found[k], "bound_95": verdict.bound(k)} for k in FAULTS},
        "cases": verdict.cases,
        "figures": verdict.figures,
        **origin,
    }


def table(verdict: Verdict, summary: Mapping[str, Any]) -> str:
    """The summary for people."""
    lines = [f"{'':<12}{'trials':>12}{'failures':>10}   95 % upper bound"]
    for kind, what in FAULTS.items():
        bound = verdict.bound(kind)
        shown = "-" if bound is None else f"{bound:.2g}"
        lines.append(f"{kind:<12}{verdict.trials[kind]:>12,}{verdict.found[kind]:>10,}   {shown:<10} {what}")
    lines += [f"  {kind}: {case}" for kind, cases in verdict.cases.items() for case in cases]
    kills = ", ".join(f"{role} {count}" for role, count in summary["kills_by_role"].items())
    others = ", ".join(f"{kind} {count}" for kind, count in sorted(summary["faults"].items()) if kind != "kill")
    figures = ", ".join(f"{name} {verdict.figures[name]:,}" for name in SHOWN_FIGURES if name in verdict.figures)
    counted = "" if summary["controls_fired"] == len(FINDS) else " - so nothing above counts"
    return "\n".join(
        [
            *lines,
            f"kills        {kills}",
            f"other faults {others or '-'}",
            f"figures      {figures}",
            f"controls     {summary['controls_fired']} of {len(FINDS)} lies found{counted}",
            f"seed {summary['seed']}, commit {summary['commit'] or '-'}, {summary['minutes']:g} minutes",
            "passed" if summary["passed"] else "FAILED",
        ]
    )
