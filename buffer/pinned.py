"""The pinned segment: demonstrations beside the ring, drawn and gathered like its rows, never evicted and never changed.

They are kept as a snapshot is: arrays of exactly their rows and frames, for a pool on disk in ``demos/`` of its directory,
under a manifest with a digest of each file, whole or not there. Rows have the ids 0 .. n - 1 and frames 0 .. m - 1, whatever
they had before, and the handles of the rows begin at ``PINNED``. What is pinned counts as demonstrated, whoever acted.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace.buffer import snapshot
from headrace.buffer.capture import Capture, Piece
from headrace.buffer.contents import Contents
from headrace.buffer.files import OPTIONAL_COLUMNS, ROWS, SLOT_COLUMNS, Rings, column_file
from headrace.buffer.index import Index
from headrace.buffer.plain import PlainLayout
from headrace.buffer.reader import Reader
from headrace.buffer.statistics import RunningStatistics
from headrace.common.batch import PINNED
from headrace.common.errors import ConfigError, LabelRefused, PoolDamaged, PoolError
from headrace.common.specs import SOURCE_DEMO, TransitionSpec

if TYPE_CHECKING:
    from headrace.buffer.pool import SACReplayPool
    from headrace.buffer.store import Store

Array = np.ndarray[Any, Any]
DEMOS = "demos"  # folder in a pool's directory
_PIECE_ROWS = 4096
_OF_ROWS = {ROWS, *map(column_file, SLOT_COLUMNS)}
_LEFT_OUT = set(map(column_file, OPTIONAL_COLUMNS))


@dataclass(frozen=True)
class Origin:
    """What demonstrations were made of.

    Attributes:
        digest: of it, in hex; those with one digest are the same.
        sources: where it was, for people.
    """

    digest: str
    sources: tuple[str, ...] = ()

    @classmethod
    def of(cls, facts: Mapping[str, Any] | None) -> Origin | None:
        """The origin that :meth:`to_dict`, or :meth:`Pinned.facts`, says; None where there is nothing."""
        return cls(str(facts["digest"]), tuple(map(str, facts["sources"]))) if facts else None

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {"digest": self.digest, "sources": list(self.sources)}

    def __str__(self) -> str:
        return f"demonstrations of digest {self.digest[:16]} ({', '.join(self.sources) or 'rows of a pool'})"


class DemoCapture(Capture):
    """The live rows of a store that are not discarded, as demonstrations; made and read while the pool's lock is held.

    Raises:
        PoolError: there are none.
    """

    def __init__(self, store: Store, lock: AbstractContextManager[object]) -> None:
        super().__init__(store, lock)
        self._count = store.size
        if not self._count:
            raise PoolError("a pool without rows has no demonstrations that could be pinned")
        numbers = dict.fromkeys(self.body["numbers"], 0) | {"reach": self.body["numbers"]["reach"]}
        numbers |= {"head": self._count, "frame_head": self._frame_head - self._first_frame}
        self.body = {**self.body, "numbers": numbers}

    def shapes(self) -> dict[str, tuple[np.dtype[Any], tuple[int, ...]]]:
        """As of any capture, without the rows that are discarded and the columns that pinned rows do not have."""
        shapes = {file: shape for file, shape in super().shapes().items() if file not in _LEFT_OUT}
        return {file: (dtype, (self._count,) if file in _OF_ROWS else shape) for file, (dtype, shape) in shapes.items()}

    def pieces(self) -> Iterator[Piece]:
        """As of any capture, of rows that are demonstrations and refer to frames from 0 on."""
        for piece in super().pieces():
            rows, kept = piece.arrays[ROWS], piece.arrays[column_file("discarded")] == 0
            executed = np.arange(rows["source"].shape[1]) < rows["steps"][:, None]
            rows["source"] = np.where(executed, SOURCE_DEMO, 0)
            for name in ("obs", "next_obs"):
                rows[name] -= self._first_frame
            arrays = {file: array for file, array in piece.arrays.items() if file not in _LEFT_OUT}
            yield Piece(piece.first, {file: array[kept] if file in _OF_ROWS else array for file, array in arrays.items()})


class Pinned:
    """Demonstrations, read-only.

    Args:
        body: plain values of a :class:`DemoCapture`, with the rows' origin.
        arrays: its arrays by file name.
        folder: directory of the files; None in memory.

    Attributes:
        spec: columns of the rows.
        plain: form of the plain dictionaries that they were, or None.
        actors: names by the index that rows hold.
        reader: gathers rows by id, from 0 on.

    Raises:
        PoolDamaged: an array does not fit the rest.
    """

    def __init__(self, body: Mapping[str, Any], arrays: Mapping[str, Array], folder: Path | None = None) -> None:
        try:
            self.spec = TransitionSpec.from_dict(body["spec"])
            self.plain = None if body["plain"] is None else PlainLayout.from_list(body["plain"])
            self._origin = Origin.of(body["origin"])
            contents = Contents.of_snapshot(self.spec, body, arrays)
        except (KeyError, TypeError, ValueError) as error:
            raise PoolDamaged(f"{folder}: not demonstrations that were pinned: {type(error).__name__} {error}") from error
        columns = {name: pieces[0] for name, pieces in contents.rows.items()}
        frames = {key: pieces[0] for key, pieces in contents.frames.items()}
        self.actors = [entry["actor"].decode("utf-8") for entry in contents.entries]
        self.reader = Reader(self.spec, Rings(columns.pop("rows"), columns, frames))
        self.folder = None if folder is None else folder.absolute()
        self._arrays, self._frames = arrays, frames

    @classmethod
    def copy(cls, capture: DemoCapture, body: Mapping[str, Any], folder: Path | None, origin: Origin | None) -> Pinned:
        """What ``capture`` holds: in files of ``folder``, which takes it whole or not at all, or in memory.

        Args:
            capture: rows of another pool.
            body: further plain values of that pool, as in a snapshot of it.
            folder: made when missing.
            origin: what the rows were made of; None takes the digest of the rows themselves.

        Raises:
            NoSpace, DiskFailed: the disk does not take it.
        """
        body = {**capture.body, **body, "origin": None if origin is None else origin.to_dict()}
        if folder is None:
            return cls(body, capture.whole())
        snapshot.write(folder, capture, body, keep=1, what="the copy of the demonstrations")
        return cls.read(folder)

    @classmethod
    def read(cls, folder: Path, *, verify: bool = True) -> Pinned:
        """The demonstrations in ``folder``, mapped.

        Args:
            folder: where :meth:`copy` has put them.
            verify: whether to look at every byte, as their owner does, or at the form only, as readers beside it.

        Raises:
            PoolDamaged: names the file that is missing, cut or changed.
        """
        found = snapshot.read(folder, verify=verify)
        if found is None:
            raise PoolDamaged(f"{folder}: the pool's demonstrations are gone; put them back")
        return cls(*found, folder)

    def __len__(self) -> int:
        return len(self._arrays[ROWS])

    @cached_property
    def origin(self) -> Origin:
        """What the rows were made of; where nobody has said it, a digest of the rows and frames themselves."""
        if self._origin is not None:
            return self._origin
        digest = hashlib.sha256()
        for file in sorted(_OF_ROWS | {file for file in self._arrays if file.startswith("frames.")}):
            array = self._arrays[file]
            digest.update(f"{file} {array.dtype.descr} {array.shape}".encode())
            digest.update(np.ascontiguousarray(array).reshape(-1).view("|u1").data)
        return Origin(digest.hexdigest())

    def facts(self) -> dict[str, Any]:
        """What manifests and status say of them."""
        nbytes = sum(array.nbytes for array in self._arrays.values())
        return {"rows": len(self), "nbytes": nbytes, **self.origin.to_dict()}

    def handles(self, places: Array) -> Array:
        """Handles of the rows at ``places``, ``(n,)`` of 0 .. len - 1."""
        out: Array = places + PINNED
        return out

    def holds(self, handles: Array) -> Array:
        """``(n,)`` bool: which of ``handles`` are of these rows."""
        mine: Array = (handles >= PINNED) & (handles < PINNED + len(self))
        return mine

    def refuse_label(self, actor: str) -> None:
        """Refuse to change rows of ``actor`` if they are among these; :class:`LabelRefused` with reason ``pinned``."""
        if actor in self.actors:
            raise LabelRefused("pinned", f"the rows of {actor[:32]!r} are pinned demonstrations, which never change")

    def attach(self, index: Index) -> None:
        """Feed ``index`` all rows under their handles; it hears of nothing else, since they do not change."""
        index.cleared()
        for first, rows in self._rows():
            index.committed(PINNED + first, rows)

    @cached_property
    def statistics(self) -> RunningStatistics:
        """Moments over the newest frame of each row's observation, as the ring counts them."""
        out = RunningStatistics(self.spec)
        for _, rows in self._rows():
            out.add(self._frames, rows["obs"][:, -1])
        return out

    def _rows(self) -> Iterator[tuple[int, Array]]:
        """Copies of all rows, a bounded number at a time, with the place of the first."""
        for low in range(0, len(self), _PIECE_ROWS):
            yield low, self.reader.rows(np.arange(low, min(low + _PIECE_ROWS, len(self))))


