"""One `headrace train` as a measured process, and what can be read from the run directory that it leaves."""

from __future__ import annotations

import contextlib
import json
import math
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from campaign.process import Ended, headrace, run
from campaign.records import ROOT, RUNS
from headrace.common.config import dump, merge
from headrace.launch.config import RunConfig, make_config, read_config

Array = np.ndarray[Any, Any]
Overrides = Mapping[str, Any]
Point = tuple[int, float, float]
PLACES = (
    "run",
    "buffer",
    "network",
    "sinks",
    "supervisor",
)  # sections that decide where and how a run runs, not what it learns
CURVE_POINTS = 200


@dataclass(frozen=True)
class Finished:
    """A run that has ended by itself.

    Attributes:
        path: its run directory.
        ended: its process.
        result: its ``result.json``.
    """

    path: Path
    ended: Ended
    result: dict[str, Any]


def resolve(config: Path, overrides: Overrides, preset: Path | None = None) -> RunConfig:
    """The whole config of a run, validated.

    Raises:
        ConfigError: it cannot work; nothing is started.
    """
    return make_config(merge(read_config(config), read_config(preset) if preset else {}), words(overrides))


def words(overrides: Overrides) -> list[str]:
    """Overrides as the command line takes them."""
    return [
        w for key, value in overrides.items() for w in (f"--{key}", json.dumps(value) if not isinstance(value, str) else value)
    ]


def settings(config: RunConfig) -> dict[str, Any]:
    """What decides a run's result, as plain nested values: no place, no name, no seed."""
    plain = dump(config)
    return {key: value for key, value in plain.items() if key not in (*PLACES, "seed")}


def train(
    config: Path,
    overrides: Overrides,
    path: Path,
    *,
    preset: Path | None = None,
    deadline_s: float,
    environment: Mapping[str, str] | None = None,
    watch: Callable[[int], None] | None = None,
) -> Finished:
    """Run `headrace train` to its end, in the run directory ``path`` below :data:`RUNS`.

    Args:
        config: YAML file.
        overrides: config keys laid over it.
        path: from :func:`new_place`.
        preset: YAML file laid over ``config``, below ``overrides``.
        deadline_s: longest time that the run may take.
        environment: laid over this process's environment.
        watch: called with the pid again and again while the run goes on.

    Raises:
        ProcessFailed: the run did not do its job, or not in time.
    """
    log = path.with_suffix(".log")
    line = command(config, overrides, path, preset)
    ended = run(line, log, deadline_s=deadline_s, environment=environment, watch=watch)
    return Finished(path, ended, read_result(path))


def new_place(name: str) -> Path:
    """A run directory's path that is not taken yet."""
    stem = RUNS / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}"
    taken = sum(1 for _ in stem.parent.glob(f"{stem.name}*.log"))
    return stem.with_name(f"{stem.name}-{taken + 1}") if taken else stem


def command(config: Path, overrides: Overrides, path: Path, preset: Path | None = None) -> list[str]:
    """The command line of a run in ``path``."""
    place = {"run.dir": str(path.parent.relative_to(ROOT)), "run.name": path.name}
    laid = ["--preset", str(preset)] if preset else []
    return headrace("train", str(config), *laid, *words({**overrides, **place}))


def drop_pool(path: Path) -> None:
    """Delete a finished run's pool, by far its largest part."""
    shutil.rmtree(path / "pool", ignore_errors=True)


def read_result(path: Path) -> dict[str, Any]:
    """A run's ``result.json``."""
    result: dict[str, Any] = json.loads((path / "result.json").read_text(encoding="utf-8"))
    return result


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Whole lines of a run's ``metrics.jsonl``; none while there is no such file.

    A line that is being written, or whose writer was killed, is left out.
    """
    try:
        text = (path / "metrics.jsonl").read_text(encoding="utf-8")
    except FileNotFoundError:
        return []
    metrics = []
    for line in text.splitlines():
        with contextlib.suppress(ValueError):
            metrics.append(json.loads(line))
    return metrics


def evaluations(metrics: Sequence[Mapping[str, Any]], value: str = "return_mean") -> list[Point]:
    """(env steps, mean, standard deviation over its episodes) of each evaluation during the run.

    Args:
        metrics: from :func:`read_metrics`.
        value: ``return_mean``, or ``success_rate`` (evaluations of which nobody said it are left out).
    """
    found = [m["run/evaluation"] for m in metrics if isinstance(m.get("run/evaluation"), Mapping)]
    points = {
        int(e["env_steps"]): point(e["env_steps"], e[value], e["return_std"], value) for e in found if e[value] is not None
    }
    return [points[steps] for steps in sorted(points)]


def point(env_steps: int, mean: float, return_std: float, value: str = "return_mean") -> Point:
    """One point of a curve; the spread of successes follows from their share."""
    std = return_std if value == "return_mean" else math.sqrt(mean * (1 - mean))
    return int(env_steps), round(float(mean), 3), round(float(std), 3)


def training_returns(metrics: Sequence[Mapping[str, Any]]) -> list[tuple[int, float]]:
    """(env steps, mean return of the last training episodes), thinned to :data:`CURVE_POINTS`."""
    points = {int(m["run/env_steps"]): float(m["run/return_mean"]) for m in metrics if m.get("run/return_mean") is not None}
    items = [(steps, round(value, 3)) for steps, value in sorted(points.items())]
    return items[:: max(1, len(items) // CURVE_POINTS)]


def at(curve: Sequence[Sequence[float]], steps: float) -> float | None:
    """The value at ``steps`` of a curve of (env steps, value, ...), linear between its points; none outside of them."""
    if not curve or not curve[0][0] <= steps <= curve[-1][0]:
        return None
    xs, ys = zip(*(p[:2] for p in curve), strict=True)
    return float(np.interp(steps, xs, ys))
