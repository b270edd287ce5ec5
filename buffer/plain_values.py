"""Arrays of plain dictionaries: what they are stored as, and how they come back in the caller's dtype and library."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from headrace.buffer.arguments import is_torch
from headrace.common.errors import PoolError, SpecError
from headrace.common.rounding import first_changed
from headrace.common.specs import FRAME_DTYPES

Array = np.ndarray[Any, Any]
_STORED = ", ".join(np.dtype(name).name for name in FRAME_DTYPES)
TORCH = "torch."  # before the name of a dtype of that library


def stored_as(dtype: str) -> str:
    """What a state of this dtype is stored as: all floats alike."""
    return "float" if is_float(dtype) else dtype


def is_float(dtype: str) -> bool:
    """Whether it is floating point, of whatever width."""
    name = dtype.removeprefix(TORCH)
    return "float" in name or name[1:2] == "f"


def is_wide_float(dtype: str) -> bool:
    """Whether it holds every float32."""
    name = dtype.removeprefix(TORCH)
    return name in ("float32", "float64") or (name[1:2] == "f" and int(name[2:]) >= 4)


def of_same_library(dtype: str, name: str) -> str:
    """The dtype ``name`` as the library of ``dtype``, numpy or torch, has it."""
    return f"{TORCH}{name}" if dtype.startswith(TORCH) else np.dtype(name).str


def dtype_name(value: Any) -> str:
    """Of an array as numpy writes it, of a tensor ``torch.<name>``."""
    return str(value.dtype) if is_torch(value) else value.dtype.str


def numeric(value: Any, name: str) -> Array:
    """The array as one of the dtypes that a frame may have: floats as float32, others unchanged."""
    if is_torch(value):
        value = (value.float() if value.is_floating_point() else value).numpy()
    array: Array = np.asarray(value)
    if array.dtype.kind == "f":
        with np.errstate(over="ignore"):  # what is too large becomes infinite, and is refused as that
            return array.astype("<f4", copy=False)
    if array.dtype.str not in FRAME_DTYPES:
        raise SpecError(f"transitions.{name}: dtype {array.dtype} cannot be stored; expected floats or one of {_STORED}")
    return array


def held(values: Array, name: str) -> Array:
    """Numbers that float32 can hold, which they are about to become."""
    changed = first_changed(values)
    if changed:
        raise SpecError(f"transitions.{name}: {changed}; scale it, or give it as floating point, which is rounded")
    return values


def raw(value: Any) -> Array:
    """``(n, bytes of one row)`` uint8."""
    n = len(value)
    if is_torch(value):
        data: Array = value.contiguous().reshape(n, -1).view(sys.modules["torch"].uint8).numpy()
        return data
    return np.ascontiguousarray(value).reshape(n, -1).view("|u1")


def from_raw(data: Array, dtype: str, shape: tuple[int, ...]) -> Any:
    """What :func:`raw` made bytes of; :class:`PoolError` for a tensor where torch is not imported."""
    if not dtype.startswith(TORCH):
        return data.view(dtype).reshape(shape)
    torch = sys.modules.get("torch")
    if torch is None:
        raise PoolError(f"the pool holds {dtype} arrays; import torch before sampling them")
    return torch.from_numpy(data).view(getattr(torch, dtype[len(TORCH) :])).reshape(shape)


def from_numeric(data: Array, dtype: str) -> Any:
    """What :func:`numeric` made storable; for a tensor an array where torch is not imported."""
    if not dtype.startswith(TORCH):
        return np.ascontiguousarray(data).astype(dtype, copy=False)
    torch = sys.modules.get("torch")
    if torch is None:
        return np.ascontiguousarray(data)
    return torch.from_numpy(np.ascontiguousarray(data)).to(getattr(torch, dtype[len(TORCH) :]))
