"""A packed weight set in pieces, each copied, hashed and looked through as it comes, so that the last one takes no longer."""

from __future__ import annotations

import hashlib
from collections import deque

import numpy as np

from headrace.common.errors import WireError
from headrace.common.lent import Lender
from headrace.common.weights import DIGEST_BYTES, HALF, Entry, Raw, WeightSet, read_head, stored_as

FLOATS = ("<f4", "<f8", "<f2", HALF)
_EXPONENT = np.uint16(0x7F80)  # of a bfloat16; all of it is set in NaN and infinity


class WeightReader:
    """Takes a set from its first byte to its last.

    Attributes:
        total: bytes of the set.
        held: those that are here.
        not_finite: name of the first tensor that holds NaN or infinity, of those that are here; empty when none does.

    Args:
        total: what the sender says. Memory is taken as bytes come.
        lender: of that memory.

    Raises:
        WireError: ``weights``: there is no such memory.
    """

    def __init__(self, total: int, lender: Lender) -> None:
        self.total, self.held, self.not_finite = total, 0, ""
        try:
            self._room = lender.take(total)
        except OSError:
            raise WireError("weights", f"{total} bytes do not fit into memory") from None
        self._blob = self._room.toreadonly()
        self._digest = hashlib.sha256()
        self._entries: deque[Entry] | None = None  # those to be looked through
        self._looked = 0

    def add(self, data: Raw) -> None:
        """Take the next bytes, as many as are left at most."""
        begin, self.held = self.held, self.held + len(data)
        self._room[begin : self.held] = data
        self._digest.update(self._blob[begin : min(self.held, self.total - DIGEST_BYTES)])
        self._look()

    @property
    def packed(self) -> Raw:
        """The bytes of the set."""
        return self._blob

    def finish(self) -> WeightSet:
        """The set, once all of it is here.

        Raises:
            WireError: ``weights``: it is damaged, or none.
        """
        return WeightSet.unpack(self._blob, self._digest.digest())

    def _look(self) -> None:
        """Look through the floats that have come whole since the last time."""
        if self._entries is None:
            head = read_head(self._blob[: self.held], self.total)
            if head is None:
                return
            self._entries = deque(entry for entry in head.entries if entry.dtype in FLOATS)
        while self._entries and not self.not_finite:
            entry, kind = self._entries[0], stored_as(self._entries[0].dtype)
            begin = max(entry.begin, self._looked)
            count = max(0, (min(entry.end, self.held) - begin) // kind.itemsize)
            numbers = np.frombuffer(self._blob, kind, count, begin)
            finite = (numbers & _EXPONENT) != _EXPONENT if entry.dtype == HALF else np.isfinite(numbers)
            if not finite.all():
                self.not_finite = entry.name
            self._looked = begin + count * kind.itemsize
            if self._looked < entry.end:
                return
            self._entries.popleft()
