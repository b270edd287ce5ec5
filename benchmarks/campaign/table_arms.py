"""Policies for the tabletop: what each is made of, what it must reach, and what its records say of that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from campaign.gate import EXAMPLES, FAILED, NOT_RUN, PASSED, UNFINISHED
from campaign.records import Record

DEMOS, EPISODES_A_TASK, TASKS = "runs/tabletop_chunks", 50, 4
SEEDS = (0, 1)
LOWEST, HIGHEST = 0.3, 0.6  # success of a teacher from which something can be learned
GAIN, DIP, LOSS, CLONED = 0.15, 0.15, 0.10, 0.05
NEAR = 0.10  # to chance
TEACHER, CONTINUED = "teacher", "bc-continued"


@dataclass(frozen=True)
class Arm:
    """One way to a policy.

    Attributes:
        name: for the command line and the records.
        example: config below ``examples/``.
        preset: config below ``examples/presets/`` laid over it; empty for none.
        teacher: key that names the export that it begins with; empty where it begins with nothing.
        words: further config keys.
        clones: whether it learns from demonstrations alone, and so has no env steps.
    """

    name: str
    example: str
    preset: str = ""
    teacher: str = ""
    words: Mapping[str, Any] = field(default_factory=dict)
    clones: bool = False

    @property
    def config(self) -> Path:
        """The YAML file."""
        return EXAMPLES / self.example

    @property
    def preset_file(self) -> Path | None:
        """The YAML file laid over it."""
        return EXAMPLES / "presets" / self.preset if self.preset else None

    def overrides(self, seed: int, teacher: str) -> dict[str, Any]:
        """Config keys of one run that begins with the export ``teacher``."""
        begins = {self.teacher: teacher} if self.teacher else {}
        stored = {"window.prefix": teacher} if self.teacher and not self.clones else {}
        return {"seed": seed, "eval.final_episodes": 0 if self.clones else 400, **begins, **stored, **self.words}


def _cloning(updates: int) -> dict[str, Any]:
    return {"pool.demos": [DEMOS], "pacing.offline_updates": updates, "learner.cloning_updates": updates}


_SEEN = {"model.options.words": "words", "model.options.vocabulary": 32, "model.options.masks": {"words": "words_there"}}
_SHAPE = {"model.options.channels": [16, 32, 64, 64], "model.options.strides": [2, 2, 2, 2], "model.options.width": 64}
_FLOW = {
    **_SEEN,
    **_SHAPE,
    "model.type": "flow",
    "model.options.stored": True,
    "model.options.trains": "expert",
    "model.options.noise": "learned",
    "model.options.level": 0.3,
    "pacing.ratio": 0.5,
}
_ARMS = (
    Arm(TEACHER, "tabletop_bc.yaml", "bc.yaml", words=_cloning(10_000), clones=True),
    Arm("flow-sde", "tabletop_rl.yaml", "", "model.options.pretrained", _FLOW),
    Arm(
        "dsrl",
        "tabletop_rl.yaml",
        "dsrl.yaml",
        "model.options.base",
        {"window.latent": 8, "model.options.stored": True, "pacing.ratio": 2},
    ),
    Arm("residual", "tabletop_rl.yaml", "residual.yaml", "model.options.base", {"model.options.stored": True}),
    Arm(CONTINUED, "tabletop_bc.yaml", "bc.yaml", "model.options.pretrained", _cloning(20_000), clones=True),
)
ARMS = {arm.name: arm for arm in _ARMS}
LEARNED = tuple(arm.name for arm in _ARMS if not arm.clones)


def problems(record: Record) -> list[str]:
    """What one run's record lacks of what is asked of its arm; nothing where it has all."""
    end = record["end"]
    if record["arm"] == TEACHER:
        return [] if LOWEST <= end["rate"] <= HIGHEST else [f"success {end['rate']:.0%}, wanted {LOWEST:.0%} to {HIGHEST:.0%}"]
    start = record["start"]
    gain = end["rate"] - start["rate"]
    if record["arm"] == CONTINUED:
        return [] if gain < CLONED else [f"gains {gain:.0%} by cloning alone, wanted below {CLONED:.0%}"]
    found = [] if gain >= GAIN else [f"gains {gain:.0%}, wanted {GAIN:.0%}"]
    lowest = min((rate for _, rate, *_ in record["curve"]), default=end["rate"])
    if lowest < start["rate"] - DIP:
        found.append(f"dips to {lowest:.0%} from {start['rate']:.0%}")
    for task, before in start["tasks"].items():
        after = end["tasks"].get(task, 0.0)
        if after < before - LOSS:
            found.append(f"task {task} ends at {after:.0%} from {before:.0%}")
    if record["blank"]["rate"] > record["chance"] + NEAR:
        found.append(f"{record['blank']['rate']:.0%} without images, chance is {record['chance']:.0%}")
    if record["shuffled"]["rate"] > end["rate"] / TASKS + NEAR:  # the words are right in one of four episodes
        found.append(f"{record['shuffled']['rate']:.0%} with the words of any task")
    return found


def judge(arm: Arm, records: Sequence[Record]) -> tuple[str, list[str]]:
    """State of an arm, and what is wrong with its newest run of each seed."""
    newest = {r["seed"]: r for r in records if r.get("arm") == arm.name}
    found = [f"seed {seed}: {problem}" for seed, record in sorted(newest.items()) for problem in problems(record)]
    if not newest:
        return NOT_RUN, []
    if found:
        return FAILED, found
    return (PASSED if set(SEEDS) <= set(newest) else UNFINISHED), []


def table(records: Sequence[Record]) -> str:
    """Start and end of each run, over all tasks and of each, as Markdown."""
    lines = ["| arm | seed | start | end | tasks at the start | and at the end | shuffled | blank | minutes |"]
    lines.append("|" + " --- |" * 9)
    for r in records:
        start = r.get("start") or {"rate": 0.0, "tasks": {}}
        controls = [f"{r[key]['rate']:.0%}" if key in r else "-" for key in ("shuffled", "blank")]
        tasks = [" ".join(f"{rate:.0%}" for rate in side["tasks"].values()) or "-" for side in (start, r["end"])]
        rates = [f"{start['rate']:.0%}" if start["tasks"] else "-", f"{r['end']['rate']:.0%}"]
        cells = [r["arm"], r["seed"], *rates, *tasks, *controls, f"{r['wall_s'] / 60:.0f}"]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines)
