"""Fetching weights: which version to ask for next, and a set that is handed over whole or not at all."""

from __future__ import annotations

from typing import Any

from headrace.common.errors import WireError
from headrace.common.lent import Lender
from headrace.common.weights import NO_VERSION, Raw, Version, WeightSet
from headrace.common.wire.codec import Frame
from headrace.common.wire.deflate import plain
from headrace.common.wire.messages import State, WeightsGet, WeightsPart
from headrace.common.wire.weight_reader import WeightReader

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
        found = self.take_packed(part, data)
        return None if found is None else found[1]

    def take_packed(self, part: WeightsPart, data: Frame) -> tuple[Raw, WeightSet] | None:
        """As :meth:`take`, with the bytes of the set, which nobody may change."""
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
        return reader.packed, weights

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
