"""The rows of the speed table: what takes part in each, and what is asked of it. Pure but for the starting of processes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Protocol

Rates = Mapping[str, Sequence[float]]
FLAT_SHARE = 0.2


class Subject(Protocol):
    """Anything that is measured window by window."""

    def window(self, seconds: float) -> float:
        """Its rate over the next ``seconds``."""
        ...


@dataclass(frozen=True)
class Setup:
    """Where a row is measured: a directory for pools, the peers' interpreters by name, whether shortly."""

    place: Path
    pythons: Mapping[str, Path]
    quick: bool
    minutes: float


@dataclass(frozen=True)
class Check:
    """One thing that is asked: what, its value over the windows (median, lowest, highest), the bar, whether it is met."""

    what: str
    value: float
    low: float
    high: float
    bar: str
    met: bool


@dataclass(frozen=True)
class Bar:
    """``ours`` is at least ``least`` times as fast as the ``others`` one after the other (``best``: as the best of them).

    Without ``least`` it is only said how many times.
    """

    ours: str
    others: tuple[str, ...]
    least: float | None = None
    best: bool = False

    def judge(self, rates: Rates) -> Check | None:
        """None where something did not take part."""
        there = [o for o in self.others if o in rates]
        if self.ours not in rates or not there or (len(there) < len(self.others) and not self.best):
            return None
        if self.best:
            there = [max(there, key=lambda o: median(rates[o]))]
        ratios = sorted(r * sum(1 / rates[o][i] for o in there) for i, r in enumerate(rates[self.ours]))
        value = median(ratios)
        what = f"{self.ours} / {' + '.join(there)}"
        bar, met = ("-", True) if self.least is None else (f">= {self.least:g}", value >= self.least)
        return Check(what, value, ratios[0], ratios[-1], bar, met)


@dataclass(frozen=True)
class Flat:
    """The cost of ``ours`` is the same at every size: within ``FLAT_SHARE`` of its mean over them.

    Attributes:
        ours: what is judged, by the rates of ``ours SIZE``.
        other: what it is compared with, likewise; without it the cost is the time itself.
        sizes: the sizes.
        extra: the cost is the time beyond that of ``other``, and not how many times as long it is.
    """

    ours: str
    other: str | None
    sizes: tuple[int, ...]
    extra: bool = False

    def judge(self, rates: Rates) -> Check | None:
        """None where a size did not take part."""
        if any(f"{name} {n}" not in rates for name in (self.ours, self.other) if name for n in self.sizes):
            return None
        costs = [median(self._costs(rates, n)) for n in self.sizes]
        mean = sum(costs) / len(costs) if self.extra else math.exp(sum(map(math.log, costs)) / len(costs))
        shares = [c / mean for c in costs]
        worst = max(shares, key=lambda s: abs(s - 1))
        met = abs(worst - 1) <= FLAT_SHARE
        beside = f" {'beyond' if self.extra else 'in times of'} {self.other}" if self.other else ""
        what = f"cost of {self.ours}{beside} by size / its mean"
        return Check(what, worst, min(shares), max(shares), "0.8 to 1.2", met)

    def _costs(self, rates: Rates, size: int) -> list[float]:
        ours = rates[f"{self.ours} {size}"]
        if self.other is None:
            return [1 / a for a in ours]
        pairs = zip(ours, rates[f"{self.other} {size}"], strict=True)
        return [1 / a - 1 / b if self.extra else b / a for a, b in pairs]


@dataclass(frozen=True)
class Extra:
    """``ours`` takes at most ``most_ms`` more a call than ``other``."""

    ours: str
    other: str
    most_ms: float

    def judge(self, rates: Rates) -> Check | None:
        """None where one did not take part."""
        if self.ours not in rates or self.other not in rates:
            return None
        extra = sorted(1000 / a - 1000 / b for a, b in zip(rates[self.ours], rates[self.other], strict=True))
        value = median(extra)
        what = f"{self.ours} - {self.other}, ms a call"
        return Check(what, value, extra[0], extra[-1], f"<= {self.most_ms:g}", value <= self.most_ms)


@dataclass(frozen=True)
class Most:
    """``what`` is at most ``most``."""

    what: str
    most: float

    def judge(self, rates: Rates) -> Check | None:
        """None where it did not take part."""
        if self.what not in rates:
            return None
        low, value, high = min(rates[self.what]), median(rates[self.what]), max(rates[self.what])
        return Check(self.what, value, low, high, f"<= {self.most:g}", value <= self.most)


@dataclass(frozen=True)
class Row:
    """One row of the table.

    Attributes:
        name: for the command line and the records.
        title: what is done.
        unit: of the rates.
        bound: what limits ours now.
        bars: what is asked.
        open: starts what takes part, by name; the stack ends it.
        rounds: windows of each.
        window_s: their length (s).
    """

    name: str
    title: str
    unit: str
    bound: str
    bars: tuple[Bar | Flat | Extra | Most, ...]
    open: Callable[[Setup, ExitStack], dict[str, Subject]]
    rounds: int = 5
    window_s: float = 1.0


def figures(rates: Rates) -> dict[str, dict[str, float]]:
    """Median, lowest and highest of each subject, to four digits."""
    return {
        name: {"median": digits(median(values)), "low": digits(min(values)), "high": digits(max(values))}
        for name, values in rates.items()
    }


def digits(value: float) -> float:
    """Four significant digits."""
    return float(f"{value:.4g}")


def judge(row: Row, rates: Rates) -> list[dict[str, Any]]:
    """Every check of a row that could be made."""
    found = [bar.judge(rates) for bar in row.bars]
    return [
        {"what": c.what, "value": digits(c.value), "low": digits(c.low), "high": digits(c.high), "bar": c.bar, "met": c.met}
        for c in found
        if c is not None
    ]
