"""What became of one block that was inserted."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Inserted:
    """What became of one block.

    Attributes:
        rows: rows committed.
        duplicates: rows dropped because the ledger knows them.
        lost_before: rows that a gap in front of the block says were never sent.
        last_seq: last committed seq of the stream, what may be acknowledged.
        env_steps: executed env steps that the committed rows account for.
    """

    rows: int
    duplicates: int
    lost_before: int
    last_seq: int
    env_steps: int
