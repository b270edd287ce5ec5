"""The kills of a buffer under load: how many of which kind are asked for, and what their records say together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from campaign.records import Record, latest

TRIALS = {"load": 60, "snapshot": 20, "capacity": 20}
KINDS = tuple(TRIALS)
FAULTS = ("lost", "duplicated", "corrupted", "phantom")
BARS = {"acked": 1_000_000, "restart_s": 5.0}


@dataclass(frozen=True)
class Scale:
    """Sizes of a campaign: the two capacities that the pool changes between, and rows a second of all writers."""

    capacities: tuple[int, int]
    rate: float


FULL, QUICK = Scale((1_000_000, 1_200_000), 40_000), Scale((100_000, 120_000), 20_000)


def of_kind(kind: str, known: Sequence[Record]) -> list[Record]:
    """The newest record of each kill of one kind, in order."""
    return [r for (k, _), r in sorted(latest(list(known), "kind", "trial").items()) if k == kind]


def summarise(known: Sequence[Record]) -> dict[str, Any]:
    """Counts over the newest record of each kill."""
    own = [r for kind in KINDS for r in of_kind(kind, known)]
    times = [r["restart_s"] for r in own if r["restart_s"] is not None] or [0.0]
    kinds = {}
    for kind in KINDS:
        if these := of_kind(kind, known):
            kinds[kind] = {"kills": len(these), "failures": sum(not r["passed"] for r in these)}
    return {
        "kinds": kinds,
        "kills": len(own),
        "failures": sum(not r["passed"] for r in own),
        **{name: sum(r[name] for r in own) for name in ("acked", *FAULTS)},
        "restart_median_s": median(times),
        "restart_max_s": max(times),
    }
