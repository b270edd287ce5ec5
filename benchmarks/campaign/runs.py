"""One `headrace train` as a measured process, and what can be read from the run directory that it leaves."""

from __future__ import annotations

import contextlib
import json
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from campaign.process import Ended, headrace, run
from campaign.records import ROOT, RUNS
from headrace.common.config import dump
from headrace.launch.config import RunConfig, make_config, read_config

Array = np.ndarray[Any, Any]
Overrides = Mapping[str, Any]
PLACES = ("run", "network", "sinks", "supervisor")  # sections that decide where and how a run runs, not what it learns
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


def resolve(config: Path, overrides: Overrides) -> RunConfig:
    """The whole config of a run, validated.

    Raises:
        ConfigError: it cannot work; nothing is started.
    """
    return make_config(read_config(config), words(overrides))


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
    deadline_s: float,
    environment: Mapping[str, str] | None = None,
    watch: Callable[[int], None] | None = None,
) -> Finished:
    """Run `headrace train` to its end, in the run directory ``path`` below :data:`RUNS`.

    Args:
        config: YAML file.
        overrides: config keys laid over it.
        path: from :func:`new_place`.
        deadline_s: longest time that the run may take.
        environment: laid over this process's environment.
        watch: called with the pid again and again while the run goes on.

    Raises:
        ProcessFailed: the run did not do its job, or not in time.
    """
    log = path.with_suffix(".log")
    ended = run(command(config, overrides, path), log, deadline_s=deadline_s, environment=environment, watch=watch)
    return Finished(path, ended, read_result(path))


def new_place(name: str) -> Path:
    """A run directory's path that is not taken yet."""
    stem = RUNS / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}"
    taken = sum(1 for _ in stem.parent.glob(f"{stem.name}*.log"))
    return stem.with_name(f"{stem.name}-{taken + 1}") if taken else stem


def command(config: Path, overrides: Overrides, path: Path) -> list[str]:
    """The command line of a run in ``path``."""
    place = {"run.dir": str(path.parent.relative_to(ROOT)), "run.name": path.name}
    return headrace("train", str(config), *words({**overrides, **place}))


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


def evaluations(metrics: Sequence[Mapping[str, Any]]) -> list[tuple[int, float]]:
    """(env steps, mean return) of each evaluation during the run."""
    found = [m["run/evaluation"] for m in metrics if isinstance(m.get("run/evaluation"), Mapping)]
    return sorted({int(e["env_steps"]): round(float(e["return_mean"]), 3) for e in found}.items())


def training_returns(metrics: Sequence[Mapping[str, Any]]) -> list[tuple[int, float]]:
    """(env steps, mean return of the last training episodes), thinned to :data:`CURVE_POINTS`."""
    points = {int(m["run/env_steps"]): float(m["run/return_mean"]) for m in metrics if m.get("run/return_mean") is not None}
    items = [(steps, round(value, 3)) for steps, value in sorted(points.items())]
    return items[:: max(1, len(items) // CURVE_POINTS)]


def at(curve: Sequence[Sequence[float]], steps: float) -> float | None:
    """The curve's value at ``steps``, linear between its points; none outside of them."""
    if not curve or not curve[0][0] <= steps <= curve[-1][0]:
        return None
    xs, ys = np.asarray(curve, np.float64).T
    return float(np.interp(steps, xs, ys))
