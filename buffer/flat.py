"""A nested dictionary of arrays as a flat one, path -> array, in which every array has as many rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from headrace.buffer.arguments import is_torch
from headrace.buffer.plain_values import numeric
from headrace.common.errors import SpecError

RESERVED = ("ids", "weights", "sets")  # what a sampled batch may hold beside what was added


def flatten(transitions: Mapping[str, Any]) -> dict[tuple[str, ...], Any]:
    """Path -> array (torch tensors detached and on the CPU), all with the same first axis, without rows whose ``valids`` is 0.

    Raises:
        SpecError: naming the array that is not one, or has another number of rows.
    """
    if not isinstance(transitions, Mapping):
        raise SpecError(f"transitions: {type(transitions).__name__}, expected a dictionary of arrays with rows first")
    flat: dict[tuple[str, ...], Any] = {}
    _walk(transitions, (), flat)
    first = next(iter(flat.items()), None)
    if first is None:
        raise SpecError("transitions: empty")
    for name in RESERVED:
        if (name,) in flat:
            raise SpecError(
                f"transitions.{name}: belongs to a sampled batch and not to its rows; leave {', '.join(RESERVED)} out when rows"
                " of a batch go in again, and give an array of your own another name"
            )
    for path, value in flat.items():
        if not value.ndim or len(value) != len(first[1]):
            raise SpecError(
                f"transitions.{'/'.join(path)}: shape {tuple(value.shape)}, but {'/'.join(first[0])} has {len(first[1])} rows"
            )
    valids = flat.get(("valids",))
    if valids is None or not len(valids):
        return flat
    marks = numeric(valids, "valids").reshape(len(valids), -1)
    nothing = np.flatnonzero(~np.isfinite(marks).all(axis=1))
    if len(nothing):
        raise SpecError(f"transitions.valids: row {nothing[0]} holds {marks[nothing[0]].tolist()}, expected 0 or 1")
    keep = np.flatnonzero((marks != 0).any(axis=1))
    return flat if len(keep) == len(valids) else {path: v[keep] for path, v in flat.items()}


def _walk(node: Mapping[Any, Any], path: tuple[str, ...], out: dict[tuple[str, ...], Any]) -> None:
    for name, value in node.items():
        if not isinstance(name, str):
            where = "/".join(("transitions", *path))
            raise SpecError(f"{where}: the key {name!r} is no text but {type(name).__name__}")
        here = (*path, name)
        if isinstance(value, Mapping):
            _walk(value, here, out)
        elif is_torch(value):
            if value.is_meta or "strided" not in str(value.layout):
                raise SpecError(
                    f"transitions.{'/'.join(here)}: a {value.layout} tensor on {value.device}, expected a dense one"
                )
            out[here] = value.detach().resolve_conj().resolve_neg().cpu()
        else:
            if np.ma.is_masked(value):
                raise SpecError(f"transitions.{'/'.join(here)}: has masked values; fill them, or leave their rows out")
            try:
                array = np.asarray(value)
            except (TypeError, ValueError) as error:
                raise SpecError(f"transitions.{'/'.join(here)}: {type(value).__name__}, not one array: {error}") from error
            if array.dtype.names is not None:
                raise SpecError(
                    f"transitions.{'/'.join(here)}: a structured array; give its fields {', '.join(array.dtype.names)} each by"
                    " itself, in a dictionary"
                )
            if array.dtype.hasobject:
                raise SpecError(f"transitions.{'/'.join(here)}: Python objects cannot be stored, got {type(value).__name__}")
            out[here] = array
