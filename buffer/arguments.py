"""Arguments of the pool's calls: one check for each kind of them, whose error names argument, value and what is expected."""

from __future__ import annotations

import operator
import os
import reprlib
import sys
from pathlib import Path
from typing import Any

import numpy as np

from headrace.common.errors import ArgumentError

Array = np.ndarray[Any, Any]
_MOST = np.iinfo(np.int64).max


def whole(name: str, value: Any, low: int | None = None, high: int | None = None) -> int:
    """A whole number, Python's or numpy's, of at least ``low`` and at most ``high``; no truth value, no float."""
    if type(value) is not int:
        try:
            number = operator.index(value)
        except TypeError:
            raise wrong(name, value, "a whole number") from None
        if isinstance(value, bool | np.bool_):
            raise wrong(name, value, "a whole number")
        value = number
    if (low is not None and value < low) or (high is not None and value > high):
        raise wrong(name, value, f"a whole number of {low} " + ("or more" if high is None else f"to {high}"))
    return int(value)


def real(name: str, value: Any, low: float, high: float) -> float:
    """A number of ``low`` to ``high``."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | float | np.integer | np.floating):
        raise wrong(name, value, "a number")
    if not low <= value <= high:
        raise wrong(name, value, f"a number of {low:g} to {high:g}")
    return float(value)


def text(name: str, value: Any) -> str:
    """Text."""
    if not isinstance(value, str):
        raise wrong(name, value, "text")
    return value


def instance(name: str, value: Any, *kinds: type[Any]) -> None:
    """An instance of one of ``kinds``; None is one only if its type is among them."""
    if not isinstance(value, kinds):
        raise wrong(name, value, " or ".join("None" if kind is type(None) else kind.__name__ for kind in kinds))


def directory(name: str, value: Any) -> Path:
    """The path of a directory, which may not be there yet; an empty one would be wherever the program runs."""
    place = os.fspath(value) if isinstance(value, os.PathLike) else value
    if not isinstance(place, str) or not place or "\0" in place:
        raise wrong(name, value, "the path of a directory")
    return Path(place)


def numbers(name: str, value: Any) -> Array:
    """An array of whole or floating-point numbers, of whatever shape; of a tensor the values alone."""
    try:
        array: Array = np.asarray(_off_torch(value))
    except (TypeError, ValueError, RuntimeError):  # ragged, or a tensor without values
        raise wrong(name, value, "an array of numbers") from None
    if array.dtype.kind not in "fiu":
        raise wrong(name, value, "an array of numbers")
    return array


def ids(name: str, value: Any) -> Array:
    """``(n,)`` int64 ids of rows."""
    if type(value) is np.ndarray and value.ndim == 1 and value.dtype == np.int64:
        return value
    array = numbers(name, value)
    if array.ndim != 1 or (array.size and (array.dtype.kind == "f" or array.max() > _MOST)):
        raise wrong(name, value, "(n,) whole numbers, such as Batch.ids")
    return array.astype(np.int64)


def is_torch(value: Any) -> bool:
    """Whether it is a tensor of torch."""
    torch = sys.modules.get("torch")  # only a caller that has imported torch can hold a tensor
    return torch is not None and isinstance(value, torch.Tensor)


def _off_torch(value: Any) -> Any:
    if not is_torch(value):
        return value
    value = value.detach().cpu()
    return (value.float() if value.is_floating_point() else value).numpy()


def wrong(name: str, value: Any, expected: str) -> ArgumentError:
    """What to raise for an argument that is not as ``expected``."""
    shape = getattr(value, "shape", None)
    said = reprlib.repr(value) if shape is None or shape == () else f"shape {tuple(shape)} of {getattr(value, 'dtype', '?')}"
    return ArgumentError(f"{name}: {said} ({type(value).__name__}), expected {expected}")
