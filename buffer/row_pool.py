"""Rows in and out of one pool, by number and by id.

``PoolFacts`` holds the store and says what is in it. ``SACReplayPool`` adds where the store comes from, plain dictionaries and
snapshots.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from headrace.buffer.arguments import ids as row_ids
from headrace.buffer.arguments import instance, numbers, text, whole, wrong
from headrace.buffer.handles import HandleReader
from headrace.buffer.header import Field
from headrace.buffer.inserted import Inserted
from headrace.buffer.labels import Labelled
from headrace.buffer.pool_facts import PoolFacts
from headrace.buffer.reader import described, dump_chunk
from headrace.buffer.sampler import Drawn, require_rows
from headrace.buffer.store import Store
from headrace.common.batch import Batch
from headrace.common.block import Block
from headrace.common.errors import LabelRefused, PoolError
from headrace.common.label import Kind, Label
from headrace.common.rounding import first_changed

Array = np.ndarray[Any, Any]
NoneType = type(None)
_MOST_UPDATES = 1 << 32  # of one grant

_WHOLE = ("stream", "first", "last", "outcome", "episode")  # fields of a label


class RowPool(PoolFacts):
    """The rows of one pool; safe for threads: none sees half a call. Once it is closed, each call raises :class:`PoolError`."""

    def insert(self, block: Block, actor: str, stream: int, first_seq: int, priorities: Array | None = None) -> Inserted:
        """Commit a numbered block: row i has seq ``first_seq + i``, starting from 1 in each stream.

        Rows that the ledger knows are dropped; a gap in front is counted. A block larger than ``max_block_rows`` takes several
        commits, one larger than the capacity leaves its newest rows; all of it may be acknowledged. An interrupted insert
        (``KeyboardInterrupt``) keeps the commits that were made, which hold the block's first rows; the same call again
        inserts the others.

        Args:
            block: n rows and their frames.
            actor: name of whoever sends them.
            stream: one of the actor's.
            first_seq: of the first row.
            priorities: ``(n,)`` of the rows, in place of those that the block brings, or else of the running maximum.

        Raises:
            BlockRefused: nothing of the block entered; ``reason`` is that of :meth:`Block.check`, or ``sequence``, ``stream``,
                ``stream-closed``, ``actor-name``, ``actor-limit``.
            PriorityRefused: likewise, for :meth:`update_priorities`' reasons.
            ArgumentError: an argument is of another kind; so from every call.
            PoolError: closed, no spec yet, priorities without prioritised sampling, or in a process that was forked from the
                owner of the files, as each change of them.
        """
        instance("block", block, Block)
        text("actor", actor)
        stream, first_seq = whole("stream", stream), whole("first_seq", first_seq)
        priorities = block.priorities if priorities is None else numbers("priorities", priorities)
        with self._lock:
            store = self._changing()
            given = None if priorities is None else self._sampling.check(priorities, block.n_rows)
            done = store.insert(block, actor, stream, first_seq)
            if given is not None:
                store.change(lambda: self._sampling.supply(done, given))
            return done

    def reject(self, actor: str, stream: int, first_seq: int, rows: int) -> None:
        """Move the cursor of a stream past ``rows`` refused rows, and count those that are new as rejected."""
        text("actor", actor)
        stream, first_seq, rows = whole("stream", stream), whole("first_seq", first_seq), whole("rows", rows, 0)
        with self._lock:
            self._changing().reject(actor, stream, first_seq, rows)

    def label(self, actor: str, stream: int, first: int, last: int, outcome: int) -> Labelled:
        """Say how the episode of rows ``first .. last`` (seqs) of a stream ended, at any time after they were committed.

        A label is wholly there or wholly absent after a kill at any instant, and there once this has returned. Rows that are
        gone are passed over and counted as ``labels_gone``; saying the same again changes nothing.

        Args:
            actor: who sent the rows.
            stream: stream of the rows.
            first: seq of the first row.
            last: seq of the last row.
            outcome: ``OUTCOME_UNKNOWN``, ``OUTCOME_SUCCESS`` or ``OUTCOME_FAILURE`` of ``headrace.common.specs``.

        Raises:
            LabelRefused: nothing changed; ``reason`` is that of :meth:`Label.check`, or ``actor``, ``stream``, ``ahead``, or
                ``pinned`` for rows of demonstrations.
        """
        return self.amend(actor, Label(Kind.OUTCOME, stream, first, last, outcome))

    def amend_rewards(self, actor: str, stream: int, first: int, rewards: Any) -> Labelled:
        """Put ``rewards``, ``(n,)`` or ``(n, K)``, in place of those of rows ``first .. first + n - 1``; else as :meth:`label`.

        Raises:
            LabelRefused: also reason ``reward``: a reward beyond the executed steps of its row, or a whole number that float32,
                as which rewards are stored, cannot hold.
        """
        values = numbers("rewards", rewards)
        if values.ndim not in (1, 2):
            raise wrong("rewards", rewards, "(n,) or (n, K) numbers")
        changed = first_changed(values)
        if changed:
            raise LabelRefused("reward", f"rewards: {changed}; scale them, or give them as floating point, which is rounded")
        with np.errstate(over="ignore"):  # what is too large is refused as infinite
            values = values.astype("<f4")
        values = values[:, None] if values.ndim == 1 else values
        last = whole("first", first) + len(values) - 1
        return self.amend(actor, Label(Kind.REWARDS, stream, first, last, rewards=values))

    def discard(self, actor: str, stream: int, first: int, last: int) -> Labelled:
        """Never sample rows ``first .. last`` again, such as those of an episode that went wrong; else as :meth:`label`.

        They keep their place until they are evicted, and stay counted as env steps and in the statistics.
        """
        return self.amend(actor, Label(Kind.DISCARD, stream, first, last))

    def amend(self, actor: str, label: Label) -> Labelled:
        """Carry out a label; :meth:`label`, :meth:`amend_rewards` and :meth:`discard` by one name."""
        text("actor", actor)
        instance("label", label, Label)
        instance("kind", label.kind, Kind)
        fields: dict[str, Any] = {name: whole(name, getattr(label, name)) for name in _WHOLE}
        label = replace(label, **fields)  # Python's numbers, which never overflow
        instance("rewards", label.rewards, np.ndarray, NoneType)
        with self._lock:
            store = self._changing()
            if self._pinned is not None and actor not in store.ledger.actors:
                self._pinned.refuse_label(actor)
            return store.label(actor, label)

    def admit(self, actor: str) -> None:
        """Say before its first block whether an actor can have a place in the ledger.

        Raises:
            BlockRefused: reason ``actor-name`` or ``actor-limit``.
        """
        with self._lock:
            self._open().ledger.admit(text("actor", actor))

    def sample(self, batch_size: int, rng: np.random.Generator | None = None, mix: str = "critic") -> Batch:
        """A batch of live rows that are not discarded: distinct and equally likely, or as ``sampling`` says.

        Args:
            batch_size: B.
            rng: draws instead of the pool's own generator.
            mix: with named sets, whose shares: ``critic``, or ``actor`` where some set has an ``actor_share``.

        Raises:
            PoolTooSmall: names B and the live rows, or the sets that have too few.
            PoolError: there is no such mix.
        """
        with self._lock:
            drawn = self.draw(batch_size, rng, mix)
            batch = self._gather(drawn.ids)
            return Batch(batch.ids, batch.rows, batch.obs, batch.next_obs, drawn.weights, drawn.sets, self.epoch)

    def draw(self, batch_size: int, rng: np.random.Generator | None = None, mix: str = "critic", batches: int = 1) -> Drawn:
        """The rows that :meth:`sample` would gather, by id, with its errors; of ``batches`` batches one after the other."""
        batch_size, batches = whole("batch_size", batch_size, 1), whole("batches", batches, 1)
        instance("rng", rng, np.random.Generator, NoneType)
        text("mix", mix)
        with self._lock:
            if self._store is None:
                require_rows(batch_size, 0)
            return self._sampling.draw(batch_size, rng, mix, batches)

    def update_priorities(self, ids: Array, priorities: Array, epoch: int | None = None) -> int:
        """Give sampled rows new priorities; returns how many were stale: gone, discarded, or of an earlier epoch.

        Stale ones are ignored and counted. Of a row that is named twice the last priority stays.

        Args:
            ids: ``(n,)`` integers, ``Batch.ids``.
            priorities: ``(n,)``, at least 0, such as |td|; ``sampling.priority_eps`` is added.
            epoch: ``Batch.epoch``; None means now.

        Raises:
            PriorityRefused: a number is negative or not finite, an id was never given out, or the lengths differ; none of
                them was taken.
            PoolError: sampling is not prioritised.
        """
        ids, priorities = row_ids("ids", ids), numbers("priorities", priorities)
        epoch = None if epoch is None else whole("epoch", epoch)
        with self._lock:
            return self._changing().change(lambda: self._sampling.update(epoch, ids, priorities))

    def gather(self, ids: Array, out: Batch | None = None) -> Batch:
        """The rows ``ids``, ``(B,)`` int64, of the ring or demonstrations by handle, into ``out`` when given.

        Raises:
            PoolError: an id is not, or no longer, live.
        """
        ids = row_ids("ids", ids)
        instance("out", out, Batch, NoneType)
        with self._lock:
            self._open()
            gone = (ids < self.tail) | (ids >= self.head)
            if self._pinned is not None:
                gone &= ~self._pinned.holds(ids)
            if gone.any():
                raise PoolError(f"row ids {ids.min()} to {ids.max()} were asked for, live are [{self.tail}, {self.head})")
            return self._gather(ids, out)

    def _gather(self, ids: Array, out: Batch | None = None) -> Batch:
        if self._handles is None:
            pinned = None if self._pinned is None else self._pinned.reader
            self._handles = HandleReader(self._open().segment.reader, pinned)
        return self._handles.gather(ids, out)

    def live(self, start: int, stop: int) -> Batch:
        """Those rows of ``[start, stop)`` that are live and not discarded; there may be none."""
        start, stop = whole("start", start), whole("stop", stop)
        with self._lock:
            low, reader = max(start, self.tail), self._open().segment.reader
            ids = np.arange(low, max(low, min(stop, self.head)))
            return reader.gather(ids[~reader.discarded(ids)])

    def sync(self) -> None:
        """With ``pool.ack: synced``, make everything inserted so far survive a power cut; one call may cover many blocks.

        At level ``memory`` there is nothing to wait for: an insert that has returned survives the death of the process.

        Raises:
            SyncFailed: the disk did not take it, and this pool can acknowledge nothing more; opened again it goes on from the
                last sync.
        """
        with self._lock:
            self._changing().sync()

    def grant_updates(self, n: int, *, offline: bool = False) -> int:
        """Count ``n`` more optimiser updates, in one store that survives the process; returns the new total of both phases."""
        n = whole("n", n, 0, _MOST_UPDATES)
        with self._lock:
            store, field = self._changing(), Field.OFFLINE if offline else Field.UPDATES
            store.header[field] += n
            return store.header.updates

    def settle_updates(self) -> None:
        """Note, in one store, that a learner has made every update granted so far and has kept what came of them."""
        with self._lock:
            header = self._changing().header
            header[Field.SETTLED] = header.updates + 1

    def dump(self, start: int | None = None, stop: int | None = None) -> Iterator[dict[str, Any]]:
        """Live rows of ``[start, stop)`` in id order, while others go on inserting.

        Yields:
            ``id``, ``actor`` (its name), ``stream``, ``seq``, ``episode``, ``t``, ``learner_epoch`` and ``learner_step`` (the
            weights that acted), ``outcome``, ``source`` (who acted, a word for each executed step), ``discarded`` (bool; such
            rows are listed too) and ``digest`` (see :func:`row_digests`).
        """
        low = self.tail if start is None else whole("start", start)
        high = self.head if stop is None else whole("stop", stop)
        while True:
            with self._lock:
                low, high = max(low, self.tail), min(high, self.head)
                if low >= high:
                    return
                store = self._open()
                batch = store.segment.reader.gather(np.arange(low, min(high, low + dump_chunk(store.spec))))
                actors, discarded = store.ledger.actors, store.segment.reader.discarded(batch.ids)
            yield from described(batch, discarded, actors)
            low += len(batch)

    def check_valid(self) -> tuple[bool, str]:
        """Whether rings, ledger, statistics and sampler agree; looks at every live row."""
        with self._lock:
            return (True, "") if self._store is None else self._store.check_valid()

    def _changing(self) -> Store:
        """The store for whoever writes to it."""
        return self._open()
