"""Gathered: what a run's own metrics hold of every process, beside the sums over all of them; the learner writes it down.

Of several shards each further one tells the home shard its part, which is taken as far as it is what it should be.
"""

from __future__ import annotations

import math
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
SUMS = ("episodes", "pool_rows", "rows_lost", "rows_rejected", "messages_refused", "actors_connected")
HIGHEST = ("policy_lag_updates", "policy_age_s")
MEAN, COUNT = "return_mean", "returns"  # of the last training episodes, and how many they are
PART = (*SUMS, *HIGHEST, MEAN, COUNT, "actors")  # what a further shard tells


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


def joined(own: Mapping[str, Any], parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What the metrics hold of all shards together.

    Args:
        own: of the home shard, with everything that :data:`PART` names.
        parts: what the further ones say of theirs.
    """
    all_ = [own, *parts]
    out: dict[str, Any] = {name: sum(_number(part.get(name)) for part in all_) for name in SUMS}
    out |= {name: max(_number(part.get(name)) for part in all_) for name in HIGHEST}
    said = [(float(part[MEAN]), _number(part.get(COUNT))) for part in all_ if _is_number(part.get(MEAN))]
    total = sum(count for _, count in said)
    out[MEAN] = sum(mean * count for mean, count in said) / total if total else None
    actors = {name: told for part in reversed(all_) for name, told in _actors(part.get("actors")).items()}
    out["actors"] = {name: actors[name] for name in told_apart(actors)}
    return out


def _actors(told: Any) -> dict[str, dict[str, Any]]:
    """What a part says of its actors, as far as the metrics hold such things."""
    if not isinstance(told, Mapping):
        return {}
    found = {str(name): values for name, values in list(told.items())[:MOST_ACTORS] if isinstance(values, Mapping)}
    return {
        name: {key: value for key, value in values.items() if key in OF_ACTORS and isinstance(value, (str, int, float))}
        for name, values in found.items()
    }


def _number(value: Any) -> float:
    """A count or a time that was told; 0 where it is none."""
    return value if _is_number(value) and value >= 0 else 0


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
