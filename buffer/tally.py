"""The tally of a pool: its counts and sizes by name, for whoever owns it and whoever only maps its files."""

from __future__ import annotations

from typing import Any

from headrace.buffer.files import PoolFiles
from headrace.buffer.header import Field, Header
from headrace.buffer.ledger import Ledger
from headrace.common.specs import TransitionSpec

COUNTERS = (
    "rows_accepted",
    "rows_live",
    "rows_evicted",
    "rows_retired",
    "rows_discarded",
    "rows_duplicate",
    "rows_rejected",
    "labels_gone",
    "lost_before",
    "env_steps",
    "updates",
    "offline_updates",
    "stale_updates",
)


def counters(header: Header, ledger: Ledger, size: int) -> dict[str, int]:
    """``COUNTERS`` by name, where ``size`` rows may be sampled; accepted = live + evicted + retired + discarded."""
    head, retired, discarded = header.head, header.retired, header[Field.DISCARDED]
    rows = (head, size, head - size - retired - discarded, retired, discarded, header[Field.DUPLICATES], ledger.rejected)
    rest = (header[Field.LABELS_GONE], ledger.lost_before, ledger.env_steps)
    updates = (header.updates, header[Field.OFFLINE], header[Field.STALE_UPDATES])
    return dict(zip(COUNTERS, (*rows, *rest, *updates), strict=True))


def info(spec: TransitionSpec, files: PoolFiles, ledger: Ledger) -> dict[str, Any]:
    """Identity and sizes."""
    return {
        "uuid": files.pool_id.hex,
        "epoch": files.header[Field.EPOCH],
        "nonce": files.header[Field.NONCE],
        "owner": files.header[Field.OWNER],
        "spec": spec.fingerprint(),
        "nbytes": files.nbytes,
        "row_slots": len(files.rows),
        "row_nbytes": spec.row_dtype.itemsize,
        "frame_slots": len(next(iter(files.frames.values()))),
        "frame_nbytes": spec.frame_nbytes,
        "actors": len(ledger.actors),
    }
