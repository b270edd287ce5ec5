"""Observation statistics: the running mean and variance of each float observation key, as actors and learner use them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class ObsStatistics:
    """Moments over every committed decision.

    Attributes:
        count: decisions counted; 0 means that ``mean`` is 0 and ``var`` is 1 (normalising changes nothing).
        mean: key -> float32, shaped like one frame of the key.
        var: key -> float32 population variance, shaped like one frame of the key.
    """

    count: int = 0
    mean: dict[str, Array] = field(default_factory=dict)
    var: dict[str, Array] = field(default_factory=dict)

    def to_arrays(self) -> dict[str, Array]:
        """One flat dict of arrays: ``count`` () int64, ``mean.<key>`` and ``var.<key>`` float32."""
        out: dict[str, Array] = {"count": np.asarray(self.count, "<i8")}
        out.update({f"mean.{key}": value for key, value in self.mean.items()})
        out.update({f"var.{key}": value for key, value in self.var.items()})
        return out

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array]) -> ObsStatistics:
        """Rebuild from :meth:`to_arrays`; arrays under other names are ignored.

        Raises:
            KeyError: without ``count``, or when a key has a mean but no variance.
        """
        keys = [name[len("mean.") :] for name in arrays if name.startswith("mean.")]
        mean = {key: np.asarray(arrays[f"mean.{key}"], "<f4") for key in keys}
        var = {key: np.asarray(arrays[f"var.{key}"], "<f4") for key in keys}
        return cls(int(arrays["count"]), mean, var)
