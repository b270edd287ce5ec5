"""The weights that an actor gets: the newest set of one policy, complete, verified and finite."""

from __future__ import annotations

from headrace.common.errors import WireError
from headrace.common.weights import WeightSet
from headrace.common.wire.codec import Frame
from headrace.common.wire.messages import WeightsPart
from headrace.common.wire.network import FRAGMENTS_A_RANGE
from headrace.common.wire.weight_fetch import WeightFetch


class WeightInbox:
    """The newest set of one policy that is complete, verified and finite, until it is taken.

    Attributes:
        newest: that set; none when it was taken.
        refused: ranges and sets that were not taken.

    Args:
        part_bytes: ``network.fragment_bytes``.
    """

    def __init__(self, part_bytes: int) -> None:
        self.fetch = WeightFetch(FRAGMENTS_A_RANGE * part_bytes)
        self.newest: WeightSet | None = None
        self.refused = 0
        self._policy = ""  # what all sets describe

    def put(self, part: WeightsPart, frames: list[Frame]) -> None:
        """Take a range.

        Raises:
            WireError: it is none, or makes no set.
        """
        if len(frames) != 1:
            raise WireError("arity", "a part of weights has one frame")
        try:
            weights = self.fetch.take(part, frames[0])
        except WireError:
            self.refused += 1
            raise
        if weights is None:
            return
        policy = weights.fingerprint()
        if self._policy not in ("", policy):
            self.refused += 1
            return
        self.newest, self._policy = weights, policy

    def take(self, *, ema: bool) -> WeightSet | None:
        """The newest set, once: the policy, or its average.

        Raises:
            SpecError: the learner makes no average.
        """
        weights, self.newest = self.newest, None
        return None if weights is None else weights.chosen(ema=ema)
