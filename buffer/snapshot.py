"""Snapshots: folders of one directory that each hold a pool's state, complete or invisible, with a digest of every file.

A snapshot is written under a hidden name, its manifest last, and renamed into place; only then is one too many removed. A kill
at any instant leaves those that were there, or one more. Reading takes the newest that is whole, and names what is not.
"""

from __future__ import annotations

import hashlib
import io
import logging
import os
import re
import shutil
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from headrace.buffer import generations, manifest, space
from headrace.buffer.capture import Capture
from headrace.common.errors import PoolDamaged, PoolError

Array = np.ndarray[Any, Any]
Progress = Callable[[int, int], None]
FORMAT = 2
KEEP = 2
_CHUNK = 8 << 20
_NAME = re.compile(r"^snapshot-(\d{6,})$")
_HIDDEN = ".writing"
_log = logging.getLogger(__name__)


def is_snapshot(path: Path) -> bool:
    """Whether there is a snapshot, whole or not, in directory ``path``."""
    return bool(_found(path))


def write(
    path: Path,
    capture: Capture,
    body: Mapping[str, Any],
    progress: Progress | None = None,
    keep: int = KEEP,
    what: str = "the snapshot",
) -> Path:
    """Add a snapshot to the directory ``path``.

    Args:
        path: made when missing.
        capture: what to write.
        body: further plain values for the manifest.
        progress: called with bytes written and bytes in all, which becomes less when rows are evicted meanwhile.
        keep: snapshots that stay, this one included, at least 1.
        what: its name in errors.

    Returns:
        The snapshot's folder.

    Raises:
        NoSpace: it does not fit beside those that are there; mostly found before anything is written. Nothing of it stays.
        DiskFailed: the disk failed otherwise. Nothing of it stays.
        PoolError: ``path`` is a file, or the directory of a pool.
    """
    if path.exists() and not path.is_dir():
        raise PoolError(f"{path} is a file; snapshots need a directory")
    if generations.is_pool(path):
        raise PoolError(f"{path} is a pool; snapshots need a directory of their own")
    with space.writing(what, path):
        path.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(path / _HIDDEN, ignore_errors=True)  # of a killed writer
        _prune(path, keep)  # that it did not come to
        shapes = {**capture.shapes(), **{name: (t.dtype, t.shape) for name, t in capture.tables.items()}}
        space.require(sum(map(_nbytes, shapes.values())), path, what=what, fix=space.OF_COPY)
        final = _write(path, capture, body, progress)
        _prune(path, keep)
    return final


def _write(path: Path, capture: Capture, body: Mapping[str, Any], progress: Progress | None) -> Path:
    """Whole, or nothing of it stays."""
    hidden = path / _HIDDEN
    number = max((_number(p) for p in _found(path)), default=0) + 1
    final = path / f"snapshot-{number:06d}"
    hidden.mkdir()
    try:
        files = _write_arrays(hidden, capture, progress)
        ids = {"first": capture.rows.start, "head": capture.rows.stop}
        manifest.write(hidden, {"format": FORMAT, "number": number, "rows": ids, "files": files, **capture.body, **body})
        hidden.rename(final)
        manifest.sync_directory(path)
    except BaseException:
        shutil.rmtree(hidden, ignore_errors=True)
        raise
    return final


def read(path: Path, *, verify: bool = True) -> tuple[dict[str, Any], dict[str, Array]] | None:
    """The manifest and the arrays (read-only maps) of the newest whole snapshot in ``path``; None when there is none at all.

    Damaged ones that are newer are named in the log.

    Args:
        path: directory of snapshots.
        verify: whether to look at every byte, or at the form of the files only.

    Raises:
        PoolDamaged: there are snapshots and none is whole; names the file of the newest that is missing or changed.
    """
    if path.is_file():
        raise PoolDamaged(f"{path}: is a file; a snapshot is a directory")
    if generations.is_pool(path):
        generations.read(path)  # says what else it is
        raise PoolDamaged(f"{path}: is a pool and not a snapshot of one; open it")
    damaged: list[PoolDamaged] = []
    for folder in _found(path):
        try:
            found = _read_folder(folder, verify)
        except PoolDamaged as error:
            _log.warning("a damaged snapshot is passed over: %s", error)
            damaged.append(error)
        else:
            return found
    if damaged:
        raise damaged[0]
    return None


