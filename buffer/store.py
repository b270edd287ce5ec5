"""One open pool: rings and books, moved together so that a kill at any instant leaves them in step.

Indexes follow each change of the rows; what is known beside the rows, and its rules, is in books.py.
"""

from __future__ import annotations

import logging
import os
import uuid
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from headrace.buffer import durable, generations, header, live_rows, tally
from headrace.buffer import files as pool_files
from headrace.buffer.books import Books
from headrace.buffer.capture import Capture
from headrace.buffer.config import PoolConfig
from headrace.buffer.contents import Contents
from headrace.buffer.durable import Durable
from headrace.buffer.files import OPTIONAL_COLUMNS, PoolFiles
from headrace.buffer.header import Field
from headrace.buffer.index import Index, Indexes
from headrace.buffer.inserted import Inserted
from headrace.buffer.labels import Labelled, Labels
from headrace.buffer.ledger import Ledger
from headrace.buffer.ring import geometry
from headrace.buffer.segment import Segment
from headrace.buffer.staging import Staging
from headrace.buffer.tombstones import Tombstones
from headrace.common.block import Block
from headrace.common.config import dump
from headrace.common.errors import BlockRefused, CountedRefusal, LabelRefused, PoolDamaged
from headrace.common.label import MAX_SEQ, Kind, Label
from headrace.common.specs import TransitionSpec

Array = np.ndarray[Any, Any]
T = TypeVar("T")
_log = logging.getLogger(__name__)


