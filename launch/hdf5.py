"""An HDF5 file from elsewhere, read with suspicion: no links, no other files, no objects, no more than the file holds."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from headrace.common.errors import ConfigError, PoolDamaged

try:
    import h5py
except ImportError as error:  # pragma: no cover - the extra is part of dev
    raise ConfigError("reading HDF5 files needs h5py; install headrace[data]") from error

Array = np.ndarray[Any, Any]
MAX_CHUNK_BYTES = 256 << 20  # one chunk is inflated whole
MAX_MEMBERS = 1 << 20  # of one group
MAX_DEPTH = 8
_MAX_RATIO = 1100  # deflate cannot shrink further
_KINDS = "fiub"


class Hdf5:
    """One open file.

    Raises:
        PoolDamaged: not HDF5, or cut short.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._size = path.stat().st_size
            self._file = h5py.File(path, "r")
        except OSError as error:
            raise PoolDamaged(f"{path}: not a whole HDF5 file ({str(error)[:200]})") from error

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def has(self, name: str) -> bool:
        """Whether there is an object of this name, reached without a link."""
        try:
            self._find(name)
        except PoolDamaged:
            return False
        return True

    def members(self, name: str) -> list[str]:
        """Names in a group, sorted.

        Raises:
            PoolDamaged: it is missing, no group, or has more than ``MAX_MEMBERS`` members.
        """
        group = self._find(name) if name else self._file
        if not isinstance(group, h5py.Group):
            raise self.refusal(name, "a dataset, expected a group")
        if len(group) > MAX_MEMBERS:
            raise self.refusal(name, f"{len(group)} members, at most {MAX_MEMBERS} are read")
        return sorted(group)

    def leaves(self, name: str) -> list[str]:
        """Paths below ``name`` of all datasets in it, or the empty path when it is a dataset itself."""
        if isinstance(self._find(name), h5py.Dataset):
            return [""]
        return sorted(self._leaves(name, "", 0))

    def _leaves(self, root: str, below: str, depth: int) -> Iterator[str]:
        if depth > MAX_DEPTH:
            raise self.refusal(root, f"nested deeper than {MAX_DEPTH}")
        for member in self.members(f"{root}/{below}" if below else root):
            path = f"{below}/{member}" if below else member
            if isinstance(self._find(f"{root}/{path}"), h5py.Dataset):
                yield path
            else:
                yield from self._leaves(root, path, depth + 1)

    def attribute(self, name: str, attribute: str) -> Any:
        """A plain number of a group's attributes; None where there is none."""
        value = self._find(name).attrs.get(attribute)
        return value.item() if isinstance(value, np.generic) else value

    def column(
        self, name: str, *, rows: int | None = None, shape: tuple[int, ...] | None = None, coded: bool = False
    ) -> Column:
        """A dataset of numbers whose first axis are rows.

        Args:
            name: path in the file.
            rows: how many there must be.
            shape: what one of them must be.
            coded: rows may be bytes of any length.

        Raises:
            PoolDamaged: naming the dataset, what it is and what it should be.
        """
        data = self._find(name)
        if not isinstance(data, h5py.Dataset):
            raise self.refusal(name, "a group, expected a dataset")
        self._check(name, data, coded)
        if not len(data):
            raise self.refusal(name, "no rows")
        if rows is not None and len(data) != rows:
            raise self.refusal(name, f"{len(data)} rows, expected {rows}")
        if shape is not None and data.shape[1:] != shape:
            raise self.refusal(name, f"{data.shape[1:]} a row, expected {shape}")
        return Column(self, name, data)

    def is_coded(self, name: str) -> bool:
        """Whether a dataset holds one file of bytes a row: of various lengths, or ``(n, length)`` uint8."""
        data = self._find(name)
        if not isinstance(data, h5py.Dataset):
            return False
        return (data.ndim == 1 and _is_bytes(data.dtype)) or (data.ndim == 2 and data.dtype == np.uint8)

    def refusal(self, name: str, why: str) -> PoolDamaged:
        """The error that names a field of this file."""
        return PoolDamaged(f"{self.path}: {name or '/'}: {why}")

    def _check(self, name: str, data: Any, coded: bool) -> None:
        plain = data.dtype.kind in _KINDS and not data.dtype.hasobject and data.dtype.itemsize <= 8
        if not plain and not (coded and _is_bytes(data.dtype)):
            raise self.refusal(name, f"dtype {data.dtype}; only plain numbers are read")
        if data.external or data.is_virtual:
            raise self.refusal(name, "its data lie in other files, which are not followed")
        if not data.shape or data.maxshape is None:
            raise self.refusal(name, f"shape {data.shape}, expected rows")
        nbytes = math.prod(data.shape) * data.dtype.itemsize
        if nbytes > _MAX_RATIO * self._size:
            raise self.refusal(name, f"shape {data.shape} declares {nbytes} bytes, but the file has {self._size}")
        if data.chunks is not None and math.prod(data.chunks) * data.dtype.itemsize > MAX_CHUNK_BYTES:
            raise self.refusal(name, f"chunks of {data.chunks}, which are larger than {MAX_CHUNK_BYTES} bytes")

    def _find(self, name: str) -> Any:
        """The object at a path, each step of which is a hard link."""
        here = self._file
        for part in name.split("/"):
            link = here.get(part, getlink=True) if isinstance(here, h5py.Group) else None
            if link is None:
                raise self.refusal(name, "missing")
            if not isinstance(link, h5py.HardLink):
                raise self.refusal(name, f"a link to {link.path!r}; links are not followed")
            try:
                here = here[part]
            except (OSError, KeyError, ValueError, RuntimeError) as error:
                raise self.refusal(name, f"cannot be read ({str(error)[:200]})") from error
        return here


class Column:
    """One dataset of an :class:`Hdf5`, read slice by slice."""

    def __init__(self, file: Hdf5, name: str, data: Any) -> None:
        self._file, self._name, self._data = file, name, data
        self.name = f"{file.path}: {name}"
        self.dtype: np.dtype[Any] = data.dtype
        self.shape: tuple[int, ...] = data.shape[1:]

    def __len__(self) -> int:
        return len(self._data)

    def read(self, start: int, stop: int) -> Array:
        """Rows ``[start, stop)``.

        Raises:
            PoolDamaged: the file is cut or damaged there.
        """
        try:
            out: Array = self._data[start:stop]
        except (OSError, ValueError, RuntimeError, KeyError) as error:
            raise self._file.refusal(self._name, f"rows {start} to {stop} cannot be read ({str(error)[:200]})") from error
        return out


def _is_bytes(dtype: np.dtype[Any]) -> bool:
    return bool(h5py.check_vlen_dtype(dtype) == np.dtype(np.uint8))