def _found(path: Path) -> list[Path]:
    """The folders of snapshots, newest first."""
    if not path.is_dir():
        return []
    return sorted((p for p in path.iterdir() if _NAME.match(p.name)), key=_number, reverse=True)


def _number(folder: Path) -> int:
    return int(folder.name.rpartition("-")[2])


def _prune(path: Path, keep: int) -> None:
    """Delete all but the newest ``keep``, under the hidden name, so that half of one is never seen."""
    for old in _found(path)[max(1, keep) :]:
        old.rename(path / _HIDDEN)
        shutil.rmtree(path / _HIDDEN, ignore_errors=True)


def _nbytes(shape: tuple[np.dtype[Any], tuple[int, ...]]) -> int:
    return int(shape[0].itemsize * np.prod(shape[1], dtype=np.int64))


class _File:
    """One ``.npy`` file under construction, with the digest of what is in it."""

    def __init__(self, path: Path) -> None:
        self._file: BinaryIO = open(path, "xb")  # noqa: SIM115 -- closed by finish, or with the folder given up

    def begin(self, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
        """Start over with an array of this form."""
        head = io.BytesIO()
        descr = np.lib.format.dtype_to_descr(dtype)
        np.lib.format.write_array_header_1_0(head, {"descr": descr, "fortran_order": False, "shape": shape})
        self._file.seek(0)
        self._file.truncate()
        self._file.write(head.getvalue())
        self._digest = hashlib.sha256(head.getvalue())

    def add(self, array: Array) -> int:
        """Append entries; their number of bytes."""
        data = np.ascontiguousarray(array).reshape(-1).view("|u1").data
        self._digest.update(data)
        self._file.write(data)
        return len(data)

    def finish(self) -> dict[str, Any]:
        """Make it durable; what the manifest says of it."""
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        return {"sha256": self._digest.hexdigest()}

    def close(self) -> None:
        """Give it up; harmless after :meth:`finish`."""
        self._file.close()


def _write_arrays(folder: Path, capture: Capture, progress: Progress | None) -> dict[str, dict[str, Any]]:
    names = (*capture.shapes(), *capture.tables)
    with ExitStack() as opened:  # closes all, though the disk takes what is left of one no more
        files = {name: opened.enter_context(closing(_File(folder / name))) for name in names}
        done = total = 0
        for name, table in capture.tables.items():
            files[name].begin(table.dtype, table.shape)
            files[name].add(table)
        for piece in capture.pieces():
            if piece.first:
                shapes = capture.shapes()
                for name, shape in shapes.items():
                    files[name].begin(*shape)
                done, total = 0, sum(map(_nbytes, shapes.values()))
            done += sum(files[name].add(array) for name, array in piece.arrays.items())
            if progress is not None:
                progress(done, total)
        return {name: file.finish() for name, file in files.items()}


def _read_folder(folder: Path, verify: bool) -> tuple[dict[str, Any], dict[str, Array]]:
    body = manifest.read(folder)
    name = folder / manifest.NAME
    if body is None:
        raise PoolDamaged(f"{name}: missing")
    if body.get("format") != FORMAT:
        raise PoolDamaged(f"{name}: format {body.get('format')!r}, this build reads {FORMAT}")
    files = body.get("files")
    if body.get("number") != _number(folder) or not isinstance(files, dict):
        raise PoolDamaged(f"{name}: not the manifest of this snapshot")
    arrays = {}
    for file, facts in files.items():
        if Path(file).name != file or not isinstance(facts, dict) or "sha256" not in facts:
            raise PoolDamaged(f"{name}: {file!r} is not a file name, or has no digest")
        arrays[file] = _read_file(folder / file, facts["sha256"], verify)
    return body, arrays


def _read_file(path: Path, expected: str, verify: bool) -> Array:
    digest = hashlib.sha256()
    try:
        # No links: a snapshot holds its own data, and a name in it must not lead elsewhere.
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as file:
            while verify and (chunk := file.read(_CHUNK)):
                digest.update(chunk)
        if verify and digest.hexdigest() != expected:
            raise PoolDamaged(f"{path}: its digest does not match the manifest")
        mapped = np.load(path, mmap_mode="r", allow_pickle=False)
        if not isinstance(mapped, np.memmap):
            raise PoolDamaged(f"{path}: not one array")
    except (OSError, ValueError, EOFError) as error:
        raise PoolDamaged(f"{path}: {error}") from error
    plain: Array = mapped.view(np.ndarray)
    return plain
