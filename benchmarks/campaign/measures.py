"""What is measured beside other libraries, and what the pairs of a measure say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any

from campaign.intervals import pair_ratio
from campaign.records import Record

Side = str
OURS: Side = "headrace"
THEIRS: Side = "sb3"
LR, BATCH, HIDDEN, WARMUP, BUFFER = 1e-3, 256, 256, 256, 100_000


@dataclass(frozen=True)
class Measure:
    """One thing that is measured.

    Attributes:
        name: for the command line and the records.
        env: gymnasium id.
        example: our config below ``examples/``.
        sides: who takes part.
        env_steps: length of a run.
        value: key of a side's result that is compared.
        target: the bar of headrace / stable-baselines3; none where nothing is asked.
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
    value: str
    target: float | None = None
    at_most: bool = True
    evaluate_every: int = 0
    episodes: int = 10
    marks: tuple[int, int] | tuple[()] = field(default=())
    deadline_s: float = 900.0

    def shortened(self) -> Measure:
        """A run of seconds that exercises everything."""
        return replace(
            self, env_steps=700, evaluate_every=min(self.evaluate_every, 300), marks=(400, 600) if self.marks else ()
        )


_MEASURES = (
    Measure("pendulum-wall", "Pendulum-v1", "pendulum.yaml", (OURS, THEIRS), 10_000, "wall_s", 0.8),
    Measure("pendulum-to-200", "Pendulum-v1", "pendulum.yaml", (OURS, THEIRS, "sbx"), 10_000, "to_goal_s", evaluate_every=500),
    Measure(
        *("halfcheetah-rate", "HalfCheetah-v4", "halfcheetah_v4.yaml", (OURS, THEIRS), 6_000, "env_steps_s"),
        *(1.15, False),
        marks=(2_000, 6_000),
    ),
)
MEASURES = {m.name: m for m in _MEASURES}


def settings(m: Measure, threads: dict[Side, int]) -> dict[str, Any]:
    """What must be equal for two records of a measure to belong together."""
    common = {
        "lr": LR,
        "batch": BATCH,
        "hidden": HIDDEN,
        "warmup": WARMUP,
        "buffer": BUFFER,
        "env": m.env,
        "env_steps": m.env_steps,
    }
    return {**common, "evaluate_every": m.evaluate_every, "marks": list(m.marks), "threads": dict(threads)}


def summarise(m: Measure, lines: Sequence[Record]) -> dict[str, Any]:
    """Medians, ratio and interval over the newest record of each pair."""
    pairs = list({r["pair"]: r for r in lines if r.get("measure") == m.name}.values())
    out: dict[str, Any] = {"pairs": len(pairs)}
    for side in m.sides:
        values = [r[side][m.value] for r in pairs if r[side].get(m.value) is not None]
        out[side] = {"median": median(values) if values else None, "of": len(values)}
    both = [(r[OURS][m.value], r[THEIRS][m.value]) for r in pairs if r[OURS].get(m.value) and r[THEIRS].get(m.value)]
    if both:
        ratio, low, high = pair_ratio([a for a, _ in both], [b for _, b in both])
        out |= {"ratio": round(ratio, 3), "interval": [round(low, 3), round(high, 3)]}
        if m.target is not None:
            out |= {"target": m.target, "passed": ratio <= m.target if m.at_most else ratio >= m.target}
    return out
