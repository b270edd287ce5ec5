"""``SACReplayPool``: the pool as everyone sees it. One lock around one store; the plain face; snapshots; the owner's lock."""

from __future__ import annotations

import dataclasses
import threading
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from headrace.buffer import generations, snapshot
from headrace.buffer.capture import Capture
from headrace.buffer.config import SIZES, PoolConfig, SamplingConfig
from headrace.buffer.contents import Contents
from headrace.buffer.files import Field
from headrace.buffer.labels import Labelled
from headrace.buffer.lock import PoolLock
from headrace.buffer.past import as_past
from headrace.buffer.plain import ACTOR, STREAM, PlainLayout, flatten
from headrace.buffer.reader import described, dump_chunk
from headrace.buffer.sampler import Drawn, require_rows
from headrace.buffer.sampling import Sampling
from headrace.buffer.staging import Staging
from headrace.buffer.store import COUNTERS, Inserted, Store
from headrace.common.batch import Batch
from headrace.common.block import Block
from headrace.common.config import dump, load, replace
from headrace.common.errors import PoolDamaged, PoolError, SpecError
from headrace.common.label import Kind, Label
from headrace.common.specs import TransitionSpec
from headrace.common.statistics import ObsStatistics

Array = np.ndarray[Any, Any]


class SACReplayPool:
    """The newest ``capacity`` transitions; inserts, samples, keeps and restores them.

    Safe for threads: each public call is atomic. With a path one process owns the directory, and what was inserted survives
    a SIGKILL of that process at any instruction; without one the rows are in anonymous memory.

    Args:
        capacity: rows kept; takes the place of ``config.capacity``.
        path: directory of the mapped files, made when missing; opened when it holds a pool.
        spec: columns of the rows; without one the directory, the first plain batch or the loaded snapshot fixes it.
        config: sizes; None takes those of an existing directory, and the defaults for a new one.
        sampling: how batches are drawn, None uniformly; may differ from one opening of a directory to the next.
        rng: draws batches; None seeds one from the operating system.

    Raises:
        PoolLocked: another owner lives; names its pid.
        ConfigError, SpecError: the directory holds a pool with another config or spec; names field and both values.
        NoSpace: the pool does not fit; says how much is needed and free.
        PoolDamaged: names the file.
    """

    def __init__(
        self,
        capacity: int,
        *,
        path: Path | None = None,
        spec: TransitionSpec | None = None,
        config: PoolConfig | None = None,
        sampling: SamplingConfig | None = None,
        rng: np.random.Generator | None = None,
    ) -> None:
        self._lock = threading.RLock()
        way = load(SamplingConfig, dump(sampling or SamplingConfig()), "sampling")
        self._sampling = Sampling(way, np.random.default_rng() if rng is None else rng)
        self._path = None if path is None else Path(path)
        self._plain: PlainLayout | None = None
        self._committed: Store | None = None  # without what waits in the staging: only for those who bring that in
        self._staging: Staging | None = None
        self._closed = False
        self._owner: PoolLock | None = None
        self.config = load(PoolConfig, {**dump(config or PoolConfig()), "capacity": capacity}, "pool")
        way.check_fits(self.config.capacity, 1)
        if self._path is not None:
            self._path.mkdir(parents=True, exist_ok=True)
            self._owner = PoolLock(self._path)
        try:
            found = None if self._path is None else generations.read(self._path)
            if self._path is not None and snapshot.is_snapshot(self._path):
                raise PoolError(f"{self._path} holds snapshots; a pool needs a directory of its own (a snapshot is loaded)")
            if self._path is not None and found is not None:
                self._reopen(self._path, *found, spec, config is not None)
            elif spec is not None:
                self._create(spec)
        except BaseException:
            self._release()
            raise

    def _create(self, spec: TransitionSpec) -> Store:
        return self._adopt(Store.create(spec, self.config, self._path, self._extra()))

    def _adopt(self, store: Store) -> Store:
        self._sampling.follow(store)
        self._committed = store
        return store

    def _reopen(
        self, path: Path, found: Mapping[str, Any], folder: Path, spec: TransitionSpec | None, configured: bool
    ) -> None:
        stored = load(PoolConfig, found["config"], f"{path}: pool")
        if not configured:
            self.config = replace(stored, capacity=self.config.capacity)
        kept_spec = TransitionSpec.from_dict(found["spec"])
        different = [] if spec is None else spec.differences(kept_spec)
        if different:
            raise SpecError(f"{path} holds rows of another spec (ours first): {'; '.join(different)}")
        self._plain = None if found["plain"] is None else PlainLayout.from_list(found["plain"])
        as_stored = replace(self.config, **{name: getattr(stored, name) for name in SIZES})
        store = Store.open(kept_spec, as_stored, folder, uuid.UUID(hex=found["uuid"]))
        if self.config != as_stored:
            store = store.resized(self.config, path, self._extra())
        self._adopt(store)
        generations.sweep(path)

    def _extra(self) -> dict[str, Any]:
        """What the manifest keeps beside spec and config."""
        return {"plain": None if self._plain is None else self._plain.to_list()}

    @property
    def _store(self) -> Store | None:
        """The store, with everything in it that was added."""
        if self._staging is not None and self._staging.n_rows:
            with self._lock:
                store, staging = self._committed, self._staging
                if store is not None and staging is not None and staging.n_rows:
                    store.insert(staging.take(), ACTOR, STREAM, store.ledger.last(ACTOR, STREAM) + 1)
        return self._committed

    @property
    def spec(self) -> TransitionSpec | None:
        """Columns of the rows; None until something fixes them."""
        return None if self._store is None else self._store.spec

    @property
    def size(self) -> int:
        """Rows that may be sampled: the live ones that are not discarded."""
        with self._lock:
            return 0 if self._store is None else self._store.size

    @property
    def head(self) -> int:
        """Id after the newest row, which is also the number of rows ever committed."""
        return 0 if self._store is None else self._store.segment.head

    @property
    def tail(self) -> int:
        """Id of the oldest live row."""
        return 0 if self._store is None else self._store.segment.tail

    @property
    def env_steps(self) -> int:
        """Executed env steps that all rows ever committed account for."""
        return 0 if self._store is None else self._store.ledger.env_steps

    @property
    def updates(self) -> int:
        """Optimiser updates granted, in both phases."""
        return 0 if self._store is None else self._store.header.updates

    @property
    def offline_updates(self) -> int:
        """Those of :attr:`updates` that were granted in the offline phase."""
        return 0 if self._store is None else self._store.header[Field.OFFLINE]

    @property
    def epoch(self) -> int:
        """Raised durably at every open and load: ids of an earlier epoch are void."""
        return 0 if self._store is None else self._store.header[Field.EPOCH]

    @property
    def nonce(self) -> int:
        """New at every open and load: a :class:`PoolView` whose header shows it has mapped this pool's files."""
        return 0 if self._store is None else self._store.header[Field.NONCE]

    def __len__(self) -> int:
        return self.size

    def counters(self) -> dict[str, int]:
        """Counts since the pool was made; accepted = live + evicted + retired + discarded."""
        with self._lock:
            return dict.fromkeys(COUNTERS, 0) if self._store is None else self._store.counters()

    def info(self) -> dict[str, Any]:
        """Sizes in rows, frames and bytes, and identity."""
        with self._lock:
            out = {"path": str(self._path or ""), "size": self.size, **dump(self.config)}
            return out if self._store is None else {**out, **self._store.info()}

    def insert(self, block: Block, actor: str, stream: int, first_seq: int, priorities: Array | None = None) -> Inserted:
        """Commit a numbered block: row i has seq ``first_seq + i``, starting from 1 in each stream.

        Rows that the ledger knows are dropped; a gap in front is counted. A block larger than ``max_block_rows`` takes several
        commits, one larger than the capacity leaves its newest rows; all of it may be acknowledged.

        Args:
            block: n rows and their frames.
            actor: name of whoever sends them.
            stream: one of the actor's.
            first_seq: of the first row.
            priorities: ``(n,)`` of the rows, in place of the running maximum.

        Raises:
            BlockRefused: nothing of the block entered; ``reason`` is that of :meth:`Block.check`, or ``sequence``, ``stream``,
                ``stream-closed``, ``actor-name``, ``actor-limit``.
            PriorityRefused: likewise, for :meth:`update_priorities`' reasons.
            PoolError: closed, no spec yet, or priorities without prioritised sampling.
        """
        with self._lock:
            store = self._open()
            given = None if priorities is None else self._sampling.check(priorities, block.n_rows)
            done = store.insert(block, actor, stream, first_seq)
            if given is not None:
                self._sampling.supply(done, given)
            return done

    def reject(self, actor: str, stream: int, first_seq: int, rows: int) -> None:
        """Move the cursor of a stream past ``rows`` refused rows, and count those that are new as rejected."""
        with self._lock:
            self._open().reject(actor, stream, first_seq, rows)

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
            LabelRefused: nothing changed; ``reason`` is that of :meth:`Label.check`, or ``actor``, ``stream``, ``ahead``.
        """
        return self.amend(actor, Label(Kind.OUTCOME, stream, first, last, outcome))

    def amend_rewards(self, actor: str, stream: int, first: int, rewards: Any) -> Labelled:
        """Put ``rewards``, ``(n,)`` or ``(n, K)``, in place of those of rows ``first .. first + n - 1``; else as :meth:`label`.

        Raises:
            LabelRefused: also reason ``reward``: a reward beyond the executed steps of its row.
        """
        values = np.asarray(rewards, "<f4")
        values = values[:, None] if values.ndim == 1 else values
        return self.amend(actor, Label(Kind.REWARDS, stream, first, first + len(values) - 1, rewards=values))

    def discard(self, actor: str, stream: int, first: int, last: int) -> Labelled:
        """Never sample rows ``first .. last`` again, such as those of an episode that went wrong; else as :meth:`label`.

        They keep their place until they are evicted, and stay counted as env steps and in the statistics.
        """
        return self.amend(actor, Label(Kind.DISCARD, stream, first, last))

    def amend(self, actor: str, label: Label) -> Labelled:
        """Carry out a label; :meth:`label`, :meth:`amend_rewards` and :meth:`discard` by one name."""
        with self._lock:
            return self._open().label(actor, label)

    def actors(self) -> list[str]:
        """Every actor that the ledger knows, by the index that rows hold."""
        with self._lock:
            return [] if self._store is None else self._store.ledger.actors

    def admit(self, actor: str) -> None:
        """Say before its first block whether an actor can have a place in the ledger.

        Raises:
            BlockRefused: reason ``actor-name`` or ``actor-limit``.
        """
        with self._lock:
            self._open().ledger.admit(actor)

    def last_seq(self, actor: str, stream: int) -> int:
        """Last committed seq of a stream; 0 when there is none.

        Raises:
            BlockRefused: reason ``stream-closed``.
        """
        with self._lock:
            return 0 if self._store is None else self._store.ledger.last(actor, stream)

    def streams(self, actor: str) -> dict[int, int]:
        """Open streams of an actor -> last committed seq."""
        with self._lock:
            return {} if self._store is None else self._store.ledger.streams(actor)

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
            batch = self._open().segment.reader.gather(drawn.ids)
            return dataclasses.replace(batch, weights=drawn.weights, sets=drawn.sets, epoch=self.epoch)

    def draw(self, batch_size: int, rng: np.random.Generator | None = None, mix: str = "critic") -> Drawn:
        """The rows that :meth:`sample` would gather, by id, with its errors."""
        with self._lock:
            self._check_not_closed()
            if self._store is None:
                require_rows(batch_size, 0)
            self._open()
            return self._sampling.draw(batch_size, rng, mix)

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
        with self._lock:
            self._open()
            return self._sampling.update(epoch, ids, priorities)

    @property
    def drawable(self) -> int:
        """Largest batch that there may be rows for now: live rows, or with named sets what their mixes can make of theirs."""
        with self._lock:
            return 0 if self._store is None else self._sampling.drawable

    @property
    def waiting(self) -> str:
        """The named set that is waited for before any batch can be drawn, in words; empty when none is."""
        with self._lock:
            return "" if self._store is None else self._sampling.waiting

    @property
    def mixes(self) -> list[str]:
        """What :meth:`sample` can draw: ``critic``, and ``actor`` where the actor's batch is a separate one."""
        return self._sampling.mixes

    def sampling_info(self) -> dict[str, Any]:
        """How batches are drawn now, in numbers."""
        with self._lock:
            return self._sampling.info()

    def gather(self, ids: Array, out: Batch | None = None) -> Batch:
        """The rows ``ids``, ``(B,)`` int64, into ``out`` when given.

        Raises:
            PoolError: an id is not, or no longer, live.
        """
        with self._lock:
            store = self._open()
            if len(ids) and not (self.tail <= ids.min() and ids.max() < self.head):
                raise PoolError(f"row ids {ids.min()} to {ids.max()} were asked for, live are [{self.tail}, {self.head})")
            return store.segment.reader.gather(ids, out)

    def live(self, start: int, stop: int) -> Batch:
        """Those rows of ``[start, stop)`` that are live and not discarded; there may be none."""
        with self._lock:
            low, reader = max(start, self.tail), self._open().segment.reader
            ids = np.arange(low, max(low, min(stop, self.head)))
            return reader.gather(ids[~reader.discarded(ids)])

    def statistics(self) -> ObsStatistics:
        """Moments of the float observations, over the newest frame of each row ever committed, discarded ones too."""
        with self._lock:
            return ObsStatistics() if self._store is None else self._store.statistics.result()

    def sync(self) -> None:
        """With ``pool.ack: synced``, make everything inserted so far survive a power cut; one call may cover many blocks.

        At level ``memory`` there is nothing to wait for: an insert that has returned survives the death of the process.
        """
        with self._lock:
            self._open().sync()

    def grant_updates(self, n: int, *, offline: bool = False) -> int:
        """Count ``n`` more optimiser updates, in one store that survives the process; returns the new total of both phases."""
        with self._lock:
            store, field = self._open(), Field.OFFLINE if offline else Field.UPDATES
            store.header[field] += n
            return store.header.updates

    def dump(self, start: int | None = None, stop: int | None = None) -> Iterator[dict[str, Any]]:
        """Live rows of ``[start, stop)`` in id order, while others go on inserting.

        Yields:
            ``id``, ``actor`` (its name), ``stream``, ``seq``, ``episode``, ``t``, ``outcome``, ``discarded`` (bool; such rows
            are listed too) and ``digest`` (see :func:`row_digests`).
        """
        low = self.tail if start is None else start
        high = self.head if stop is None else stop
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

    def add_batch(self, transitions: Mapping[str, Any], priorities: Array | None = None) -> None:
        """Append plain transitions: ``state, action, reward, next_state`` and ``done`` or ``terminated``/``truncated``.

        Values are numpy arrays or torch tensors with rows first, states possibly nested dicts of them. Further keys are kept
        and come back with their dtype and shape; rows whose ``valids`` is 0 are left out. ``priorities`` are those of the
        rows that are not.

        Raises:
            SpecError: naming the key that is missing, unknown, or of another shape than in the first batch.
            BlockRefused: a value is not finite.
        """
        with self._lock:
            self._check_not_closed()
            if self._staging is not None and priorities is None and self._staging.add(transitions):
                if self._staging.is_full:
                    self._open()
                return
            flat = flatten(transitions)
            if not len(next(iter(flat.values()))):
                return
            if self._plain is None:
                self._plain = PlainLayout.of_batch(flat, self.spec)
            try:
                store = self._store or self._create(self._plain.spec(flat))
                block = self._plain.block(flat, store.spec)
                self.insert(block, ACTOR, STREAM, store.ledger.last(ACTOR, STREAM) + 1, priorities)
            except BaseException:
                if self._store is None:
                    self._plain = None
                raise
            if self._path is None and self._staging is None:
                self._staging = Staging.of(self._plain, store.spec, store.segment.sizes.max_rows)

    def sample_batch(self, batch_size: int, mix: str = "critic") -> dict[str, Any]:
        """A sampled batch in the form of the first plain batch; torch tensors when that held torch tensors.

        Prioritised sampling adds numpy arrays ``ids`` ``(B,)`` int64 and ``weights`` ``(B,)`` float32, named sets add ``sets``
        ``(B,)`` uint8.
        """
        with self._lock:
            batch = self.sample(batch_size, mix=mix)
            out = (self._plain or PlainLayout.of_spec(self._open().spec)).unpack(batch)
            if batch.weights is not None:
                out |= {"ids": batch.ids, "weights": batch.weights}
            return out if batch.sets is None else {**out, "sets": batch.sets}

    def insert_and_resample(self, new_data: Mapping[str, Any], batch_size: int) -> dict[str, Any]:
        """:meth:`add_batch`, then :meth:`sample_batch`, with nothing of another thread in between."""
        with self._lock:
            self.add_batch(new_data)
            return self.sample_batch(batch_size)

    def save(self, path: str | Path, progress: snapshot.Progress | None = None, *, keep: int = snapshot.KEEP) -> None:
        """Add a snapshot of live rows, ledger, counters, statistics and sampler state to the directory ``path``.

        It holds the instant of the call, while other threads go on inserting and sampling: of the rows that are live now, those
        that were not evicted before they were copied. Complete or invisible: a kill leaves the earlier ones.

        Args:
            path: a directory of its own.
            progress: called with the bytes written and the bytes in all.
            keep: newest snapshots that stay there.

        Raises:
            NoSpace: it does not fit.
            PoolError: every row was evicted before it was copied, or the pool was closed or loaded meanwhile.
        """
        with self._lock:
            capture, body = self._capture()
        snapshot.write(Path(path), capture, body, progress, keep)

    def _capture(self) -> tuple[Capture, dict[str, Any]]:
        capture = Capture(self._open(), self._lock)
        return capture, {"config": dump(self.config), "sampler": self._sampling.get_state(), **self._extra()}

    def load(self, path: str | Path) -> bool:
        """Hold what the snapshot at ``path`` holds, in place of everything.

        This pool's config wins: a smaller pool keeps the newest rows, a larger one goes on filling.

        Returns:
            False when there is no snapshot.

        Raises:
            PoolDamaged: names the file; the pool is as it was.
            SpecError, ConfigError: it does not fit this pool; the pool is as it was.
        """
        found = snapshot.read(Path(path))
        if found is None:
            return False
        self.set_state({**found[0], "arrays": found[1]})
        return True

    def adopt(self, other: SACReplayPool) -> None:
        """Hold the newest rows of another pool in place of everything, as rows that were there before this pool's first.

        They count as no env steps and no updates; their actors are renamed ``past-<index>/<name>``.

        Raises:
            SpecError, ConfigError: it does not fit this pool; the pool is as it was.
        """
        state = other.get_state()
        body, arrays = as_past(state, state["arrays"])
        with self._lock:
            self._check_not_closed()
            self._plain = self._plain or (None if state["plain"] is None else PlainLayout.from_list(state["plain"]))
            spec = self.spec or TransitionSpec.from_dict(state["spec"])
            contents = Contents.of_snapshot(spec, body, arrays)
            (self._store or self._create(spec)).restore(contents)

    @classmethod
    def from_path(
        cls, path: str | Path, sampling: SamplingConfig | None = None, rng: np.random.Generator | None = None
    ) -> SACReplayPool:
        """A pool in anonymous memory with the sizes, spec and rows of the snapshot at ``path``.

        Raises:
            PoolError: there is no snapshot.
        """
        found = snapshot.read(Path(path))
        if found is None:
            raise PoolError(f"{path}: there is no snapshot")
        config = load(PoolConfig, found[0]["config"], f"{path}: pool")
        pool = cls(config.capacity, config=config, sampling=sampling, rng=rng)
        pool.set_state({**found[0], "arrays": found[1]})
        return pool

    @classmethod
    def like(
        cls,
        body: Mapping[str, Any],
        *,
        path: Path | None = None,
        capacity: int | None = None,
        rng: np.random.Generator | None = None,
    ) -> SACReplayPool:
        """An empty pool with the sizes, spec and plain form that ``body`` names: a manifest, or :meth:`made_of` and a spec."""
        config = load(PoolConfig, body["config"], "pool")
        pool = cls(capacity or config.capacity, path=path, config=config, rng=rng)
        pool._plain = None if body["plain"] is None else PlainLayout.from_list(body["plain"])
        pool._create(TransitionSpec.from_dict(body["spec"]))
        return pool

    def made_of(self) -> dict[str, Any]:
        """Identity, sizes and plain form, as plain values that travel with exported rows."""
        with self._lock:
            own = {"uuid": self._open().files.pool_id.hex, "epoch": self.epoch, "config": dump(self.config)}
            return {**own, **self._extra()}

    def get_state(self) -> dict[str, Any]:
        """Everything the pool holds: plain values, and ``arrays`` (copies) by the file name that a snapshot gives them."""
        with self._lock:
            capture, body = self._capture()
            return {**capture.body, **body, "arrays": capture.whole()}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Take a state of :meth:`get_state`, as :meth:`load` does."""
        with self._lock:
            self._check_not_closed()
            try:
                spec = TransitionSpec.from_dict(state["spec"])
                plain = None if state["plain"] is None else PlainLayout.from_list(state["plain"])
                self._sampling.check_state(state["sampler"])
                self._plain = plain if self._store is None else self._plain or plain
                contents = Contents.of_snapshot(self.spec or spec, state, state["arrays"])
                (self._store or self._create(spec)).restore(contents)
                self._sampling.set_state(state["sampler"])
            except (KeyError, TypeError, ValueError) as error:
                raise PoolDamaged(f"not the state of a pool: {type(error).__name__} {error}") from error

    def check_valid(self) -> tuple[bool, str]:
        """Whether rings, ledger, statistics and sampler agree; looks at every live row."""
        with self._lock:
            return (True, "") if self._store is None else self._store.check_valid()

    def close(self) -> None:
        """Unmap the files and let the next owner in; harmless when called twice."""
        with self._lock:
            if self._store is not None and not self._closed:
                self._store.close()
            self._closed = True
            self._release()

    def __enter__(self) -> SACReplayPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _release(self) -> None:
        self._committed = self._staging = None
        if self._owner is not None:
            self._owner.release()

    def _check_not_closed(self) -> None:
        if self._closed:
            raise PoolError("the pool is closed")

    def _open(self) -> Store:
        self._check_not_closed()
        if self._store is None:
            raise PoolError("the pool has no spec yet; give one, add a plain batch, or load a snapshot")
        return self._store
