"""The power cuts: how many of which kind are asked for, and what their records say together."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

from campaign.numbered import FAULTS
from campaign.records import Record, latest

TRIALS = {"load": 30, "capacity": 10}
KINDS = tuple(TRIALS)


def of_kind(kind: str, known: Sequence[Record]) -> list[Record]:
    """The newest record of each cut of one kind, in order."""
    return [r for (k, _), r in sorted(latest(list(known), "kind", "trial").items()) if k == kind]


def summarise(known: Sequence[Record]) -> dict[str, Any]:
    """Counts over the newest record of each cut."""
    own = [r for kind in KINDS for r in of_kind(kind, known)]
    times = [r["restart_s"] for r in own if r["restart_s"] is not None] or [0.0]
    kinds = {
        kind: {"cuts": len(these), "failures": sum(not r["passed"] for r in these)}
        for kind in KINDS
        if (these := of_kind(kind, known))
    }
    return {
        "kinds": kinds,
        "cuts": len(own),
        "failures": sum(not r["passed"] for r in own),
        **{name: sum(r[name] for r in own) for name in ("acked", "labels", "rated", "cached", *FAULTS)},
        "restart_median_s": median(times),
        "restart_max_s": max(times),
    }
