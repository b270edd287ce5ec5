"""Learning gates: which runs they are, and what their returns must be.

Bars come from published levels: SAC on Pendulum-v1 reaches -151 to -157 at 20,000 env steps or more; on HalfCheetah-v4 the
worst of ten reference seeds has 3463 at 50,000 (result files of SimbaV2, see :mod:`campaign.published`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from campaign.intervals import difference_interval
from campaign.records import ROOT, Record, same_settings

RATIO_TOLERANCE = 0.02
LONGEST_S = 5400.0
ASYNC_SHARE = 0.85  # of the synchronous mean that the asynchronous one must reach
NOT_RUN, UNFINISHED, PASSED, FAILED = "not run yet", "unfinished", "passed", "FAILED"
ASYNC_WORDS: dict[str, Any] = {"run.mode": "async"}
SYNC_WORDS: dict[str, Any] = {"run.mode": "sync", "actor.count": 1}


@dataclass(frozen=True)
class Gate:
    """One gate: runs of one environment in one mode.

    Attributes:
        name: for the command line and the records.
        env: gymnasium id.
        example: config below ``examples/``.
        mode: ``async`` or ``sync``.
        seeds: one run each.
        env_steps: length of a run.
        episodes: of the final evaluation.
        each: return that every seed must reach.
        mean: return that the mean over seeds must reach; none where only ``each`` is asked.
        marks: env steps at which the curve is told.
        deadline_s: longest wall clock of one run.
        words: further config overrides.
    """

    name: str
    env: str
    example: str
    mode: str
    seeds: tuple[int, ...]
    env_steps: int
    episodes: int
    each: float
    mean: float | None
    marks: tuple[int, ...]
    deadline_s: float
    words: dict[str, Any] = field(default_factory=dict)

    @property
    def config(self) -> Path:
        """The YAML file."""
        return ROOT / "examples" / self.example

    def overrides(self, seed: int) -> dict[str, Any]:
        """Config keys of one run."""
        length = {"pacing.env_steps": self.env_steps, "eval.final_episodes": self.episodes}
        mode = SYNC_WORDS if self.mode == "sync" else ASYNC_WORDS
        return {"env.id": self.env, "seed": seed, **length, **mode, **self.words}


@dataclass(frozen=True)
class Check:
    """One condition of a verdict: what, its value and its bar in words, and whether it holds."""

    what: str
    value: str
    bar: str
    holds: bool


@dataclass(frozen=True)
class Verdict:
    """What a gate's records say: one of the states above, and the conditions that were looked at."""

    state: str
    checks: tuple[Check, ...] = ()


def _pendulum(mode: str) -> Gate:
    marks = (2_500, 5_000, 10_000)
    return Gate(
        f"pendulum-{mode}", "Pendulum-v1", "pendulum.yaml", mode, (0, 1, 2, 3, 4), 10_000, 20, -200.0, None, marks, 1800
    )


def _cheetah(mode: str) -> Gate:
    marks = (16_000, 33_000, 50_000)
    name, config = f"halfcheetah-{mode}", "halfcheetah_v4.yaml"
    words = {"eval.every": 2_000}  # fine enough for the marks
    return Gate(name, "HalfCheetah-v4", config, mode, (0, 1, 2), 50_000, 10, 2500.0, 3460.0, marks, LONGEST_S, words)


GATES = {gate.name: gate for make in (_pendulum, _cheetah) for gate in (make("async"), make("sync"))}
PAIRS = {"pendulum": ("pendulum-async", "pendulum-sync"), "halfcheetah": ("halfcheetah-async", "halfcheetah-sync")}


def of_gate(gate: Gate, records: Sequence[Record]) -> list[Record]:
    """The newest record of each seed of the gate, in the order of its seeds."""
    newest = {r["seed"]: r for r in records if r.get("gate") == gate.name}
    return [newest[seed] for seed in gate.seeds if seed in newest]


