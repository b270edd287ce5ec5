"""P24: nothing grows with time, or with the actors that come and go.

churn  `headrace train` at full rate (nobody waits for anybody), in which one actor after the other is killed, by SIGKILL and
       SIGTERM in turn, so that the supervisor starts another in its place. Each second the buffer, the learner, the supervisor
       and the run directory are looked at. A third of the time lets everything settle; the rest must have no slope. Logs of
       roles that live on must not grow either; what one actor's life adds to its own log is told, and that log is bounded.

It takes an hour, with --quick two minutes, and with --minutes less, which is recorded as what it is: too short.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from campaign.footprint import PRIVATE, counted
from campaign.job import Job, training
from campaign.promise import Outcome, Part, Promise, Trial, at_least, at_most, never, told
from campaign.slopes import BLOCKS, Slope, slope
from helpers.roles import scripted

MINUTES, QUICK_MINUTES, EVERY_S = 60.0, 2.0, 10.0
SETTLE = 1 / 3
ACTORS = 3
ROLES = ("buffer", "learner", "supervisor")
# What may be noise, an hour: allocators give back late, and of the rest not one in an hour.
TOLERANCES = {"mb": 4.0, "files": 1.0, "threads": 1.0, "tasks": 1.0, "log_kb": 1.0, "kept_kb": 8.0}
# What is kept of the run on purpose: a line of metrics in two seconds, a picture, and files whose number is fixed.
GROWING = ("logs", "metrics.jsonl", "tensorboard", "curve.png", "checkpoints", "snapshots")
SEEN = ("tasks", *(f"{role}_{what}" for role in ROLES for what in ("mb", "files", "threads")), "log_kb", "kept_kb")
TRAIN: dict[str, Any] = {
    "network": {"heartbeat_s": 0.2, "lease_s": 2.0, "connect_s": 120},
    "pool": {"capacity": 20_000, "max_actors": 8, "snapshot_every_s": 20.0},
    "actor": {"count": ACTORS},
    "pacing": {"env_steps": 0, "min_fill": 256, "random_steps": 256, "hold_actors": False, "hold_learner": False},
    "learner": {"batch_size": 64, "checkpoint_every_updates": 2000},
    "model": {"options": {"hidden": [32]}},
    "eval": {"every": 0, "final_episodes": 0},
}


def churn(trial: Trial) -> Outcome:
    """One run."""
    minutes = min(trial.minutes, QUICK_MINUTES if trial.quick else MINUTES)
    series: dict[str, list[float]] = {}
    times: list[float] = []
    with training(trial.place, scripted(**TRAIN), trial.place / "train.log") as job:
        job.wait(lambda s: s["updates"] > 100 and len(s["actors"]) == ACTORS)
        begun, logs = time.monotonic(), size(job.run_dir / "logs")
        replaced, steps = 0, job.status()["env_steps"]
        while (now := time.monotonic() - begun) < 60 * minutes:
            if now >= (replaced + 1) * EVERY_S:
                replaced += replace(job, replaced)
            times.append(now)
            for name, value in look(job).items():
                series.setdefault(name, []).append(value)
            time.sleep(max(0.0, begun + len(times) - time.monotonic()))
        after = job.wait(lambda s: len(s["actors"]) == ACTORS)
        rate = (after["env_steps"] - steps) / (60 * minutes)
        logged = (size(job.run_dir / "logs") - logs) / replaced
    slopes = {name: slope(*settled(times, values)) for name, values in series.items()}
    bad = {name: found for name, found in slopes.items() if grows(name, found)}
    figures: dict[str, float] = {"minutes": minutes, "replaced": replaced, "rows_s": rate, "log_bytes_an_actor": logged}
    figures["growing"] = len(bad)
    for name, found in slopes.items():
        figures |= {f"{name}_h": found.value, f"{name}_h_low": found.low, f"{name}_h_high": found.high}
    return Outcome(figures, tuple(f"{name} grows by {s.low:.3g} to {s.high:.3g} an hour" for name, s in bad.items()))


def replace(job: Job, count: int) -> int:
    """End one actor; its supervisor starts another one."""
    actor = job.role("actor")
    if count % 2:
        actor.terminate()
    else:
        actor.kill()
    return 1


def look(job: Job) -> dict[str, float]:
    """What there is now of everything that must not grow."""
    status = job.status()
    out: dict[str, float] = {"tasks": status["tasks"]}
    processes = {"buffer": job.role("buffer"), "learner": job.role("learner"), "supervisor": psutil.Process(job.process.pid)}
    for name, process in processes.items():
        out[f"{name}_mb"] = counted(process.pid, *PRIVATE) / 1e6
        out[f"{name}_files"] = process.num_fds()
        out[f"{name}_threads"] = process.num_threads()
    out["log_kb"] = sum(size(job.run_dir / "logs" / f"{name}.log") for name in ("buffer", "learner")) / 1e3
    out["kept_kb"] = sum(size(path) for path in job.run_dir.iterdir() if path.name not in GROWING) / 1e3
    return out


def size(path: Path) -> int:
    """Bytes of a file, or of all files in a directory; what vanishes meanwhile does not count."""
    total = 0
    for file in [path, *path.rglob("*")] if path.is_dir() else [path]:
        try:
            total += file.stat().st_size if file.is_file() else 0
        except FileNotFoundError:
            continue
    return total


def settled(times: Sequence[float], values: Sequence[float]) -> tuple[list[float], list[float]]:
    """The samples after everything has had time to settle."""
    first = next((i for i, t in enumerate(times) if t >= SETTLE * times[-1]), 0)
    return list(times[first:]), list(values[first:])


def grows(name: str, found: Slope) -> bool:
    """Whether this is surely more than noise."""
    return found.grows(TOLERANCES[name.removeprefix(f"{name.split('_')[0]}_") if name.split("_")[0] in ROLES else name])


def control(place: Path) -> dict[str, bool]:
    """Noise alone must pass; a leak of 10 MB an hour, or of one file in ten minutes, must be found in it."""
    rng = np.random.default_rng(0)
    times = np.arange(3600.0)
    noise = 50 + rng.normal(0, 1.0, len(times)) + np.sin(times / 40)
    steps = np.floor(times / 600)
    return {
        "noise passes": not grows("buffer_mb", slope(times, noise)),
        "10 MB/h": grows("buffer_mb", slope(times, noise + 10 * times / 3600)),
        "6 files/h": grows("buffer_files", slope(times, 20 + steps)),
        "blocks": len(times) >= BLOCKS,
    }


LEAKS = (
    *never("growing"),
    *at_least("minutes", MINUTES),
    *at_most("log_bytes_an_actor", 2000),
    *told("replaced", "rows_s"),
    *told(*(f"{name}_h{bound}" for name in SEEN for bound in ("", "_low", "_high"))),
)
PROMISE = Promise(
    "P24",
    "There is no slow leak: memory, open files, threads, tasks and logs do not grow, however many actors come and go.",
    (Part("churn", 1, churn, LEAKS, control=control),),
)
