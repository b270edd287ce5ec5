"""What a success classifier does on labelled episodes: how often it says success where there is none, and how sure that is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from headrace.actor.success import Held, SuccessClassifier, first_held
from headrace.common.weights import Array
from headrace.launch.chaos.verdict import failure_bound
from headrace.launch.classifier_frames import NOT, SUCCESS, Clip, Rule, pieces


@dataclass(frozen=True)
class Figures:
    """Counts over episodes and images.

    Attributes:
        threshold, hold: at which success was said.
        failures: episodes without success; ``false``: those in which it was said all the same.
        successes: episodes with it; ``early``: those in which it was said before; ``missed``: those whose last image does not
            show it, as the classifier sees it.
        images: of success, and without; ``wrong``: on the wrong side of the threshold, of each.
    """

    threshold: float
    hold: int
    failures: int
    false: int
    successes: int
    early: int
    missed: int
    images: tuple[int, int]
    wrong: tuple[int, int]

    @property
    def false_positive_rate(self) -> float | None:
        """Share of all episodes in which success was said while there was none; none without episodes."""
        return (self.false + self.early) / self._episodes if self._episodes else None

    @property
    def false_positive_bound(self) -> float | None:
        """One-sided 95 % upper bound of it (Clopper and Pearson 1934)."""
        return failure_bound(self.false + self.early, self._episodes) if self._episodes else None

    @property
    def _episodes(self) -> int:
        return self.failures + self.successes

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        both = {"images": list(self.images), "wrong": list(self.wrong)}
        names = ("threshold", "hold", "failures", "false", "successes", "early", "missed")
        rates = {"false_positive_rate": self.false_positive_rate, "false_positive_bound_95": self.false_positive_bound}
        return {**{name: getattr(self, name) for name in names}, **both, **rates}

    def lines(self) -> list[str]:
        """For people."""
        rate, bound = self.false_positive_rate, self.false_positive_bound
        wrong, count = self.false + self.early, self._episodes
        found = "no episodes" if rate is None else f"{rate:.1%} ({wrong} of {count} episodes; 95 % bound {bound:.1%})"
        return [
            f"false positives  {found}",
            f"                 {self.false} of {self.failures} failures, {self.early} of {self.successes} successes too early",
            f"missed           {self.missed} of {self.successes} successes not seen in their last image",
            f"wrong images     {self.wrong[0]} of {self.images[0]} of success, {self.wrong[1]} of {self.images[1]} others",
            f"said at          {self.hold} images in a row with a probability of {self.threshold:g} or more",
        ]


def probabilities(classifier: SuccessClassifier, clip: Clip) -> Array:
    """``(n + 1,)``, of each of the episode's images."""
    return np.concatenate([classifier.probability(part) for part in pieces(clip)])


def figures(said: Sequence[tuple[Clip, Array]], rule: Rule, threshold: float, hold: int) -> Figures:
    """Count what was said, ``(n + 1,)`` probabilities of each episode.

    A success is said too early where it is held before the first image that might show it. The image before an episode's first
    step is not looked at, as no robot's is.
    """
    counts = dict.fromkeys(("failures", "false", "successes", "early", "missed"), 0)
    images, wrong, held = [0, 0], [0, 0], Held(threshold, hold)
    for clip, found in said:
        labels = rule.labels(clip)
        for i, kind in enumerate((SUCCESS, NOT)):
            images[i] += int((labels == kind).sum())
            wrong[i] += int(((found >= threshold) != (kind == SUCCESS))[labels == kind].sum())
        at = first_held(found[1:], held)
        if clip.success:
            before = int((labels[1:] == NOT).sum())
            counts["successes"] += 1
            counts["early"] += at is not None and at < before
            counts["missed"] += not found[-1] >= threshold
        else:
            counts["failures"] += 1
            counts["false"] += at is not None
    return Figures(threshold, hold, **counts, images=(images[0], images[1]), wrong=(wrong[0], wrong[1]))


def learned_from(about: Mapping[str, Any]) -> frozenset[str]:
    """Identities of the episodes that a classifier was trained on, as its file says."""
    known = about.get("learned_from", [])
    return frozenset(str(each) for each in known) if isinstance(known, list) else frozenset()
