"""Shards: plain ``.npz`` files of rows and their observations, under one manifest, complete or invisible.

Each shard stands alone and opens with ``numpy.load(file, allow_pickle=False)``. It holds ``id`` and every column of the row
dtype under its own name. Observations are there once per frame: ``frames/<key>`` ``(m, *shape)``, to which ``obs`` and
``next_obs`` ``(n, h)`` point; or, in flat shards, gathered: ``obs/<key>`` and ``next_obs/<key>``, ``(n, *shape)`` or
``(n, h, *shape)``. What is read back is checked against the manifest before memory is taken for it.
"""

from __future__ import annotations

import hashlib
import math
import os
import zipfile
import zlib
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from headrace.buffer import manifest, space
from headrace.buffer.about import About
from headrace.buffer.files import npy_header
from headrace.buffer.partial import Partial
from headrace.common.batch import Batch
from headrace.common.block import Block
from headrace.common.errors import BlockRefused, PoolDamaged, PoolError
from headrace.common.specs import TransitionSpec

Array = np.ndarray[Any, Any]
FORMAT = "headrace-shards"
VERSION = 1
MAX_ROWS = 1 << 24  # of one shard
_MAX_RATIO = 1100  # deflate cannot shrink further, so that much memory is the most that a file's bytes can ask for
_CHUNK = 8 << 20
_REFERENCES = ("obs", "next_obs")
_FAULTS = (OSError, ValueError, EOFError, KeyError, NotImplementedError, RuntimeError, zipfile.BadZipFile, zlib.error)


@dataclass(frozen=True)
class Shard:
    """One file of the manifest: rows ``[first, stop)`` of the pool, as far as they were live."""

    file: str
    rows: int
    frames: int
    first: int
    stop: int
    nbytes: int
    sha256: str


