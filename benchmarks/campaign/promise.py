"""A promise: the trials that try to break it, the bars that their figures must keep, and what the records say of both."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Protocol

import numpy as np

from campaign.gate import FAILED, NOT_RUN, PASSED, UNFINISHED
from campaign.intervals import failure_bound, mean_interval
from campaign.records import Record, latest

SUM, EACH, MEDIAN = "sum", "each", "median"  # which value of many trials a bar looks at
MEAN = "mean"  # with the bounds of its 95 % interval, both of which must be within the limits
KEYS = ("part", "trial")


@dataclass(frozen=True)
class Trial:
    """What one trial is given.

    Attributes:
        place: an empty directory of its own, which is removed afterwards.
        number: which of its part.
        rng: the only source of its chance.
        quick: whether to be as small as still makes sense; such a trial is not recorded.
        minutes: how much longer the campaign may take, for a trial that can be of any length.
    """

    place: Path
    number: int
    rng: np.random.Generator
    quick: bool
    minutes: float = math.inf


@dataclass(frozen=True)
class Outcome:
    """What one trial found: numbers by name, and in words what is wrong; a trial without problems has passed."""

    figures: Mapping[str, float]
    problems: tuple[str, ...] = ()


@dataclass(frozen=True)
class Bar:
    """What is asked of one figure; without limits it is only told.

    Attributes:
        figure: its name, with its unit at its end (``exit_s``).
        over: what of all trials is looked at: ``sum``, ``median``, ``each``, or the 95 % interval of the ``mean``.
        low, high: limits, which are allowed themselves.
    """

    figure: str
    over: str
    low: float | None = None
    high: float | None = None

    def broken_by(self, figures: Mapping[str, float]) -> str:
        """What one trial alone already breaks, in words; empty for nothing. A sum that is too large has a part that is."""
        value = figures.get(self.figure)
        if value is None:
            return f"no {self.figure}" if self.over == EACH and (self.low, self.high) != (None, None) else ""
        low = self.low if self.over == EACH else None
        high = self.high if self.over in (EACH, SUM) else None
        bad = (low is not None and not value >= low) or (high is not None and not value <= high)
        return f"{self.figure} {value:g}, asked for {self.text}" if bad else ""

    def judge(self, records: Sequence[Record]) -> tuple[str, bool]:
        """The figure over all trials in words, and whether it is as asked."""
        values = [r["figures"][self.figure] for r in records if self.figure in r["figures"]]
        if not values:
            return f"{self.figure} -", (self.low, self.high) == (None, None)
        seen = _SEEN[self.over](values)
        met = (self.low is None or seen[0] >= self.low) and (self.high is None or seen[-1] <= self.high)
        if self.over == EACH and (self.low is None) != (self.high is None):
            seen = seen[:1] if self.high is None else seen[1:]  # the one that comes nearest to the bar
        told = " to ".join(f"{value:,.6g}" for value in dict.fromkeys(seen))
        return f"{self.figure} {told}", met

    @property
    def text(self) -> str:
        """The limits; empty where there are none."""
        if self.low is not None and self.high is not None:
            return f"{self.low:g}" if self.low == self.high else f"{self.low:g} to {self.high:g}"
        return f">= {self.low:,g}" if self.low is not None else f"<= {self.high:,g}" if self.high is not None else ""


_SEEN: Mapping[str, Callable[[list[float]], list[float]]] = {
    SUM: lambda values: [sum(values)],
    MEDIAN: lambda values: [median(values)],
    MEAN: lambda values: [float(bound) for bound in mean_interval(values)],
    EACH: lambda values: [min(values), max(values)],
}


def never(*figures: str) -> tuple[Bar, ...]:
    """These counts are 0 in every trial."""
    return tuple(Bar(figure, SUM, high=0) for figure in figures)


def at_most(figure: str, high: float) -> tuple[Bar, ...]:
    """In each trial."""
    return (Bar(figure, EACH, high=high),)


def at_least(figure: str, low: float, over: str = EACH) -> tuple[Bar, ...]:
    """In each trial, or in all together (``over`` a ``sum``)."""
    return (Bar(figure, over, low=low),)


def between(figure: str, low: float, high: float) -> tuple[Bar, ...]:
    """In each trial."""
    return (Bar(figure, EACH, low, high),)


def told(*figures: str, over: str = MEDIAN) -> tuple[Bar, ...]:
    """Figures that nothing is asked of."""
    return tuple(Bar(figure, over) for figure in figures)


@dataclass(frozen=True)
class Tally:
    """What the records say of one part: trials that were made and are asked for, failures, figures and bars in words.

    Attributes:
        missed: whether a bar over all trials is not met.
    """

    trials: int
    wanted: int
    failures: int
    figures: str = ""
    bar: str = ""
    missed: bool = False
    records: tuple[Record, ...] = ()

    @property
    def state(self) -> str:
        """The verdict; a bar that is missed counts once all trials are made."""
        if not self.trials:
            return NOT_RUN
        if self.failures or (self.missed and self.trials >= self.wanted):
            return FAILED
        return PASSED if self.trials >= self.wanted else UNFINISHED

    @property
    def bound(self) -> float | None:
        """95 % upper bound of the probability that a trial fails."""
        return failure_bound(self.failures, self.trials) if self.trials else None


class Told(Protocol):
    """One row of the table of promises."""

    @property
    def name(self) -> str:
        """Unique in its promise."""

    @property
    def file(self) -> str:
        """Name of the records that it is told from."""

    def command(self, promise: str) -> str:
        """What makes these records."""

    def tally(self, promise: str, known: Sequence[Record]) -> Tally:
        """What the records of that file say."""


@dataclass(frozen=True)
class Part:
    """One kind of trial of a promise, made by `benchmarks/promises.py`.

    Attributes:
        name: lower case, with hyphens; unique in its promise.
        trials: how many are asked for.
        run: makes one. What its processes do wrong it may also raise: AssertionError, OSError, a headrace error.
        bars: of its figures.
        quick: how many trials `--quick` makes.
        control: plants faults in a scratch directory and says of each whether the judgement of ``run`` finds it, by name.
            It is called before the first trial; where a fault is not found, none is made.
    """

    name: str
    trials: int
    run: Callable[[Trial], Outcome]
    bars: tuple[Bar, ...]
    quick: int = 1
    control: Callable[[Path], Mapping[str, bool]] | None = None
    file: str = field(default="promises.jsonl", init=False)

    def seed(self, promise: str, number: int) -> int:
        """Of one trial: the same in every campaign."""
        return zlib.crc32(f"{promise}/{self.name}/{number}".encode())

    def problems(self, outcome: Outcome) -> tuple[str, ...]:
        """What is wrong with one trial; a figure that is no number is, whatever is asked of it."""
        odd = tuple(f"{name} is {value}" for name, value in outcome.figures.items() if not math.isfinite(value))
        return (*outcome.problems, *odd, *filter(None, (bar.broken_by(outcome.figures) for bar in self.bars)))

    @property
    def asked(self) -> str:
        """All bars in words."""
        return "; ".join(f"{bar.figure} {bar.text}" for bar in self.bars if bar.text)

    def command(self, promise: str) -> str:
        """What makes these records."""
        return f"promises.py --only {promise}/{self.name}"

    def tally(self, promise: str, known: Sequence[Record]) -> Tally:
        """What the newest record of each trial says."""
        own = [r for r in known if r["promise"] == promise and r["part"] == self.name]
        newest = tuple(r for (_, trial), r in sorted(latest(own, *KEYS).items()) if trial < self.trials)
        failures = sum(not r["passed"] for r in newest)
        judged = [bar.judge(newest) for bar in self.bars]
        figures = "; ".join(text for text, _ in judged) if newest else ""
        missed = not all(met for _, met in judged)
        return Tally(len(newest), self.trials, failures, figures, self.asked, missed, newest)


@dataclass(frozen=True)
class Recorded:
    """One row that a script of its own measures and records.

    Attributes:
        name: unique in its promise.
        script: its command line, without the directory.
        file: name of its records.
        tell: what they say.
    """

    name: str
    script: str
    file: str
    tell: Callable[[Sequence[Record]], Tally]

    def command(self, promise: str) -> str:
        """What makes these records."""
        return self.script

    def tally(self, promise: str, known: Sequence[Record]) -> Tally:
        """What they say."""
        return self.tell(known)


@dataclass(frozen=True)
class Promise:
    """One promise: its number (``P12``), what is promised in one sentence, and what tries to break it."""

    number: str
    text: str
    parts: tuple[Part | Recorded, ...]


def counted(records: Sequence[Record], wanted: int, figures: Mapping[str, Any], bar: str, *, missed: bool = False) -> Tally:
    """A tally of records that say ``passed`` themselves."""
    said = "; ".join(f"{name} {value}" for name, value in figures.items()) if records else ""
    return Tally(len(records), wanted, sum(not r["passed"] for r in records), said, bar, missed, tuple(records))
