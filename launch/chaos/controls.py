"""The controls: a run with keys in which actors and a robot lie, each in its own way, one is honest, and a key is stolen.

The checker judges each by itself. It must find each lie as what it is, and nothing at the honest one, nor that anybody came in
who had no key or another's: a campaign whose controls do not fire proves nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from headrace.common.wire.key_files import KeyFiles
from headrace.launch.chaos import history
from headrace.launch.chaos.campaign import Conductor, Diary, harvested, intruding
from headrace.launch.chaos.checker import judge
from headrace.launch.chaos.evidence import Evidence, load
from headrace.launch.chaos.job import Job, Scale, free_port
from headrace.launch.chaos.sabotage import FINDS, STOLEN
from headrace.launch.chaos.verdict import Verdict

HONEST, THIEF = "honest", "thief"
CAST = ("drop", "duplicate", "flip", "replay", "lane", "label", HONEST, "swallow")  # who each actor is; the last one is a robot
SCALE = Scale(actors=len(CAST), capacity=800, step_s=0.002, evaluator=False)
MOST_S, BEHIND_S = 60.0, 0.5  # how long the lies may take, and how long the job goes on behind the last one


def run_controls(place: Path, seed: int, say: Callable[[str], None]) -> dict[str, bool]:
    """Run and judge; kind of lie, or ``honest``, -> whether the verdict on it is as it must be."""
    names = {kind: f"actor-{n}" for n, kind in enumerate(CAST)}
    liars = {name: kind for kind, name in names.items() if kind != HONEST}
    place.mkdir(parents=True)
    with contextlib.closing(Diary(place / "notices.log", say)) as diary:
        job = Job.make(place, seed, SCALE, diary, port=free_port(), dials={}, sabotage=liars, keyed=True)
        told_at: list[float] = []

        def drive(now: float) -> bool:
            if not told_at and _lies(job.history) == len(liars):
                told_at.append(now)
            return now < (told_at[0] + BEHIND_S if told_at else MOST_S)

        with harvested(job):
            Conductor(job, drive, lambda: intrude(job, names[HONEST], names["label"])).run()
    evidence = load(job.history, {})
    return {kind: as_must_be(kind, judge(only(evidence, name))) for kind, name in {**names, STOLEN: THIEF}.items()}


def intrude(job: Job, honest: str, other: str) -> None:
    """Have somebody try to be the honest actor, in vain, and come in by a key that was made for nobody in the job."""
    files = KeyFiles.of(job.network)
    files.new(THIEF, "actor")
    with intruding(job) as intruder:
        intruder.try_all(honest, other)  # meanwhile the buffer learns of the key
        intruder.attempt(THIEF, files.secret(THIEF, "actor"), "actor", THIEF)


def only(evidence: Evidence, actor: str) -> Evidence:
    """What concerns one actor, or the thief; whose row it was that did not prove itself, the learner does not say."""
    clients = [client for client in evidence.clients if client.id == actor]
    rows = [row for row in evidence.rows if row.actor == actor]
    tried = [(way, answer) for way, answer in evidence.tried if (way == THIEF) == (actor == THIEF)]
    return replace(evidence, clients=clients, rows=rows, unproved=0, tried=tried)


def as_must_be(kind: str, verdict: Verdict) -> bool:
    """Whether a verdict finds a lie of this kind, or nothing where there was none."""
    return verdict.passed if kind == HONEST else verdict.found[FINDS[kind]] > 0


def _lies(directory: Path) -> int:
    return sum(line[1] == "sabotaged" for told in history.read_all(directory, "client") for line in told.lines)


def fired(controls: Mapping[str, bool]) -> int:
    """How many of the lies were found; none where the honest actor was blamed, since then any could have been."""
    return sum(controls[kind] for kind in FINDS) if controls[HONEST] else 0
