"""Plain transitions of a pool in memory wait here, checked, until there are many or somebody looks at the pool.

What a commit costs hardly depends on its rows, and nobody can tell whether rows of this process's own memory are in the rings
yet: what waits is committed, whatever interrupts that. Observations wait where they will stay, in free slots of the frame ring:
states from the frame head on, next states half of the free slots further. A pool with files commits each batch at once, since
what was added survives a kill.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from headrace.buffer.plain import EXTRA, STREAM, PlainField, PlainLayout
from headrace.buffer.segment import Segment, as_bytes
from headrace.common.block import Block

Array = np.ndarray[Any, Any]
MOST_BYTES = 1 << 20
_FLAGS = ("terminated", "truncated", "done")
_ZEROS = np.zeros(8192, "<f4")  # BLAS may wake its threads for more


class _Target:
    """Where one array of a batch goes.

    Attributes:
        shape: that it must come with; see :meth:`expect`.
        waiting: ``(rows, *shape of a row)``.
    """

    def __init__(self, field: PlainField, rows: int) -> None:
        self.dtype, self.is_flag = np.dtype(field.dtype), field.path[0] in _FLAGS
        self._row, self._width = field.shape, math.prod(field.shape)
        self.wait_in(np.empty((rows, *field.shape), "|b1" if self.is_flag else "<f4"))
        self.expect(0)

    def wait_in(self, waiting: Array) -> None:
        """Let rows wait there, from the next one on."""
        self.waiting, self._numbers = waiting, waiting.reshape(-1)

    def expect(self, n: int) -> None:
        """The next arrays have ``n`` rows."""
        self.shape = (n, *self._row)
        self._zeros = _ZEROS[: n * self._width]

    def is_finite(self, start: int, stop: int) -> bool:
        """Whether the waiting rows ``[start, stop)`` hold numbers only."""
        numbers = self._numbers[start * self._width : stop * self._width]
        if len(numbers) > len(_ZEROS):
            return bool(np.isfinite(numbers).all())
        return bool(numbers.dot(self._zeros) == 0)  # 0 times infinity is not a number, and a third of isfinite's cost


class Staging:
    """Rows of one layout: flat dictionaries of numpy arrays with one float32 state and one reward a row.

    Args:
        layout: of the batches.
        segment: of a spec with one observation key, no stack and no window; nothing else is committed to it while rows wait.
        most_rows: that may wait.

    Attributes:
        n_rows: that wait.
    """

    def __init__(self, layout: PlainLayout, segment: Segment, most_rows: int) -> None:
        spec = segment.spec
        self._segment, self._most_rows, self._key = segment, most_rows, spec.obs[0].key
        self._targets = {field.name: _Target(field, most_rows) for field in layout.fields}
        self._rows = np.zeros(most_rows, spec.row_dtype)
        self._rows["steps"], self._rows["stream"] = 1, STREAM
        self._row_actions = self._rows.view(as_bytes(spec.row_dtype, "action"))["bytes"]
        self._actions = self._targets["action"].waiting.reshape(most_rows, -1).view(self._row_actions.dtype)[:, 0]
        self._frames: Array = np.empty((0, *spec.obs[0].shape), "<f4")
        self._after: Array | None = None  # next states on their way to where they will stay
        self._most = 0  # rows for which there are free slots
        self._size = 0  # rows of the last batch
        self.n_rows = 0

    @classmethod
    def of(cls, layout: PlainLayout, segment: Segment) -> Staging | None:
        """One for the rows of a commit; None for nested, torch, image, chunk or extra arrays, which never wait."""
        spec = segment.spec
        row_bytes = 2 * spec.frame_nbytes + spec.row_dtype.itemsize
        simple = spec.window == spec.stack == len(spec.obs) == 1 and spec.obs[0].dtype == "<f4"
        for field in layout.fields:
            kind = "" if field.dtype.startswith("torch.") else np.dtype(field.dtype).kind
            wanted = "b" if field.path[0] in _FLAGS else "f"
            simple = simple and len(field.path) == 1 and kind == wanted and not field.key.startswith(EXTRA)
        most_rows = min(segment.sizes.max_rows, MOST_BYTES // row_bytes)
        return cls(layout, segment, most_rows) if simple and most_rows else None

    @property
    def is_full(self) -> bool:
        """Whether one more batch like the last would not fit."""
        return self.n_rows + self._size > self._most

    def add(self, transitions: Mapping[str, Any]) -> bool:
        """Take a batch; false, with nothing taken, when it is not plainly right and the general way must judge it."""
        if not self.n_rows:
            self._begin()
        start, stop = self.n_rows, self.n_rows + self._rows_of(transitions)
        if start == stop:
            return False
        with np.errstate(over="ignore", invalid="ignore"):  # the general way says what is wrong
            for name, target in self._targets.items():
                value = transitions.get(name)
                if type(value) is not np.ndarray or value.dtype != target.dtype or value.shape != target.shape:
                    return False
                target.waiting[start:stop] = value
                if not target.is_flag and not target.is_finite(start, stop):
                    return False
        self.n_rows = stop
        return True

    def _begin(self) -> None:
        """Let observations wait behind the frame head, wherever that is now."""
        self._frames = self._segment.ahead(2 * self._most_rows)[self._key]
        self._most = len(self._frames) // 2
        self._targets["state"].wait_in(self._frames[: self._most])
        self._targets["next_state"].wait_in(self._frames[self._most : 2 * self._most])

    def _rows_of(self, transitions: Mapping[str, Any]) -> int:
        """Rows of a batch, by its rewards; 0 when they are too many, or when it is another kind of batch."""
        if type(transitions) is not dict:
            return 0
        rewards = transitions.get("reward")
        if len(transitions) != len(self._targets) or type(rewards) is not np.ndarray or not rewards.ndim:
            return 0
        if len(rewards) != self._size:
            for target in self._targets.values():
                target.expect(len(rewards))
            self._size = len(rewards)
        return self._size if self._size <= self._most - self.n_rows else 0

    def take(self, actor: int, first_seq: int) -> Block:
        """All that waits, as one block for :meth:`Segment.commit_placed`; the same again when asked again.

        Nothing may be added before :meth:`clear`.

        Args:
            actor: index in the ledger.
            first_seq: of the first row.
        """
        n = self.n_rows
        frames, rows = self._frames[: 2 * n], self._rows[:n]
        if n < self._most:
            if self._after is None:  # the next line may write over where they waited
                self._after = self._frames[self._most : self._most + n].copy()
            frames[n:] = self._after
        ids = np.arange(self._segment.frame_head, self._segment.frame_head + 2 * n)
        rows["obs"][:, 0], rows["next_obs"][:, 0] = ids[:n], ids[n:]
        rows["seq"] = np.arange(first_seq, first_seq + n)
        if self._rows["actor"][0] != actor:
            self._rows["actor"] = actor
        self._row_actions[:n] = self._actions[:n]
        rows["rewards"] = self._targets["reward"].waiting[:n].reshape(n, 1)
        ended = "terminated" if "terminated" in self._targets else "done"
        rows["terminated"] = self._targets[ended].waiting[:n].reshape(n)
        if "truncated" in self._targets:
            rows["truncated"] = self._targets["truncated"].waiting[:n].reshape(n)
        return Block(rows, {self._key: frames})

    def clear(self) -> None:
        """What waited is committed."""
        self._after, self.n_rows = None, 0
