"""The pool's thread: performs inserts, draws and publishes in order, away from the socket loop.

Pool pages can stall on disk, reservation or cold memory, so only this thread touches them and heartbeats never wait
for a page. Work comes in as plain values and goes out as plain values.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from headrace.buffer.drawing import Again, Draw, Drawing, Grant
from headrace.buffer.labels import NOTHING_LABELLED, Labelled
from headrace.buffer.pool import SACReplayPool
from headrace.buffer.priorities import check_priorities
from headrace.buffer.shelf import Shelf
from headrace.common.block import ROW_REASONS, Array, Block
from headrace.common.errors import BlockRefused, LabelRefused, PoolError, PriorityRefused, WireError
from headrace.common.label import Label
from headrace.common.specs import TransitionSpec
from headrace.common.weights import Version
from headrace.common.wire.codec import Frame, Parts, parse_block
from headrace.common.wire.compression import compress, widths
from headrace.common.wire.deflate import plain, travelled
from headrace.common.wire.fragments import size_of
from headrace.common.wire.messages import BlockHead


@dataclass(frozen=True)
class Open:
    """Make the pool for a spec that an actor declared."""

    spec: TransitionSpec


@dataclass(frozen=True)
class Insert:
    """Commit one block."""

    peer: bytes
    actor: str
    head: BlockHead
    frames: Sequence[Frame]

    @property
    def nbytes(self) -> int:
        """Bytes that wait with it."""
        return travelled(self.frames)


@dataclass(frozen=True)
class Shelve:
    """Put a published weight set on the shelf."""

    peer: bytes
    version: Version
    blob: Frame

    @property
    def nbytes(self) -> int:
        """Bytes that wait with it."""
        return travelled([self.blob])


@dataclass(frozen=True)
class Update:
    """Give rows that were drawn in ``pool_epoch`` new priorities."""

    peer: bytes
    pool_epoch: int
    ids: Array
    errors: Array

    @property
    def nbytes(self) -> int:
        """Bytes that wait with it."""
        return self.ids.nbytes + self.errors.nbytes


@dataclass(frozen=True)
class Amend:
    """Say something about rows that an actor has sent before."""

    peer: bytes
    actor: str
    number: int
    label: Label

    @property
    def nbytes(self) -> int:
        """Bytes that wait with it."""
        return 64 + self.label.nbytes


@dataclass(frozen=True)
class Settle:
    """Note that a learner has made every update granted so far, and has left."""


@dataclass(frozen=True)
class Rewrite:
    """Write the shelf's file, which the disk did not take before."""


Shelving = Shelve | Rewrite
Work = Open | Insert | Draw | Again | Grant | Update | Amend | Settle | Shelving


@dataclass(frozen=True)
class Refusal:
    """Rows ``first .. last`` of a block that may not enter the pool; the cursor has moved past them."""

    first: int
    last: int
    reason: str
    detail: str


@dataclass(frozen=True)
class Done:
    """What became of one piece of work; ``reason`` is empty when it was done, though maybe not for ``refused`` rows.

    ``unwanted`` says why the priorities that came with rows were left out; ``plain_bytes`` are those of ``parts`` before they
    were compressed.
    """

    work: Work
    reason: str = ""
    detail: str = ""
    steps: int = 0
    refused: tuple[Refusal, ...] = ()
    batches: int = 0
    labelled: Labelled = NOTHING_LABELLED
    unwanted: str = ""
    plain_bytes: int = 0
    parts: list[Parts] = field(default_factory=list)


@dataclass(frozen=True)
class Totals:
    """The pool's counters after a round of work."""

    spec: TransitionSpec | None = None
    size: int = 0
    env_steps: int = 0
    updates: int = 0
    offline_updates: int = 0
    counters: dict[str, int] = field(default_factory=dict)
    info: dict[str, Any] = field(default_factory=dict)
    drawable: int = 0
    waiting: str = ""
    sampling: dict[str, Any] = field(default_factory=dict)
    settled: bool = False

    @property
    def live(self) -> int:
        """Rows that batches are drawn from: of named sets those of all of them; 0 while one is waited for."""
        sets = self.sampling.get("sets")
        return 0 if self.waiting else sum(sets.values()) if sets else self.drawable


