"""A snapshot directory: arrays and plain values that are complete or invisible, with a digest of every file.

The arrays go into a new ``data-*`` folder; the manifest that names it is replaced last, in one rename, and only then is the
folder of the previous snapshot removed. A kill at any instant leaves the old snapshot or the new one, never neither.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import shutil
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from headrace.buffer import manifest, space
from headrace.buffer.files import HEADER
from headrace.common.errors import PoolDamaged, PoolError

Array = np.ndarray[Any, Any]
Progress = Callable[[int, int], None]
FORMAT = 1
_CHUNK = 8 << 20
_DATA = re.compile(r"^data-[0-9a-f]{32}$")


@dataclass(frozen=True)
class Column:
    """One array that is written piece by piece.

    Attributes:
        dtype: of the array.
        shape: of the whole array.
        pieces: the array cut along its first axis, in order; read once.
    """

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    pieces: Iterable[Array]

    @classmethod
    def of(cls, array: Array) -> Column:
        """A column of one piece."""
        return cls(array.dtype, array.shape, [array])

    @property
    def nbytes(self) -> int:
        """Bytes of data."""
        return int(self.dtype.itemsize * np.prod(self.shape, dtype=np.int64))

    def whole(self) -> Array:
        """The array in one piece, a copy."""
        out = np.empty(self.shape, self.dtype)
        start = 0
        for piece in self.pieces:
            out[start : start + len(piece)] = piece
            start += len(piece)
        return out


def write(path: Path, body: Mapping[str, Any], columns: Mapping[str, Column], progress: Progress | None = None) -> None:
    """Replace the snapshot at ``path``.

    Args:
        path: directory, made when missing.
        body: plain values for the manifest.
        columns: file name -> array.
        progress: called with bytes written and bytes in all.

    Raises:
        NoSpace: before anything is written.
        PoolError: ``path`` is a file, or the directory of a pool.
    """
    if path.exists() and not path.is_dir():
        raise PoolError(f"{path} is a file; a snapshot is a directory")
    if (path / HEADER).exists():
        raise PoolError(f"{path} is a pool; a snapshot needs a directory of its own")
    path.mkdir(parents=True, exist_ok=True)
    total = sum(column.nbytes for column in columns.values())
    space.require(total, path)
    _clean_interrupted(path)
    data = path / f"data-{uuid.uuid4().hex}"
    data.mkdir()
    meter = _Meter(total, progress)
    try:
        files = {name: _write_file(data / name, column, meter) for name, column in columns.items()}
        manifest.sync_directory(data)
        manifest.write(path, {"format": FORMAT, "data": data.name, "files": files, **body})
    except BaseException:
        shutil.rmtree(data, ignore_errors=True)
        raise
    _clean(path, data.name)


def read(path: Path) -> tuple[dict[str, Any], dict[str, Array]] | None:
    """The manifest and the arrays (read-only maps) of a snapshot; None when there is none.

    Raises:
        PoolDamaged: naming the file that is missing, changed, or not of a snapshot.
    """
    if path.is_file():
        raise PoolDamaged(f"{path}: is a file; a snapshot is a directory")
    body = manifest.read(path)
    if body is None:
        return None
    name = path / manifest.NAME
    if body.get("format") != FORMAT:
        raise PoolDamaged(f"{name}: format {body.get('format')!r}, this build reads {FORMAT}")
    data, files = body.get("data"), body.get("files")
    if not isinstance(data, str) or not _DATA.match(data) or not isinstance(files, dict):
        raise PoolDamaged(f"{name}: not the manifest of a snapshot")
    arrays = {}
    for file, facts in files.items():
        if Path(file).name != file:
            raise PoolDamaged(f"{name}: {file!r} is not a file name")
        arrays[file] = _read_file(path / data / file, facts["sha256"])
    return body, arrays


class _Meter:
    """Adds up what is written and tells the caller."""

    def __init__(self, total: int, progress: Progress | None) -> None:
        self._total, self._progress, self._done = total, progress, 0

    def add(self, count: int) -> None:
        self._done += count
        if self._progress is not None:
            self._progress(self._done, self._total)


def _write_file(path: Path, column: Column, meter: _Meter) -> dict[str, Any]:
    head = io.BytesIO()
    descr = np.lib.format.dtype_to_descr(column.dtype)
    np.lib.format.write_array_header_1_0(head, {"descr": descr, "fortran_order": False, "shape": column.shape})
    digest = hashlib.sha256(head.getvalue())
    with open(path, "xb") as file:
        file.write(head.getvalue())
        for piece in column.pieces:
            data = np.ascontiguousarray(piece).reshape(-1).view("|u1")
            for start in range(0, len(data), _CHUNK):
                chunk = data[start : start + _CHUNK].data
                digest.update(chunk)
                file.write(chunk)
                meter.add(len(chunk))
        file.flush()
        os.fsync(file.fileno())
    return {"sha256": digest.hexdigest()}


def _read_file(path: Path, expected: str) -> Array:
    digest = hashlib.sha256()
    try:
        # No links: a snapshot holds its own data, and a name in it must not lead elsewhere.
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as file:
            while chunk := file.read(_CHUNK):
                digest.update(chunk)
        if digest.hexdigest() != expected:
            raise PoolDamaged(f"{path}: its digest does not match the manifest")
        mapped = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise PoolDamaged(f"{path}: {error}") from error
    plain: Array = mapped.view(np.ndarray)
    return plain


def _clean_interrupted(path: Path) -> None:
    """Remove what killed writers left, where the manifest says for sure what is not that."""
    try:
        found = manifest.read(path)
    except PoolDamaged:
        return
    _clean(path, str((found or {}).get("data", "")))


def _clean(path: Path, keep: str) -> None:
    """Remove every data folder but ``keep``."""
    for entry in path.iterdir():
        if _DATA.match(entry.name) and entry.name != keep:
            shutil.rmtree(entry, ignore_errors=True)
