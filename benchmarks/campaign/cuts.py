"""The power cuts: how many of which kind are asked for, and what their records say together."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

from campaign.numbered import FAULTS
from campaign.records import Record, latest

SYNCED = {"load": 30, "capacity": 10}
MEMORY = {"memory": 30}
TRIALS = {**SYNCED, **MEMORY}
KINDS = tuple(TRIALS)


def of_kind(kind: str, known: Sequence[Record]) -> list[Record]:
    """The newest record of each cut of one kind, in order."""
    return [r for (k, _), r in sorted(latest(list(known), "kind", "trial").items()) if k == kind]


def of_kinds(kinds: Sequence[str], known: Sequence[Record]) -> list[Record]:
    """Of several."""
    return [r for kind in kinds for r in of_kind(kind, known)]


def summarise(kinds: Sequence[str], known: Sequence[Record]) -> dict[str, Any]:
    """Counts over the newest record of each cut of ``kinds``."""
    own = of_kinds(kinds, known)
    times = [r["restart_s"] for r in own if r["restart_s"] is not None] or [0.0]
    each = {
        kind: {"cuts": len(these), "failures": sum(not r["passed"] for r in these)}
        for kind in kinds
        if (these := of_kind(kind, known))
    }
    return {
        "kinds": each,
        "cuts": len(own),
        "failures": sum(not r["passed"] for r in own),
        **{name: sum(r[name] for r in own) for name in ("acked", "labels", "rated", "cached", *FAULTS)},
        "restart_median_s": median(times),
        "restart_max_s": max(times),
        "lost_max_s": max((r.get("lost_s", 0.0) for r in own), default=0.0),
    }
