"""The past: the rows of an older pool, with which a new run begins. None of them counts as anything that the run did."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from headrace.buffer.files import LEDGER_TABLE, ROWS, column_file
from headrace.buffer.ledger import MAX_NAME_BYTES

Array = np.ndarray[Any, Any]
COUNTED_ANEW = (
    "env_steps",
    "updates",
    "offline_updates",
    "lost_before",
    "rejected",
    "duplicates",
    "retired",
    "stale_updates",
    "max_priority",
)


def as_past(body: Mapping[str, Any], arrays: Mapping[str, Array]) -> tuple[dict[str, Any], dict[str, Array]]:
    """A pool's state with its counters at zero, its rows numbered from 0, and its actors renamed ``past-<index>/<name>``.

    New actors begin with the names and sequence numbers that the old ones had, so the old ones must give them up.

    Args:
        body: plain values of ``SACReplayPool.get_state``.
        arrays: its arrays.
    """
    numbers = {**body["numbers"], **dict.fromkeys(COUNTED_ANEW, 0), "head": len(arrays[ROWS])}
    entries = arrays[LEDGER_TABLE].copy()
    for index, entry in enumerate(entries):
        name = f"past-{index}/{entry['actor'].decode('utf-8')}".encode()[:MAX_NAME_BYTES]
        entry["actor"] = name.decode("utf-8", errors="ignore").encode()
    kept = {name: array for name, array in arrays.items() if name != column_file("priority")}  # of another learner
    return {**body, "numbers": numbers}, {**kept, LEDGER_TABLE: entries}
