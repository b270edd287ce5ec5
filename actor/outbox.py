"""The outbox: numbered blocks, kept until the buffer has acknowledged them, within a byte bound."""

from __future__ import annotations

import itertools
from collections import deque
from dataclasses import dataclass
from typing import Any

from headrace.common.block import Block
from headrace.common.errors import BlockRefused, WireError

JOINED_ROWS = 512  # beyond this a longer block saves nothing


@dataclass(frozen=True)
class Item:
    """A numbered block: rows ``first .. last`` of the outbox's stream, accounting for ``steps`` env steps."""

    first: int
    last: int
    steps: int
    block: Block


class Outbox:
    """Numbers blocks from seq 1 and forgets them only when acknowledged or rejected.

    A block is numbered when it is first sent, and never changes from then on. Blocks that wait together become one, since
    what a block costs on its way into the pool hardly depends on its length.

    Args:
        limit_bytes: no block is taken while more than this waits (one block is always taken).
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._waiting: deque[tuple[Block, int]] = deque()
        self._items: deque[Item] = deque()
        self._unsent = 0
        self._next_seq = 1
        self._end_seq = 1  # of the next row that is added
        self.nbytes = 0
        self.steps = 0

    def has_room(self) -> bool:
        """Whether :meth:`add` may be called."""
        return self.nbytes < self._limit_bytes

    @property
    def sent_through(self) -> int:
        """Seq of the last row that was sent in this session or acknowledged before."""
        if self._unsent == len(self._items):
            return self._next_seq - 1
        return self._items[self._unsent].first - 1

    def add(self, block: Block, steps: int) -> int:
        """Take a block that accounts for ``steps`` env steps; returns the seq of its first row."""
        first, self._end_seq = self._end_seq, self._end_seq + block.n_rows
        self._waiting.append((block, steps))
        self.nbytes += block.nbytes
        self.steps += steps
        return first

    def next_unsent(self, limit_bytes: int = 0) -> Item | None:
        """The oldest block that was not sent in this session, or none; it counts as sent from now on.

        Blocks that were never sent are joined while they have at most ``limit_bytes`` together.
        """
        if self._unsent == len(self._items):
            if not self._waiting:
                return None
            self._items.append(self._number(limit_bytes))
        self._unsent += 1
        return self._items[self._unsent - 1]

    def _number(self, limit_bytes: int) -> Item:
        count, joined = self._join(limit_bytes)
        steps = sum(self._waiting.popleft()[1] for _ in range(count))
        item = Item(self._next_seq, self._next_seq + joined.n_rows - 1, steps, joined)
        self._next_seq = item.last + 1
        return item

    def _join(self, limit_bytes: int) -> tuple[int, Block]:
        """How many of the waiting blocks go together, and the block that they make."""
        blocks: list[Block] = []
        rows = nbytes = 0
        for block, _ in self._waiting:
            rows, nbytes = rows + block.n_rows, nbytes + block.nbytes
            if blocks and (nbytes > limit_bytes or rows > JOINED_ROWS):
                break
            blocks.append(block)
        try:
            return len(blocks), Block.join(blocks)
        except BlockRefused:  # not sound together: each goes alone, and the buffer refuses by name what is unsound by itself
            return 1, blocks[0]

    def check_sent(self, seq: int) -> None:
        """Refuse what is said of rows up to ``seq`` when they never left; raises :class:`WireError` of reason ``ack``."""
        if seq >= self._next_seq:
            raise WireError("ack", f"rows up to {seq} are answered, {self._next_seq - 1} were sent")

    def acknowledge(self, seq: int) -> int:
        """Forget blocks up to ``seq`` that were sent in this session; env steps that are settled by it.

        Raises:
            WireError: ``ack``: so many rows were never sent.
        """
        self.check_sent(seq)
        settled = 0
        while self._items and self._unsent > 0 and self._items[0].last <= seq:
            item = self._items.popleft()
            self._unsent -= 1
            self.nbytes -= item.block.nbytes
            self.steps -= item.steps
            settled += item.steps
        return settled

    def rewind(self, acknowledged: int) -> int:
        """A new session knows rows up to ``acknowledged``: forget those, send all others again; env steps settled.

        Raises:
            WireError: ``ack``: so many rows were never sent; then all are to be sent again.
        """
        if acknowledged >= self._next_seq:
            self._unsent = 0
            self.check_sent(acknowledged)
        self._unsent = sum(1 for item in self._items if item.last <= acknowledged)
        settled = self.acknowledge(acknowledged)
        self._unsent = 0
        return settled

    def __len__(self) -> int:
        return len(self._items) + len(self._waiting)

    def get_state(self) -> dict[str, Any]:
        """Blocks and cursors."""
        return {"items": list(self._items), "waiting": list(self._waiting), "next_seq": self._next_seq}

    def set_state(self, state: dict[str, Any]) -> None:
        """Restore :meth:`get_state`; everything counts as unsent."""
        self._items, self._waiting = deque(state["items"]), deque(state["waiting"])
        self._next_seq, self._unsent = state["next_seq"], 0
        self._end_seq = self._next_seq + sum(block.n_rows for block, _ in self._waiting)
        self.nbytes = self._held()
        self.steps = sum(i.steps for i in self._items) + sum(steps for _, steps in self._waiting)

    def check_valid(self) -> tuple[bool, str]:
        """Whether blocks are numbered without gap and the byte count adds up."""
        for a, b in itertools.pairwise(self._items):
            if b.first != a.last + 1:
                return False, f"gap between seq {a.last} and {b.first}"
        if self.nbytes != self._held():
            return False, f"{self.nbytes} bytes counted, {self._held()} held"
        return True, ""

    def _held(self) -> int:
        return sum(i.block.nbytes for i in self._items) + sum(block.nbytes for block, _ in self._waiting)
