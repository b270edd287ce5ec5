"""``SACReplayPool``: the pool as everyone sees it. Its rows, and their home, plain form, snapshots and state."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from headrace.buffer import pinned, snapshot
from headrace.buffer.arguments import directory, instance, numbers, real, whole, wrong
from headrace.buffer.capture import Capture
from headrace.buffer.config import PoolConfig, SamplingConfig
from headrace.buffer.contents import Contents
from headrace.buffer.flat import flatten
from headrace.buffer.home import Home, as_extra, as_layout
from headrace.buffer.ledger import Ledger
from headrace.buffer.past import as_past
from headrace.buffer.pinned import DemoCapture, Origin, Pinned, require_same
from headrace.buffer.plain import ACTOR, FRAMES, STREAM, PlainLayout, require_form
from headrace.buffer.returns import Returns
from headrace.buffer.ring import geometry
from headrace.buffer.row_pool import NoneType, RowPool
from headrace.buffer.sampling import Sampling
from headrace.buffer.staging import Staging
from headrace.buffer.store import Store
from headrace.common.block import Block
from headrace.common.config import dump, load
from headrace.common.errors import BlockRefused, PoolDamaged, PoolError
from headrace.common.specs import TransitionSpec

Array = np.ndarray[Any, Any]
_log = logging.getLogger(__name__)


class SACReplayPool(RowPool):
    """The newest ``capacity`` transitions; inserts, samples, keeps and restores them.

    Safe for threads: no thread sees half a call. With a path one process owns the directory, and what was inserted survives
    a SIGKILL of that process at any instruction; its forked children may only read. Without one the rows are in anonymous
    memory, of which a forked child has a copy.

    Args:
        capacity: rows kept; takes the place of ``config.capacity``.
        path: directory of the mapped files, made when missing; opened when it holds a pool.
        spec: columns of the rows; without one the directory, the first plain batch or the loaded snapshot fixes it.
        config: sizes; None takes those of an existing directory, and the defaults for a new one.
        sampling: how batches are drawn, None uniformly; may differ from one opening of a directory to the next.
        rng: draws batches; None seeds one from the operating system.
        demos: a pool whose live rows are copied and pinned beside the ring, as demonstrations that are drawn with its rows and
            never evicted; None takes those of an existing directory, which keeps what it began with.
        return_gamma: discount of one env step in the returns whose spread :meth:`statistics` tells; None follows none.

    Raises:
        PoolLocked: another owner lives; names its pid.
        ConfigError, SpecError: the directory holds a pool with another config, spec or demonstrations; names both values.
        NoSpace: the pool does not fit; says how much is needed and free.
        PoolDamaged: names the file. ``PoolTorn``: the machine stopped while it was in use with ``ack: memory``.
    """

    def __init__(
        self,
        capacity: int,
        *,
        path: str | Path | None = None,
        spec: TransitionSpec | None = None,
        config: PoolConfig | None = None,
        sampling: SamplingConfig | None = None,
        rng: np.random.Generator | None = None,
        demos: SACReplayPool | Pinned | None = None,
        return_gamma: float | None = None,
    ) -> None:
        capacity = whole("capacity", capacity)
        path = None if path is None else directory("path", path).absolute()  # wherever the process goes later
        for name, given, kind in (
            ("spec", spec, TransitionSpec),
            ("config", config, PoolConfig),
            ("sampling", sampling, SamplingConfig),
            ("rng", rng, np.random.Generator),
        ):
            instance(name, given, kind, NoneType)
        instance("demos", demos, SACReplayPool, Pinned, NoneType)
        way = load(SamplingConfig, dump(sampling or SamplingConfig()), "sampling")
        returns = None if return_gamma is None else Returns(real("return_gamma", return_gamma, 0, 1))
        super().__init__(Sampling(way, np.random.default_rng() if rng is None else rng), returns)
        self._plain: PlainLayout | None = None
        self._staging: Staging | None = None
        self.config = load(PoolConfig, {**dump(config or PoolConfig()), "capacity": capacity}, "pool")
        way.check_fits(self.config.capacity, 1)
        self._home = Home(path, demos)
        try:
            found = self._home.find(self.config, spec, self._checked, configured=config is not None)
            self._pinned = self._home.pinned
            if self._pinned is not None:
                way.check_pinned()
            if found is not None:
                self.config, self._plain = found.config, found.plain
                self._hold(found.store)
            elif self._pinned is not None:
                self._plain = self._checked(self._pinned.plain)
                self._create(spec or self._pinned.spec, self._plain)
            elif spec is not None:
                self._create(spec)
        except BaseException:
            self._release()
            raise

    def _create(self, spec: TransitionSpec, plain: PlainLayout | None = None) -> Store:
        store = self._home.create(spec, self.config, plain)
        try:
            return self._hold(store)
        except BaseException:  # such as NoSpace for priorities
            self._home.give_up()
            raise

    @property
    def _store(self) -> Store | None:
        self._check_not_closed()
        staging = self._staging
        if staging is not None and staging.n_rows:
            with self._lock:
                store = self._committed
                if store is not None and staging.n_rows:
                    store.append(staging, ACTOR, STREAM)
        return self._committed

    def _changing(self) -> Store:
        self._home.require_ours()
        return self._open()

    def info(self) -> dict[str, Any]:
        """Sizes in rows, frames and bytes, and identity."""
        with self._lock:
            out = {"path": str(self._home.path or ""), "size": self.size, **dump(self.config)}
            out |= pinned.info(None if self._pinned is None else self._pinned.facts())
            return out if self._store is None else {**out, **self._store.info()}

    def add_batch(self, transitions: Mapping[str, Any], priorities: Array | None = None) -> None:
        """Append plain transitions: ``state, action, reward, next_state`` and ``done`` or ``terminated``/``truncated``.

        Values are numpy arrays or torch tensors with rows first, states possibly nested dicts of them. Whole numbers ``task``
        and ``source`` ``(n,)`` are what named sets choose by. Further keys are kept and come back with their dtype and shape;
        rows whose ``valids`` is 0 are left out. ``priorities`` are those of the rows that are not. A first batch that is
        refused fixes nothing. Of one that is interrupted (``KeyboardInterrupt``) in its middle the first rows are there, as
        :meth:`insert` says; :attr:`head` tells how many.

        Raises:
            SpecError: naming the key that is missing, unknown, or of another shape than in the first batch.
            BlockRefused: a value is not finite.
            PriorityRefused, PoolError: as :meth:`insert`.
        """
        priorities = None if priorities is None else numbers("priorities", priorities)
        with self._lock:
            self._check_not_closed()
            if self._staging is not None and priorities is None and self._staging.add(transitions):
                if self._staging.is_full:
                    self._open()
                return
            flat = flatten(transitions)
            if not len(next(iter(flat.values()))):
                return
            layout = self._plain or self._first_layout(flat)
            spec = self.spec or layout.spec(flat)
            block = layout.block(flat, spec)
            try:
                if self._plain is None:
                    self._check_first(block, spec, priorities)
                store, self._plain = self._store or self._create(spec, layout), layout
                self.insert(block, ACTOR, STREAM, store.ledger.last(ACTOR, STREAM) + 1, priorities)
            except BlockRefused as error:
                raise layout.blamed(error, flat) from error
            if self._home.path is None and self._staging is None:
                self._staging = Staging.of(layout, store.segment)

    def _checked(self, layout: PlainLayout | None) -> PlainLayout | None:
        """A form of plain dictionaries from which the declared sets can choose; :class:`SpecError` for any other."""
        if layout is not None and self._sampling.config.by_task:
            layout.require_task()
        return layout

    def _check_first(self, block: Block, spec: TransitionSpec, priorities: Array | None) -> None:
        """Refuse what :meth:`insert` would, before the form of the pool is fixed by it."""
        block.check(spec)
        if priorities is not None:
            self._sampling.check(priorities, block.n_rows)
        if self._store is not None:
            ledger = self._changing().ledger
            ledger.admit(ACTOR)
            ledger.last(ACTOR, STREAM)

    def _first_layout(self, flat: Mapping[tuple[str, ...], Any]) -> PlainLayout:
        layout = PlainLayout.of_batch(flat, self.spec)
        self._checked(layout)
        sizes = geometry(self.spec or layout.spec(flat), self.config)
        if sizes.rows_of(FRAMES) < self.config.capacity:
            _log.warning(
                "pool.min_block_rows: %d leaves room for %d frames, and each row of a plain dictionary brings two: of a"
                " capacity of %d only the newest %d rows are sure to stay; with 1 all do",
                *(self.config.min_block_rows, sizes.frame_slots, self.config.capacity, sizes.rows_of(FRAMES)),
            )
        return layout

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
        """:meth:`add_batch`, then :meth:`sample_batch`, with nothing of another thread in between.

        Raises:
            PoolTooSmall: also when the new rows, which are in, do not make the batch full; do not add them again.
        """
        batch_size = whole("batch_size", batch_size, 1)  # before the rows are in
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
        place, keep = directory("path", path), whole("keep", keep, 1)
        if not (progress is None or callable(progress)):
            raise wrong("progress", progress, "a function of two numbers, or None")
        with self._lock:
            capture, body = self._capture()
        snapshot.write(place, capture, body, progress, keep)

    def _capture(self) -> tuple[Capture, dict[str, Any]]:
        return Capture(self._open(), self._lock), self._body()

    def _body(self) -> dict[str, Any]:
        extra = as_extra(self._plain, self._pinned)
        extra |= {} if self._returns is None else {"returns": self._returns.get_state()}
        return {"config": dump(self.config), "sampler": self._sampling.get_state(), **extra}

    def load(self, path: str | Path) -> bool:
        """Hold what the snapshot at ``path`` holds, in place of everything.

        This pool's config wins: a smaller pool keeps the newest rows, a larger one goes on filling. Everything is read and
        checked first. What is cut after that, by a kill or an interrupt, leaves a pool that is empty when it is opened again.

        Returns:
            False when there is no snapshot.

        Raises:
            PoolDamaged: names the file; the pool is as it was.
            SpecError, ConfigError: it does not fit this pool; the pool is as it was.
        """
        self._check_not_closed()
        found = snapshot.read(directory("path", path))
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
        self._check_not_closed()
        instance("other", other, SACReplayPool)
        state = other.get_state()
        body, arrays = as_past(state, state["arrays"])
        with self._lock:
            self._check_not_closed()
            spec = self.spec or TransitionSpec.from_dict(state["spec"])
            contents = Contents.of_snapshot(spec, body, arrays)
            self._restore(spec, contents, as_layout(state))

    @classmethod
    def from_path(
        cls,
        path: str | Path,
        sampling: SamplingConfig | None = None,
        rng: np.random.Generator | None = None,
        demos: SACReplayPool | Pinned | None = None,
    ) -> SACReplayPool:
        """A pool in anonymous memory with the sizes, spec and rows of the snapshot at ``path``.

        Args:
            path: directory of snapshots.
            sampling: as of any pool.
            rng: as of any pool.
            demos: those of the pool that was saved, which a snapshot only names.

        Raises:
            PoolError: there is no snapshot.
            ConfigError: it had demonstrations, and these are others or none.
        """
        found = snapshot.read(directory("path", path))
        if found is None:
            raise PoolError(f"{path}: there is no snapshot")
        config = load(PoolConfig, found[0]["config"], f"{path}: pool")
        pool = cls(config.capacity, config=config, sampling=sampling, rng=rng, demos=demos)
        pool.set_state({**found[0], "arrays": found[1]})
        return pool

    @classmethod
    def like(
        cls,
        body: Mapping[str, Any],
        *,
        path: str | Path | None = None,
        capacity: int | None = None,
        rng: np.random.Generator | None = None,
    ) -> SACReplayPool:
        """An empty pool with the sizes, spec and plain form that ``body`` names: a manifest, or :meth:`made_of` and a spec.

        Raises:
            ArgumentError, ConfigError, SpecError, PoolDamaged: it does not.
        """
        instance("body", body, Mapping)
        for name in ("config", "spec", "plain"):
            if name not in body:
                raise wrong("body", body, f"a mapping with {name}, such as a manifest")
        config = load(PoolConfig, body["config"], "pool")
        spec = TransitionSpec.from_dict(body["spec"])
        plain = as_layout(body)
        pool = cls(config.capacity if capacity is None else capacity, path=path, config=config, rng=rng)
        try:
            pool._plain = plain
            pool._create(spec, plain)
        except BaseException:
            pool.close()
            raise
        return pool

    def made_of(self) -> dict[str, Any]:
        """Identity, sizes and plain form, as plain values that travel with exported rows."""
        with self._lock:
            own = {"uuid": self._open().files.pool_id.hex, "epoch": self.epoch, "config": dump(self.config)}
            return {**own, **as_extra(self._plain, self._pinned)}

    def pinned(self, folder: Path | None = None, origin: Origin | None = None) -> Pinned:
        """A copy of the live rows that are not discarded, as demonstrations for another pool; what that one's ``demos`` makes.

        Args:
            folder: where its files go, whole or not at all; None keeps it in memory.
            origin: what the rows were made of; None takes the digest of the rows themselves.

        Raises:
            NoSpace: it does not fit.
            PoolError: there are no rows.
        """
        folder = None if folder is None else directory("folder", folder)
        instance("origin", origin, Origin, NoneType)
        with self._lock:
            return Pinned.copy(DemoCapture(self._open(), self._lock), self._body(), folder, origin)

    def get_state(self) -> dict[str, Any]:
        """Everything the pool holds: plain values, and ``arrays`` (copies) by the file name that a snapshot gives them."""
        with self._lock:
            capture, body = self._capture()
            return {**capture.body, **body, "arrays": capture.whole()}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Take a state of :meth:`get_state`, as :meth:`load` does."""
        instance("state", state, Mapping)
        with self._lock:
            self._check_not_closed()
            try:
                spec, plain = TransitionSpec.from_dict(state["spec"]), as_layout(state)
                named = Origin.of(state.get("demos"))
                if named is not None:
                    require_same("what is loaded", named, None if self._pinned is None else self._pinned.origin)
                self._sampling.check_state(state["sampler"])
                told = state.get("returns") if self._returns is not None else None
                if told is not None:
                    Returns.check_state(told)
                contents = Contents.of_snapshot(self.spec or spec, state, state["arrays"])
                self._restore(spec, contents, plain)
                self._sampling.set_state(state["sampler"])
                if self._returns is not None and told is not None:
                    self._returns.set_state(told)
            except (AttributeError, KeyError, TypeError, ValueError) as error:
                raise PoolDamaged(f"not the state of a pool: {type(error).__name__} {error}") from error

    def _restore(self, spec: TransitionSpec, contents: Contents, theirs: PlainLayout | None) -> None:
        self._home.require_ours()
        require_form("what is loaded", self._plain, theirs)
        plain = self._plain or self._checked(theirs)
        contents.require_sound(spec)
        Ledger(self.config.max_actors).require(len(contents.entries))
        store, self._plain = self._store or self._create(spec, plain), plain
        try:
            store.restore(contents)
        except BaseException:  # such as KeyboardInterrupt: neither what it held nor what it was to hold is whole
            self._closed, self._why = True, "a load into this pool was cut short; open it again, and load once more"
            self._release()
            raise
        self._staging = None  # the next batch asks whether the new ledger has room for its stream

    def close(self) -> None:
        """Put the files on disk, unmap them and let the next owner in; harmless when called twice.

        Raises:
            SyncFailed: the disk does not take them.
        """
        with self._lock:
            try:
                if not self._closed and self._store is not None and self._home.is_ours:
                    self._store.close()
            finally:
                self._closed = True
                self._release()

    def __reduce__(self) -> NoReturn:
        raise PoolError("a pool is neither pickled nor copied; use save() and from_path(), or get_state() and set_state()")

    def __enter__(self) -> SACReplayPool:
        self._check_not_closed()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _release(self) -> None:
        self._committed = self._staging = self._pinned = self._handles = None
        self._home.release()
