"""A Parquet file from elsewhere, read with suspicion: plain columns only, a row group at a time, none larger than a bound."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from headrace.common.errors import ConfigError, PoolDamaged

try:
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq
except ImportError as error:  # pragma: no cover - the extra is part of dev
    raise ConfigError("LeRobot data sets need pyarrow and av; install headrace[lerobot-data]") from error

Array = np.ndarray[Any, Any]
MAX_GROUP_BYTES = 1 << 30  # of one column of one row group, which is unpacked whole


class Parquet:
    """One open file.

    Attributes:
        path: of the file.
        rows: how many it says it has.

    Raises:
        PoolDamaged: not Parquet, or cut short.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._file = pq.ParquetFile(path)
        except (OSError, pa.ArrowException) as error:
            raise PoolDamaged(f"{path}: not a whole Parquet file ({str(error)[:200]})") from error
        self._schema = self._file.schema_arrow
        groups = [self._file.metadata.row_group(i).num_rows for i in range(self._file.num_row_groups)]
        self._starts = np.concatenate([[0], np.cumsum(groups, dtype=np.int64)])
        self.rows = int(self._starts[-1])
        self._kept: dict[str, tuple[int, Any]] = {}  # column -> its row group that was read last

    def close(self) -> None:
        """Close the file."""
        self._kept.clear()
        self._file.close()

    def has(self, name: str) -> bool:
        """Whether there is one column of this name."""
        return bool(self._schema.get_field_index(name) >= 0)

    def numbers(self, name: str, dtype: np.dtype[Any], shape: tuple[int, ...] = ()) -> Column:
        """A column of numbers, of ``shape`` each; those of shape ``(1,)`` may be kept as plain ones.

        Raises:
            PoolDamaged: it is missing or of another type; names both.
        """
        kind, depth = self._type(name), 0
        while _is_list(kind):
            kind, depth = kind.value_type, depth + 1
        if _numpy_name(kind) != dtype.name or not (depth == len(shape) or (depth, shape) == (0, (1,))):
            raise self.refusal(name, f"holds {self._type(name)}, expected {dtype.name} of shape {shape}")
        return Column(self, name, dtype, shape, depth)

    def texts(self, name: str) -> list[str]:
        """A whole column of text.

        Raises:
            PoolDamaged: it is missing, or holds something else.
        """
        kind = self._type(name)
        if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
            raise self.refusal(name, f"holds {kind}, expected text")
        return [str(value) for value in self.arrow(name, 0, self.rows).to_pylist()]

    def files(self, name: str, start: int, stop: int) -> list[bytes]:
        """Rows of a column of files that are kept as ``struct<bytes, path>``.

        Raises:
            PoolDamaged: it is missing, something else, or only names files.
        """
        kind = self._type(name)
        index = kind.get_field_index("bytes") if pa.types.is_struct(kind) else -1
        if index < 0 or not (pa.types.is_binary(kind.field(index).type) or pa.types.is_large_binary(kind.field(index).type)):
            raise self.refusal(name, f"holds {kind}, expected pictures as struct<bytes: binary, path: string>")
        found = pc.struct_field(self.arrow(name, start, stop), "bytes").to_pylist()
        if None in found:
            raise self.refusal(name, f"row {start + found.index(None)} names a file in place of holding it")
        return list(found)

    def arrow(self, name: str, start: int, stop: int) -> Any:
        """Rows ``[start, stop)`` of a column as one Arrow array.

        Raises:
            PoolDamaged: the file is cut or damaged there, or a row group is too large.
        """
        if start >= stop:
            return pa.array([], self._type(name))
        parts = []
        while start < stop:
            group = int(np.searchsorted(self._starts, start, side="right")) - 1
            if group >= len(self._starts) - 1:
                raise self.refusal(name, f"{self.rows} rows, expected {stop} or more")
            offset, end = start - int(self._starts[group]), min(stop, int(self._starts[group + 1]))
            parts.append(self._group(name, group).slice(offset, end - start))
            start = end
        return pa.chunked_array(parts).combine_chunks() if len(parts) != 1 else parts[0]

    def refusal(self, name: str, why: str) -> PoolDamaged:
        """The error that names a column of this file."""
        return PoolDamaged(f"{self.path}: {name}: {why}")

    def _type(self, name: str) -> Any:
        if not self.has(name):
            raise self.refusal(name, f"missing; there are {', '.join(self._schema.names[:32])}")
        return self._schema.field(name).type

    def _group(self, name: str, group: int) -> Any:
        number, array = self._kept.get(name, (-1, None))
        if number != group:
            meta = self._file.metadata.row_group(group)
            columns = [meta.column(i) for i in range(meta.num_columns)]
            nbytes = sum(c.total_uncompressed_size for c in columns if f"{c.path_in_schema}.".startswith(f"{name}."))
            if nbytes > MAX_GROUP_BYTES:
                raise self.refusal(name, f"row group {group} has {nbytes} bytes, at most {MAX_GROUP_BYTES} are unpacked")
            try:
                array = self._file.read_row_group(group, columns=[name]).column(name).combine_chunks()
            except (OSError, pa.ArrowException) as error:
                raise self.refusal(name, f"row group {group} cannot be read ({str(error)[:200]})") from error
            if len(array) != meta.num_rows:
                raise self.refusal(name, f"row group {group} has {len(array)} rows, and says {meta.num_rows}")
            self._kept[name] = group, array
        return array


class Column:
    """Numbers of one column of a :class:`Parquet`, read slice by slice."""

    def __init__(self, file: Parquet, name: str, dtype: np.dtype[Any], shape: tuple[int, ...], depth: int) -> None:
        self._file, self._name, self._depth = file, name, depth
        self.name, self.dtype, self.shape = f"{file.path}: {name}", dtype, shape

    def __len__(self) -> int:
        return self._file.rows

    def read(self, start: int, stop: int) -> Array:
        """Rows ``[start, stop)``, ``(n, *shape)``.

        Raises:
            PoolDamaged: a value that is missing, or a row of another shape.
        """
        array = self._file.arrow(self._name, start, stop)
        for size in self.shape[: self._depth]:
            self._refuse_nulls(array)
            lengths = pc.list_value_length(array).to_numpy(zero_copy_only=False)
            if (lengths != size).any():
                row = start + int(np.flatnonzero(lengths != size)[0]) * (stop - start) // max(1, len(array))
                raise self._file.refusal(self._name, f"row {row} is not of shape {self.shape}")
            array = array.flatten()
        self._refuse_nulls(array)
        values: Array = array.to_numpy(zero_copy_only=False)
        return values.reshape(stop - start, *self.shape)

    def _refuse_nulls(self, array: Any) -> None:
        if array.null_count:
            raise self._file.refusal(self._name, f"{array.null_count} values are missing")


def _is_list(kind: Any) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _numpy_name(kind: Any) -> str:
    try:
        return str(np.dtype(kind.to_pandas_dtype()).name)
    except (NotImplementedError, TypeError):
        return str(kind)