class PoolWorker:
    """Owns the pool and the shelf.

    Args:
        pool: an existing pool, or none until the first actor declares the spec.
        make_pool: makes the pool for a spec.
        shelf: the weight shelf beside it.
    """

    def __init__(self, pool: SACReplayPool | None, make_pool: Callable[[TransitionSpec], SACReplayPool], shelf: Shelf) -> None:
        self._pool, self._make_pool, self.shelf = pool, make_pool, shelf
        self._info: dict[str, Any] = {}
        self._drawing: Drawing | None = None
        if pool is not None:
            self._opened(pool)

    def run(self, work: Sequence[Work]) -> tuple[list[Done], Totals]:
        """Perform work in order; an error that is not one block's or one peer's fault is raised."""
        done = [self._perform(w) for w in work]
        if self._pool is not None and any(isinstance(w, (Insert, Settle)) for w in work):
            self._pool.sync()  # once for all of the round, before any of it is acknowledged
        return done, self.totals()

    def totals(self) -> Totals:
        """The counters now."""
        pool = self._pool
        if pool is None:
            return Totals()
        return Totals(
            pool.spec,
            pool.size,
            pool.env_steps,
            pool.updates,
            pool.offline_updates,
            pool.counters(),
            self._info,
            pool.drawable,
            pool.waiting,
            pool.sampling_info(),
            pool.updates_settled,
        )

    def streams(self) -> dict[str, dict[int, int]]:
        """Actor -> stream -> last seq that the pool knows; asked once, before the thread starts."""
        return {} if self._pool is None else {actor: self._pool.streams(actor) for actor in self._pool.actors()}

    @property
    def pool(self) -> SACReplayPool | None:
        """The pool, once there is one."""
        return self._pool

    def close(self) -> None:
        """Close the pool."""
        if self._pool is not None:
            self._pool.close()

    def _perform(self, work: Work) -> Done:
        if isinstance(work, Open):
            if self._pool is None:
                self._opened(self._make_pool(work.spec))
            return Done(work)
        if isinstance(work, (Shelve, Rewrite)):
            return self.shelve(work)
        if self._pool is None or self._pool.spec is None or self._drawing is None:
            return Done(work, "no-pool", "no actor has declared its spec yet")
        if isinstance(work, Insert):
            return self._insert(self._pool, self._pool.spec, work)
        if isinstance(work, Update):
            return self._update(self._pool, work)
        if isinstance(work, Amend):
            return _amend(self._pool, work)
        if isinstance(work, Settle):
            self._pool.settle_updates()
            return Done(work)
        if isinstance(work, Grant):
            return Done(work, batches=work.updates, parts=[self._drawing.grant(work)])
        if isinstance(work, Draw):
            batches, parts, missing = self._drawing.draw(work)
        else:
            batches, (parts, missing) = 0, self._drawing.again(work)
        size = sum(map(size_of, parts))
        if work.compressed:
            by = widths(self._pool.spec)
            parts = [compress(p, by) for p in parts]
        return Done(work, "pool-too-small" if missing else "", missing, batches=batches, plain_bytes=size, parts=parts)

    def _opened(self, pool: SACReplayPool) -> None:
        self._pool, self._info = pool, _fixed(pool)
        if pool.spec is not None:
            self._drawing = Drawing(pool, pool.spec)

    def shelve(self, work: Shelving) -> Done:
        """Perform work that touches the shelf alone, in whatever one thread does all of it.

        A large set is hashed and written in a second or so, which no row's acknowledgement should wait for.
        """
        if isinstance(work, Rewrite):
            self.shelf.write_again()
            return Done(work)
        try:
            self.shelf.put(plain(work.blob), work.version)
        except WireError as error:
            return Done(work, error.reason, str(error)[:256])
        return Done(work)

    def _update(self, pool: SACReplayPool, work: Update) -> Done:
        try:
            pool.update_priorities(work.ids, work.errors, work.pool_epoch)
        except PriorityRefused as error:
            return Done(work, f"priority-{error.reason}", str(error)[:256])
        except PoolError as error:
            return Done(work, "priority-unwanted", str(error)[:256])
        return Done(work)

    def _insert(self, pool: SACReplayPool, spec: TransitionSpec, work: Insert) -> Done:
        refused: list[Refusal] = []
        try:
            whole = parse_block(work.head, work.frames, spec)
        except WireError as error:
            return Done(work, error.reason, str(error)[:256])
        block, unwanted = _with_fit_priorities(pool, whole)
        for refusal in self._commit(pool, work, block, work.head.seq):
            if refused and (refused[-1].last + 1, refused[-1].reason) == (refusal.first, refusal.reason):
                refusal = replace(refused.pop(), last=refusal.last)
            refused.append(refusal)
        return Done(work, steps=spec.fresh_steps(block.rows), refused=tuple(refused), unwanted=unwanted)

    def _commit(self, pool: SACReplayPool, work: Insert, block: Block, seq: int) -> Iterator[Refusal]:
        """Commit a part of the block from ``seq`` on; halves it until only the rows that may not enter are left out."""
        n = block.n_rows
        try:
            pool.insert(block, work.actor, work.head.stream, seq)
        except BlockRefused as error:
            if error.reason in ROW_REASONS and n > 1:
                for low, high in ((0, n // 2), (n // 2, n)):
                    yield from self._commit(pool, work, block.part(low, high), seq + low)
                return
            with contextlib.suppress(BlockRefused):  # a stream that the ledger cannot hold has no cursor to move
                pool.reject(work.actor, work.head.stream, seq, n)
            yield Refusal(seq, seq + n - 1, error.reason, str(error)[:256])


def _with_fit_priorities(pool: SACReplayPool, block: Block) -> tuple[Block, str]:
    """The block, without priorities that its rows cannot take; and why they cannot. No row is lost for its priority."""
    if block.priorities is None:
        return block, ""
    if pool.sampling_info()["method"] != "prioritised":
        return replace(block, priorities=None), "unwanted"
    try:
        check_priorities(block.priorities, block.n_rows)
    except PriorityRefused as error:
        return replace(block, priorities=None), error.reason
    return block, ""


def _amend(pool: SACReplayPool, work: Amend) -> Done:
    try:
        return Done(work, labelled=pool.amend(work.actor, work.label))
    except LabelRefused as error:
        return Done(work, error.reason, str(error)[:256])


def _fixed(pool: SACReplayPool) -> dict[str, Any]:
    """What does not change while the pool is open; the rest is in the totals."""
    return {"mixes": pool.mixes, **{name: value for name, value in pool.info().items() if name not in ("size", "actors")}}