def done(gate: Gate, seed: int, settings: dict[str, Any], records: Sequence[Record]) -> bool:
    """Whether the newest record of this seed was made with these settings, so that it need not run again."""
    found = [r for r in records if r.get("gate") == gate.name and r.get("seed") == seed]
    return bool(found) and same_settings(found[-1]["settings"], settings)


def judge(gate: Gate, records: Sequence[Record]) -> Verdict:
    """The gate's verdict."""
    own = of_gate(gate, records)
    if len(own) < len(gate.seeds):
        return Verdict(UNFINISHED if own else NOT_RUN)
    returns = [r["return_mean"] for r in own]
    worst, mean = min(returns), float(np.mean(returns))
    steps, longest_s = {r["env_steps"] for r in own}, max(r["wall_s"] for r in own)
    checks = [
        Check("worst seed", f"{worst:.1f}", f">= {gate.each:g}", worst >= gate.each),
        Check("env steps", _span(sorted(steps)), f"{gate.env_steps}", steps == {gate.env_steps}),
        Check("one set of settings", str(_sets(own)), "1", _sets(own) == 1),
        Check("longest run", f"{longest_s / 60:.1f} min", f"<= {LONGEST_S / 60:g} min", longest_s <= LONGEST_S),
    ]
    if gate.mean is not None:
        checks.insert(0, Check("mean", f"{mean:.1f}", f">= {gate.mean:g}", mean >= gate.mean))
    return _verdict(checks)


def compare(ours: Gate, theirs: Gate, records: Sequence[Record]) -> Verdict:
    """Whether asynchronous (``ours``) learns as synchronous (``theirs``) does."""
    a, b = of_gate(ours, records), of_gate(theirs, records)
    if len(a) < len(ours.seeds) or len(b) < len(theirs.seeds):
        return Verdict(UNFINISHED if a or b else NOT_RUN)
    returns_a, returns_b = [r["return_mean"] for r in a], [r["return_mean"] for r in b]
    low, high = difference_interval(returns_a, returns_b)
    mean_a, mean_b = float(np.mean(returns_a)), float(np.mean(returns_b))
    bar = share_bar(mean_b)
    steps = {r["env_steps"] for r in (*a, *b)}
    ratios = [r["achieved_ratio"] for r in (*a, *b)]
    spread = max(ratios) / min(ratios) - 1 if min(ratios) > 0 else float("inf")
    return _verdict(
        [
            Check("95 % interval of the difference", f"{low:.1f} to {high:.1f}", "includes 0", low <= 0 <= high),
            Check("asynchronous mean", f"{mean_a:.1f}", f">= {bar:.1f} ({ASYNC_SHARE:g} of {mean_b:.1f})", mean_a >= bar),
            Check("env steps", _span(sorted(steps)), "equal", len(steps) == 1),
            Check(
                "achieved ratio", _span(ratios, ".4f"), f"within {RATIO_TOLERANCE:.0%} of each other", spread <= RATIO_TOLERANCE
            ),
        ]
    )


def share_bar(mean: float) -> float:
    """The return that counts as :data:`ASYNC_SHARE` of ``mean``; a negative mean is a cost, which may be 1/0.85 as large."""
    return mean * ASYNC_SHARE if mean >= 0 else mean / ASYNC_SHARE


def _verdict(checks: Sequence[Check]) -> Verdict:
    return Verdict(PASSED if all(c.holds for c in checks) else FAILED, tuple(checks))


def _sets(records: Sequence[Record]) -> int:
    sets: list[dict[str, Any]] = []
    for record in records:
        if not any(same_settings(record["settings"], known) for known in sets):
            sets.append(record["settings"])
    return len(sets)


def _span(values: Sequence[float], form: str = "") -> str:
    low, high = min(values), max(values)
    return f"{low:{form}}" if low == high else f"{low:{form}} to {high:{form}}"
