"""A comparison of two gates: whether one learns as another does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from campaign.gate import NOT_RUN, RATIO_TOLERANCE, UNFINISHED, Check, Gate, Verdict, of_gate, span, verdict_of
from campaign.intervals import difference_interval
from campaign.records import Record, same_settings

EQUAL, NOT_BELOW = "includes 0", "includes 0 or is above"


@dataclass(frozen=True)
class Comparison:
    """What is asked of ``ours`` beside ``theirs``, over the seeds that both have.

    Attributes:
        name: of the verdict.
        ours, theirs: the gates.
        share: part of their mean that our mean must reach; none where nothing is asked.
        difference: what the 95 % interval of the difference of means must do, ``includes 0`` or ``includes 0 or is above``;
            empty where nothing is asked.
        same_settings: whether their settings must be the same in all that both have.
    """

    name: str
    ours: Gate
    theirs: Gate
    share: float | None = None
    difference: str = ""
    same_settings: bool = False


def compare(comparison: Comparison, records: Sequence[Record]) -> Verdict:
    """The verdict: ``measured`` where nothing is asked of the values and the runs may be compared."""
    seeds = set(comparison.ours.seeds) & set(comparison.theirs.seeds)
    a, b = ([r for r in of_gate(gate, records) if r["seed"] in seeds] for gate in (comparison.ours, comparison.theirs))
    if min(len(a), len(b)) < len(seeds):
        return Verdict(UNFINISHED if a or b else NOT_RUN)
    steps, episodes = {r["env_steps"] for r in (*a, *b)}, {r["episodes"] for r in (*a, *b)}
    ratios = [r["achieved_ratio"] for r in (*a, *b)]
    apart = max(ratios) / min(ratios) - 1 if min(ratios) > 0 else float("inf")
    checks = [
        *_value_checks(comparison, a, b),
        Check("env steps", span(sorted(steps)), "equal", len(steps) == 1),
        Check("episodes", span(sorted(episodes)), "equal", len(episodes) == 1),
        Check("achieved ratio", span(ratios, ".4f"), f"within {RATIO_TOLERANCE:.0%} of each other", apart <= RATIO_TOLERANCE),
    ]
    if comparison.same_settings:
        same = all(same_settings(one["settings"], other["settings"]) for one in a for other in b)
        checks.append(Check("settings", "the same" if same else "different", "the same", same))
    return verdict_of(checks, comparison.share is not None or bool(comparison.difference))


def share_bar(mean: float, share: float) -> float:
    """The return that counts as ``share`` of ``mean``; a negative mean is a cost, which may be 1/share as large."""
    return mean * share if mean >= 0 else mean / share


def _value_checks(comparison: Comparison, a: Sequence[Record], b: Sequence[Record]) -> list[Check]:
    ours, theirs = ([r[comparison.ours.value] for r in own] for own in (a, b))
    low, high = difference_interval(ours, theirs)
    holds = {EQUAL: low <= 0 <= high, NOT_BELOW: high >= 0, "": True}[comparison.difference]
    text, mean, other = comparison.ours.text, float(np.mean(ours)), float(np.mean(theirs))
    checks = [Check("95 % interval of the difference", f"{low:.1f} to {high:.1f}", comparison.difference or "reported", holds)]
    if comparison.share is None:
        return [*checks, Check(f"mean of {comparison.ours.name}", text(mean), f"beside {text(other)}", True)]
    bar = share_bar(other, comparison.share)
    asked = f">= {text(bar)} ({comparison.share:g} of {text(other)})"
    return [*checks, Check(f"mean of {comparison.ours.name}", text(mean), asked, mean >= bar)]
