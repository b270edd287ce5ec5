"""The arrays of one pool: mapped files of a directory, or anonymous memory of the same form.

Every ``.npy`` opens with plain numpy. Space is reserved when a file is made, and a published file is never resized: other
sizes are another generation (see generations.py). The manifest is written last: files that none ever named hold no rows, and
are made anew.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import uuid
from dataclasses import dataclass
from pathlib import Path
from tokenize import TokenError
from typing import IO, Any
from urllib.parse import quote

import numpy as np

from headrace.buffer import header as pool_header
from headrace.buffer import journal, manifest, space, stamps
from headrace.buffer.header import Field, Header
from headrace.buffer.journal import Journal
from headrace.buffer.ring import Geometry
from headrace.buffer.stamps import Stamps
from headrace.common import boot
from headrace.common.errors import NoSpace, PoolDamaged
from headrace.common.label import MAX_REWARD_BYTES
from headrace.common.specs import TransitionSpec

Array = np.ndarray[Any, Any]
ROWS, LEDGER, JOURNAL = "rows.npy", "ledger.bin", "journal.bin"
LEDGER_TABLE = "ledger.npy"  # the readable form, in snapshots
# What may change after a row is committed: one array a name, an entry a row slot, file ``<name>.npy``. A commit writes the
# row's field of that name, or 0 where it has none.
SLOT_COLUMNS: dict[str, str] = {"outcome": "|u1", "discarded": "|u1"}
OPTIONAL_COLUMNS: dict[str, str] = {"priority": "<f4"}  # the same for what not every pool has
MAX_RECORD = MAX_REWARD_BYTES + 256  # a label and its rewards
_MAX_QUOTED = 150


@dataclass(frozen=True)
class Rings:
    """The arrays of one segment.

    Attributes:
        rows: ``(row_slots,)`` of the spec's row dtype.
        columns: name of ``SLOT_COLUMNS`` or ``OPTIONAL_COLUMNS`` -> ``(row_slots,)``; one of a row field's name stands for
            that field.
        frames: key -> ``(frame_slots, *shape)``.
    """

    rows: Array
    columns: dict[str, Array]
    frames: dict[str, Array]


@dataclass(frozen=True)
class PoolFiles(Rings):
    """What one pool is made of, beside its rings.

    Attributes:
        header: the commit state.
        stamps: ledger, counters and statistics.
        journal: the change of committed rows that is under way.
        pool_id: identity of this pool, for ever.
        folder: where the files are; None in anonymous memory.
    """

    header: Header
    stamps: Stamps
    journal: Journal
    pool_id: uuid.UUID
    folder: Path | None

    @property
    def nbytes(self) -> int:
        """Bytes reserved."""
        arrays = (self.rows, *self.columns.values(), *self.frames.values())
        return sum(array.nbytes for array in arrays) + Header.SIZE + self.stamps.nbytes + self.journal.nbytes

    def add_column(self, name: str) -> Array:
        """The optional column ``name``, made of zeros when the pool has none yet.

        Raises:
            NoSpace: it does not fit.
        """
        if name not in self.columns:
            dtype, shape = np.dtype(OPTIONAL_COLUMNS[name]), self.rows.shape
            if self.folder is None:
                self.columns[name] = np.zeros(shape, dtype)
            else:
                path = self.folder / column_file(name)
                _create_whole_npy(path, dtype, shape)
                self.columns[name] = _map_npy(path, dtype, shape, readonly=False)
        return self.columns[name]

    def drop_column(self, name: str) -> None:
        """Do without the optional column ``name`` from now on."""
        if self.columns.pop(name, None) is not None and self.folder is not None:
            (self.folder / column_file(name)).unlink()

    def begin(self, nonce: int) -> None:
        """Mark a new owner: epoch up, nonce and pid set, on disk before anything else happens."""
        self.header[Field.EPOCH] += 1
        self.header[Field.NONCE] = nonce
        self.header[Field.OWNER] = os.getpid()
        self.header[Field.BOOT] = boot.boot_number()
        self.header.flush()

    def end(self) -> None:
        """Mark that other files have taken the place of these: every mapped reader finds its epoch void, and no owner."""
        self.header[Field.NONCE] = 0
        self.header[Field.EPOCH] += 1

    def dirty(self) -> None:
        """Have every page of the arrays written again, whatever the kernel believes to be on disk."""
        for array in (self.rows, *self.columns.values(), *self.frames.values()):
            raw = array.reshape(-1).view(np.uint8)
            for part in (raw[:: mmap.PAGESIZE], raw[-1:]):
                np.bitwise_or(part, 0, out=part)

    def sync(self) -> None:
        """Put everything on disk."""
        for path in self.folder.iterdir() if self.folder is not None else ():
            with open(path, "rb") as file:
                os.fdatasync(file.fileno())


def column_file(name: str) -> str:
    """File name of a mutable column."""
    return f"{name}.npy"


def frame_file(key: str) -> str:
    """File name of an observation key: escaped so that no key is a path, and no two keys share a name."""
    name = quote(key, safe="", errors="surrogatepass")
    if len(name) > _MAX_QUOTED:
        # "%-" occurs in no escaped name, so that a long key cannot pose as a short one.
        name = f"{name[:100]}%-{hashlib.sha256(name.encode()).hexdigest()[:32]}"
    return f"frames.{name}.npy"


def anonymous(spec: TransitionSpec, sizes: Geometry, payload_size: int) -> PoolFiles:
    """A pool in this process's memory, touched page by page as it fills.

    Raises:
        NoSpace: a full pool would not fit into memory.
    """
    space.require(nbytes(spec, sizes, payload_size), None)
    arrays = {name: np.zeros(shape, dtype) for name, (dtype, shape) in _arrays(spec, sizes).items()}
    alone = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS  # a forked child must not share the header of rows that it does not share
    raw = {name: mmap.mmap(-1, size, alone) for name, size in _raw_files(payload_size).items()}
    return _begun(_assemble(spec, arrays, raw, payload_size, uuid.uuid4(), None), sizes)


def create(
    directory: Path, spec: TransitionSpec, sizes: Geometry, payload_size: int, pool_id: uuid.UUID | None = None
) -> PoolFiles:
    """Make and reserve the files of a new pool, or of one with another generation, in the empty ``directory``.

    The caller holds the pool's lock.

    Raises:
        NoSpace: before anything is reserved when it is known not to fit, and with nothing left behind.
    """
    wanted = _arrays(spec, sizes)
    raw = _raw_files(payload_size)
    names = [*wanted, *raw]
    needed = nbytes(spec, sizes, payload_size)
    space.require(needed, directory)
    try:
        for name, (dtype, shape) in wanted.items():
            _create_npy(directory / name, dtype, shape)
        for name, size in raw.items():
            _reserve(directory / name, size)
    except OSError as error:
        for name in names:
            (directory / name).unlink(missing_ok=True)
        raise NoSpace(f"{directory}: reserving {needed} bytes failed: {error.strerror}") from error
    return _begun(_map(directory, spec, sizes, payload_size, pool_id or uuid.uuid4()), sizes)


def open_existing(
    directory: Path, spec: TransitionSpec, sizes: Geometry, payload_size: int, pool_id: uuid.UUID, *, readonly: bool = False
) -> PoolFiles:
    """Map the files of a pool that has a manifest; the caller holds its lock, or maps them ``readonly``.

    Raises:
        PoolDamaged: naming the file that is missing, cut, or of another pool.
    """
    files = _map(directory, spec, sizes, payload_size, pool_id, readonly=readonly)
    if not files.header.is_of(pool_id):
        raise PoolDamaged(f"{directory / pool_header.NAME}: not the header of pool {pool_id}")
    return files


def _arrays(spec: TransitionSpec, sizes: Geometry) -> dict[str, tuple[np.dtype[Any], tuple[int, ...]]]:
    """File name -> dtype and shape of every array of a pool."""
    rows = (sizes.row_slots,)
    columns = {column_file(name): (np.dtype(dtype), rows) for name, dtype in SLOT_COLUMNS.items()}
    frames = {frame_file(o.key): (np.dtype(o.dtype), (sizes.frame_slots, *o.shape)) for o in spec.obs}
    return {ROWS: (spec.row_dtype, rows), **columns, **frames}


def nbytes(spec: TransitionSpec, sizes: Geometry, payload_size: int) -> int:
    """Bytes of the files of a pool, optional columns left out."""
    arrays = sum(dtype.itemsize * int(np.prod(shape, dtype=np.int64)) for dtype, shape in _arrays(spec, sizes).values())
    return arrays + sum(_raw_files(payload_size).values())


def _raw_files(payload_size: int) -> dict[str, int]:
    """File name -> bytes of what is no array."""
    return {pool_header.NAME: Header.SIZE, LEDGER: stamps.size(payload_size), JOURNAL: journal.size(MAX_RECORD)}


def _create_npy(path: Path, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
    descr = np.lib.format.dtype_to_descr(dtype)
    with open(path, "xb") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": descr, "fortran_order": False, "shape": shape})
        file.flush()
        os.posix_fallocate(file.fileno(), 0, file.tell() + dtype.itemsize * int(np.prod(shape, dtype=np.int64)))


def _create_whole_npy(path: Path, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
    """The same for a file that the manifest does not vouch for: whole or not there."""
    space.require(dtype.itemsize * int(np.prod(shape, dtype=np.int64)), path.parent)
    unfinished = path.with_suffix(".part")
    unfinished.unlink(missing_ok=True)
    try:
        _create_npy(unfinished, dtype, shape)
    except OSError as error:
        unfinished.unlink(missing_ok=True)
        raise NoSpace(f"{path}: reserving {shape} of {dtype} failed: {error.strerror}") from error
    with open(unfinished, "rb") as file:
        os.fsync(file.fileno())  # the name must never be that of a file without its head
    os.replace(unfinished, path)
    manifest.sync_directory(path.parent)


def _reserve(path: Path, size: int) -> None:
    with open(path, "xb") as file:
        os.posix_fallocate(file.fileno(), 0, size)


def _map(
    directory: Path,
    spec: TransitionSpec,
    sizes: Geometry,
    payload_size: int,
    pool_id: uuid.UUID,
    *,
    readonly: bool = False,
) -> PoolFiles:
    arrays = {name: _map_npy(directory / name, *wanted, readonly=readonly) for name, wanted in _arrays(spec, sizes).items()}
    raw = {name: _map_raw(directory / name, size, readonly=readonly) for name, size in _raw_files(payload_size).items()}
    files = _assemble(spec, arrays, raw, payload_size, pool_id, directory)
    for name, kind in OPTIONAL_COLUMNS.items():
        path = directory / column_file(name)
        if path.exists():
            files.columns[name] = _map_npy(path, np.dtype(kind), (sizes.row_slots,), readonly=readonly)
    return files


def _map_npy(path: Path, dtype: np.dtype[Any], shape: tuple[int, ...], *, readonly: bool) -> Array:
    try:
        with open(path, "rb") as file:
            found, fortran, kind = npy_header(file, str(path))
            offset, size = file.tell(), os.fstat(file.fileno()).st_size
        if kind != dtype or found != shape or fortran:
            raise PoolDamaged(f"{path}: holds {found} of {kind}, expected {shape} of {dtype}")
        wanted = offset + dtype.itemsize * int(np.prod(shape, dtype=np.int64))
        if size != wanted:  # numpy would grow the file
            raise PoolDamaged(f"{path}: {size} bytes, expected {wanted}")
        mapped = np.memmap(path, dtype, "r" if readonly else "r+", offset, shape)
    except (OSError, ValueError, EOFError) as error:
        raise PoolDamaged(f"{path}: {error}") from error
    plain: Array = mapped.view(np.ndarray)  # numpy.memmap's own indexing is several times slower
    return plain


def npy_header(file: IO[bytes], name: str) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Shape, Fortran order and dtype that a .npy file begins with; leaves the file where its numbers begin.

    Raises:
        PoolDamaged: they cannot be read.
    """
    try:
        if np.lib.format.read_magic(file) != (1, 0):
            raise PoolDamaged(f"{name}: not a version 1.0 .npy file")
        return np.lib.format.read_array_header_1_0(file)
    except (ValueError, TokenError) as error:  # numpy takes the header apart as Python
        raise PoolDamaged(f"{name}: its header cannot be read: {error}") from error


def _map_raw(path: Path, size: int, *, readonly: bool) -> mmap.mmap:
    try:
        with open(path, "rb" if readonly else "r+b") as file:
            return mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ if readonly else mmap.ACCESS_WRITE)
    except (OSError, ValueError) as error:
        raise PoolDamaged(f"{path}: {error}") from error


def _assemble(
    spec: TransitionSpec,
    arrays: dict[str, Array],
    raw: dict[str, mmap.mmap],
    payload_size: int,
    pool_id: uuid.UUID,
    folder: Path | None,
) -> PoolFiles:
    columns = {name: arrays[column_file(name)] for name in SLOT_COLUMNS}
    frames = {o.key: arrays[frame_file(o.key)] for o in spec.obs}
    header, twin, record = Header(raw[pool_header.NAME]), Stamps(raw[LEDGER], payload_size), Journal(raw[JOURNAL])
    return PoolFiles(arrays[ROWS], columns, frames, header, twin, record, pool_id, folder)


def _begun(files: PoolFiles, sizes: Geometry) -> PoolFiles:
    """Files that were just made, with the header of a new pool."""
    files.header.create(files.pool_id)
    files.header[Field.CAPACITY], files.header[Field.REACH] = sizes.capacity, sizes.max_rows
    return files
