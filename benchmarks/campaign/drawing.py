"""Pictures of results: mean return over env steps with its 95 % bootstrap interval over seeds, beside published returns."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from campaign.gate import Gate, of_gate
from campaign.intervals import mean_interval
from campaign.published import HALFCHEETAH_V4, PENDULUM_V1
from campaign.records import Record

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Array = np.ndarray[Any, Any]
GRID = 100


def draw_curves(name: str, gates: Sequence[Gate], records: Sequence[Record], out: Path) -> bool:
    """Draw the gates of one environment into ``out``; whether any of them has a curve."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.2), dpi=120, layout="constrained")  # no pyplot: no global state, no window system
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    drawn = [_draw_gate(axes, gate, of_gate(gate, records), f"C{number}") for number, gate in enumerate(gates)]
    if not any(drawn):
        out.unlink(missing_ok=True)
        return False
    _draw_published(axes, name)
    axes.axhline(gates[0].each, color="black", lw=0.8, ls=":", label=f"bar for each seed, {gates[0].each:g}")
    axes.set(xlabel="env steps", ylabel="return, deterministic policy", title=gates[0].env)
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")
    figure.savefig(out, metadata={"Software": None})  # the same records give the same bytes
    return True


def _draw_gate(axes: Axes, gate: Gate, records: Sequence[Record], color: str) -> bool:
    curves = [np.asarray(r["evaluations"], np.float64) for r in records if len(r["evaluations"]) > 1]
    if not curves:
        return False
    steps, mean, low, high = band(curves)
    axes.fill_between(steps, low, high, color=color, alpha=0.2, lw=0)
    axes.plot(steps, mean, color=color, lw=1.8, label=f"{gate.mode}, {len(curves)} seeds, 95 % interval of the mean")
    finals = [r["return_mean"] for r in records]
    axes.scatter(
        [gate.env_steps] * len(finals), finals, color=color, s=14, zorder=3, label=f"{gate.mode}, final evaluation of each seed"
    )
    return True


def _draw_published(axes: Axes, name: str) -> None:
    if name == "pendulum":
        axes.axhspan(*PENDULUM_V1, color="tab:gray", alpha=0.35, lw=0, label="published level at 20,000 env steps or more")
        return
    steps, mean, std, worst = np.array([(p.env_steps, p.mean, p.std, p.worst) for p in HALFCHEETAH_V4]).T
    axes.fill_between(
        steps, mean - std, mean + std, color="tab:gray", alpha=0.25, lw=0, label="published, 10 seeds, mean ± std"
    )
    axes.plot(steps, worst, color="tab:gray", lw=1, ls="--", label="published, worst of 10 seeds")


def band(curves: Sequence[Array]) -> tuple[Array, Array, Array, Array]:
    """Env steps, mean, lower and upper bound of curves ``(n, 2)`` over the steps that all of them cover."""
    first, last = max(c[0, 0] for c in curves), min(c[-1, 0] for c in curves)
    steps = np.linspace(first, max(first, last), GRID)
    values = np.stack([np.interp(steps, *c.T) for c in curves])
    return steps, values.mean(axis=0), *mean_interval(values)