class Store:
    """The parts of one pool with a fixed spec."""

    def __init__(self, spec: TransitionSpec, config: PoolConfig, files: PoolFiles) -> None:
        self.spec = spec
        self.books = Books(spec, config.max_actors, files.stamps)
        self.ledger, self.statistics = self.books.ledger, self.books.statistics
        self.indexes = Indexes()
        self.files = files
        self.header = files.header
        files.begin(int.from_bytes(os.urandom(6), "little"))
        if self.header[Field.RESTORING]:
            self._forget()
        self.segment = Segment(spec, geometry(spec, config), files)
        self.tombstones = Tombstones()
        self.captures: weakref.WeakSet[Capture] = weakref.WeakSet()
        self._labels = Labels(self.segment, files, self._amending)
        self._config = config
        self._durable: Durable | None = None

    @classmethod
    def create(cls, spec: TransitionSpec, config: PoolConfig, directory: Path | None, extra: Mapping[str, Any]) -> Store:
        """A new, empty store; in ``directory``, whose manifest also keeps ``extra``, or in anonymous memory.

        Raises:
            NoSpace: it does not fit.
        """
        sizes, payload = geometry(spec, config), Books.nbytes(spec, config.max_actors)
        if directory is None:
            files = pool_files.anonymous(spec, sizes, payload)
        else:
            folder = generations.begin(directory)
            files = pool_files.create(folder, spec, sizes, payload)
        store = cls(spec, config, files)
        store.books.stamp_both(0)
        store._keep()
        if directory is not None:
            generations.publish(folder, files.pool_id, {"spec": spec.to_dict(), "config": dump(config), **extra})
        return store

    @classmethod
    def open(cls, spec: TransitionSpec, config: PoolConfig, directory: Path, pool_id: uuid.UUID) -> Store:
        """The store that ``directory`` holds, with everything that was ever acknowledged.

        Raises:
            PoolDamaged: naming the file.
        """
        durable.check_trusted(directory)
        payload = Books.nbytes(spec, config.max_actors)
        files = pool_files.open_existing(directory, spec, geometry(spec, config), payload, pool_id)
        durable.recover(files, payload)
        files.header.require_whole(directory)
        sizes = geometry(spec, config)
        if files.header[Field.CAPACITY] != sizes.capacity or files.header[Field.REACH] < sizes.max_rows:
            raise PoolDamaged(
                f"{directory / header.NAME}: of {files.header[Field.CAPACITY]} rows, the pool has {sizes.capacity}"
            )
        store = cls(spec, config, files)
        store._recover()
        store._keep()
        return store

    def resized(self, config: PoolConfig, directory: Path, extra: Mapping[str, Any]) -> Store:
        """The same pool with other sizes, its newest rows in order, as the next generation in ``directory``.

        Until the manifest names the new files this store is the pool; from then on it is dead.

        Raises:
            NoSpace: both generations do not fit beside each other; this store is as it was.
            ConfigError: it knows more actors than the new ``max_actors``, or its live rows have more frames than a larger
                ``min_block_rows`` leaves room for.
        """
        Ledger(config.max_actors).require(len(self.ledger.actors))
        folder = generations.begin(directory)
        payload = Books.nbytes(self.spec, config.max_actors)
        files = pool_files.create(folder, self.spec, geometry(self.spec, config), payload, self.files.pool_id)
        for name in OPTIONAL_COLUMNS:
            if name in self.files.columns:
                files.add_column(name)
        files.header[Field.EPOCH] = self.header[Field.EPOCH]
        store = Store(self.spec, config, files)
        store.restore(Contents.of_store(self))
        lost = store.header.retired - self.header.retired
        over = self.segment.head - self.segment.tail - config.capacity
        if over > 0:
            told = (directory, config.capacity, self._config.capacity, over)
            _log.warning("%s: a capacity of %d in place of %d: the oldest %d rows are evicted", *told)
        if lost:
            config.check_rows_stay(self._config, store.size, lost)
            _log.warning("%s: %d rows brought more frames than it has room for now, and are retired", directory, lost)
        with durable.waiting(files):
            files.sync()
        store._keep()
        generations.publish(folder, files.pool_id, {"spec": self.spec.to_dict(), "config": dump(config), **extra})
        self.files.end()
        if self._durable is not None:
            self._durable.close()
        return store

    def attach(self, index: Index) -> None:
        """Let ``index`` follow the rows, from those that are live now on."""
        live_rows.feed(index, self.segment, self.tombstones)
        self.indexes.add(index)

    @property
    def size(self) -> int:
        """Rows that may be sampled: the live ones that are not discarded."""
        return self.segment.head - self.segment.tail - len(self.tombstones)

    def insert(self, block: Block, actor: str, stream: int, first_seq: int) -> Inserted:
        """Commit the rows of ``block`` that the ledger does not know; see ``SACReplayPool.insert``."""
        block.check(self.spec)
        n = block.n_rows
        if not 1 <= first_seq <= MAX_SEQ - n:
            raise BlockRefused("sequence", f"first seq {first_seq} is not in [1, 2**48)")
        last = self.ledger.last(actor, stream)
        known = min(n, max(0, last + 1 - first_seq))
        if known:
            self.header[Field.DUPLICATES] += known
            if known == n:
                return Inserted(0, n, 0, last, 0)
        return self.change(lambda: self._insert(block, known, actor, stream, first_seq + known))

    def _insert(self, block: Block, known: int, actor: str, stream: int, seq: int) -> Inserted:
        index = self._index(actor, stream)
        lost, steps = self.ledger.lost_before, self.ledger.env_steps
        for part in self.segment.parts(block, known):
            self._commit(part, index, stream, seq)
            seq += part.n_rows
        rows = block.n_rows - known
        return Inserted(rows, known, self.ledger.lost_before - lost, seq - 1, self.ledger.env_steps - steps)

    def append(self, staging: Staging, actor: str, stream: int) -> None:
        """Commit what waits in ``staging``, checked and placed, as the stream's next rows; also if that is interrupted."""
        index, seq = self._index(actor, stream), self.ledger.last(actor, stream) + 1
        head, frame_head = self.segment.head, self.segment.frame_head
        try:
            self._append(staging, index, stream, seq)
        except BaseException:
            self._mend()
            if self.segment.head == head:
                self.header[Field.FRAME_HEAD] = frame_head  # behind it their observations wait
                self._append(staging, index, stream, seq)
            staging.clear()
            raise

    def _append(self, staging: Staging, index: int, stream: int, seq: int) -> None:
        block = staging.take(index, seq)
        self._make_room(block)
        self.segment.commit_placed(block)
        self._committed(block, index, stream, seq, range(block.n_rows))
        staging.clear()

    def change(self, work: Callable[[], T]) -> T:
        """Do ``work`` on rows or what follows them; after an exception such as Ctrl-C in its middle everything is in step."""
        try:
            return work()
        except CountedRefusal:  # comes before the first change
            raise
        except BaseException:
            self._mend()
            raise

    def _index(self, actor: str, stream: int) -> int:
        """The actor's index; a new stream is written down before it has rows."""
        index = self.ledger.find(actor, stream)
        if index is None:
            index = self.ledger.open(actor, stream)
            self._stamp()
        return index

    def _commit(self, block: Block, index: int, stream: int, seq: int) -> None:
        self._make_room(block)
        self.segment.commit(block, index, stream, seq)
        self._committed(block, index, stream, seq, block.rows["obs"][:, -1])

    def _make_room(self, block: Block) -> None:
        segment, n = self.segment, block.n_rows
        floor = segment.room_for(block)
        tail = max(floor, segment.head + n - segment.sizes.capacity)
        self.books.let_go(tail, segment.head)
        if tail > segment.tail:
            self.tombstones.retired(tail)
            self.indexes.retired(tail)
        if floor > segment.tail:
            segment.retire(floor)
        if self._durable is not None and not self._durable.has_room(segment.head + n, segment.frame_head + block.n_frames):
            self.sync()

    def _committed(self, block: Block, index: int, stream: int, seq: int, newest: Array | range) -> None:
        segment, n = self.segment, block.n_rows
        if self.indexes:
            rows = segment.rows(segment.head - n, segment.head) if self.indexes.reads_rows else block.rows
            self.indexes.committed(segment.head - n, rows)
        self.ledger.advance(index, stream, seq + n - 1, n, self.spec.fresh_steps(block.rows))
        self.statistics.add(block.frames, newest)
        self.books.keep_up(segment.head)

    def reject(self, actor: str, stream: int, first_seq: int, rows: int) -> None:
        """Pass over refused rows; see ``SACReplayPool.reject``."""
        last = first_seq + rows - 1
        try:
            new = min(rows, last - self.ledger.last(actor, stream))
            if new > 0 and first_seq >= 1 and last < MAX_SEQ:
                self.ledger.reject(self.ledger.open(actor, stream), stream, last, new)
        except BlockRefused:
            self.ledger.rejected += rows  # there is no cursor that could move
        self._stamp()  # no row holds this, so no replay could tell

    def label(self, actor: str, label: Label) -> Labelled:
        """Change rows that are committed; see ``SACReplayPool.label``."""
        label.check(self.spec)
        return self.change(lambda: self._label(self._known(actor, label), label))

    def _label(self, actor: int, label: Label) -> Labelled:
        with durable.waiting(self.files):  # for the journal
            ids, done = self._labels.apply(actor, label)
        if len(ids) and label.kind is Kind.DISCARD:
            self.tombstones.discarded(ids)
            self.indexes.discarded(ids)
        elif len(ids) and self.indexes:
            self.indexes.amended(ids, self.segment.reader.rows(ids))
        if len(ids):
            self.sync()  # the journal holds one record, so a label is on disk before the next one
        return done

    def _amending(self, ids: Array, rows: Array) -> None:
        if self._durable is not None and not self._durable.holds(int(ids[-1])):
            self.sync()  # or the label's counts, in the journal, would speak of rows that a cut takes and their writer resends
        for capture in self.captures:
            capture.amending(ids, rows)

    def _known(self, actor: str, label: Label) -> int:
        """The actor's index, when its stream was committed up to the label's last row."""
        if actor not in self.ledger.actors:
            raise LabelRefused("actor", f"{actor[:32]!r} has sent no rows")
        try:
            last = self.ledger.last(actor, label.stream)
        except BlockRefused:  # a closed stream: its rows are there, but nobody knows its end
            last = label.last
        if not last:
            raise LabelRefused("stream", f"{label.stream} of {actor!r} has no rows")
        if label.last > last:
            raise LabelRefused("ahead", f"rows up to {label.last} of a stream that is committed up to {last}")
        return self.ledger.actors.index(actor)

    def sync(self) -> None:
        """Make everything so far survive a power cut; at level ``synced`` only."""
        if self._durable is not None:
            self._durable.save(self.header, self.books.encode(), self.segment.first_frame())

    def _keep(self) -> None:
        """Begin to keep the level of acknowledgement that the config asks for."""
        folder = self.files.folder
        if folder is not None and self._config.ack == "synced":
            self._durable = Durable(self.files, Books.nbytes(self.spec, self._config.max_actors))
            self.files.journal.synced = True
            self.sync()
        elif folder is not None:
            durable.remove(folder)

    def close(self) -> None:
        """Stamp, so that the next open replays nothing, and put everything on disk, so that another boot trusts it.

        Raises:
            SyncFailed: the disk does not take it; everything else is done.
        """
        try:
            if not durable.has_failed(self.files):
                self._end()
        finally:
            if self._durable is not None:
                self._durable.close()

    def _end(self) -> None:
        self._stamp()
        with durable.waiting(self.files):
            if self._durable is None:
                self.files.sync()
            self.header[Field.OWNER] = 0
            if self._durable is None:
                self.header.flush()
            else:
                self.sync()

    def _stamp(self) -> None:
        self.books.stamp(self.segment.head)

    def _recover(self) -> None:
        segment = self.segment
        self._labels.recover()
        live_rows.bury(self.tombstones, self.segment)
        for rows in live_rows.rows_from(segment, self.books.read(segment.tail, segment.head)):
            self.ledger.replay(rows, self.spec)
            self.statistics.add(segment.frames, segment.newest_obs(rows))

    def _mend(self) -> None:
        """Bring everything in step with the rows, as at open, after an exception such as Ctrl-C in the middle of a change."""
        self.segment.settle()
        self._recover()
        live_rows.feed(self.indexes, self.segment, self.tombstones)

    def _forget(self) -> None:
        """Start empty: the last owner died while it loaded a snapshot over this pool."""
        _log.warning("pool %s: the last owner died while it loaded a snapshot; starting empty", self.files.pool_id)
        kept = (Field.EPOCH, Field.NONCE, Field.OWNER, Field.CAPACITY, Field.REACH, Field.RESTORING, Field.AMENDS)
        for field in Field:
            if field not in kept:
                self.header[field] = 0
        self.books.stamp_both(0)
        self.header[Field.RESTORING] = 0

    def counters(self) -> dict[str, int]:
        """``COUNTERS`` by name; accepted = live + evicted + retired + discarded."""
        return tally.counters(self.header, self.ledger, self.size)

    def info(self) -> dict[str, Any]:
        """Identity and sizes."""
        return tally.info(self.spec, self.files, self.ledger)

    def body(self) -> dict[str, Any]:
        """The plain values of the store's state."""
        return {
            "spec": self.spec.to_dict(),
            "numbers": {
                **self.segment.numbers(),
                **self.ledger.counters(),
                "counted": self.statistics.get_state()["count"],
            },
        }

    def restore(self, contents: Contents) -> None:
        """Hold the newest rows of ``contents`` in place of everything; the ledger has places for its actors."""
        numbers = contents.numbers
        self.header[Field.RESTORING] = 1
        self.sync()
        self.segment.restore(contents.rows, contents.frames, numbers)
        counters = {name: numbers[name] for name in self.ledger.counters()}
        self.ledger.set_state({"entries": contents.entries, **counters})
        mean, m2 = contents.moments
        self.statistics.set_state({"count": numbers["counted"], "mean": mean, "m2": m2})
        self.books.stamp_both(self.segment.head)
        self.files.begin(int.from_bytes(os.urandom(6), "little"))
        self.header[Field.RESTORING] = 0
        live_rows.bury(self.tombstones, self.segment)
        self.sync()
        live_rows.feed(self.indexes, self.segment, self.tombstones)

    def check_valid(self) -> tuple[bool, str]:
        """Whether rings, ledger, statistics and indexes are sound and agree; looks at every live row."""
        for part in (self.segment, self.books, self.tombstones, self.indexes):
            valid, why = part.check_valid()
            if not valid:
                return valid, why
        rows = self.segment.rows(self.segment.tail, self.segment.head)
        discarded = self.segment.tail + np.flatnonzero(self.segment.column("discarded", self.segment.tail, self.segment.head))
        if not np.array_equal(discarded, self.tombstones.within(self.segment.tail, self.segment.head)):
            return False, "the discarded rows are not those of the column"
        if self.header[Field.AMENDS] & 1 or min(self.counters().values()) < 0:
            return False, f"a change of rows is unfinished, or a count is negative: {self.counters()}"
        identity = np.stack([rows["actor"].astype("<u8"), rows["stream"], rows["seq"]], axis=1)
        if len(np.unique(identity, axis=0)) != len(rows):
            return False, "a row is stored twice"
        return self.ledger.covers(rows)
