"""The label file: late labels that wait for their answer lie beside the spool on the robot's disk, and outlive the process."""

from __future__ import annotations

import itertools
import json
import logging
from pathlib import Path

from headrace.actor.ring_file import Place, RingFile
from headrace.common.errors import LabelRefused, WireError
from headrace.common.label import Label
from headrace.common.specs import TransitionSpec
from headrace.common.wire.codec import decode, label_parts, parse_label
from headrace.common.wire.messages import LabelHead

LOG = logging.getLogger(__name__)
_LENGTH_BYTES = 4  # of a record's first part
_HEAD_BYTES = 128  # more than that part ever takes


class LabelFile:
    """Labels in a ring file of their own: they are few and small, so rows that fill the spool never leave them without room.

    Attributes:
        left: what an earlier process left, oldest first, and where it lies.
        damaged: gaps between them, and labels that no row of ``spec`` could take.

    Args:
        path: the file; it is made where there is none.
        size: bytes of a new one.
        spec: of the rows that labels are about.
    """

    def __init__(self, path: Path, size: int, spec: TransitionSpec) -> None:
        if not path.exists():
            RingFile.make(path, size, json.dumps({"labels": 1}).encode())
        self._ring = RingFile(path)
        self._saved = True
        self.left: list[tuple[Label, Place]] = []
        self.damaged = 0
        places: list[Place] = []
        for place, body in self._ring.recover():
            places.append(place)
            label = _parse(body, spec)
            if label is None:
                self.damaged += 1
            else:
                self.left.append((label, place))
        self.damaged += sum(b.position != a.end for a, b in itertools.pairwise(places))
        if self.damaged:
            LOG.error("%s: at least %d labels of an earlier process are damaged and lost", path, self.damaged)
        if self.left:
            LOG.info("%s: %d labels of an earlier process wait for the buffer", path, len(self.left))

    def has_room(self, label: Label) -> bool:
        """Whether there is room for one more."""
        return label.nbytes + _HEAD_BYTES <= self._ring.free_bytes

    def put(self, label: Label) -> Place:
        """Write a label, for which there is room; it is on disk when this returns. One thread puts.

        Raises:
            SpoolError: the disk does not take it.
        """
        if not self._saved:  # what was answered is not found again, but for what was since the newest label
            self._saved = True
            self._ring.save()
        head, *rewards = label_parts(0, label)
        return self._ring.append([len(head).to_bytes(_LENGTH_BYTES, "little"), head, *rewards])

    def free(self, gone: Place, oldest: Place | None) -> None:
        """The label at ``gone`` was answered; ``oldest`` is that of those which wait. Any thread may call this."""
        self._ring.free(gone.end if oldest is None else oldest.position)
        self._saved = False

    def close(self) -> None:
        """Let the next process have the file."""
        self._ring.close()


def _parse(body: bytes, spec: TransitionSpec) -> Label | None:
    """The label of a record; none when it is no label about rows of ``spec``."""
    view = memoryview(body)
    start = _LENGTH_BYTES + int.from_bytes(view[:_LENGTH_BYTES], "little")
    try:
        head = decode(view[_LENGTH_BYTES:start])
        if not isinstance(head, LabelHead):
            return None
        label = parse_label(head, [view[start:]] if len(view) > start else [], spec)
        label.check(spec)
    except (WireError, LabelRefused):
        return None
    return label
