"""The controls: a run in which four of five actors lie about acknowledged rows, each in its own way, and one is honest.

The checker judges each of the five by itself. It must find each lie as what it is, and nothing at the honest one: a campaign
whose controls do not fire proves nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from headrace.launch.chaos import history
from headrace.launch.chaos.campaign import Conductor, Diary, harvested
from headrace.launch.chaos.checker import judge
from headrace.launch.chaos.evidence import Evidence, load
from headrace.launch.chaos.job import Job, Scale, free_port
from headrace.launch.chaos.sabotage import FINDS
from headrace.launch.chaos.verdict import Verdict

SCALE = Scale(actors=len(FINDS) + 1, capacity=800, step_s=0.002, evaluator=False)
HONEST = "honest"
MOST_S, BEHIND_S = 60.0, 0.5  # how long the lies may take, and how long the job goes on behind the last one


def run_controls(place: Path, seed: int, say: Callable[[str], None]) -> dict[str, bool]:
    """Run and judge; kind of lie, or ``honest``, -> whether the verdict on it is as it must be."""
    liars = {f"actor-{n}": kind for n, kind in enumerate(FINDS)}
    place.mkdir(parents=True)
    with contextlib.closing(Diary(place / "notices.log", say)) as diary:
        job = Job.make(place, seed, SCALE, diary, port=free_port(), dials={}, sabotage=liars)
        told_at: list[float] = []

        def drive(now: float) -> bool:
            if not told_at and _lies(job.history) == len(liars):
                told_at.append(now)
            return now < (told_at[0] + BEHIND_S if told_at else MOST_S)

        with harvested(job):
            Conductor(job, drive, lambda: None).run()
    evidence = load(job.history, {})
    names = {kind: name for name, kind in liars.items()} | {HONEST: f"actor-{len(liars)}"}
    return {kind: as_must_be(kind, judge(only(evidence, name))) for kind, name in names.items()}


def only(evidence: Evidence, actor: str) -> Evidence:
    """What concerns one actor; whose row it was that did not prove itself, the learner does not say."""
    clients = [client for client in evidence.clients if client.id == actor]
    return replace(evidence, clients=clients, rows=[row for row in evidence.rows if row.actor == actor], unproved=0)


def as_must_be(kind: str, verdict: Verdict) -> bool:
    """Whether a verdict finds a lie of this kind, or nothing where there was none."""
    return verdict.passed if kind == HONEST else verdict.found[FINDS[kind]] > 0


def _lies(directory: Path) -> int:
    return sum(line[1] == "sabotaged" for told in history.read_all(directory, "client") for line in told.lines)


def fired(controls: Mapping[str, bool]) -> int:
    """How many of the four lies were found; none where the honest actor was blamed, since then any could have been."""
    return sum(controls[kind] for kind in FINDS) if controls[HONEST] else 0
