"""A learning gate: which runs it consists of, and what their final evaluations must reach."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from campaign.records import ROOT, Record, same_settings

EXAMPLES = ROOT / "examples"
RATIO_TOLERANCE = 0.02
LONGEST_S = 5400.0
NOT_RUN, UNFINISHED, PASSED, FAILED, MEASURED = "not run yet", "unfinished", "passed", "FAILED", "measured"
ASYNC, SYNC, SB3 = "async", "sync", "sb3"
RETURN, SUCCESS = "return", "success"
VALUES = {RETURN: "return_mean", SUCCESS: "success_rate"}
MODE_WORDS: dict[str, dict[str, Any]] = {
    ASYNC: {"run.mode": ASYNC},
    SYNC: {"run.mode": SYNC, "actor.count": 1},
    SB3: {},  # not ours to run; only the settings are taken from the config
}


@dataclass(frozen=True)
class Bars:
    """What is asked of the final evaluations of a gate's seeds; none where nothing is.

    Attributes:
        each: that every seed must reach.
        mean: that the mean over seeds must reach.
        below: that every seed must stay below.
        stretch: that the mean would reach at best; told, and never a reason to fail.
    """

    each: float | None = None
    mean: float | None = None
    below: float | None = None
    stretch: float | None = None


@dataclass(frozen=True)
class Gate:
    """Runs of one environment in one way.

    Attributes:
        name: for the command line and the records.
        env: gymnasium id, or ``module:Class``.
        example: config below ``examples/``.
        mode: ``async`` (processes), ``sync`` (one process), or ``sb3`` (stable-baselines3 at the config's settings).
        seeds: one run each.
        env_steps: length of a run.
        episodes: of the final evaluation.
        marks: env steps at which the curve is told.
        bars: what is asked.
        measured: what is judged, ``return`` or ``success``.
        preset: config below ``examples/presets/`` that is laid over the example; empty for none.
        demos: demonstrations of the reach task that are made before a run, into :data:`DEMOS`.
        words: further config overrides.
        deadline_s: longest wall clock of one run.
    """

    name: str
    env: str
    example: str
    mode: str
    seeds: tuple[int, ...]
    env_steps: int
    episodes: int
    marks: tuple[int, ...]
    bars: Bars = field(default=Bars())
    measured: str = RETURN
    preset: str = ""
    demos: int = 0
    words: Mapping[str, Any] = field(default_factory=dict)
    deadline_s: float = LONGEST_S

    @property
    def config(self) -> Path:
        """The YAML file."""
        return EXAMPLES / self.example

    @property
    def preset_file(self) -> Path | None:
        """The YAML file laid over it."""
        return EXAMPLES / "presets" / self.preset if self.preset else None

    @property
    def value(self) -> str:
        """Key of a record that is judged."""
        return VALUES[self.measured]

    def overrides(self, seed: int) -> dict[str, Any]:
        """Config keys of one run."""
        length = {"pacing.env_steps": self.env_steps, "eval.final_episodes": self.episodes}
        return {"env.id": self.env, "seed": seed, **length, **MODE_WORDS[self.mode], **self.words}

    def text(self, value: float) -> str:
        """A measured value in words."""
        return f"{value:.0%}" if self.measured == SUCCESS else f"{value:.1f}"


@dataclass(frozen=True)
class Check:
    """One condition of a verdict: what, its value and its bar in words, and whether it holds."""

    what: str
    value: str
    bar: str
    holds: bool


@dataclass(frozen=True)
class Verdict:
    """What a gate's records say: one of the states above, the conditions that were looked at, and a note."""

    state: str
    checks: tuple[Check, ...] = ()
    note: str = ""


def of_gate(gate: Gate, records: Sequence[Record]) -> list[Record]:
    """The newest record of each seed of the gate, in the order of its seeds."""
    newest = {r["seed"]: r for r in records if r.get("gate") == gate.name}
    return [newest[seed] for seed in gate.seeds if seed in newest]


def done(gate: Gate, seed: int, settings: Mapping[str, Any], records: Sequence[Record]) -> bool:
    """Whether the newest record of this seed was made with these settings, so that it need not run again."""
    found = [r for r in records if r.get("gate") == gate.name and r.get("seed") == seed]
    return bool(found) and same_settings(found[-1]["settings"], settings)


def judge(gate: Gate, records: Sequence[Record]) -> Verdict:
    """The gate's verdict: ``measured`` where it asks nothing of the values and the runs are what they should be."""
    own = of_gate(gate, records)
    if len(own) < len(gate.seeds):
        return Verdict(UNFINISHED if own else NOT_RUN)
    values = [r.get(gate.value) for r in own]
    known = [v for v in values if v is not None]
    if len(known) < len(values):
        missing = Check(gate.measured, f"of {len(known)} seeds", f"of {len(values)}", False)
        return verdict_of([missing], gate.bars != Bars())
    steps, episodes, longest_s = {r["env_steps"] for r in own}, {r["episodes"] for r in own}, max(r["wall_s"] for r in own)
    ratios = [r["achieved_ratio"] / r["settings"]["pacing"]["ratio"] for r in own]
    off = max(abs(ratio - 1) for ratio in ratios)
    checks = [
        *_bar_checks(gate, known),
        Check("env", ", ".join(sorted({r["env"] for r in own})), gate.env, {r["env"] for r in own} == {gate.env}),
        Check("env steps", span(sorted(steps)), f"{gate.env_steps}", steps == {gate.env_steps}),
        Check("episodes", span(sorted(episodes)), f"{gate.episodes}", episodes == {gate.episodes}),
        Check("achieved ratio", f"{off:.1%} off", f"<= {RATIO_TOLERANCE:.0%}", off <= RATIO_TOLERANCE),
        Check("one set of settings", str(_sets(own)), "1", _sets(own) == 1),
        Check("longest run", f"{longest_s / 60:.1f} min", f"<= {LONGEST_S / 60:g} min", longest_s <= LONGEST_S),
    ]
    mean, stretch = float(np.mean(known)), gate.bars.stretch
    note = ""
    if stretch is not None:
        note = f"stretch {gate.text(stretch)} {'reached' if mean >= stretch else 'not reached'}"
    return verdict_of(checks, gate.bars != Bars(), note)


def verdict_of(checks: Sequence[Check], judged: bool = True, note: str = "") -> Verdict:
    """``passed`` where all of them hold, or ``measured`` where nothing was asked."""
    state = PASSED if judged else MEASURED
    return Verdict(state if all(c.holds for c in checks) else FAILED, tuple(checks), note)


def span(values: Sequence[float], form: str = "") -> str:
    """The range of ``values`` in words."""
    low, high = min(values), max(values)
    return f"{low:{form}}" if low == high else f"{low:{form}} to {high:{form}}"


def _bar_checks(gate: Gate, values: Sequence[float]) -> list[Check]:
    bars, mean, worst, best = gate.bars, float(np.mean(values)), min(values), max(values)
    checks = [Check("mean", gate.text(mean), "reported", True)] if bars.mean is None and bars.each is None else []
    if bars.mean is not None:
        checks.append(Check("mean", gate.text(mean), f">= {gate.text(bars.mean)}", mean >= bars.mean))
    if bars.each is not None:
        checks.append(Check("worst seed", gate.text(worst), f">= {gate.text(bars.each)}", worst >= bars.each))
    if bars.below is not None:
        checks.append(Check("best seed", gate.text(best), f"< {gate.text(bars.below)}", best < bars.below))
    return checks


def _sets(records: Sequence[Record]) -> int:
    sets: list[Mapping[str, Any]] = []
    for record in records:
        if not any(same_settings(record["settings"], known) for known in sets):
            sets.append(record["settings"])
    return len(sets)
