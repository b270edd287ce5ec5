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


class RunningStatistics:
    """Moments of all float keys, kept as one float64 vector over the keys laid end to end.

    The update is the pairwise form of Chan, Golub and LeVeque, "Updating formulae and a pairwise algorithm for computing
    sample variances" (1979), eq. 2.1: it stays exact to rounding where sums of squares cancel.
    """

    def __init__(self, spec: TransitionSpec) -> None:
        self._keys = [o for o in spec.obs if o.dtype == "<f4"]
        sizes = [int(np.prod(o.shape, dtype=np.int64)) for o in self._keys]
        ends = np.cumsum(sizes, dtype=np.int64).tolist()
        self._parts = [slice(end - size, end) for end, size in zip(ends, sizes, strict=True)]
        self._width = ends[-1] if ends else 0
        self._scratch = np.empty((self._width, 0))  # sums along the contiguous axis cost a third
        self._count = 0
        self._mean = np.zeros(self._width)
        self._m2 = np.zeros(self._width)

    def add(self, frames: Mapping[str, Array], index: Array) -> None:
        """Count the frames ``index`` ``(n,)`` of ``frames`` (key -> ``(m, *shape)``), each once."""
        chunk = max(1, _CHUNK_NUMBERS // max(1, self._width))
        for start in range(0, len(index), chunk):
            self._add(frames, index[start : start + chunk])

    def _add(self, frames: Mapping[str, Array], index: Array) -> None:
        n = len(index)
        total = self._count + n
        if self._width:
            if self._scratch.shape[1] < n:
                self._scratch = np.empty((self._width, n))
            x = self._scratch[:, :n]
            for o, part in zip(self._keys, self._parts, strict=True):
                x[part] = frames[o.key].take(index, axis=0).reshape(n, -1).T
            mean = np.add.reduce(x, axis=1)
            mean /= n
            x -= mean[:, None]
            self._m2 += np.einsum("ij,ij->i", x, x)
            mean -= self._mean
            self._mean += mean * (n / total)
            mean *= mean
            mean *= self._count * n / total
            self._m2 += mean
        self._count = total

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
