"""Where an outbox keeps blocks that wait: what every store does, and the one in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from headrace.actor.label_file import LabelFile
from headrace.common.block import Block


@dataclass(frozen=True)
class Item:
    """Rows ``first .. last`` of the outbox's stream that are sent as one block.

    Attributes:
        first, last: seqs.
        steps: env steps that the rows account for.
        nbytes: of the block.
        episodes: those of its first and its last row.
        places: where the store keeps its parts.
    """

    first: int
    last: int
    steps: int
    nbytes: int
    episodes: tuple[int, int]
    places: tuple[Any, ...]


@dataclass(frozen=True)
class StreamName:
    """How the outbox's rows are known to a buffer.

    Attributes:
        stream: number of the stream; 0 while no buffer has welcomed this outbox.
        base: its rows bear the outbox's own seqs less this.
        pool: uuid of the pool that they go to; empty while that is not known.
    """

    stream: int = 0
    base: int = 0
    pool: str = ""


@dataclass(frozen=True)
class Recovered:
    """What an earlier process left.

    Attributes:
        items: its blocks, oldest first.
        next_seq: seq of the next row.
        next_episode: number of the next episode.
        damaged: steps that could not be read.
    """

    items: Sequence[Item] = ()
    next_seq: int = 1
    next_episode: int = 0
    damaged: int = 0


class Store(Protocol):
    """Keeps blocks while they wait; it is put to by one thread, and read by another."""

    @property
    def outlives(self) -> bool:
        """Whether what waits outlives the process."""
        ...

    @property
    def labels(self) -> LabelFile | None:
        """Where labels about its rows lie; none: in memory."""
        ...

    def recovered(self) -> Recovered:
        """What was there when it was opened."""
        ...

    def has_room(self, held: int, nbytes: int) -> bool:
        """Whether a block of ``nbytes`` may be put while ``held`` bytes of blocks wait."""
        ...

    def put(self, first: int, steps: int, block: Block) -> Any:
        """Keep a block; its place. May take as long as a disk does."""
        ...

    def get(self, place: Any) -> Block | None:
        """The block that was put there; none when it was damaged since."""
        ...

    def free(self, gone: Any, oldest: Any) -> None:
        """Forget all that was put before ``oldest``, the place of what waits longest; where nothing waits that is none, and all
        up to ``gone``, a place, is forgotten. What was put and is still to be added is not."""
        ...

    @property
    def name(self) -> StreamName:
        """What the stream was called last."""
        ...

    def rename(self, name: StreamName) -> None:
        """Remember what the stream is called from now on, before anything is sent under it."""
        ...

    def close(self) -> None:
        """Let the next process have it."""
        ...


class Memory:
    """Blocks in memory, which end with their process.

    Args:
        limit_bytes: no block is taken while more than this waits (one block is always taken).
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self.name, self.outlives = StreamName(), False
        self.labels: LabelFile | None = None

    def recovered(self) -> Recovered:
        """Nothing."""
        return Recovered()

    def has_room(self, held: int, nbytes: int) -> bool:
        """Whether less than the limit is held."""
        return held < self._limit_bytes

    def put(self, first: int, steps: int, block: Block) -> Block:
        """The block is its own place."""
        return block

    def get(self, place: Block) -> Block:
        """The block."""
        return place

    def free(self, gone: Block, oldest: Block | None) -> None:
        """Nothing is to do."""

    def rename(self, name: StreamName) -> None:
        """Remember it as long as this process lives."""
        self.name = name

    def close(self) -> None:
        """Nothing is to do."""
