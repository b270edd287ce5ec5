"""Pictures of gates: the evaluations of each seed over env steps, their mean with its 95 % bootstrap interval, and the bars."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from campaign.gate import Gate, of_gate
from campaign.intervals import mean_interval
from campaign.published import MUJOCO, PENDULUM_V1
from campaign.records import Record

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Array = np.ndarray[Any, Any]
GRID = 100
STYLES = {"mean": "--", "each": ":", "below": "-."}
LABELS = {"mean": "bar for the mean", "each": "bar for each seed", "below": "bar that each seed must stay below"}


def draw_curves(gates: Sequence[Gate], records: Sequence[Record], out: Path) -> bool:
    """Draw gates of one environment into ``out``; whether any of them has a curve."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.2), dpi=120, layout="constrained")  # no pyplot: no global state, no window system
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    drawn = [_draw_gate(axes, gate, of_gate(gate, records), f"C{number}") for number, gate in enumerate(gates)]
    if not any(drawn):
        out.unlink(missing_ok=True)
        return False
    _draw_published(axes, gates[0])
    for bar, text, value in bars_of(gates):
        axes.axhline(value, color="black", lw=0.8, ls=STYLES[bar], label=text)
    axes.set(xlabel="env steps", ylabel=f"{gates[0].measured}, deterministic policy", title=gates[0].env.rpartition(":")[2])
    axes.grid(alpha=0.3)
    axes.legend(fontsize="x-small")
    figure.savefig(out, metadata={"Software": None})  # the same records give the same bytes
    return True


def bars_of(gates: Sequence[Gate]) -> list[tuple[str, str, float]]:
    """Bars of the gates as (kind, words, value), each once."""
    found = [
        (kind, f"{LABELS[kind]}, {gate.text(value)}", value)
        for gate in gates
        for kind in STYLES
        if (value := getattr(gate.bars, kind)) is not None
    ]
    return list(dict.fromkeys(found))


def _draw_gate(axes: Axes, gate: Gate, records: Sequence[Record], color: str) -> bool:
    curves = [np.asarray(r["evaluations"], np.float64)[:, :2] for r in records if len(r["evaluations"]) > 1]
    if not curves:
        return False
    for curve in curves:
        axes.plot(*curve.T, color=color, lw=0.6, alpha=0.6)
    steps, mean, low, high = band(curves)
    axes.fill_between(steps, low, high, color=color, alpha=0.2, lw=0)
    axes.plot(steps, mean, color=color, lw=1.8, label=f"{gate.name}, {len(curves)} seeds, mean and its 95 % interval")
    finals = [r[gate.value] for r in records]
    axes.scatter([gate.env_steps] * len(finals), finals, color=color, s=14, zorder=3, label="final evaluation of each seed")
    return True


def _draw_published(axes: Axes, gate: Gate) -> None:
    if gate.env == "Pendulum-v1":
        axes.axhspan(*PENDULUM_V1, color="tab:gray", alpha=0.35, lw=0, label="published level at 20,000 env steps or more")
    points = [p for p in MUJOCO.get(gate.env, ()) if p.env_steps <= 1.1 * gate.env_steps]
    if not points:
        return
    steps, mean, std = np.array([(p.env_steps, p.mean, p.std) for p in points]).T
    label = "published, 10 seeds, mean ± std"
    axes.fill_between(steps, mean - std, mean + std, color="tab:gray", alpha=0.25, lw=0, label=label)
    worst = [(p.env_steps, p.worst) for p in points if p.worst is not None]
    if worst:
        axes.plot(*np.array(worst).T, color="tab:gray", lw=1, ls="--", label="published, worst of 10 seeds")


def band(curves: Sequence[Array]) -> tuple[Array, Array, Array, Array]:
    """Env steps, mean, lower and upper bound of curves ``(n, 2)`` over the steps that all of them cover."""
    first, last = max(c[0, 0] for c in curves), min(c[-1, 0] for c in curves)
    steps = np.linspace(first, max(first, last), GRID)
    values = np.stack([np.interp(steps, *c.T) for c in curves])
    return steps, values.mean(axis=0), *mean_interval(values)
