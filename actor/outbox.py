"""The outbox: numbered blocks, kept until the buffer has acknowledged them, within a byte bound."""

from __future__ import annotations

import itertools
from collections import deque
from dataclasses import dataclass
from typing import Any

from headrace.common.block import Block


@dataclass(frozen=True)
class Item:
    """A numbered block: rows ``first .. last`` of the outbox's stream, accounting for ``steps`` env steps."""

    first: int
    last: int
    steps: int
    block: Block


class Outbox:
    """Numbers blocks from seq 1 and forgets them only when acknowledged or rejected.

    Args:
        limit_bytes: no block is taken while more than this waits (one block is always taken).
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._items: deque[Item] = deque()
        self._unsent = 0
        self._next_seq = 1
        self.nbytes = 0
        self.steps = 0

    def has_room(self) -> bool:
        """Whether :meth:`add` may be called."""
        return self.nbytes < self._limit_bytes

    def add(self, block: Block, steps: int) -> Item:
        """Number a block; it is immutable from now on."""
        item = Item(self._next_seq, self._next_seq + block.n_rows - 1, steps, block)
        self._items.append(item)
        self._next_seq = item.last + 1
        self.nbytes += block.nbytes
        self.steps += steps
        return item

    def next_unsent(self) -> Item | None:
        """The oldest block that was not sent in this session, or none; it counts as sent from now on."""
        if self._unsent >= len(self._items):
            return None
        self._unsent += 1
        return self._items[self._unsent - 1]

    def acknowledge(self, seq: int) -> int:
        """Forget blocks up to ``seq``; env steps that are settled by it. A forged future seq settles nothing unsent."""
        settled = 0
        while self._items and self._unsent > 0 and self._items[0].last <= seq:
            item = self._items.popleft()
            self._unsent -= 1
            self.nbytes -= item.block.nbytes
            self.steps -= item.steps
            settled += item.steps
        return settled

    def rewind(self, acknowledged: int) -> int:
        """A new session knows rows up to ``acknowledged``: forget those, send all others again; env steps settled."""
        self._unsent = sum(1 for item in self._items if item.last <= acknowledged)
        settled = self.acknowledge(acknowledged)
        self._unsent = 0
        return settled

    def __len__(self) -> int:
        return len(self._items)

    def get_state(self) -> dict[str, Any]:
        """Blocks and cursors."""
        return {"items": list(self._items), "next_seq": self._next_seq}

    def set_state(self, state: dict[str, Any]) -> None:
        """Restore :meth:`get_state`; everything counts as unsent."""
        self._items = deque(state["items"])
        self._next_seq, self._unsent = state["next_seq"], 0
        self.nbytes = sum(i.block.nbytes for i in self._items)
        self.steps = sum(i.steps for i in self._items)

    def check_valid(self) -> tuple[bool, str]:
        """Whether blocks are numbered without gap and the byte count adds up."""
        items = list(self._items)
        for a, b in itertools.pairwise(items):
            if b.first != a.last + 1:
                return False, f"gap between seq {a.last} and {b.first}"
        if self.nbytes != sum(i.block.nbytes for i in items):
            return False, f"{self.nbytes} bytes counted, {sum(i.block.nbytes for i in items)} held"
        return True, ""
