"""Observation statistics: the running mean and variance of each float observation key, as actors and learner use them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
# Learner and actors normalise alike: clip((x - mean) / sqrt(var + VAR_FLOOR), -NORMAL_LIMIT, NORMAL_LIMIT)
VAR_FLOOR = 1e-8
NORMAL_LIMIT = 10.0


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