@dataclass(frozen=True)
class Column:
    """One array of a shard: name in the file, dtype, shape of one entry, and whether its entries are frames or rows."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    of_frames: bool = False


def columns_of(spec: TransitionSpec, flat: bool) -> list[Column]:
    """Every array of a shard, in the order of the file."""
    names = [name for name in spec.row_dtype.names or () if not (flat and name in _REFERENCES)]
    fields = {name: spec.row_dtype[name] for name in names}
    out = [Column("id", np.dtype("<i8"), ())]
    out += [Column(name, field.base, field.shape) for name, field in fields.items()]
    for o in spec.obs:
        if flat:
            shape = o.shape if spec.stack == 1 else (spec.stack, *o.shape)
            out += [Column(f"{root}/{o.key}", np.dtype(o.dtype), shape) for root in _REFERENCES]
        else:
            out.append(Column(f"frames/{o.key}", np.dtype(o.dtype), o.shape, of_frames=True))
    return out


def pack(batch: Batch, spec: TransitionSpec, flat: bool) -> dict[str, Array]:
    """The arrays of a shard with the rows of ``batch``, by name."""
    out = {"id": batch.ids, **{name: batch.rows[name] for name in batch.rows.dtype.names or ()}}
    if flat:
        for root, arrays in zip(_REFERENCES, (batch.obs, batch.next_obs), strict=True):
            del out[root]
            out.update({f"{root}/{key}": values for key, values in arrays.items()})
        return out
    ids = np.concatenate([batch.rows["obs"], batch.rows["next_obs"]])
    _, where, offsets = np.unique(ids, return_index=True, return_inverse=True)
    out["obs"], out["next_obs"] = offsets.reshape(2, *batch.rows["obs"].shape)
    n = batch.rows["obs"].size
    for o in spec.obs:
        before, after = (a[o.key].reshape(n, *o.shape) for a in (batch.obs, batch.next_obs))
        frames = np.empty((len(where), *o.shape), o.dtype)
        early = where < n
        frames[early], frames[~early] = before[where[early]], after[where[~early] - n]
        out[f"frames/{o.key}"] = frames
    return out


def unpack(arrays: Mapping[str, Array], spec: TransitionSpec, flat: bool) -> Block:
    """The rows of a shard as one block; ``actor``, ``stream`` and ``seq`` are as in the file."""
    rows = np.zeros(len(arrays["id"]), spec.row_dtype)
    for name in rows.dtype.names or ():
        if name in arrays:
            rows[name] = arrays[name]
    if not flat:
        return Block(rows, {o.key: arrays[f"frames/{o.key}"] for o in spec.obs})
    n, h = len(rows), spec.stack
    rows["obs"], rows["next_obs"] = np.arange(2 * n * h).reshape(2, n, h)
    both = {o.key: [arrays[f"{root}/{o.key}"].reshape(n * h, *o.shape) for root in _REFERENCES] for o in spec.obs}
    return shared_frames(Block(rows, {key: np.concatenate(parts) for key, parts in both.items()}))


def shared_frames(block: Block) -> Block:
    """The same rows where a frame that equals the one ahead of it in the same episode is stored once.

    A row's ``obs`` that equals, byte for byte, a frame of the row before it refers to that one.
    """
    rows = block.rows.copy()
    n, h = rows["obs"].shape
    seen: dict[bytes, int] = {}
    raw = [np.ascontiguousarray(f).reshape(len(f), -1).view("|u1") for f in block.frames.values()]
    for i in range(n):
        known: dict[bytes, int] = {}
        for name in _REFERENCES:
            for k in range(h):
                place = int(rows[name][i, k])
                key = b"".join(part[place].tobytes() for part in raw)
                rows[name][i, k] = known[key] = known.get(key, seen.get(key, place))
        seen = known
    used, where = np.unique(np.concatenate([rows["obs"], rows["next_obs"]]), return_inverse=True)
    rows["obs"], rows["next_obs"] = where.reshape(2, n, h)
    return Block(rows, {key: frames[used] for key, frames in block.frames.items()})


class ShardWriter:
    """Writes the directory ``out`` beside its place; :meth:`publish` makes it appear, anything else leaves nothing.

    Raises:
        PoolError: ``out`` exists already.
        NoSpace, DiskFailed: in any call; what was written is for :meth:`discard`.
    """

    def __init__(self, out: Path, spec: TransitionSpec, flat: bool) -> None:
        if out.exists() and not (out.is_dir() and not any(out.iterdir())):
            raise PoolError(f"{out}: exists already; an export needs a directory of its own")
        self._spec, self._flat, self._out = spec, flat, out
        self.shards: list[Shard] = []
        with self._writing():
            self._partial = Partial(out)

    def add(self, batch: Batch, first: int, stop: int) -> None:
        """Write the rows of ``batch``, those of ``[first, stop)`` that were live, as one shard."""
        name = f"rows-{len(self.shards):05d}.npz"
        arrays = pack(batch, self._spec, self._flat)
        path = self._partial.path / name
        frames = 0 if self._flat else len(arrays[f"frames/{self._spec.obs[0].key}"])
        with self._writing():
            _write(path, arrays, columns_of(self._spec, self._flat))
            self.shards.append(Shard(name, len(batch), frames, first, stop, path.stat().st_size, file_digest(path)))

    def publish(self, body: Mapping[str, Any]) -> None:
        """Write the manifest with ``body`` and give the directory its name."""
        head = {"format": FORMAT, "version": VERSION, "flat": self._flat, "spec": self._spec.to_dict()}
        with self._writing():
            manifest.write(self._partial.path, {**head, **body, "shards": [asdict(shard) for shard in self.shards]})
            self._partial.publish()

    def discard(self) -> None:
        """Remove what was written."""
        self._partial.discard()

    def _writing(self) -> AbstractContextManager[None]:
        return space.writing("the export", self._out.parent)


class ShardReader:
    """The shards of a directory, checked against its manifest before anything of them is believed.

    Raises:
        PoolDamaged: naming the file or the field that is not what :class:`ShardWriter` writes.
    """

    def __init__(self, directory: Path) -> None:
        body = manifest.read(directory)
        if body is None:
            raise PoolDamaged(f"{directory / manifest.NAME}: missing")
        where = directory / manifest.NAME
        found = body.get("format"), body.get("version")
        if found != (FORMAT, VERSION):
            place = (
                directory.absolute().parent if "number" in body else directory
            )  # a snapshot is exported with those beside it
            pool = "generation" in body or "number" in body
            first = f"; pools are exported first (headrace pool export {place} SHARDS)" if pool else ""
            raise PoolDamaged(f"{where}: format {found}, not {(FORMAT, VERSION)}{first}")
        try:
            self.flat = bool(body["flat"])
            self.actors = [str(name) for name in body["actors"]]
            self.shards = [Shard(**entry) for entry in body["shards"]]
            self.spec = TransitionSpec.from_dict(body["spec"])
            self.about = About.from_dict(body["about"], str(where)) if "about" in body else About()  # older ones have none
            for shard in self.shards:
                if Path(shard.file).name != shard.file or not 1 <= int(shard.rows) <= MAX_ROWS:
                    raise ValueError(f"{shard.file!r} of {shard.rows} rows")
                if not 0 <= int(shard.frames) <= 2 * self.spec.stack * shard.rows:
                    raise ValueError(f"{shard.file!r} of {shard.frames} frames")
        except (KeyError, TypeError, ValueError) as error:
            raise PoolDamaged(f"{where}: {type(error).__name__} {error}") from error
        self.directory, self.body = directory, body

    @property
    def rows(self) -> int:
        """Rows of all shards."""
        return sum(shard.rows for shard in self.shards)

    def verify(self, shard: Shard) -> None:
        """Refuse a file whose digest is not the manifest's."""
        path = self.directory / shard.file
        try:
            found = file_digest(path)
        except OSError as error:
            raise PoolDamaged(f"{path}: {error.strerror or error}") from error
        if found != shard.sha256:
            raise PoolDamaged(f"{path}: its digest does not match the manifest")

    def block(self, shard: Shard) -> Block:
        """All rows of one shard.

        Raises:
            PoolDamaged: naming the column.
            BlockRefused: a value that may not enter a pool.
        """
        path = self.directory / shard.file
        arrays: dict[str, Array] = {}
        try:
            with _open(path) as file, zipfile.ZipFile(file) as archive:
                limit = _MAX_RATIO * os.fstat(file.fileno()).st_size
                for column in columns_of(self.spec, self.flat):
                    count = shard.frames if column.of_frames else shard.rows
                    arrays[column.name] = _read_column(archive, column, count, limit)
        except PoolDamaged as error:
            raise PoolDamaged(f"{path}: {error}") from error
        except _FAULTS as error:
            raise PoolDamaged(f"{path}: {type(error).__name__} {error}") from error
        if int(arrays["actor"].max()) >= len(self.actors):
            raise PoolDamaged(f"{path}: actor {arrays['actor'].max()}, but the manifest names {len(self.actors)}")
        block = unpack(arrays, self.spec, self.flat)
        try:
            block.check(self.spec)
        except BlockRefused as error:
            raise BlockRefused(error.reason, f"{str(error).partition(': ')[2]}, in {path}") from error
        return block


