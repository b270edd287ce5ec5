"""Statistics of a pool: mean and variance of each float observation key, as actors and learner use them, and of returns."""

from __future__ import annotations

from collections.abc import Sequence
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


def pooled(parts: Sequence[ObsStatistics]) -> ObsStatistics:
    """The statistics of several pools as those of one, by their counts (Chan, Golub and LeVeque 1979, eq. 2.1).

    The spread of returns is joined as if all had one mean, since none is told.
    """
    known = [part for part in parts if part.count] or list(parts[:1])
    total = sum(part.count for part in known)
    if len(known) == 1:
        return known[0]
    shares = [part.count / total for part in known]
    mean, var = {}, {}
    for key in known[0].mean:
        means = [np.asarray(part.mean[key], np.float64) for part in known]
        center = sum((share * m for share, m in zip(shares, means, strict=True)), np.float64(0))
        spread = [p.var[key] + (m - center) ** 2 for p, m in zip(known, means, strict=True)]
        mean[key] = np.asarray(center, np.float32)
        var[key] = np.asarray(sum((share * v for share, v in zip(shares, spread, strict=True)), np.float64(0)), np.float32)
    spreads = [part.returns for part in known if part.returns is not None]
    steps = sum(spread.count for spread in spreads)
    returns = ReturnStatistics() if spreads else None
    if steps:
        returns = ReturnStatistics(steps, sum(s.var * s.count for s in spreads) / steps)
    return ObsStatistics(total, mean, var, returns)
