"""Rows with chosen labels, and by brute force what a set of them must hold."""

from __future__ import annotations

import fnmatch
from typing import Any

import numpy as np

from headrace.buffer.config import SetConfig
from headrace.common.specs import OUTCOMES, SOURCES, ActionSpec, ObsSpec, TransitionSpec

Array = np.ndarray[Any, Any]
ACTORS = ["sim-0", "sim-1", "robot-0", "demo"]


def set_spec(window: int = 1) -> TransitionSpec:
    """A small spec; chunks when the window is above 1, so that steps differ."""
    kind = "chunk" if window > 1 else "steps"
    shape = (window, 2) if window > 1 else (2,)
    return TransitionSpec((ObsSpec("obs", (3,), "<f4"),), ActionSpec(shape, (-1.0, -1.0), (1.0, 1.0)), window, kind)


def random_rows(n: int, rng: np.random.Generator, window: int = 1, newest_step: int = 5) -> Array:
    """``(n,)`` rows whose labels are drawn from few values each."""
    rows = np.zeros(n, set_spec(window).row_dtype)
    rows["source"] = rng.integers(0, 3, (n, window))
    rows["steps"] = rng.integers(1, window + 1, n)
    rows["outcome"] = rng.integers(0, 3, n)
    rows["task"] = rng.integers(0, 4, n)
    rows["actor"] = rng.integers(0, len(ACTORS), n)
    rows["learner"] = rng.integers(0, 2, n)
    rows["learner_epoch"] = rng.integers(0, 3, n)
    rows["learner_step"] = rng.integers(max(0, newest_step - 5), newest_step + 1, n)
    return rows


def expected(config: SetConfig, rows: dict[int, Array], dead: set[int], head: int, human_rows: str) -> set[int]:
    """Ids that the set must hold, of the live ``rows``, row by row."""
    recent = _recent(config.newest_versions, rows)
    out = set()
    for i, row in rows.items():
        steps = row["source"][: row["steps"]].tolist()
        human = steps.count(1)
        is_human = human > 0 if human_rows == "any" else human > len(steps) / 2
        source = "human" if is_human else "demo" if 2 in steps else "policy"
        if len(row["source"]) == 1:
            source = SOURCES[row["source"][0]]
        name = ACTORS[row["actor"]]
        fits = (
            (not config.source or source in config.source)
            and (not config.outcome or OUTCOMES[row["outcome"]] in config.outcome)
            and (not config.task or row["task"] in config.task)
            and (not config.actor or any(fnmatch.fnmatchcase(name, p) for p in config.actor))
            and (not config.newest_rows or i >= head - config.newest_rows)
            and (not config.newest_versions or _version(row) in recent)
        )
        if fits and i not in dead:
            out.add(i)
    return out


def _version(row: Any) -> tuple[int, int, int]:
    return int(row["learner"]), int(row["learner_epoch"]), int(row["learner_step"])


def _recent(newest: int, rows: dict[int, Array]) -> set[tuple[int, int, int]]:
    versions = {_version(row) for row in rows.values() if row["learner_epoch"]}
    out: set[tuple[int, int, int]] = set()
    for learner in {v[0] for v in versions}:
        out |= set(sorted(v for v in versions if v[0] == learner)[-newest:])
    return out
