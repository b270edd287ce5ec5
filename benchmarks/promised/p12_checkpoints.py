"""P12: a checkpoint is complete or invisible, and the one before survives; kills and failing calls as in checkpoints.py."""

from __future__ import annotations

from collections.abc import Sequence

from campaign import saving
from campaign.promise import Promise, Recorded, Tally, counted
from campaign.records import Record, latest

KILLS = 200


def kills(known: Sequence[Record]) -> Tally:
    """SIGKILL while checkpoints are written, renamed and deleted."""
    own = _of_kind("kill", known)
    figures = {"half_written": sum(r["half"] for r in own)}
    return counted(own, KILLS, figures, "none lost, none wrong", missed=not figures["half_written"])


def faults(known: Sequence[Record]) -> Tally:
    """The k-th write, fsync, rename, unlink, mkdir and open failed, for each k."""
    own = _of_kind("fault", known)
    return counted(own, len(saving.fault_names()), {"calls_failed": sum(r["reached"] for r in own)}, "none lost, none wrong")


def _of_kind(kind: str, known: Sequence[Record]) -> list[Record]:
    return [r for (k, _), r in sorted(latest(list(known), "kind", "trial").items()) if k == kind]


PROMISE = Promise(
    "P12",
    "A checkpoint is complete or invisible, and the previous one survives whatever kills the learner or fails on disk.",
    (
        Recorded("kills", "checkpoints.py", "checkpoints.jsonl", kills),
        Recorded("faults", "checkpoints.py --faults", "checkpoints.jsonl", faults),
    ),
)
