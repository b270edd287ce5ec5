"""Rows from a pool to shards and back: which rows, under which identity, and that all of them enter or none.

Identity is (actor, stream, seq). An imported actor keeps its name where the pool can still take its numbers; where the pool
knows them already, or could not hold its streams open, the whole actor is renamed to ``<name>@<k>`` with the lowest free k.
Streams, sequence and episode numbers stay.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np

from headrace.buffer import about
from headrace.buffer.arguments import directory, instance, wrong
from headrace.buffer.config import PoolConfig
from headrace.buffer.home import as_layout
from headrace.buffer.ledger import MAX_NAME_BYTES, MAX_STREAM, STREAMS_PER_ACTOR
from headrace.buffer.plain import require_form
from headrace.buffer.pool import SACReplayPool
from headrace.buffer.ring import geometry
from headrace.buffer.shards import ShardReader, ShardWriter
from headrace.buffer.underway import Underway
from headrace.common.batch import Batch
from headrace.common.block import Block
from headrace.common.config import dump, load, replace
from headrace.common.errors import BlockRefused, PoolDamaged, PoolError, SpecError
from headrace.common.label import MAX_SEQ
from headrace.common.specs import TransitionSpec, fingerprint

Array = np.ndarray[Any, Any]
Progress = Callable[[int, int], None]
Begin = Callable[[int], None]
SHARD_BYTES = 64 << 20
MIN_SHARD_ROWS = 128  # a shard cuts a block in two, which costs a frame


@runtime_checkable
class Readable(Protocol):
    """What an export reads: a pool, or a read-only view of one."""

    @property
    def spec(self) -> TransitionSpec | None:
        """Columns of the rows."""

    @property
    def tail(self) -> int:
        """Id of the oldest live row."""

    @property
    def head(self) -> int:
        """Id after the newest row."""

    def live(self, start: int, stop: int) -> Batch:
        """Those rows of ``[start, stop)`` that are still live."""

    def actors(self) -> list[str]:
        """Actor names by the index that rows hold."""

    def made_of(self) -> dict[str, Any]:
        """Identity, sizes and plain form, as plain values."""

    def info(self) -> dict[str, Any]:
        """Sizes, and where it is (``path``)."""


@dataclass(frozen=True)
class Exported:
    """What an export wrote.

    Attributes:
        rows: rows written.
        gone: rows left out: discarded, or evicted before they could be read.
        shards: files.
    """

    rows: int
    gone: int
    shards: int


@dataclass(frozen=True)
class Imported:
    """What an import did.

    Attributes:
        rows: rows of the source, which all entered.
        before: those of them that an import of the same, which was cut, had brought in.
        evicted: earlier rows, and some of these where they are more than the pool's capacity, that made room.
        renamed: actors that could not keep their name -> their new one.
        underway: what :func:`import_pool` was told not to end.
    """

    rows: int
    before: int
    evicted: int
    renamed: dict[str, str]
    underway: Underway


def export_pool(source: Readable, out: str | Path, *, flat: bool = False, progress: Progress | None = None) -> Exported:
    """Write the rows that are live now into a new directory ``out`` of shards; see :mod:`headrace.buffer.shards`.

    Others may go on inserting: what they evict before it is read is left out and counted. Memory stays near
    ``SHARD_BYTES``.

    Args:
        source: pool or view.
        out: a directory that does not exist; it appears when everything is written, or never.
        flat: gathered observations of each row, instead of each frame once.
        progress: called with rows done and rows in all.

    Raises:
        PoolError: no rows that are not discarded, no spec, or ``out`` exists.
        NoSpace, DiskFailed: the disk did not take it; nothing of it stays.
    """
    if not isinstance(source, Readable):
        raise wrong("source", source, "a pool or a view of one")
    out, there = directory("out", out), source.info()["path"]
    if there and out.absolute().is_relative_to(Path(there).absolute()):
        raise PoolError(f"{out}: lies in the pool itself, {there}; an export needs a directory of its own")
    spec, start, head = source.spec, source.tail, source.head
    if spec is None or start >= head:
        raise PoolError(f"nothing to export to {out}: the pool holds no rows")
    step = max(MIN_SHARD_ROWS, SHARD_BYTES // (spec.row_dtype.itemsize + 2 * spec.stack * spec.frame_nbytes))
    writer, gone, low = ShardWriter(out, spec, flat), 0, start
    try:
        while low < head:
            high = min(head, low + step)
            batch = source.live(low, high)
            gone += high - low - len(batch)
            if len(batch):
                writer.add(batch, low, high)
            low = high
            if progress is not None:
                progress(low - start, head - start)
        if not writer.shards:
            raise PoolError(f"nothing to export to {out}: all {gone} rows were discarded, or evicted before they could be read")
        rows = sum(shard.rows for shard in writer.shards)
        ranges = {"rows": rows, "first": writer.shards[0].first, "stop": head, "left_out": gone}
        said = about.read(there).to_dict()
        writer.publish({**source.made_of(), **ranges, "actors": source.actors(), "about": said})
    except BaseException:
        writer.discard()
        raise
    return Exported(rows, gone, len(writer.shards))


def pool_for(reader: ShardReader, path: Path | None, capacity: int) -> SACReplayPool:
    """An empty pool for rows of an export, like the one that they came from.

    That one may have had far more frame slots than its few short blocks needed; where a ring of its ``min_block_rows`` would
    cost the newest ``capacity`` rows their frames, the new pool has 1.
    """
    body, spec = reader.body, reader.spec
    config = load(PoolConfig, {**body["config"], "capacity": capacity}, "pool")
    sizes = geometry(spec, config)
    cuts = len(reader.shards) + int(body["left_out"])  # what is cut there brings its window and its stack once more
    needed = 2 * reader.rows if reader.flat else sum(shard.frames for shard in reader.shards)
    if needed + cuts * (spec.window + spec.stack) + sizes.max_frames > sizes.frame_slots:
        body = {**body, "config": dump(replace(config, min_block_rows=1))}
    return SACReplayPool.like(body, path=path, capacity=capacity)


def import_pool(
    source: str | Path,
    pool: SACReplayPool,
    *,
    progress: Progress | None = None,
    begin: Begin | None = None,
    end: bool = True,
) -> Imported:
    """Append the rows of the shards at ``source`` to ``pool``, in their order, with labels.

    Everything is read and checked first, so that shards which are refused leave the pool as it was. What a kill has cut in a
    pool with files is finished by the next import of the same shards.

    Args:
        source: directory of an export.
        pool: of the same spec.
        progress: called with rows done and rows in all, each counted twice.
        begin: called with the rows that will enter, before the first one does; what it raises leaves the pool as it was.
        end: whether the import has ended with its last row, so that the next one of the same shards enters anew. Who has yet to
            say so ends ``Imported.underway`` afterwards: whoever saw a kill instead will import once more.

    Raises:
        PoolDamaged, BlockRefused: a file, a name or a value is not what an export writes.
        SpecError: the rows are of another spec; names each field with both values.
        PoolError: the pool's ledger has no place for the actors.
    """
    instance("pool", pool, SACReplayPool)
    source = directory("source", source)
    reader = ShardReader(source)
    if pool.spec is None:
        raise PoolError(f"{source}: the pool has no spec yet; make it with SACReplayPool.like(body)")
    different = pool.spec.differences(reader.spec)
    if different:
        raise SpecError(f"{source} holds rows of another spec (the pool's first): {'; '.join(different)}")
    require_form(str(source), as_layout(pool.made_of()), as_layout(reader.body))
    meter = _Meter(2 * reader.rows, progress)
    underway = Underway(pool.info()["path"], fingerprint(reader.body), str(source))
    streams, known = _check(reader, meter, _last_seq(pool, underway.names))
    names = _names(streams, pool) if underway.names is None else underway.names
    place = pool.info()["path"]
    said = about.read(place).joined(reader.about.renamed(names), str(source))
    before = pool.counters()
    if begin is not None:
        begin(reader.rows - known)
    underway.begin(names)
    about.write(place, said)
    for shard in reader.shards:
        block = reader.block(shard)
        for low, high, (actor, stream, first_seq) in runs(block):
            part = block if high - low == block.n_rows else block.part(low, high)
            pool.insert(part, names[reader.actors[actor]], stream, first_seq)
            meter.add(high - low)
    if end:
        underway.end()
    renamed = {old: new for old, new in names.items() if old != new}
    return Imported(reader.rows, known, gone(pool, before), renamed, underway)


def gone(pool: SACReplayPool, before: Mapping[str, int]) -> int:
    """Rows that made room since the pool's counters were ``before``."""
    after = pool.counters()
    return sum(after[name] - before[name] for name in ("rows_evicted", "rows_retired"))


