"""Asking a policy server: one request at a time, and an answer that is used only if it is this request's and in time."""

from __future__ import annotations

import logging
import math
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from headrace.actor import noise
from headrace.actor.deciding import Decided
from headrace.actor.serving import decided_shapes, seen_by_actors
from headrace.common.clock import Clock
from headrace.common.errors import WireError
from headrace.common.specs import TransitionSpec
from headrace.common.weights import Version
from headrace.common.wire import messages as m
from headrace.common.wire.codec import Frame, Parts, encode, raw_bytes, take_array

Array = np.ndarray[Any, Any]
LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Answer:
    """What a policy server decided on one request, by which weights, and the noise behind that."""

    number: int
    found: Array | Decided
    version: Version
    noise: bytes


class Asking:
    """The role of an actor on the link to its policy server.

    :meth:`ask` belongs to the control loop, the methods behind it to the link's thread.

    Attributes:
        counts: requests by what became of them: ``decided``, ``unanswered`` in time, ``discarded`` answers to others than the
            running one, and the server's own reasons.
        heard_at: when the server said anything last; never, from a request that it did not answer on to its next word.
        stopped: why the server has left, in words; empty while it has not said so.

    Args:
        spec: of the rows.
        clock: the control loop's.
    """

    def __init__(self, spec: TransitionSpec, clock: Clock) -> None:
        self._spec, self._clock, self._keys = spec, clock, seen_by_actors(spec)
        self._changed = threading.Condition()
        self._number = 0
        self._lanes = 0  # of the request that waits for its answer; 0: none does
        self._unsent: Parts = []
        self._answer: Answer | str | None = None
        self.counts: Counter[str] = Counter()
        self.heard_at = self._clock.now()
        self.stopped = ""

    # --- control loop -----------------------------------------------------------------------------------------------

    def ask(
        self, obs: Mapping[str, Array], rng: np.random.Generator | None, within_s: float, wake: Callable[[], None]
    ) -> Answer | None:
        """The answer of the server within ``within_s``; none else. What comes later is discarded.

        Args:
            obs: key -> ``(L, ...)``.
            rng: what the decision draws from, which moves on with an answer; none for the mode.
            within_s: how long the answer is of use.
            wake: tells the link that there is something to send.
        """
        due = self._clock.now() + within_s
        frames = [np.ascontiguousarray(obs[o.key], o.dtype) for o in self._keys]
        state = b"" if rng is None else noise.pack(rng)
        with self._changed:
            self._number += 1
            self._lanes, self._answer = len(frames[0]), None
            head = m.Ask(self._number, self._lanes, within_s, state)
            self._unsent = [encode(head), *(bytes(raw_bytes(frame)) for frame in frames)]
        wake()
        with self._changed:
            self._changed.wait_for(lambda: self._answer is not None or self.stopped, max(0.0, due - self._clock.now()))
            answer = self._end()
        if isinstance(answer, Answer) and self._clock.now() <= due:
            if rng is not None:
                noise.restore(rng, answer.noise)
            self.counts["decided"] += 1
            return answer
        if not isinstance(answer, str):
            answer, self.heard_at = "unanswered", -math.inf
        self.counts[answer] += 1
        return None

    # --- link's thread ----------------------------------------------------------------------------------------------

    def welcomed(self, welcome: m.Welcome) -> None:
        """A session begins."""
        with self._changed:
            self.heard_at, self.stopped = self._clock.now(), ""

    def received(self, message: m.Message, frames: list[Frame]) -> None:
        """A message of the server."""
        with self._changed:
            self.heard_at = self._clock.now()
            if isinstance(message, m.Decision):
                self._take(message, frames)
            elif isinstance(message, m.Stop):
                self.stopped = message.reason or "it has left"
            self._changed.notify_all()

    def outgoing(self, room: int) -> Iterable[Parts]:
        """The request, if it was not sent."""
        with self._changed:
            unsent, self._unsent = self._unsent, []
        return [unsent] if unsent else []

    def pulse(self) -> m.Pulse:
        """The heartbeat."""
        return m.Pulse()

    def position(self) -> tuple[int, int]:
        """Rows are none of a policy server's business."""
        return 0, 0

    def _end(self) -> Answer | str | None:
        """Nothing is asked any more: what was answered until now."""
        self._lanes, self._unsent = 0, []
        return self._answer

    def _take(self, head: m.Decision, frames: list[Frame]) -> None:
        if not self._lanes or head.number != self._number:
            self.counts["discarded"] += 1
            return
        if head.reason:
            self._answer = head.reason[:32]
            return
        shapes = decided_shapes(self._spec, sampled=bool(head.noise))
        if len(frames) != len(shapes):
            raise WireError("arity", f"a decision of {len(frames)} frames, expected {len(shapes)}")
        arrays = [
            np.array(take_array(frame, "<f4", (self._lanes, *shape), name))
            for frame, (name, shape) in zip(frames, shapes.items(), strict=True)
        ]
        if head.noise:
            noise.unpack(head.noise)  # refused here, where it is counted
        found = arrays[0] if len(arrays) == 1 else Decided(*arrays)
        self._answer = Answer(head.number, found, Version(head.learner, head.epoch, head.step), head.noise)