def info(facts: Mapping[str, Any] | None) -> dict[str, Any]:
    """What :meth:`Pinned.facts`, or nothing, says among the sizes of a pool."""
    rows, nbytes = (facts["rows"], facts["nbytes"]) if facts else (0, 0)
    return {"demos": str(Origin.of(facts) or ""), "demo_rows": rows, "demo_nbytes": nbytes}


def of_pool(path: Path | None, kept: Mapping[str, Any] | None, given: SACReplayPool | Pinned | None) -> Pinned | None:
    """The demonstrations of a pool that is opened; None when it has none. A pool keeps those that it began with.

    Args:
        path: directory of the pool; None in memory.
        kept: :meth:`Pinned.facts` in the pool's manifest; empty for a pool that began without; None for a new pool.
        given: what its owner asks for: a pool whose rows are copied, or what has been put into ``demos/`` of ``path``.

    Raises:
        ConfigError: other demonstrations are asked for than the pool has; names both.
        PoolDamaged: those that the pool had are not there.
        PoolError: what is given lies elsewhere.
    """
    folder = None if path is None else path.absolute() / DEMOS
    if isinstance(given, Pinned) and folder is not None and given.folder != folder:
        raise PoolError(f"the demonstrations in {given.folder or 'memory'} are not in {folder}, where their pool needs them")
    if kept is None:
        return given if given is None or isinstance(given, Pinned) else given.pinned(folder)
    has = Origin.of(kept)
    if given is not None:
        given = given if isinstance(given, Pinned) else given.pinned()
        require_same(str(path), has, given.origin)
    if folder is None or has is None:
        return None
    mine = given if given is not None and given.folder == folder else Pinned.read(folder)
    if mine.origin.digest != has.digest:
        raise PoolDamaged(f"{folder}: holds {mine.origin}, but the pool's manifest names {has}")
    return mine


def require_same(where: str, has: Origin | None, asked: Origin | None) -> None:
    """Refuse other demonstrations than those that ``where`` has; :class:`ConfigError` names both."""
    if has is None or asked is None or has.digest != asked.digest:
        none = "no demonstrations"
        raise ConfigError(
            f"pool.demos: {where} has {has or none}, and is now to have {asked or none}; what is pinned stays: put the"
            " old ones back, or begin anew"
        )
