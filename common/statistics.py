"""Statistics of a pool: mean and variance of each float observation key, as actors and learner use them, and of returns."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
# Learner and actors normalise alike: clip((x - mean) / sqrt(var + VAR_FLOOR), -NORMAL_LIMIT, NORMAL_LIMIT)
VAR_FLOOR = 1e-8
NORMAL_LIMIT = 10.0


@dataclass(frozen=True)
class ReturnStatistics:
    """Spread of the discounted return so far, over every executed env step that was committed.

    Attributes:
        count: steps counted; 0 means that ``var`` is 1 (scaling changes nothing).
        var: population variance.
    """

    count: int = 0
    var: float = 1.0


@dataclass(frozen=True)
class ObsStatistics:
    """Moments over every committed decision.

    Attributes:
        count: decisions counted; 0 means that ``mean`` is 0 and ``var`` is 1 (normalising changes nothing).
        mean: key -> float32, shaped like one frame of the key.
        var: key -> float32 population variance, shaped like one frame of the key.
        returns: of discounted returns; None where they are not followed.
    """

    count: int = 0
    mean: dict[str, Array] = field(default_factory=dict)
    var: dict[str, Array] = field(default_factory=dict)
    returns: ReturnStatistics | None = None