def runs(block: Block) -> Iterator[tuple[int, int, tuple[int, int, int]]]:
    """Where the block has consecutive rows ``[low, high)`` of one stream; with their actor index, stream and first seq."""
    rows = block.rows
    keys = np.stack([rows["actor"].astype("<u8"), rows["stream"], rows["seq"] - np.arange(len(rows), dtype="<u8")], axis=1)
    cuts = [0, *(np.flatnonzero((keys[1:] != keys[:-1]).any(axis=1)) + 1).tolist(), len(rows)]
    for low, high in itertools.pairwise(cuts):
        yield low, high, (int(rows["actor"][low]), int(rows["stream"][low]), int(rows["seq"][low]))


LastSeq = Callable[[str, int], int]


def _last_seq(pool: SACReplayPool, names: Mapping[str, str] | None) -> LastSeq:
    """Actor and stream of the source -> last seq that is in the pool already."""
    return lambda actor, stream: 0 if names is None else pool.last_seq(names.get(actor, actor), stream)


def _check(reader: ShardReader, meter: _Meter, last_seq: LastSeq) -> tuple[dict[str, dict[int, int]], int]:
    """Read everything once; actor -> stream -> first seq, and how many of the rows are in the pool already.

    Raises:
        PoolDamaged: a digest, or sequence numbers that do not rise.
    """
    first: dict[str, dict[int, int]] = {}
    last: dict[tuple[str, int], int] = {}
    known = 0
    for shard in reader.shards:
        reader.verify(shard)
        for low, high, (index, stream, seq) in runs(reader.block(shard)):
            actor, end = reader.actors[index], seq + high - low
            if stream >= MAX_STREAM or not last.get((actor, stream), 0) < seq <= end <= MAX_SEQ:
                where = f"{reader.directory / shard.file}: seq {seq} of actor {actor!r} stream {stream}"
                raise PoolDamaged(f"{where} does not rise, or is out of range")
            last[(actor, stream)] = end - 1
            first.setdefault(actor, {}).setdefault(stream, seq)
            known += min(high - low, max(0, last_seq(actor, stream) + 1 - seq))
        meter.add(shard.rows)
    return first, known


