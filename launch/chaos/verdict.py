"""A verdict: faults found of each kind, of how many trials, with the 95 % upper bound of how often one may happen."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

KINDS = {
    "lost": "acknowledged to its actor, and never in the pool",
    "duplicated": "a transition that is in the pool twice",
    "corrupted": "not what its env executed, or changed while it lay in the pool",
    "phantom": "in the pool, and executed or sent by nobody",
    "reordered": "not in the order in which it was executed",
    "torn": "an action by weights that are no single version",
    "stale": "an action by other weights than the newest that its actor had, or than its row says",
    "mislabelled": "another outcome than that of its episode, or none although the label was answered",
    "intruded": "a session for somebody without a key, or with another's",
    "unbalanced": "a process or a counter whose transitions do not add up",
}
SHOWN = 3


def failure_bound(failures: int, trials: int) -> float:
    """One-sided 95 % upper bound of the failure probability (Clopper and Pearson 1934); about 3/n for 0 of n."""
    if not 0 <= failures <= trials or trials < 1:
        raise ValueError(f"{failures} failures of {trials} trials")
    if failures == trials:
        return 1.0
    low, high = failures / trials, 1.0
    for _ in range(60):  # bisection: the binomial's distribution falls as the probability grows
        middle = (low + high) / 2
        low, high = (middle, high) if _at_most(failures, trials, middle) > 0.05 else (low, middle)
    return high


def _at_most(failures: int, trials: int, p: float) -> float:
    """P(X <= failures) of a binomial X, term by term in logarithms: its factors leave the range of floats."""
    if p <= 0 or p >= 1:
        return float(p <= 0)
    out = 0.0
    for k in range(failures + 1):
        ways = math.lgamma(trials + 1) - math.lgamma(k + 1) - math.lgamma(trials - k + 1)
        out += math.exp(ways + k * math.log(p) + (trials - k) * math.log1p(-p))
    return out


@dataclass
class Verdict:
    """What the checker found; filled while it judges.

    Attributes:
        trials: kind -> how many it looked at.
        found: kind -> how many were at fault.
        cases: kind -> the first of them in words.
        figures: what else was counted or measured.
    """

    trials: Counter[str] = field(default_factory=Counter)
    found: Counter[str] = field(default_factory=Counter)
    cases: dict[str, list[str]] = field(default_factory=dict)
    figures: dict[str, Any] = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        """Whether nothing is at fault."""
        return not any(self.found.values())

    def blame(self, kind: str, case: str, count: int = 1) -> None:
        """``count`` more are at fault."""
        if count:
            self.found[kind] += count
            cases = self.cases.setdefault(kind, [])
            if len(cases) < SHOWN:
                cases.append(case)

    def join(self, other: Verdict) -> None:
        """Take what was found elsewhere too: counts are added, of times (``_s``) the longer one is kept."""
        self.trials += other.trials
        for kind, count in other.found.items():
            cases = self.cases.setdefault(kind, [])
            cases += other.cases[kind][: SHOWN - len(cases)]
            self.found[kind] += count
        for name, value in other.figures.items():
            before = self.figures.get(name, 0)
            self.figures[name] = max(before, value) if name.endswith("_s") else before + value

    def bound(self, kind: str) -> float | None:
        """The 95 % upper bound; none without a trial."""
        trials = self.trials[kind]
        return failure_bound(min(self.found[kind], trials), trials) if trials else None
