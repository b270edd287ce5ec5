"""The kills of a buffer under load: how many of which kind are asked for, and what their records say together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from campaign.numbered import FAULTS
from campaign.records import Record, latest

TRIALS = {  # level of acknowledgement -> kind -> kills
    "memory": {"load": 60, "snapshot": 20, "capacity": 20},
    "synced": {"load": 20, "snapshot": 5, "capacity": 5},
}
KINDS = ("load", "snapshot", "capacity")
BARS = {"acked": {"memory": 1_000_000, "synced": 100_000}, "restart_s": 5.0}


@dataclass(frozen=True)
class Scale:
    """Sizes of a campaign: the two capacities that the pool changes between, and rows a second of all writers."""

    capacities: tuple[int, int]
    rate: float


# A label at level ``synced`` waits for the disk, so a pool that is filled flat out is smaller there.
FULL = {"memory": Scale((1_000_000, 1_200_000), 40_000), "synced": Scale((100_000, 120_000), 8_000)}
QUICK = Scale((100_000, 120_000), 8_000)


def of_kind(ack: str, kind: str, known: Sequence[Record]) -> list[Record]:
    """The newest record of each kill of one kind, in order."""
    return [r for (k, _), r in sorted(latest(of_level(ack, known), "kind", "trial").items()) if k == kind]


def of_level(ack: str, known: Sequence[Record]) -> list[Record]:
    """The records of one level; those without one are from before there was another."""
    return [r for r in known if r.get("ack", "memory") == ack]


def labelled(known: Sequence[Record]) -> list[Record]:
    """The records of kills that came while rows were labelled and rated too."""
    return [r for r in known if "labels" in r]


def summarise(ack: str, known: Sequence[Record]) -> dict[str, Any]:
    """Counts over the newest record of each kill at one level."""
    own = [r for kind in KINDS for r in of_kind(ack, kind, known)]
    times = [r["restart_s"] for r in own if r["restart_s"] is not None] or [0.0]
    kinds = {}
    for kind in KINDS:
        if these := of_kind(ack, kind, known):
            kinds[kind] = {"kills": len(these), "failures": sum(not r["passed"] for r in these)}
    return {
        "ack": ack,
        "kinds": kinds,
        "kills": len(own),
        "failures": sum(not r["passed"] for r in own),
        **{name: sum(r.get(name, 0) for r in own) for name in ("acked", "labels", "rated", *FAULTS)},
        "restart_median_s": median(times),
        "restart_max_s": max(times),
    }


def said(record: Record, which: str, more: str) -> str:
    """A strike in one line: which it was, its verdict, what was acknowledged and what of that is wrong, and ``more``."""
    counts = ", ".join(f"{name} {record[name]}" for name in ("acked", "labels", "rated", *FAULTS))
    verdict = "passed" if record["passed"] else f"FAILED: {' | '.join(record['problems'])}"
    return f"{which}: {verdict}; {counts}; {more}, back after {record['restart_s']} s"