def _names(streams: Mapping[str, Mapping[int, int]], pool: SACReplayPool) -> dict[str, str]:
    """The name under which each actor enters."""
    known = set(pool.actors())
    names: dict[str, str] = {}
    for actor, first in streams.items():
        names[actor] = actor if _is_free(actor, first, pool) else free_name(actor, known | set(streams))
        pool.admit(names[actor])
        known.add(names[actor])
    limit = pool.config.max_actors
    if len(known) > limit:
        raise PoolError(f"pool.max_actors: {limit}, but with the imported ones there are {len(known)} actors; raise it")
    return names


def _is_free(actor: str, first: Mapping[int, int], pool: SACReplayPool) -> bool:
    there = pool.streams(actor)
    if not there:
        return True
    if len(set(there) | set(first)) > STREAMS_PER_ACTOR:
        return False  # opening one more may close another of them in between
    try:
        return all(pool.last_seq(actor, stream) < seq for stream, seq in first.items())
    except BlockRefused:  # the stream is closed
        return False


def free_name(actor: str, taken: set[str]) -> str:
    """``actor``, or when that is taken ``<actor>@<k>`` with the lowest free k from 2 on."""
    if actor not in taken:
        return actor
    base = actor.encode()[: MAX_NAME_BYTES - 8].decode(errors="ignore")
    return next(name for k in itertools.count(2) if (name := f"{base}@{k}") not in taken)


class _Meter:
    """Counts rows and tells the caller."""

    def __init__(self, total: int, progress: Progress | None) -> None:
        self._total, self._progress, self._done = total, progress, 0

    def add(self, rows: int) -> None:
        self._done += rows
        if self._progress is not None:
            self._progress(self._done, self._total)
