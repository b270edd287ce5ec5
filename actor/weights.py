"""Fetching weights: which version to ask for next, a set that is handed over whole or not at all, and the newest one."""

from __future__ import annotations

from typing import Any

from headrace.actor.weight_reader import WeightReader
from headrace.common.errors import WireError
from headrace.common.lent import Lender
from headrace.common.weights import NO_VERSION, Version, WeightSet
from headrace.common.wire.codec import Frame
from headrace.common.wire.deflate import plain
from headrace.common.wire.messages import State, WeightsGet, WeightsPart
from headrace.common.wire.network import FRAGMENTS_A_RANGE

REQUESTS_UNDER_WAY = 2
MAX_WEIGHT_BYTES = 1 << 34


class WeightFetch:
    """Follows the newest version that the buffer announces; asks for it in ranges.

    Args:
        part_bytes: length of one range.
    """

    def __init__(self, part_bytes: int) -> None:
        self._part_bytes, self._lender = part_bytes, Lender()
        self._target = NO_VERSION
        self._have = NO_VERSION
        self._reader: WeightReader | None = None
        self._asked = 0

    def announced(self, state: State) -> None:
        """The buffer's newest version; a fetch of an older one is given up."""
        version = Version(state.learner, state.epoch, state.step)
        if version.epoch > 0 and version.order > self._have.order and version != self._target:
            self._target = version
            self.restart()

    def restart(self) -> None:
        """Ask for everything again (a new session, or a new target)."""
        self._reader, self._asked = None, 0

    def requests(self) -> list[WeightsGet]:
        """Ranges to ask for now."""
        out: list[WeightsGet] = []
        if self._target.order <= self._have.order:
            return out
        known = self._part_bytes if self._reader is None else self._reader.total
        while self._asked < known and self._asked - self.held < REQUESTS_UNDER_WAY * self._part_bytes:
            out.append(WeightsGet(self._target.epoch, self._target.step, self._asked, self._part_bytes))
            self._asked += self._part_bytes
        return out

    def take(self, part: WeightsPart, data: Frame) -> WeightSet | None:
        """Take one range, which come in the order in which they were asked for; the weight set when it is complete.

        Raises:
            WireError: when the ranges do not make the announced set, and then the fetch starts over at the next announcement;
                or the set is not finite, and then it is not asked for again.
        """
        if (part.epoch, part.step) != self._target.order or part.offset < self.held:
            return None  # of a fetch that was given up
        try:
            self._check(part, data)
            reader = self._reader = self._reader or WeightReader(part.total, self._lender)
            reader.add(plain(data))
        except WireError:
            self._target = self._have
            raise
        if reader.held < part.total:
            return None
        target, self._target = self._target, self._have
        self.restart()
        weights = reader.finish()
        if weights.version != target:
            raise WireError("weights", f"announced {target}, got {weights.version}")
        self._have = self._target = target
        if reader.not_finite:
            raise WireError("non-finite", f"tensor {reader.not_finite[:100]}")
        return weights

    def _check(self, part: WeightsPart, data: Frame) -> None:
        before = part.total if self._reader is None else self._reader.total
        if part.total > MAX_WEIGHT_BYTES or part.total != before:
            raise WireError("weights", f"{part.total} bytes announced, {before} before")
        if not 0 < len(data) <= min(self._part_bytes, part.total - part.offset):
            raise WireError("size", f"{len(data)} bytes at {part.offset} of {part.total}, asked for {self._part_bytes}")
        if part.offset != self.held:
            raise WireError("weights", f"a range at {part.offset}, and what is before it is not here from {self.held} on")

    @property
    def held(self) -> int:
        """Bytes of the set that is fetched now."""
        return 0 if self._reader is None else self._reader.held

    def get_state(self) -> dict[str, Any]:
        """The version held."""
        return {"have": self._have}

    def set_state(self, state: dict[str, Any]) -> None:
        """Hold a version without fetching it."""
        self._have = self._target = state["have"]
        self.restart()

    def check_valid(self) -> tuple[bool, str]:
        """Whether the target is not older than what is held."""
        return self._target.order >= self._have.order, f"target {self._target} behind {self._have}"


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
