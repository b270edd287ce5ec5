"""The label box: late labels that wait for their answer, in order, never ahead of the rows that they are about."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from headrace.actor.label_file import LabelFile
from headrace.actor.ring_file import Place
from headrace.common.label import Label

LABEL_BYTES = 4 << 20
MOST_LABELS = 1024


class Waiting(NamedTuple):
    """One label, by which number its answer names it, and where the file has it."""

    number: int
    label: Label
    place: Place | None


class LabelBox:
    """Numbers labels from 1 and forgets them only when they are answered.

    Args:
        file: keeps them beyond this process, and may hold some already; none: they end with it.
        most: labels kept.
        limit_bytes: of their rewards.

    Attributes:
        damaged: labels that the file could not give back, at least.
    """

    def __init__(self, file: LabelFile | None = None, most: int = MOST_LABELS, limit_bytes: int = LABEL_BYTES) -> None:
        self._file, self._most, self._limit_bytes = file, most, limit_bytes
        left = file.left if file is not None else []
        self.damaged = file.damaged if file is not None else 0
        self._items = deque(Waiting(n, *found) for n, found in enumerate(left, 1))
        self._unsent = 0
        self._next = len(left) + 1
        self.nbytes = sum(item.label.nbytes for item in self._items)

    def __len__(self) -> int:
        return len(self._items)

    def has_room(self, label: Label) -> bool:
        """Whether one more may be kept."""
        fits = len(self._items) < self._most and self.nbytes + label.nbytes <= self._limit_bytes
        return fits and (self._file is None or self._file.has_room(label))

    def keep(self, label: Label) -> Place | None:
        """Put a label, for which there is room, where it outlives the process, if anywhere. One thread keeps and adds.

        Raises:
            SpoolError: the disk does not take it.
        """
        return None if self._file is None else self._file.put(label)

    def add(self, label: Label, place: Place | None = None) -> None:
        """Take a label that lies where :meth:`keep` has put it."""
        self._items.append(Waiting(self._next, label, place))
        self._next += 1
        self.nbytes += label.nbytes

    def next_unsent(self, sent_through: int) -> tuple[int, Label] | None:
        """Number and label to send next; none while its rows, those up to ``sent_through`` are, were not sent before."""
        if self._unsent == len(self._items) or self._items[self._unsent].label.last > sent_through:
            return None
        self._unsent += 1
        return self._items[self._unsent - 1][:2]

    def answered(self, number: int) -> bool:
        """Forget the label ``number``; whether it was waiting for an answer."""
        for i in range(self._unsent):
            item = self._items[i]
            if item.number == number:
                self.nbytes -= item.label.nbytes
                del self._items[i]
                self._unsent -= 1
                if self._file is not None and item.place is not None:
                    self._file.free(item.place, self._items[0].place if self._items else None)
                return True
        return False

    def rewind(self) -> None:
        """A new session: send again what is not answered."""
        self._unsent = 0

    def check_valid(self) -> tuple[bool, str]:
        """Whether numbers ascend and the byte count adds up."""
        numbers = [item.number for item in self._items]
        held = sum(item.label.nbytes for item in self._items)
        if numbers != sorted(set(numbers)) or not 0 <= self._unsent <= len(numbers) or held != self.nbytes:
            return False, f"labels {numbers[:8]}, {self._unsent} sent, {self.nbytes} bytes counted, {held} held"
        return True, ""
