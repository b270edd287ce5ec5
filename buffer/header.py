"""The header of one pool: what it is, and 8-byte words in one mapped page, each stored in one move and sealed by itself.

A word holds a number of 48 bits, and 16 bits that follow from the number and from the word's place. So a flipped bit and a word
of another place are found at open; and since each word carries its own seal, a kill at any instruction leaves every word whole:
there is no checksum over several that could be half written.
"""

from __future__ import annotations

import mmap
import uuid
from collections.abc import Iterable
from enum import IntEnum
from pathlib import Path

from headrace.common.errors import PoolDamaged

NAME = "header.bin"
FORMAT = 3
_MAGIC = b"headrace"
_BITS = 48
_NUMBER = (1 << _BITS) - 1
MOST = _NUMBER  # largest number of a word


class Field(IntEnum):
    """Place of each word of ``header.bin``; in front of them are a magic word, the format and the pool's uuid."""

    EPOCH = 4  # raised durably at every open and restore: a handle of an earlier epoch is void
    NONCE = 5  # new at every open: a reader that sees the owner's nonce has mapped the same file
    OWNER = 6  # pid
    CAPACITY = 7
    HEAD = 8  # rows below are committed; the one store that publishes a commit
    FLOOR = 9  # rows below are gone although the capacity would keep them
    FRAME_HEAD = 10
    RETIRED = 11  # rows that lost their frames; valid while COUNTED == FLOOR, else NEXT_RETIRED is
    NEXT_RETIRED = 12
    COUNTED = 13
    UPDATES = 14  # optimiser updates granted in the online phase
    DUPLICATES = 15  # rows that were sent again
    RESTORING = 16  # 1 while a snapshot is being loaded, else 0
    REACH = 17  # most rows that one commit in the ring may have
    AMENDS = 18  # changes of committed rows, times two; odd while one is being written
    DISCARDED = 19  # rows that a label has discarded
    LABELS_GONE = 20  # rows that a label named when they were gone
    MAX_PRIORITY = 21  # bits of the largest float32 priority that any row ever had; 0 before there is one
    STALE_UPDATES = 22  # priorities of rows that were gone
    OFFLINE = 24  # optimiser updates granted in the offline phase
    BOOT = 25  # which boot of the machine the files were last opened in, see durable.py
    SETTLED = 26  # updates granted when a learner last left with all of them made, plus 1; 0 before


_SALTS = [(place + 1) * 0x9E37 & 0xFFFF for place in range(max(Field) + 1)]


def sealed(field: Field, number: int) -> int:
    """The word that holds ``number`` at the place ``field``.

    The seal is the sum of the number's three parts of 16 bits without carry, so each single bit changes it.

    Raises:
        ValueError: the number is negative or of more than 48 bits.
    """
    number = int(number)  # numpy's would overflow
    if number >> _BITS:
        raise ValueError(f"{field.name}: {number}, a word holds 0 to {MOST}")
    return ((number ^ number >> 16 ^ number >> 32 ^ _SALTS[field]) & 0xFFFF) << _BITS | number


class Header:
    """The words of one pool.

    Args:
        buffer: ``SIZE`` bytes of a map, or a copy of the first bytes to read.
    """

    SIZE = mmap.PAGESIZE
    WORDS = 512  # bytes in which all words are

    def __init__(self, buffer: mmap.mmap | bytes) -> None:
        self._buffer = buffer
        self._words = memoryview(buffer).cast("Q")

    def create(self, pool_id: uuid.UUID) -> None:
        """Begin the header of a new pool; every word holds 0."""
        memoryview(self._buffer)[: 8 * Field.EPOCH] = _identity(pool_id)
        for field in Field:
            self[field] = 0

    def is_of(self, pool_id: uuid.UUID) -> bool:
        """Whether this is the header of that pool, in the format of this build."""
        return self.raw(8 * Field.EPOCH) == _identity(pool_id)

    def __getitem__(self, field: Field) -> int:
        return self._words[field] & _NUMBER

    def __setitem__(self, field: Field, number: int) -> None:
        self._words[field] = sealed(field, number)

    def damaged(self) -> list[Field]:
        """The words whose seal does not fit their number."""
        words = [(field, self._words[field]) for field in Field]  # each read once: the owner goes on storing
        return [field for field, word in words if word != sealed(field, word & _NUMBER)]

    def require_whole(self, folder: Path, fields: Iterable[Field] = Field) -> None:
        """Refuse words that are not what was stored.

        Raises:
            PoolDamaged: names file and words.
        """
        bad = sorted(set(fields) & set(self.damaged()))
        if bad:
            named = ", ".join(f"{field.name} (bytes {8 * field} to {8 * field + 7}, {self[field]})" for field in bad)
            raise PoolDamaged(
                f"{folder / NAME}: not what was written: {named}; put back a whole file, or load the newest snapshot into a new"
                " pool"
            )

    @property
    def head(self) -> int:
        """Id after the newest committed row."""
        return self._words[Field.HEAD] & _NUMBER

    @property
    def tail(self) -> int:
        """Oldest live row: publishing HEAD evicts by itself, so that commit and eviction are one store."""
        words = self._words
        return max(words[Field.FLOOR] & _NUMBER, (words[Field.HEAD] & _NUMBER) - (words[Field.CAPACITY] & _NUMBER))

    @property
    def retired(self) -> int:
        """Rows that went before their time because their frames were overwritten, also after a kill inside a retirement."""
        return self[Field.RETIRED if self[Field.COUNTED] == self[Field.FLOOR] else Field.NEXT_RETIRED]

    @property
    def updates(self) -> int:
        """Optimiser updates granted, in both phases."""
        return self[Field.UPDATES] + self[Field.OFFLINE]

    @property
    def settled(self) -> bool:
        """Whether a learner has left with every update made, and none was granted since."""
        return self[Field.SETTLED] == self.updates + 1

    def raw(self, size: int) -> bytes:
        """The first ``size`` bytes."""
        return bytes(self._buffer[:size])

    def flush(self) -> None:
        """Make the header durable."""
        if isinstance(self._buffer, mmap.mmap):
            self._buffer.flush()


def _identity(pool_id: uuid.UUID) -> bytes:
    return _MAGIC + FORMAT.to_bytes(8, "little") + pool_id.bytes
