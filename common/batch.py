"""A batch: rows drawn from the pool with their observations gathered, as numpy arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
PINNED = 1 << 56  # id of the first pinned demonstration, above those of all rows of the ring
SHARD_BITS = 57  # where a learner of several shards writes the number of a row's shard into its id


@dataclass(frozen=True)
class Batch:
    """B sampled rows.

    Attributes:
        ids: ``(B,)`` int64, absolute row ids (which row it is, for ever); from ``PINNED`` on those of pinned demonstrations. A
            learner of several shards adds the number of the shard above them (``SHARD_BITS``).
        rows: ``(B,)`` of ``spec.row_dtype``; its ``obs``/``next_obs`` columns are frame ids, not data.
        obs: key -> ``(B, *shape)``, or ``(B, h, *shape)`` when the spec stacks h > 1 frames, oldest first.
        next_obs: the same for the true last observation of each row's window.
        weights: ``(B,)`` float32 importance weights, at most 1; None where every row counts the same.
        sets: ``(B,)`` uint8, which named set each row was drawn for; None where there are no sets.
        epoch: the pool's when the rows were drawn: in a later one the ids are void.
    """

    ids: Array
    rows: Array
    obs: dict[str, Array]
    next_obs: dict[str, Array]
    weights: Array | None = None
    sets: Array | None = None
    epoch: int = 0

    def __len__(self) -> int:
        return len(self.ids)

    def split(self, size: int) -> list[Batch]:
        """Consecutive batches of ``size`` rows each, which is a whole part of B, as views."""
        if size == len(self):
            return [self]
        return [self[low : low + size] for low in range(0, len(self), size)]

    def __getitem__(self, index: Any) -> Batch:
        """Some of the rows, by anything that numpy takes; a slice gives views."""
        return Batch(
            self.ids[index],
            self.rows[index],
            {key: values[index] for key, values in self.obs.items()},
            {key: values[index] for key, values in self.next_obs.items()},
            None if self.weights is None else self.weights[index],
            None if self.sets is None else self.sets[index],
            self.epoch,
        )
