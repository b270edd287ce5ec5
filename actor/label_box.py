"""The label box: late labels that wait for their answer, in order, never ahead of the rows that they are about."""

from __future__ import annotations

from collections import deque

from headrace.common.label import Label

LABEL_BYTES = 4 << 20


class LabelBox:
    """Numbers labels from 1 and forgets them only when they are answered.

    Args:
        most: labels kept.
        limit_bytes: of their rewards.
    """

    def __init__(self, most: int = 1024, limit_bytes: int = LABEL_BYTES) -> None:
        self._most, self._limit_bytes = most, limit_bytes
        self._items: deque[tuple[int, Label]] = deque()
        self._unsent = 0
        self._next = 1
        self.nbytes = 0

    def __len__(self) -> int:
        return len(self._items)

    def add(self, label: Label) -> bool:
        """Take a label; false when the box is full."""
        if len(self._items) >= self._most or self.nbytes + label.nbytes > self._limit_bytes:
            return False
        self._items.append((self._next, label))
        self._next += 1
        self.nbytes += label.nbytes
        return True

    def next_unsent(self, sent_through: int) -> tuple[int, Label] | None:
        """Number and label to send next; none while its rows, those up to ``sent_through`` are, were not sent before."""
        if self._unsent == len(self._items) or self._items[self._unsent][1].last > sent_through:
            return None
        self._unsent += 1
        return self._items[self._unsent - 1]

    def answered(self, number: int) -> bool:
        """Forget the label ``number``; whether it was waiting for an answer."""
        for i in range(self._unsent):
            if self._items[i][0] == number:
                self.nbytes -= self._items[i][1].nbytes
                del self._items[i]
                self._unsent -= 1
                return True
        return False

    def rewind(self) -> None:
        """A new session: send again what is not answered."""
        self._unsent = 0

    def check_valid(self) -> tuple[bool, str]:
        """Whether numbers ascend and the byte count adds up."""
        numbers = [number for number, _ in self._items]
        held = sum(label.nbytes for _, label in self._items)
        if numbers != sorted(set(numbers)) or not 0 <= self._unsent <= len(numbers) or held != self.nbytes:
            return False, f"labels {numbers[:8]}, {self._unsent} sent, {self.nbytes} bytes counted, {held} held"
        return True, ""
