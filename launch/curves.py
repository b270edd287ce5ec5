"""Learning curves: read them from a run's metrics, draw one run while it goes on, or several with their mean."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace.actor.evaluate import bootstrap_interval
from headrace.buffer.status import RETURNS_KEPT
from headrace.common.errors import ConfigError
from headrace.launch.rundir import RunDir, each_line

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Array = np.ndarray[Any, Any]
GRID_POINTS = 100
MOST_POINTS = 500  # of a curve, so that neither memory nor a drawing grows with the run


@dataclass(frozen=True)
class Curve:
    """Returns of one run over its env steps.

    Attributes:
        training: ``(n, 2)`` env steps and mean return of the last training episodes.
        evaluation: ``(m, 2)`` env steps and mean return of one evaluation.
    """

    training: Array
    evaluation: Array

    @property
    def best_known(self) -> Array:
        """The evaluations if there are at least two, else the training returns."""
        return self.evaluation if len(self.evaluation) > 1 else self.training


def read_curve(metrics: Path) -> Curve:
    """The curve in a ``metrics.jsonl``; a missing file is an empty curve.

    Raises:
        HeadraceError: nothing in the file can be read.
    """
    training, evaluation = _Points(), _Points()
    for record in each_line(metrics):
        training.add(record.get("run/env_steps"), record.get("run/return_mean"))
        last = record.get("run/evaluation")
        if isinstance(last, dict):
            evaluation.add(last.get("env_steps"), last.get("return_mean"))
    return Curve(training.array(), evaluation.array())


def draw_run(run: RunDir, title: str) -> bool:
    """Draw one run's curve into its ``curve.png``, replaced whole; whether there was anything to draw."""
    curve = read_curve(run.metrics)
    if not len(curve.training) and not len(curve.evaluation):
        return False
    figure, axes = _figure()
    if len(curve.training):
        axes.plot(*curve.training.T, color="tab:gray", lw=1, label=f"training, mean of the last {RETURNS_KEPT} episodes")
    if len(curve.evaluation):
        axes.plot(*curve.evaluation.T, color="tab:blue", lw=1.8, marker="o", ms=3, label="evaluation, deterministic")
    _finish(figure, axes, title, run.curve)
    return True


def find_groups(places: Sequence[Path]) -> dict[str, list[Path]]:
    """Runs to overlay: a directory of runs is a group of its own, runs named one by one form a group together.

    Raises:
        ConfigError: a place is neither.
    """
    groups: dict[str, list[Path]] = {}
    for place in places:
        if (place / "config.yaml").is_file():
            groups.setdefault("", []).append(place)
            continue
        inside = sorted(p.parent for p in place.glob("*/config.yaml"))
        if not inside:
            raise ConfigError(f"{place}: neither a run directory nor a directory that holds some")
        groups[place.name] = inside
    return groups


def draw_groups(groups: dict[str, list[Path]], out: Path) -> None:
    """Overlay runs: each thinly, and each group's mean with its 95 % bootstrap interval.

    Raises:
        ConfigError: no run has anything to draw yet, or there can be no such picture.
        HeadraceError: nothing in a run's metrics can be read.
    """
    figure, axes = _figure()
    kinds = figure.canvas.get_supported_filetypes()
    if out.suffix[1:].lower() not in kinds:
        raise ConfigError(f"--out {out}: not the name of a picture; it must end in one of .{', .'.join(sorted(kinds))}")
    if not out.parent.is_dir():
        raise ConfigError(f"--out {out}: there is no directory {out.parent}")
    drawn = 0
    for number, (label, places) in enumerate(groups.items()):
        color = f"C{number}"
        curves = {p.name: read_curve(p / "metrics.jsonl").best_known for p in places}
        curves = {name: points for name, points in curves.items() if len(points)}
        drawn += len(curves)
        for name, points in curves.items():
            axes.plot(*points.T, color=color if len(curves) > 1 else None, lw=0.8, alpha=0.5, label=None if label else name)
        if len(curves) > 1:
            steps, mean, bounds = band(list(curves.values()))
            if bounds is not None:
                axes.fill_between(steps, bounds[0], bounds[1], color=color, alpha=0.2, lw=0)
            sure = "too few for an interval" if bounds is None else "95 % interval"
            axes.plot(steps, mean, color=color, lw=2, label=f"{label or 'mean'} ({len(curves)} runs, {sure})")
    if not drawn:
        raise ConfigError("nothing to draw yet: no run has returns in its metrics.jsonl")
    try:
        _finish(figure, axes, "", out)
    except OSError as error:
        raise ConfigError(f"--out {out}: cannot be written: {error.strerror or error}") from error


def band(curves: Sequence[Array]) -> tuple[Array, Array, Array | None]:
    """Env steps, mean, and lower and upper bound of the mean of several curves, over the steps that all of them cover.

    Returns:
        ``(n,)``, ``(n,)`` and ``(2, n)``; no bounds of fewer than ``FEWEST`` curves.
    """
    first, last = max(c[0, 0] for c in curves), min(c[-1, 0] for c in curves)
    steps = np.linspace(first, max(first, last), GRID_POINTS)
    values = np.stack([np.interp(steps, c[:, 0], c[:, 1]) for c in curves])
    rng = np.random.default_rng(0)  # the same runs always give the same picture
    bounds = [found for column in values.T if (found := bootstrap_interval(column, rng)) is not None]
    return steps, values.mean(axis=0), np.array(bounds).T if bounds else None


class _Points:
    """Points of a curve by env steps, of each step the last; of a long curve, of each of many equal parts the last."""

    def __init__(self) -> None:
        self._width = 1  # env steps of a part
        self._parts: dict[int, tuple[int, float]] = {}

    def add(self, steps: object, value: object) -> None:
        """Take a point, if it is one."""
        if not (isinstance(steps, int) and isinstance(value, (int, float)) and math.isfinite(value)):
            return
        self._parts[steps // self._width] = steps, float(value)
        while len(self._parts) > MOST_POINTS:
            self._width *= 2
            self._parts = {point[0] // self._width: point for point in sorted(self._parts.values())}

    def array(self) -> Array:
        """``(n, 2)``, in the order of their steps."""
        return np.array(sorted(self._parts.values()), dtype=np.float64).reshape(-1, 2)


def _figure() -> tuple[Figure, Axes]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.2), dpi=120, layout="constrained")  # no pyplot: no global state, no window system
    FigureCanvasAgg(figure)
    return figure, figure.subplots()


def _finish(figure: Figure, axes: Axes, title: str, out: Path) -> None:
    axes.set(xlabel="env steps", ylabel="return", title=title)
    axes.grid(alpha=0.3)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize="small")
    part = out.with_name(f".{out.stem}.part{out.suffix}")
    try:
        figure.savefig(part)
        part.replace(out)
    finally:
        part.unlink(missing_ok=True)
