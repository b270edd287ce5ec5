"""The outbox: numbered blocks, kept until the buffer has acknowledged them, within a byte bound."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from headrace.actor.label_box import LabelBox
from headrace.actor.store import Item, Store, StreamName
from headrace.common.block import Block
from headrace.common.errors import BlockRefused, OutboxFull, WireError

JOINED_ROWS = 512  # beyond this a longer block saves nothing
FULL_FIX = (
    "give actor.outbox_bytes (or actor.spool_bytes) more room, or choose actor.when_full: drop_oldest, or block where the loop"
    " may wait"
)


@dataclass(frozen=True)
class Numbered:
    """A block as it is sent: the buffer knows its first row by the seq ``first``."""

    first: int
    block: Block


class Outbox:
    """Numbers rows from seq 1 and forgets them only when acknowledged or rejected, or dropped where ``when_full`` says so.

    What a block holds is settled when it is first sent, and never changes from then on. Blocks that wait together become one,
    since what a block costs on its way into the pool hardly depends on its length.

    Attributes:
        nbytes: bytes of the blocks that wait.
        steps: env steps that they account for.
        dropped: env steps that were given up for want of room. Those of a block that was under way when it was dropped count
            until an acknowledgement shows that it had arrived.
        damaged: env steps that the store could not give back.
        next_episode: number of the first episode of this process; the stream has none of its own yet from there on.
        labels: what was said about its rows late, until that is answered.

    Args:
        store: where blocks lie.
        when_full: ``block`` takes nothing, ``stop`` raises, ``drop_oldest`` gives up whole episodes, the oldest first.
    """

    def __init__(self, store: Store, when_full: str = "block") -> None:
        self._store, self._when_full = store, when_full
        self.labels = LabelBox(store.labels)
        left = store.recovered()
        items, self.next_episode = left.items, left.next_episode
        self._next_seq = self._new_from = left.next_seq  # of the next row that is added; rows before are an earlier process's
        self._welcomed = False
        self._waiting = deque(items)
        self._items: deque[Item] = deque()
        self._sent = 0  # of the items
        self._sent_through = items[0].first - 1 if items else self._next_seq - 1
        self._left = self._next_seq - 1  # last seq that was ever sent, by this process or by one before
        self._doubtful: deque[Item] = deque()  # dropped, and maybe arrived
        self._given_up = -1  # episode of which no more is taken, since its beginning was dropped
        self.nbytes, self.steps = sum(i.nbytes for i in items), sum(i.steps for i in items)
        self.dropped, self.damaged = 0, left.damaged

    @property
    def sent_through(self) -> int:
        """Seq of the last row that was sent in this session or acknowledged before."""
        return self._sent_through

    @property
    def stream(self) -> int:
        """What the buffer calls the stream; 0 before the first welcome."""
        return self._store.name.stream

    def on_wire(self, seq: int) -> int:
        """The seq by which the buffer knows a row."""
        return seq - self._store.name.base

    def make_room(self, nbytes: int) -> bool:
        """Whether a block of ``nbytes`` may be added now, once what ``when_full`` says is done.

        Raises:
            OutboxFull: there is no room, and that is to stop the loop.
        """
        if self._store.has_room(self.nbytes, nbytes):
            return True
        if self._when_full == "stop":
            raise OutboxFull(f"{self.nbytes} bytes of experience wait for the buffer, and more may not: {FULL_FIX}")
        while self._when_full == "drop_oldest" and len(self) and not self._store.has_room(self.nbytes, nbytes):
            self._drop_episode()
        return self._store.has_room(self.nbytes, nbytes)

    def keep(self, block: Block, steps: int) -> Item:
        """Put a block, for which there is room, into the store. Only one thread may keep and add."""
        first, last = self._next_seq, self._next_seq + block.n_rows - 1
        episodes = int(block.rows["episode"][0]), int(block.rows["episode"][-1])
        places = (self._store.put(first, steps, block),) if episodes[0] != self._given_up else ()
        return Item(first, last, steps, block.nbytes, episodes, places)

    def add(self, item: Item) -> int:
        """Take what :meth:`keep` gave; the seq of its first row."""
        self._next_seq = item.last + 1
        if item.episodes[0] == self._given_up:
            self.dropped += item.steps
            self._given_up = item.episodes[1]
            return item.first
        self._waiting.append(item)
        self.nbytes += item.nbytes
        self.steps += item.steps
        return item.first

    def next_unsent(self, limit_bytes: int = 0) -> Numbered | None:
        """The oldest block that was not sent in this session, or none; it counts as sent from now on.

        Blocks that were never sent are joined while they have at most ``limit_bytes`` together.
        """
        while self._sent < len(self._items) or self._waiting:
            if self._sent == len(self._items):
                item, block = self._join(limit_bytes)
                self._items.append(item)
            else:
                item = self._items[self._sent]
                block = self._read(item)
            if block is None:
                del self._items[self._sent]
                self.damaged += item.steps
                self._forgotten(item)
                continue
            self._sent += 1
            self._sent_through = item.last
            self._left = max(self._left, item.last)
            return Numbered(self.on_wire(item.first), block)
        return None

    def _join(self, limit_bytes: int) -> tuple[Item, Block | None]:
        """Take the waiting items that go together; what they become, and its block."""
        taken: list[Item] = []
        blocks: list[Block] = []
        rows = nbytes = 0
        for item in self._waiting:
            rows, nbytes = rows + item.last + 1 - item.first, nbytes + item.nbytes
            if taken and (nbytes > limit_bytes or rows > JOINED_ROWS or item.first != taken[-1].last + 1):
                break
            block = self._read(item)
            if block is None:
                break
            taken.append(item)
            blocks.append(block)
        if not taken:
            return self._waiting.popleft(), None
        try:
            joined = Block.join(blocks)
        except BlockRefused:  # not sound together: each goes alone, and the buffer refuses by name what is unsound by itself
            taken, joined = taken[:1], blocks[0]
        for _ in taken:
            self._waiting.popleft()
        return _one(taken), joined

    def _read(self, item: Item) -> Block | None:
        blocks = [self._store.get(place) for place in item.places]
        return None if None in blocks else Block.join([block for block in blocks if block is not None])

    def check_sent(self, seq: int) -> None:
        """Refuse what is said of rows up to ``seq`` when they never left; raises :class:`WireError` of reason ``ack``."""
        most = self.on_wire(self._left)
        if seq > most:
            raise WireError("ack", f"rows up to {seq} are answered, {most} were sent")

    def acknowledge(self, seq: int) -> int:
        """Forget blocks up to the buffer's ``seq`` that were sent in this session; env steps that are settled by it.

        Raises:
            WireError: ``ack``: so many rows were never sent.
        """
        self.check_sent(seq)
        return self._settle(seq + self._store.name.base)

    def _settle(self, seq: int) -> int:
        settled = 0
        while self._doubtful and self._doubtful[0].last <= seq:
            item = self._doubtful.popleft()  # it was dropped, and had arrived
            self.dropped -= item.steps
            settled += item.steps
        while self._sent > 0 and self._items[0].last <= seq:
            item = self._items.popleft()
            self._sent -= 1
            settled += item.steps
            self._forgotten(item)
        return settled

    def welcomed(self, epoch: int, pool: str, known: Mapping[int, int]) -> int:
        """A session has begun: forget what the buffer has, send all else again.

        The stream keeps its name as long as its rows go into one pool. An outbox that was filled before for another pool, or
        whose last numbers were lost with a damaged file and given out twice, gets a new one: ``epoch``.

        Args:
            epoch: of this process.
            pool: uuid of the buffer's pool; empty where it is not told.
            known: stream -> last acknowledged seq.

        Returns:
            Env steps that are settled by it.

        Raises:
            WireError: ``ack``: the buffer knows rows that never left; then all are to be sent again.
        """
        name, first = self._store.name, not self._welcomed
        self._welcomed = True
        if name.stream == 0 or (first and pool and name.pool not in ("", pool)):
            name = StreamName(epoch, self._oldest - 1, pool)
            settled = self._rewind(name.base)
        else:
            acknowledged = known.get(name.stream, 0)
            if not first and acknowledged > self.on_wire(self._left):
                self._rewind(0)
                self.check_sent(acknowledged)
            settled = self._rewind(acknowledged + name.base)
            if first and acknowledged > self.on_wire(self._left):
                name = StreamName(epoch, self._oldest - 1, pool)
            name = replace(name, pool=pool or name.pool)
        if name != self._store.name:
            self._store.rename(name)
        return settled

    @property
    def _oldest(self) -> int:
        """Seq of the oldest row that waits, or of the next."""
        return next((item.first for item in (*self._items, *self._waiting)), self._next_seq)

    def _rewind(self, acknowledged: int) -> int:
        while self._waiting and self._waiting[0].last <= min(acknowledged, self._new_from - 1):
            self._items.append(self._waiting.popleft())  # sent by an earlier process
        self._sent = sum(1 for item in self._items if item.last <= acknowledged)
        settled = self._settle(acknowledged)
        self._sent = 0
        self._sent_through = self._oldest - 1
        self._doubtful.clear()
        return settled

    def _drop_episode(self) -> None:
        """Give up what is left of the oldest episode, and of those that share blocks with it."""
        episode = (self._items or self._waiting)[0].episodes[0]
        while len(self) and (self._items or self._waiting)[0].episodes[0] == episode:
            if self._items:
                item = self._items.popleft()
                if self._sent > 0:
                    self._sent -= 1
                    self._doubtful.append(item)
            else:
                item = self._waiting.popleft()
            episode = item.episodes[1]
            self.dropped += item.steps
            self._forgotten(item)
        if not len(self):
            self._given_up = episode

    def _forgotten(self, item: Item) -> None:
        self.nbytes -= item.nbytes
        self.steps -= item.steps
        oldest = (self._items or self._waiting or [None])[0]
        self._store.free(item.places[-1], None if oldest is None else oldest.places[0])

    def __len__(self) -> int:
        return len(self._items) + len(self._waiting)

    @property
    def outlives(self) -> bool:
        """Whether what waits outlives the process."""
        return self._store.outlives

    def close(self) -> None:
        """Let the next process have what waits, as far as the store outlives this one."""
        self._store.close()

    def check_valid(self) -> tuple[bool, str]:
        """Whether seqs ascend and bytes and steps add up."""
        held = [*self._items, *self._waiting]
        for a, b in itertools.pairwise(held):
            if b.first <= a.last:
                return False, f"seq {b.first} follows {a.last}"
        found = sum(item.nbytes for item in held), sum(item.steps for item in held)
        if found != (self.nbytes, self.steps):
            return False, f"{self.nbytes} bytes and {self.steps} steps counted, {found} held"
        return True, ""


def _one(items: Sequence[Item]) -> Item:
    places = tuple(place for item in items for place in item.places)
    steps, nbytes = sum(item.steps for item in items), sum(item.nbytes for item in items)
    return Item(items[0].first, items[-1].last, steps, nbytes, (items[0].episodes[0], items[-1].episodes[1]), places)
