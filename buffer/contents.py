"""What one store hands to another, whole: from a snapshot to a pool, or from a pool to its next generation."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace.buffer.capture import STATISTICS
from headrace.buffer.files import LEDGER_TABLE, OPTIONAL_COLUMNS, ROWS, SLOT_COLUMNS, column_file, frame_file
from headrace.buffer.header import MOST
from headrace.buffer.ledger import ENTRY, Ledger
from headrace.buffer.segment import NUMBERS
from headrace.common.block import check_frames, check_rows
from headrace.common.errors import BlockRefused, PoolDamaged, SpecError
from headrace.common.specs import TransitionSpec

if TYPE_CHECKING:
    from headrace.buffer.store import Store

Array = np.ndarray[Any, Any]
PART_ROWS = 4096  # that are looked at together


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

    def require_sound(self, spec: TransitionSpec) -> None:
        """Refuse what could not have come into a pool row by row, before anything is given up for it.

        Raises:
            PoolDamaged: naming the array, and what is wrong in it.
        """
        count = sum(map(len, self.frames[spec.obs[0].key]))
        low = self.numbers["frame_head"] - count
        ledger = self._ledger()
        for piece in self.rows["rows"]:
            for start in range(0, len(piece), PART_ROWS):
                rows = piece[start : start + PART_ROWS].copy()
                rows["obs"] -= low
                rows["next_obs"] -= low
                with _blamed(ROWS):
                    check_rows(rows, count, spec)
                known, why = ledger.covers(rows)
                if not known:
                    raise PoolDamaged(f"{LEDGER_TABLE}: {why}")
        for o in spec.obs:
            with _blamed(frame_file(o.key)):
                for piece in self.frames[o.key]:
                    for start in range(0, len(piece), PART_ROWS):
                        check_frames(o, piece[start : start + PART_ROWS])
        for name, most in (("outcome", 2), ("discarded", 1)):
            if any(len(piece) and piece.max() > most for piece in self.rows[name]):
                raise PoolDamaged(f"{column_file(name)}: numbers above {most}")
        mean, m2 = self.moments
        if not (np.isfinite(mean).all() and np.isfinite(m2).all() and (m2 >= 0).all()):
            raise PoolDamaged(f"{STATISTICS}: no moments")

    def _ledger(self) -> Ledger:
        ledger = Ledger(max(1, len(self.entries)))
        counters = {name: self.numbers[name] for name in ledger.counters()}
        try:
            ledger.set_state({"entries": self.entries, **counters})
        except ValueError as error:  # a name is no text
            raise PoolDamaged(f"{LEDGER_TABLE}: {error}") from error
        if len(ledger.actors) != len(self.entries):
            raise PoolDamaged(f"{LEDGER_TABLE}: an actor is there twice")
        valid, why = ledger.check_valid()
        if not valid:
            raise PoolDamaged(f"{LEDGER_TABLE}: {why}")
        return ledger


@contextlib.contextmanager
def _blamed(file: str) -> Iterator[None]:
    try:
        yield
    except BlockRefused as error:
        raise PoolDamaged(f"{file}: {error}") from error


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
