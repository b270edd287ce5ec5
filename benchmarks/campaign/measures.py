"""What is measured beside other libraries, and what the pairs of a measure say."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any

from campaign.intervals import pair_ratio
from campaign.records import Record, same_settings

Side = str
OURS: Side = "headrace"
THEIRS: Side = "sb3"
MIN_PAIRS = 5
LR, BATCH, HIDDEN, WARMUP, BUFFER, GAMMA, TAU = 1e-3, 256, 256, 256, 100_000, 0.99, 0.005


@dataclass(frozen=True)
class Measure:
    """One thing that is measured.

    Attributes:
        name: for the command line and the records.
        env: gymnasium id.
        example: our config below ``examples/``.
        sides: who takes part.
        env_steps: length of a run.
        values: keys of a side's result that are compared.
        target: the bar of headrace / stable-baselines3 for each of them; none where nothing is asked.
        at_most: whether the ratio must be at most ``target``, else at least.
        evaluate_every: env steps between evaluations; 0 for none.
        episodes: of one evaluation.
        marks: env steps between which rates are taken; empty for none.
        deadline_s: longest time of one side.
    """

    name: str
    env: str
    example: str
    sides: tuple[Side, ...]
    env_steps: int
    values: tuple[str, ...]
    target: float | None = None
    at_most: bool = True
    evaluate_every: int = 0
    episodes: int = 10
    marks: tuple[int, int] | tuple[()] = field(default=())
    deadline_s: float = 900.0

    def shortened(self) -> Measure:
        """A run of seconds that exercises everything."""
        marks = (400, 600) if self.marks else ()
        return replace(self, env_steps=700, evaluate_every=min(self.evaluate_every, 300), marks=marks)


_PENDULUM = ("Pendulum-v1", "pendulum.yaml")
_MEASURES = (
    Measure("pendulum-wall", *_PENDULUM, (OURS, THEIRS), 10_000, ("wall_s",), 0.8),
    Measure(
        *("pendulum-to-200", *_PENDULUM, (OURS, THEIRS, "sbx"), 10_000, ("to_goal_s", "to_goal_env_steps")),
        evaluate_every=500,
    ),
    Measure(
        *("halfcheetah-rate", "HalfCheetah-v4", "halfcheetah_v4.yaml", (OURS, THEIRS), 6_000),
        *(("env_steps_s", "updates_s"), 1.15, False),
        marks=(2_000, 6_000),
    ),
)
MEASURES = {m.name: m for m in _MEASURES}


def settings(m: Measure, threads: dict[Side, int]) -> dict[str, Any]:
    """What must be equal for two records of a measure to belong together."""
    common = {"lr": LR, "batch": BATCH, "hidden": HIDDEN, "warmup": WARMUP, "buffer": BUFFER}
    run = {"env": m.env, "env_steps": m.env_steps, "evaluate_every": m.evaluate_every, "marks": list(m.marks)}
    return {**common, **run, "threads": dict(threads)}


def pairs_of(m: Measure, lines: Sequence[Record]) -> list[Record]:
    """The newest record of each pair, in order; those of other settings than the newest of all are left out."""
    own = [r for r in lines if r.get("measure") == m.name]
    newest = {r["pair"]: r for r in own if same_settings(r["settings"], own[-1]["settings"])}
    return [r for _, r in sorted(newest.items())]


def summarise(m: Measure, lines: Sequence[Record]) -> dict[str, Any]:
    """What the pairs say.

    Returns:
        ``pairs``, and for each of ``m.values`` the median of each side, ``of`` (how many pairs have the value on both of
        headrace and stable-baselines3), and with any such pair ``ratio`` and ``interval``; with a bar also ``target`` and, from
        :data:`MIN_PAIRS` pairs on, ``passed``.
    """
    pairs = pairs_of(m, lines)
    out: dict[str, Any] = {"pairs": len(pairs), **{key: _compare(m, key, pairs) for key in m.values}}
    if m.target is not None:
        ratios = [out[key].get("ratio", math.inf if m.at_most else 0.0) for key in m.values]
        out["target"] = m.target
        if len(pairs) >= MIN_PAIRS:
            out["passed"] = max(ratios) <= m.target if m.at_most else min(ratios) >= m.target
    return out


def _compare(m: Measure, key: str, pairs: Sequence[Record]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for side in m.sides:
        values = [r[side][key] for r in pairs if r[side].get(key) is not None]
        out[side] = median(values) if values else None
    both = [(r[OURS][key], r[THEIRS][key]) for r in pairs if r[OURS].get(key) and r[THEIRS].get(key)]
    out["of"] = len(both)
    if both:
        ratio, low, high = pair_ratio([a for a, _ in both], [b for _, b in both])
        out |= {"ratio": round(ratio, 3), "interval": [round(low, 3), round(high, 3)]}
    return out
