"""How sure a number is: percentile-bootstrap intervals (Efron and Tibshirani 1993, chapter 13) and a bound on failures.

With the 3 to 10 values that these campaigns have, such intervals are somewhat too narrow; they are given because
the gates are stated in them, and the values themselves are always listed beside them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from headrace.launch.chaos.verdict import failure_bound as failure_bound

Array = np.ndarray[Any, Any]
DRAWS = 10_000
SEED = 0  # the same values always give the same interval
QUANTILES = (0.025, 0.975)


def mean_interval(values: Array | Sequence[Any]) -> tuple[Array, Array]:
    """95 % interval of the mean over the first axis of ``(n, ...)``; bounds of shape ``values.shape[1:]``."""
    low, high = np.quantile(_means(np.asarray(values, np.float64), np.random.default_rng(SEED)), QUANTILES, axis=0)
    return low, high


def difference_interval(ours: Sequence[float], theirs: Sequence[float]) -> tuple[float, float]:
    """95 % interval of mean(ours) - mean(theirs), both resampled on their own."""
    rng = np.random.default_rng(SEED)
    difference = _means(np.asarray(ours, np.float64), rng) - _means(np.asarray(theirs, np.float64), rng)
    low, high = np.quantile(difference, QUANTILES)
    return float(low), float(high)


def pair_ratio(ours: Sequence[float], theirs: Sequence[float]) -> tuple[float, float, float]:
    """Geometric mean of ours / theirs over pairs, and its 95 % interval with pairs resampled.

    Raises:
        ValueError: the lists differ in length, are empty, or a value is not positive.
    """
    if len(ours) != len(theirs) or not ours or min(*ours, *theirs) <= 0:
        raise ValueError(f"{len(ours)} and {len(theirs)} values; pairs of positive values are needed")
    logs = np.log(np.asarray(ours, np.float64) / np.asarray(theirs, np.float64))
    low, high = mean_interval(logs)
    return float(np.exp(logs.mean())), float(np.exp(low)), float(np.exp(high))


def _means(values: Array, rng: np.random.Generator) -> Array:
    picks = rng.integers(0, len(values), (DRAWS, len(values)))
    means: Array = values[picks].mean(axis=1)
    return means
