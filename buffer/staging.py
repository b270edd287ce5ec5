"""Plain transitions of a pool in memory wait here, checked, until there are many or somebody looks at the pool.

What a commit costs hardly depends on its rows, and nobody can tell whether rows of this process's own memory are in the rings
yet. A pool with files commits each batch at once, since what was added survives a kill.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from headrace.buffer.plain import EXTRA, PlainField, PlainLayout
from headrace.common.block import Block
from headrace.common.specs import TransitionSpec

Array = np.ndarray[Any, Any]
MOST_BYTES = 1 << 20
_FLAGS = ("terminated", "truncated", "done")


@dataclass(frozen=True)
class _Target:
    """Where one array of a batch goes: ``(rows, *shape)``, with the dtype that it must come with."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    waiting: Array


class Staging:
    """Rows of one layout: flat dictionaries of numpy arrays with float32 states and one reward a row."""

    def __init__(self, layout: PlainLayout, spec: TransitionSpec, most_rows: int) -> None:
        self._spec = spec
        floats = [field for field in layout.fields if field.path[0] not in _FLAGS]
        sizes = [math.prod(field.shape) for field in floats]
        # All numbers of a row lie side by side, so that one call finds out whether they are finite.
        self._numbers = np.empty((most_rows, sum(sizes)), "<f4")
        self._flags = np.empty((most_rows, len(layout.fields) - len(floats)), "|b1")
        self._targets: list[_Target] = []
        at = 0
        for field, size in zip(floats, sizes, strict=True):
            self._targets.append(_target(field, self._numbers[:, at : at + size].reshape(most_rows, *field.shape)))
            at += size
        for i, field in enumerate(f for f in layout.fields if f.path[0] in _FLAGS):
            self._targets.append(_target(field, self._flags[:, i].reshape(most_rows, *field.shape)))
        self._keys = {t.name: field.key for t, field in zip(self._targets, floats, strict=False)}
        self._most_rows = most_rows
        self._last = 1
        self.n_rows = 0

    @classmethod
    def of(cls, layout: PlainLayout, spec: TransitionSpec, most_rows: int) -> Staging | None:
        """One for at most ``most_rows`` rows; none for nested, torch, image, chunk or extra arrays, which never wait."""
        row_bytes = 2 * spec.frame_nbytes + spec.row_dtype.itemsize
        simple = spec.window == spec.stack == 1 and all(o.dtype == "<f4" for o in spec.obs)
        for field in layout.fields:
            kind = "" if field.dtype.startswith("torch.") else np.dtype(field.dtype).kind
            wanted = "b" if field.path[0] in _FLAGS else "f"
            simple = simple and len(field.path) == 1 and kind == wanted and not field.key.startswith(EXTRA)
        return cls(layout, spec, min(most_rows, MOST_BYTES // row_bytes)) if simple and row_bytes <= MOST_BYTES else None

    @property
    def is_full(self) -> bool:
        """Whether one more batch like the last would not fit."""
        return self.n_rows + self._last > self._most_rows

    def add(self, transitions: Mapping[str, Any]) -> bool:
        """Take a batch; false, with nothing taken, when it is not plainly right and the general way must judge it."""
        if len(transitions) != len(self._targets):
            return False
        start, n = self.n_rows, 0
        for target in self._targets:
            value = transitions.get(target.name)
            if type(value) is not np.ndarray or value.dtype != target.dtype or value.shape[1:] != target.shape:
                return False
            if not n:
                n = len(value)
                if not 1 <= n <= self._most_rows - start:
                    return False
            elif len(value) != n:
                return False
            target.waiting[start : start + n] = value
        if not np.logical_and.reduce(np.isfinite(self._numbers[start : start + n]), axis=None):
            return False
        self.n_rows, self._last = start + n, n
        return True

    def take(self) -> Block:
        """All that waits, as one block of rows with two frames each."""
        n, self.n_rows = self.n_rows, 0
        rows = np.zeros(n, self._spec.row_dtype)
        rows["obs"][:, 0], rows["next_obs"][:, 0] = np.arange(n), np.arange(n, 2 * n)
        rows["steps"] = 1
        sides: dict[str, list[Array]] = {o.key: [] for o in self._spec.obs}
        values = {target.name: target.waiting[:n] for target in self._targets}
        for name in ("state", "next_state"):
            sides[self._keys[name]].append(values[name])
        rows["action"] = values["action"].reshape(n, *self._spec.action.shape)
        rows["rewards"] = values["reward"].reshape(n, 1)
        rows["terminated"] = values["terminated" if "terminated" in values else "done"].reshape(n)
        if "truncated" in values:
            rows["truncated"] = values["truncated"].reshape(n)
        return Block(rows, {key: np.concatenate(both) for key, both in sides.items()})


def _target(field: PlainField, waiting: Array) -> _Target:
    return _Target(field.name, np.dtype(field.dtype), field.shape, waiting)
