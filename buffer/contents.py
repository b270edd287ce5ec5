"""What one store hands to another, whole: from a snapshot to a pool, or from a pool to its next generation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace.buffer.capture import STATISTICS
from headrace.buffer.files import LEDGER_TABLE, OPTIONAL_COLUMNS, ROWS, SLOT_COLUMNS, column_file, frame_file
from headrace.buffer.header import MOST
from headrace.buffer.ledger import ENTRY
from headrace.buffer.segment import NUMBERS
from headrace.common.errors import PoolDamaged, SpecError
from headrace.common.specs import TransitionSpec

if TYPE_CHECKING:
    from headrace.buffer.store import Store

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Contents:
    """Everything that a pool holds, by reference.

    Attributes:
        numbers: heads and counters, see ``Store.body``.
        rows: ``rows`` and each mutable column -> pieces that laid end to end are the rows below the head.
        frames: key -> pieces likewise, the frames below the frame head.
        entries: the ledger's table.
        moments: ``(2, numbers of all float keys)``, mean and sum of squared deviations.
    """

    numbers: Mapping[str, int]
    rows: Mapping[str, Sequence[Array]]
    frames: Mapping[str, Sequence[Array]]
    entries: Array
    moments: Array

    @classmethod
    def of_store(cls, store: Store) -> Contents:
        """Views of what ``store`` holds; nothing may be inserted meanwhile."""
        rows, frames = store.segment.pieces()
        moments = store.statistics.get_state()
        entries = store.ledger.get_state()["entries"]
        return cls(store.body()["numbers"], rows, frames, entries, np.stack([moments["mean"], moments["m2"]]))

    @classmethod
    def of_snapshot(cls, spec: TransitionSpec, body: Mapping[str, Any], arrays: Mapping[str, Array]) -> Contents:
        """The parts of a snapshot, or of a pool's state, once they are seen to fit ``spec`` and each other.

        Raises:
            SpecError: naming the fields in which the specs differ.
            PoolDamaged: naming the array that does not fit the rest.
        """
        different = spec.differences(TransitionSpec.from_dict(body["spec"]))
        if different:
            raise SpecError(f"the snapshot has another spec (ours first): {'; '.join(different)}")
        numbers = {str(name): int(value) for name, value in body["numbers"].items()}
        columns = {name: column_file(name) for name in SLOT_COLUMNS}
        keys = {o.key: frame_file(o.key) for o in spec.obs}
        missing = sorted({ROWS, LEDGER_TABLE, STATISTICS, *columns.values(), *keys.values()} - set(arrays))
        if missing:
            raise PoolDamaged(f"{missing[0]}: missing from the snapshot")
        _check_arrays(spec, arrays, numbers)
        for name in ("head", "frame_head", "reach", *NUMBERS):
            if not 0 <= numbers[name] <= MOST:
                raise PoolDamaged(f"numbers.{name}: {numbers[name]}, a pool counts from 0 to {MOST}")
        columns |= {name: column_file(name) for name in OPTIONAL_COLUMNS if column_file(name) in arrays}
        rows = {"rows": [arrays[ROWS]], **{name: [arrays[file]] for name, file in columns.items()}}
        frames = {key: [arrays[file]] for key, file in keys.items()}
        return cls(numbers, rows, frames, arrays[LEDGER_TABLE], arrays[STATISTICS])


def _check_arrays(spec: TransitionSpec, arrays: Mapping[str, Array], numbers: Mapping[str, int]) -> None:
    rows = arrays[ROWS]
    count = len(arrays[frame_file(spec.obs[0].key)])
    low, high = numbers["frame_head"] - count, numbers["frame_head"]
    if rows.dtype != spec.row_dtype or rows.ndim != 1 or len(rows) > numbers["head"]:
        raise PoolDamaged(f"{ROWS}: {rows.shape} of {rows.dtype}")
    for name in ("obs", "next_obs"):
        if len(rows) and (rows[name].min() < low or rows[name].max() >= high):
            raise PoolDamaged(f"{ROWS}: {name} points outside frames [{low}, {high})")
    wanted = {column_file(name): (rows.shape, np.dtype(dtype)) for name, dtype in SLOT_COLUMNS.items()}
    optional = {column_file(name): (rows.shape, np.dtype(dtype)) for name, dtype in OPTIONAL_COLUMNS.items()}
    wanted |= {file: facts for file, facts in optional.items() if file in arrays}
    wanted |= {frame_file(o.key): ((count, *o.shape), np.dtype(o.dtype)) for o in spec.obs}
    wanted[LEDGER_TABLE] = (arrays[LEDGER_TABLE].shape[:1], ENTRY)
    width = sum(int(np.prod(o.shape, dtype=np.int64)) for o in spec.obs if o.dtype == "<f4")
    wanted[STATISTICS] = ((2, width), np.dtype("<f8"))
    for file, (shape, dtype) in wanted.items():
        if arrays[file].shape != shape or arrays[file].dtype != dtype:
            raise PoolDamaged(f"{file}: {arrays[file].shape} of {arrays[file].dtype}, expected {shape} of {dtype}")
