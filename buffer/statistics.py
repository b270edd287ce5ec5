"""Running mean and variance of the float observation keys, once per committed row."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import numpy as np

from headrace.common.specs import TransitionSpec
from headrace.common.statistics import ObsStatistics

Array = np.ndarray[Any, Any]
_CHUNK_NUMBERS = 1 << 19  # numbers in the float64 scratch: 4 MiB
_FOLD_NUMBERS = 1024  # so many lie side by side in one row of sums, since numpy adds up short rows at a fifth of the speed
_LARGEST = float(np.finfo("<f4").max)
_MOST_CANCELLED = 1e8  # of float64's 16 digits, 8 are left then


class RunningStatistics:
    """Moments of all float keys, kept as one float64 vector over the keys laid end to end.

    Each piece's sums are those of the deviations from the running mean, and a piece that lies so far away that these cancel is
    gone over again from its own mean. Pieces are joined by the pairwise form of Chan, Golub and LeVeque, "Updating formulae
    and a pairwise algorithm for computing sample variances" (1979), eq. 2.1. So it stays exact to rounding where sums of
    squares cancel.
    """

    def __init__(self, spec: TransitionSpec) -> None:
        self._keys = [o for o in spec.obs if o.dtype == "<f4"]
        sizes = [int(np.prod(o.shape, dtype=np.int64)) for o in self._keys]
        ends = np.cumsum(sizes, dtype=np.int64).tolist()
        self._parts = [slice(end - size, end) for end, size in zip(ends, sizes, strict=True)]
        self._width = ends[-1] if ends else 0
        self._fold = 1 << max(0, (_FOLD_NUMBERS // max(1, self._width)).bit_length() - 1)
        self._scratch = np.empty((0, self._width))
        self._around = np.empty((self._fold, self._width))
        self._sums = np.empty((2, self._fold, self._width))
        self._count = 0
        self._mean = np.zeros(self._width)
        self._m2 = np.zeros(self._width)

    def add(self, frames: Mapping[str, Array], index: Array | range) -> None:
        """Count the frames ``index``, ``(n,)`` or consecutive ones, of ``frames`` (key -> ``(m, *shape)``), each once."""
        chunk = max(1, _CHUNK_NUMBERS // max(1, self._width))
        for start in range(0, len(index), chunk):
            part = index[start : start + chunk]
            if self._width:
                self._add(frames, slice(part.start, part.stop) if isinstance(part, range) else part, len(part))
            self._count += len(part)

    def _add(self, frames: Mapping[str, Array], index: Array | slice, n: int) -> None:
        rows = -(-n // self._fold) * self._fold
        if len(self._scratch) < rows:
            self._scratch = np.empty((rows, self._width))
        x = self._scratch[:rows]
        for o, part in zip(self._keys, self._parts, strict=True):
            frame = frames[o.key]
            newest = frame[index] if isinstance(index, slice) else frame.take(index, axis=0)
            x[:n, part] = newest.reshape(n, -1)
        if n < rows:
            x[n:] = self._mean  # deviates by nothing
        folded = x.reshape(-1, self._fold * self._width)
        self._around[:] = self._mean
        folded -= self._around.reshape(-1)
        sums = self._sums.reshape(2, -1)
        np.add.reduce(folded, axis=0, out=sums[0])
        np.einsum("ij,ij->j", folded, folded, out=sums[1])
        shift, m2 = np.add.reduce(self._sums, axis=1)
        cancelled = shift * shift
        cancelled /= n
        shift /= n
        m2 -= cancelled
        if np.count_nonzero(cancelled > _MOST_CANCELLED * m2):
            near = x[:n]
            near -= shift
            m2 = np.einsum("ij,ij->j", near, near)
        total = self._count + n
        self._m2 += m2
        self._m2 += shift * shift * (self._count * n / total)
        shift *= n / total
        self._mean += shift

    def merged(self, other: RunningStatistics) -> RunningStatistics:
        """Moments over all that this and ``other``, of the same spec, have counted; neither of them changes."""
        if not self._count or not other._count:
            return self if self._count else other
        out, share = copy.copy(self), other._count / (self._count + other._count)
        shift = other._mean - self._mean
        out._count = self._count + other._count
        out._mean = self._mean + share * shift
        out._m2 = self._m2 + other._m2 + self._count * share * shift**2
        return out

    def result(self) -> ObsStatistics:
        """The moments so far, as float32 copies."""
        if not self._count:
            return ObsStatistics(0, self._split(np.zeros(self._width)), self._split(np.ones(self._width)))
        return ObsStatistics(self._count, self._split(self._mean), self._split(self._m2 / self._count))

    def _split(self, vector: Array) -> dict[str, Array]:
        vector = np.clip(vector, -_LARGEST, _LARGEST)  # the square of an observation may be beyond float32
        return {o.key: vector[part].astype("<f4").reshape(o.shape) for o, part in zip(self._keys, self._parts, strict=True)}

    def encode(self) -> bytes:
        """The whole state in ``nbytes()`` bytes."""
        return np.int64(self._count).tobytes() + self._mean.tobytes() + self._m2.tobytes()

    def decode(self, data: bytes) -> None:
        """Take the state that :meth:`encode` gave."""
        numbers = np.frombuffer(data, "<f8", 2 * self._width, 8)
        self.set_state(
            {
                "count": np.frombuffer(data, "<i8", 1)[0],
                "mean": numbers[: self._width],
                "m2": numbers[self._width :],
            }
        )

    def nbytes(self) -> int:
        """Bytes of the encoded state."""
        return 8 + 16 * self._width

    def get_state(self) -> dict[str, Any]:
        """``count``, and ``mean`` and ``m2`` (sum of squared deviations), float64 ``(numbers of all float keys,)``."""
        return {"count": self._count, "mean": self._mean.copy(), "m2": self._m2.copy()}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Take a state of :meth:`get_state`."""
        mean, m2 = np.array(state["mean"], "<f8"), np.array(state["m2"], "<f8")
        if mean.shape != (self._width,) or m2.shape != (self._width,):
            raise ValueError(f"statistics of {mean.shape} and {m2.shape} numbers, expected ({self._width},)")
        self._count, self._mean, self._m2 = int(state["count"]), mean, m2

    def check_valid(self) -> tuple[bool, str]:
        """Whether the moments are finite and the variances not negative."""
        if self._count < 0 or not np.isfinite(self._mean).all() or not (self._m2 >= 0).all():
            return False, f"statistics over {self._count} rows are not moments"
        return True, ""
