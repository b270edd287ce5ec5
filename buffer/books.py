"""The books of one pool: ledger and statistics, kept through a kill by two stamped copies.

Rules: a change of the ledger's table is stamped before the first row that needs it is committed; the tail never passes the
older stamp; what the newest stamp does not cover is replayed from the rows themselves at open.
"""

from __future__ import annotations

from headrace.buffer.ledger import Ledger
from headrace.buffer.stamps import Stamps
from headrace.buffer.statistics import RunningStatistics
from headrace.common.specs import TransitionSpec

STAMP_ROWS = 16384  # at most this many rows are replayed at open, beyond one block


class Books:
    """What is known of all rows ever committed, beside the rows.

    Args:
        spec: of the rows.
        max_actors: of the ledger.
        stamps: the two copies.

    Attributes:
        ledger: up to where each stream is committed.
        statistics: moments of the observations.
    """

    def __init__(self, spec: TransitionSpec, max_actors: int, stamps: Stamps) -> None:
        self.ledger = Ledger(max_actors)
        self.statistics = RunningStatistics(spec)
        self._stamps = stamps

    @staticmethod
    def nbytes(spec: TransitionSpec, max_actors: int) -> int:
        """Bytes of what a stamp covers."""
        return Ledger.nbytes(max_actors) + RunningStatistics(spec).nbytes()

    def encode(self) -> bytes:
        """Ledger and statistics in ``nbytes`` bytes."""
        return self.ledger.encode() + self.statistics.encode()

    def stamp(self, head: int) -> None:
        """Write down what is known of the rows below ``head``."""
        self._stamps.write(head, self.encode())

    def stamp_both(self, head: int) -> None:
        """The same in both copies, so that neither needs a row."""
        self.stamp(head)
        self.stamp(head)

    def let_go(self, tail: int, head: int) -> None:
        """Make sure that no copy needs a row below ``tail``."""
        while tail > self._stamps.older:
            self.stamp(head)

    def keep_up(self, head: int) -> None:
        """Stamp when many rows were committed since."""
        if head - self._stamps.newest >= STAMP_ROWS:
            self.stamp(head)

    def read(self, tail: int, head: int) -> int:
        """Take the newest whole copy; returns the head that it covers, from which on rows must be replayed.

        Raises:
            PoolDamaged: no copy is whole and covers every row that is gone.
        """
        stamp = self._stamps.read(tail, head)
        size = Ledger.nbytes(self.ledger.max_actors)
        self.ledger.decode(stamp.payload[:size])
        self.statistics.decode(stamp.payload[size:])
        return stamp.head

    def check_valid(self) -> tuple[bool, str]:
        """Whether ledger and statistics are sound."""
        valid, why = self.ledger.check_valid()
        return (valid, why) if not valid else self.statistics.check_valid()
