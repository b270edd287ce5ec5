"""Late labels: changes of rows that are committed already, each wholly there or wholly absent after a kill at any instant.

    journal.write(label)      from here on the label is there, whatever happens
    AMENDS becomes odd        readers of the mapped files know that rows are changing
    columns change            repeating this changes nothing more, so it is simply done again at open
    AMENDS becomes even

A label names rows by (actor, stream, seq). Which ids these are is looked up backwards from the head, since labels come soon
after their rows; rows that are gone are passed over and counted.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from headrace.buffer.fence import Fence
from headrace.buffer.files import PoolFiles
from headrace.buffer.header import MOST, Field
from headrace.buffer.segment import Segment
from headrace.common.errors import LabelRefused, PoolDamaged
from headrace.common.label import ANY_EPISODE, Kind, Label

Array = np.ndarray[Any, Any]
_RECORD = struct.Struct("<qqqqqqQqq")  # kind, outcome, actor, stream, first, last, episode, and the counts after it


@dataclass(frozen=True)
class Labelled:
    """What became of one label.

    Attributes:
        rows: live rows that it changed.
        gone: rows of its range that are not in the pool any more.
    """

    rows: int
    gone: int


NOTHING_LABELLED = Labelled(0, 0)


class Labels:
    """Changes the rows of one segment.

    Args:
        segment: holds the rows.
        files: the segment's.
        amending: called with ids and rows before these change.
    """

    def __init__(self, segment: Segment, files: PoolFiles, amending: Callable[[Array, Array], None]) -> None:
        self._segment = segment
        self._files = files
        self._header = files.header
        self._fence = Fence()
        self._amending = amending

    def apply(self, actor: int, label: Label) -> tuple[Array, Labelled]:
        """Carry out a checked label about rows of ``actor``, an index of the ledger.

        Returns:
            Ids of the rows that changed, ``(n,)`` int64 ascending, and the count of them.

        Raises:
            LabelRefused: reason ``reward``: a reward beyond the executed steps of a row.
        """
        header = self._header
        found = self._segment.find(actor, label.stream, label.first, label.last)
        ids = self._meant(label, found)
        rows = self._segment.reader.rows(ids)
        ids, rewards = self._changed(label, ids, rows)
        counts = header[Field.DISCARDED], min(MOST, header[Field.LABELS_GONE] + label.n_rows - len(found))
        if len(ids):
            self._amending(ids, self._segment.reader.rows(ids))
            counts = counts[0] + (len(ids) if label.kind is Kind.DISCARD else 0), counts[1]
            serial = header[Field.AMENDS] + 1
            self._files.journal.write(serial, _encode(actor, label, counts))
            self._change(serial, label, ids, rewards, counts)
        else:
            header[Field.LABELS_GONE] = counts[1]
        return ids, Labelled(len(ids), label.n_rows - len(found))

    def recover(self) -> None:
        """Carry out the label that the last owner had written down but not finished.

        Raises:
            PoolDamaged: rows were being changed, and the journal does not say how.
        """
        amends = self._header[Field.AMENDS]
        record = self._files.journal.read(amends | 1)
        if record is None:
            if amends & 1:
                raise PoolDamaged(f"journal.bin: change {amends} of the rows was under way, and its record is not whole")
            return
        actor, label, counts = _decode(record, self._segment.spec.window)
        ids = self._meant(label, self._segment.find(actor, label.stream, label.first, label.last))
        rewards = (
            None
            if label.rewards is None
            else label.rewards[self._segment.reader.rows(ids)["seq"].astype(np.int64) - label.first]
        )
        self._change(amends | 1, label, ids, rewards, counts)

    def _meant(self, label: Label, ids: Array) -> Array:
        """Those of the label's episode that are not discarded: nothing can be said about the others any more."""
        reader = self._segment.reader
        kept: Array = ids[~reader.discarded(ids)]
        return kept if label.episode == ANY_EPISODE else kept[reader.rows(kept)["episode"] == label.episode]

    def _changed(self, label: Label, ids: Array, rows: Array) -> tuple[Array, Array | None]:
        """The ids for which the label says something new, and their rewards."""
        if label.kind is Kind.DISCARD:
            return ids, None
        if label.rewards is None:
            return ids[rows["outcome"] != label.outcome], None
        rewards = label.rewards[rows["seq"].astype(np.int64) - label.first]
        if rewards[np.arange(rewards.shape[1])[None, :] >= rows["steps"][:, None]].any():
            raise LabelRefused("reward", "a reward beyond the executed steps of its row is not zero")
        new = (rewards != rows["rewards"]).any(axis=1)
        return ids[new], rewards[new]

    def _change(self, serial: int, label: Label, ids: Array, rewards: Array | None, counts: tuple[int, int]) -> None:
        header, slots = self._header, ids % self._segment.sizes.row_slots
        header[Field.AMENDS] = serial
        self._fence()  # for readers of the mapped files: whoever sees a changed row sees that it was changed
        if label.kind is Kind.DISCARD:
            self._files.columns["discarded"][slots] = 1
        elif rewards is not None:
            self._files.rows["rewards"][slots] = rewards
        else:
            self._files.columns["outcome"][slots] = label.outcome
        header[Field.DISCARDED], header[Field.LABELS_GONE] = counts
        self._fence()
        header[Field.AMENDS] = serial + 1


def _encode(actor: int, label: Label, counts: tuple[int, int]) -> bytes:
    head = _RECORD.pack(label.kind, label.outcome, actor, label.stream, label.first, label.last, label.episode, *counts)
    return head + (b"" if label.rewards is None else label.rewards.tobytes())


def _decode(record: bytes, window: int) -> tuple[int, Label, tuple[int, int]]:
    kind, outcome, actor, stream, first, last, episode, discarded, gone = _RECORD.unpack_from(record)
    rewards = np.frombuffer(record, "<f4", offset=_RECORD.size).reshape(-1, window) if kind == Kind.REWARDS else None
    return actor, Label(Kind(kind), stream, first, last, outcome, rewards, episode), (discarded, gone)
