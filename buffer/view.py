"""``PoolView``: a pool read through its mapped files by a process that does not own it; writes nothing, takes no lock.

A gather copies first and looks at the header afterwards: rows that were written over meanwhile are reported as bad, never
returned as good (``fence.py`` says why that is sound). It may be the pool of a living buffer or of a run that has ended.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from headrace.buffer import durable, generations, pinned
from headrace.buffer import files as pool_files
from headrace.buffer.arguments import directory as as_directory
from headrace.buffer.books import Books
from headrace.buffer.config import PoolConfig
from headrace.buffer.fence import Fence, require_ordered_stores
from headrace.buffer.handles import HandleReader
from headrace.buffer.header import Field
from headrace.buffer.ledger import Ledger
from headrace.buffer.pinned import DEMOS, Pinned
from headrace.buffer.reader import Reader, described, dump_chunk
from headrace.buffer.ring import geometry
from headrace.buffer.tally import counters, info
from headrace.common.batch import Batch
from headrace.common.config import dump, load
from headrace.common.errors import PoolDamaged, PoolError
from headrace.common.specs import TransitionSpec

Array = np.ndarray[Any, Any]
COPY_ROWS = 4096
GATHERS = 3  # while labels are written, which takes less than a gather
TRIES = 50
WAIT_S = 0.002


class PoolView:
    """The pool at ``directory``, mapped read-only; used by one thread at a time.

    Args:
        directory: of a pool, with manifest and header.
        nonce: what the owner says that its header holds; a view of other files than the owner's is refused.

    Raises:
        PoolError: no pool, another nonce, a snapshot is being loaded into it, or (with a nonce) a processor without
            ordered stores.
        PoolDamaged: names the file; ``PoolTorn``: not opened since the machine stopped while it was in use.
    """

    def __init__(self, directory: str | Path, nonce: int | None = None) -> None:
        directory = as_directory("directory", directory)
        if nonce is not None:
            require_ordered_stores()
        current = generations.read(directory)
        if current is None:
            raise PoolError(f"{directory}: there is no pool (a snapshot is loaded, not mapped)")
        found, folder = current
        self.directory = directory
        self._made_of = {"uuid": found["uuid"], "plain": found["plain"], "demos": found.get("demos")}
        self.config = load(PoolConfig, found["config"], f"{directory}: pool")
        self.spec = TransitionSpec.from_dict(found["spec"])
        sizes, payload = geometry(self.spec, self.config), Books.nbytes(self.spec, self.config.max_actors)
        pool_id = uuid.UUID(hex=found["uuid"])
        durable.check_recovered(folder)
        self._files = pool_files.open_existing(folder, self.spec, sizes, payload, pool_id, readonly=True)
        self._header = self._files.header
        self._header.require_whole(folder)
        self._reader = Reader(self.spec, self._files)
        self._pinned = Pinned.read(directory / DEMOS, verify=False) if found.get("demos") else None
        self._handles = HandleReader(self._reader, None if self._pinned is None else self._pinned.reader)
        self._fence = Fence()
        self._stuck = 0  # value of AMENDS that a dead owner has left
        self.nonce = self._header[Field.NONCE]
        if nonce is not None and nonce != self.nonce:
            raise PoolError(f"{directory}: mapped files have nonce {self.nonce}, the owner's {nonce}; these are other files")
        if not self.is_current:
            raise PoolError(f"{directory}: a snapshot is being loaded into this pool; try again")

    @property
    def head(self) -> int:
        """Id after the newest committed row."""
        return self._header[Field.HEAD]

    @property
    def tail(self) -> int:
        """Id of the oldest live row."""
        return self._header.tail

    @property
    def size(self) -> int:
        """Rows that may be sampled: the live ones that are not discarded."""
        tail, head = self.tail, self.head
        parts = (self._reader.discarded(np.arange(i, min(i + COPY_ROWS, head))) for i in range(tail, head, COPY_ROWS))
        return head - tail - sum(int(np.count_nonzero(part)) for part in parts)

    @property
    def is_current(self) -> bool:
        """Whether this is still the pool that was opened: no new owner, no snapshot loaded over it, no newer files."""
        # In this order: a load that has ended has set a new nonce before.
        return not self._header[Field.RESTORING] and self._header[Field.NONCE] == self.nonce

    def staging(self, n: int) -> Batch:
        """Arrays of ``n`` rows to gather into."""
        return self._reader.staging(n)

    def gather(self, ids: Array, out: Batch | None = None) -> tuple[Batch, Array]:
        """The rows ``ids``, ``(B,)`` int64, with their observations.

        Args:
            ids: absolute row ids, or handles of demonstrations.
            out: arrays of B rows to write into; fresh ones without it.

        Returns:
            The batch, and ``(B,)`` bool: rows whose contents mean nothing, since they were not or no longer live.
        """
        for _ in range(GATHERS):
            head, amends = self.head, self._header[Field.AMENDS]  # rows below head are whole; what is gone is known afterwards
            self._fence()
            batch = self._handles.gather(ids, out)
            self._fence()
            bad: Array = (ids < self.tail) | (ids >= head)
            if self._pinned is not None:
                bad &= ~self._pinned.holds(ids)
            changing = amends != self._header[Field.AMENDS] or (amends & 1 and amends != self._stuck)
            if not changing:
                break
        if changing or not self.is_current:
            bad[:] = True
        return batch, bad

    def _gather_settled(self, ids: Array) -> tuple[Batch, Array]:
        """As :meth:`gather`, of ascending ids, when no label is being written, so that only rows that are gone are bad."""
        while True:
            batch, bad = self.gather(ids)
            if not self.is_current:
                raise PoolError(f"{self.directory}: has a new owner or new contents since it was opened; try again")
            if not len(ids) or not bad[-1] or ids[-1] < self.tail:
                return batch, bad
            self._settle()

    def _settle(self) -> None:
        """Wait until no label is being written; one that stays so was left behind by a dead owner, and nothing moves."""
        for _ in range(TRIES):
            amends = self._header[Field.AMENDS]
            if not amends & 1:
                return
            time.sleep(WAIT_S)
            if self._header[Field.AMENDS] != amends:
                return
        self._stuck = amends

    def live(self, start: int, stop: int) -> Batch:
        """Those rows of ``[start, stop)`` that were live all through the gather and are not discarded; there may be none.

        Raises:
            PoolError: the pool has a new owner or new contents.
        """
        low = max(start, self.tail)
        batch, bad = self._gather_settled(np.arange(low, max(low, min(stop, self.head))))
        return batch[~(bad | self._reader.discarded(batch.ids))]

    def actors(self) -> list[str]:
        """As :meth:`SACReplayPool.actors`."""
        return self.ledger().actors

    def made_of(self) -> dict[str, Any]:
        """As :meth:`SACReplayPool.made_of`."""
        return {**self._made_of, "epoch": self._header[Field.EPOCH], "config": dump(self.config)}

    def ledger(self) -> Ledger:
        """Actors and counters as of now.

        Raises:
            PoolDamaged: no whole copy was found; the owner writes them one after the other, so at rest one is.
        """
        ledger = Ledger(self.config.max_actors)
        for left in reversed(range(TRIES)):
            try:
                stamp = self._files.stamps.read(self.tail, self.head)
                ledger.decode(stamp.payload[: Ledger.nbytes(ledger.max_actors)])
                if self._replay(ledger, stamp.head):
                    return ledger
            except PoolDamaged:
                if not left:
                    raise
            time.sleep(WAIT_S)
        raise PoolDamaged(f"{self.directory}: its rows go faster than they can be read")

    def _replay(self, ledger: Ledger, start: int) -> bool:
        """Advance over the rows from ``start`` on; false when some went meanwhile."""
        head = self.head
        parts = [self._reader.rows(np.arange(i, min(i + COPY_ROWS, head))) for i in range(start, head, COPY_ROWS)]
        self._fence()
        if self.tail > start or not self.is_current:
            return False
        for rows in parts:
            ledger.replay(rows, self.spec)
        return True

    def counters(self) -> Mapping[str, int]:
        """As :meth:`SACReplayPool.counters`."""
        return counters(self._header, self.ledger(), self.size)

    def info(self) -> dict[str, Any]:
        """As :meth:`SACReplayPool.info`."""
        sizes = {"path": str(self.directory), "size": self.size, **dump(self.config)}
        return {**sizes, **info(self.spec, self._files, self.ledger()), **pinned.info(self._made_of["demos"])}

    def dump(self, start: int = 0) -> Iterator[dict[str, Any]]:
        """The rows from id ``start`` on that are live now, in id order, without those that go meanwhile.

        As :meth:`SACReplayPool.dump`.
        """
        low, high = max(start, self.tail), self.head
        actors: list[str] = []
        while low < high:
            batch, bad = self._gather_settled(np.arange(low, min(high, low + dump_chunk(self.spec))))
            discarded = self._reader.discarded(batch.ids)
            low = max(low + len(batch), self.tail)
            good = batch[~bad]
            if len(good) and good.rows["actor"].max() >= len(actors):
                actors = self.ledger().actors
            yield from described(good, discarded[~bad], actors)

    def close(self) -> None:
        """Nothing to give back: the maps go with the last array on them."""

    def __enter__(self) -> PoolView:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