def is_shards(directory: Path) -> bool:
    """Whether the manifest of ``directory`` is that of shards."""
    body = manifest.read(directory)
    return body is not None and body.get("format") == FORMAT


def file_digest(path: Path) -> str:
    """SHA-256 of a file, in hex; a link is refused."""
    digest = hashlib.sha256()
    with _open(path) as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def _open(path: Path) -> IO[bytes]:
    return open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb")  # a name must not lead elsewhere


def _write(path: Path, arrays: Mapping[str, Array], columns: list[Column]) -> None:
    """A file as ``numpy.savez`` writes it; uncompressed, so that it costs no more than the bytes."""
    with open(path, "xb") as file:
        with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
            for column in columns:
                data = np.ascontiguousarray(arrays[column.name], column.dtype)
                with archive.open(f"{column.name}.npy", "w", force_zip64=True) as entry:
                    np.lib.format.write_array(entry, data, version=(1, 0), allow_pickle=False)
        file.flush()
        os.fsync(file.fileno())


def _read_column(archive: zipfile.ZipFile, column: Column, count: int, limit: int) -> Array:
    name, wanted = column.name, (count, *column.shape)
    nbytes = math.prod(wanted) * column.dtype.itemsize
    if nbytes > limit:
        raise PoolDamaged(f"{name}: {nbytes} bytes are declared, a file of this size holds at most {limit}")
    try:
        info = archive.getinfo(f"{name}.npy")
    except KeyError:
        raise PoolDamaged(f"{name}: missing") from None
    with archive.open(info) as entry:
        shape, fortran, dtype = npy_header(entry, name)
        if shape != wanted or dtype != column.dtype or fortran:
            raise PoolDamaged(f"{name}: {shape} of {dtype}, expected {wanted} of {column.dtype}")
        out = np.empty(wanted, column.dtype)
        view = memoryview(out.reshape(-1).view("|u1"))  # type: ignore[arg-type]  # numpy's buffers are memory
        done = 0
        while done < len(view):
            chunk = entry.read(min(_CHUNK, len(view) - done))
            if not chunk:
                raise PoolDamaged(f"{name}: {done} bytes, expected {len(view)}")
            view[done : done + len(chunk)] = chunk
            done += len(chunk)
        if entry.read(1):  # also makes the archive check the entry's CRC
            raise PoolDamaged(f"{name}: more than {len(view)} bytes")
    return out
