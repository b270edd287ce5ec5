"""A pool's home: a directory that one process owns, or nothing but memory; where its store is made or found."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.buffer import generations, pinned, snapshot
from headrace.buffer.config import SIZES, PoolConfig
from headrace.buffer.lock import PoolLock
from headrace.buffer.pinned import Pinned
from headrace.buffer.plain import PlainLayout
from headrace.buffer.store import Store
from headrace.common.config import load, replace
from headrace.common.errors import PoolDamaged, PoolError, SpecError
from headrace.common.specs import TransitionSpec

if TYPE_CHECKING:
    from headrace.buffer.pool import SACReplayPool


@dataclass(frozen=True)
class Found:
    """What a directory holds.

    Attributes:
        store: opened, with the sizes that are wanted now.
        plain: how its rows look as plain dictionaries, if they came so.
        config: of the pool from now on.
    """

    store: Store
    plain: PlainLayout | None
    config: PoolConfig


class Home:
    """Owns the directory of one pool until it is released.

    Args:
        path: the directory, made when missing; None for anonymous memory.
        demos: the demonstrations that are asked for.

    Attributes:
        pinned: the demonstrations that the pool has, once :meth:`find` has looked.

    Raises:
        PoolLocked: another owner lives; names its pid.
    """

    def __init__(self, path: Path | None, demos: SACReplayPool | Pinned | None = None) -> None:
        self.path, self._demos = path, demos
        self.pinned: Pinned | None = None
        self._owner: PoolLock | None = None
        if path is not None:
            try:
                path.mkdir(parents=True, exist_ok=True)
                self._owner = PoolLock(path)
            except OSError as error:
                raise PoolError(f"{path}: cannot hold a pool, which needs a directory: {error.strerror or error}") from error

    def find(
        self,
        config: PoolConfig,
        spec: TransitionSpec | None,
        check: Callable[[PlainLayout | None], object],
        *,
        configured: bool,
    ) -> Found | None:
        """The pool that the directory holds; None when it holds none.

        Args:
            config: as it is to be.
            spec: as it has to be, None as it is.
            check: raises for a plain form that the pool cannot have, before anything is changed for it.
            configured: whether ``config`` holds wishes about more than the capacity.

        Raises:
            ConfigError, SpecError: the pool has another config or spec, or other demonstrations; names field and both values.
            NoSpace: it does not fit with the new sizes beside the old ones.
            PoolDamaged: names the file.
            PoolError: the directory holds snapshots.
        """
        found = None if self.path is None else generations.read(self.path)
        if self.path is not None and snapshot.is_snapshot(self.path):
            raise PoolError(f"{self.path} holds snapshots; a pool needs a directory of its own (a snapshot is loaded)")
        self.pinned = pinned.of_pool(self.path, None if found is None else found[0].get("demos") or {}, self._demos)
        if self.path is None or found is None:
            return None
        body, folder = found
        plain = as_layout(body)
        check(plain)
        stored = load(PoolConfig, body["config"], f"{self.path}: pool")
        if not configured:
            config = replace(stored, capacity=config.capacity)
        kept_spec = TransitionSpec.from_dict(body["spec"])
        different = [] if spec is None else spec.differences(kept_spec)
        if different:
            raise SpecError(f"{self.path} holds rows of another spec (ours first): {'; '.join(different)}")
        as_stored = replace(config, **{name: getattr(stored, name) for name in SIZES})
        store = Store.open(kept_spec, as_stored, folder, uuid.UUID(hex=body["uuid"]))
        if config != as_stored:
            store = store.resized(config, self.path, as_extra(plain, self.pinned))
        generations.sweep(self.path)
        return Found(store, plain, config)

    def create(self, spec: TransitionSpec, config: PoolConfig, plain: PlainLayout | None) -> Store:
        """A new, empty store here.

        Raises:
            SpecError: the demonstrations have another spec.
            NoSpace: it does not fit.
        """
        self.require_ours()
        different = [] if self.pinned is None else spec.differences(self.pinned.spec)
        if different:
            raise SpecError(f"the demonstrations have another spec (the pool's first): {'; '.join(different)}")
        return Store.create(spec, config, self.path, as_extra(plain, self.pinned))

    def give_up(self) -> None:
        """There is no pool here any more."""
        if self.path is not None:
            generations.remove(self.path)

    @property
    def is_ours(self) -> bool:
        """Whether this process may write: the owner of the directory, and who has nothing but a copy in memory."""
        return self._owner is None or self._owner.is_ours

    def require_ours(self) -> None:
        """Refuse to write for a process that was forked from the owner of the directory; :class:`PoolError` names both."""
        if self._owner is not None:
            self._owner.require_ours()

    def release(self) -> None:
        """Let the next owner in; harmless when called twice."""
        if self._owner is not None:
            self._owner.release()


def as_extra(plain: PlainLayout | None, pinned: Pinned | None) -> dict[str, Any]:
    """What a manifest keeps beside spec and config; demonstrations are named there, not copied."""
    named = None if pinned is None else pinned.facts()
    return {"plain": None if plain is None else plain.to_list(), "demos": named}


def as_layout(body: Mapping[str, Any]) -> PlainLayout | None:
    """The plain form that a manifest or a state names with :func:`as_extra`; :class:`PoolDamaged` where it is none."""
    try:
        return None if body["plain"] is None else PlainLayout.from_list(body["plain"])
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise PoolDamaged(f"not the plain form of a pool: {type(error).__name__} {error}") from error
