"""Gathered: what a run's own metrics hold of every process, beside the sums over all of them; the learner writes it down."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

MOST_ACTORS = 64  # that are told one by one, the first by name; a curve for each of a thousand would be read by nobody
OF_ACTORS = {  # name in the metrics -> in the status
    "host": "host",
    "env_steps_s": "rate",
    "episodes": "episodes",
    "policy_age_s": "age_s",
    "waiting_steps": "spooled_steps",
    "dropped_steps": "dropped_steps",
    "silent_s": "silent_s",
}


def told_apart(names: Iterable[str]) -> list[str]:
    """Actors that are told one by one."""
    return sorted(names)[:MOST_ACTORS]


def of_actors(actors: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Id -> what the metrics hold of it; ``actors`` as in the status."""
    return {actor["id"]: {name: actor[key] for name, key in OF_ACTORS.items() if key in actor} for actor in actors}


def spread(rates: Sequence[float]) -> dict[str, float]:
    """The slowest, the middle and the fastest of them; nothing of none."""
    if not rates:
        return {}
    return {"min": min(rates), "median": float(np.median(rates)), "max": max(rates)}
