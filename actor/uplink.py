"""The uplink: what an actor or evaluator says to its buffer, shared between the control loop and the link's thread."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from headrace.actor.byte_rate import ByteRate
from headrace.actor.outbox import Outbox
from headrace.actor.weights import WeightInbox
from headrace.common.block import Block
from headrace.common.clock import Clock, MonotonicClock
from headrace.common.errors import WireError
from headrace.common.label import VERDICTS, Label
from headrace.common.specs import TransitionSpec
from headrace.common.throttle import Throttle
from headrace.common.weights import NO_VERSION, Version, WeightSet
from headrace.common.wire import messages as m
from headrace.common.wire.codec import Frame, Parts, Raw, block_parts, encode, label_parts
from headrace.common.wire.fragments import size_of

LOG = logging.getLogger(__name__)
MAX_EVENTS, EVENT_BYTES = 1000, 4 << 20
MAX_WORDS = 64


@dataclass(frozen=True)
class Allowance:
    """How far this process may go: env steps since its start, of which the first ``random`` act at random."""

    granted: int = 0
    random: int = 0
    final: bool = False


@dataclass(frozen=True)
class Counts:
    """Env steps of this process by what became of them: ``executed`` is the sum of all the others.

    Attributes:
        executed: by this process, and what it found in its spool.
        acknowledged: committed in the pool, for all that the buffer has said.
        rejected: refused by the buffer for what they hold.
        waiting: kept until the buffer acknowledges them; under way to it or not.
        dropped: given up for want of room, as ``actor.when_full`` says.
        damaged: the spool could not give them back.
        unsent: not handed over yet; when a process ends these are abandoned.
    """

    executed: int
    acknowledged: int
    rejected: int
    waiting: int
    dropped: int
    damaged: int
    unsent: int


class Uplink:
    """The role of actors and evaluators on a link.

    The control loop calls the methods of the first group, the link's thread those of the second.

    Args:
        spec: what rows look like.
        outbox: keeps unacknowledged blocks.
        part_bytes: length of one range of weights, and bound of what short blocks are joined to.
        clock: the control loop's.
        drain_bytes_per_s: most bytes of blocks that are sent in a second; 0: no limit.

    Attributes:
        heard_at: when the buffer said anything last.
        paused: whether people have paused the run, for all that the buffer has said.
        due_steps: env steps of the run behind the newest weights after which pacing and the learner owe newer ones.
    """

    def __init__(
        self,
        spec: TransitionSpec,
        outbox: Outbox,
        part_bytes: int,
        clock: Clock | None = None,
        drain_bytes_per_s: float = 0.0,
    ) -> None:
        self._spec, self._clock = spec, clock or MonotonicClock()
        self._outbox, self._inherited = outbox, outbox.steps + outbox.damaged
        self._rate = ByteRate(drain_bytes_per_s, self._clock.now())
        self._labels = outbox.labels
        self._part_bytes = part_bytes
        self.inbox = WeightInbox(part_bytes)
        self.follows = True  # whether weights are fetched: not where somebody else decides
        self._changed = threading.Condition()
        self._allowance = Allowance()
        self._version = NO_VERSION
        self._events: list[Parts] = []
        self._event_bytes = 0
        self._executed = self._settled = self._rejected = 0
        self._stop: m.Stop | None = None
        self._words: list[str] = []
        self.paused = False
        self.refused_labels = self._declined = 0
        self.dropped_labels = self._labels.damaged
        self._told = Throttle()
        self.missed = 0  # env steps that did not even become rows, for want of room
        self.env_steps = 0
        self.about: dict[str, Any] = {}  # what heartbeats tell besides
        self.heard = 0  # states of the buffer
        self.heard_at = self._clock.now()
        self._acted, self._owed = 0, False
        self.due_steps = 0
        self._newest, self._newest_at = (0, 0), 0  # weights that were announced, and the run's env steps by then
        self._in_step_since: float | None = None

    # --- control loop -----------------------------------------------------------------------------------------------

    def offer(self, block: Block, timeout_s: float) -> int:
        """Hand a block over; its ``priorities`` stay with it until it is acknowledged.

        Returns:
            Seq of its first row in this uplink's stream; 0 when the outbox stayed full for ``timeout_s`` (s), so that the
            block was not taken.

        Raises:
            OutboxFull: as ``actor.when_full`` asks for.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: self._outbox.make_room(block.nbytes), timeout_s):
                return 0
        item = self._outbox.keep(block, self._spec.fresh_steps(block.rows))  # a disk takes time, and nobody is to wait for it
        with self._changed:
            return self._outbox.add(item)

    def label(self, label: Label) -> bool:
        """Say something about rows of this uplink's stream that were offered, whatever stream ``label`` names.

        It is sent behind its rows, and again in each session until the buffer has answered; where what waits outlives the
        process, in its successors' too. False, and counted, when too many labels wait.

        Raises:
            LabelRefused: no row could take it.
        """
        label.check(self._spec)
        with self._changed:
            if not self._labels.has_room(label):
                self.dropped_labels += 1
                return False
        place = self._labels.keep(label)  # a disk takes time, and nobody is to wait for it
        with self._changed:
            self._labels.add(label, place)
        return True

    def executed(self, steps: int) -> None:
        """``steps`` more env steps were executed."""
        self._executed += steps
        self._acted = self.acted + steps if self._owed else 0

    @contextlib.contextmanager
    def in_step(self) -> Iterator[None]:
        """While this is open the control loop waits for its envs, and heartbeats say for how long."""
        self._in_step_since = self._clock.now()
        try:
            yield
        finally:
            self._in_step_since = None

    @property
    def acted(self) -> int:
        """Env steps by the weights that act now since newer ones are there or due; 0 while neither is so."""
        return self._acted if self._owed else 0

    @property
    def steps(self) -> int:
        """Env steps executed so far."""
        return self._executed

    @property
    def allowance(self) -> Allowance:
        """The newest allowance."""
        return self._allowance

    @property
    def stop(self) -> m.Stop | None:
        """The buffer's request to end, if there was one."""
        return self._stop

    def wait(self, timeout_s: float) -> None:
        """Wait for news of the buffer, at most ``timeout_s``."""
        with self._changed:
            self._changed.wait(timeout_s)

    def take_weights(self, *, ema: bool = False) -> WeightSet | None:
        """The newest weights that were not taken yet, complete and verified: the policy, or its average.

        Raises:
            SpecError: the learner makes no average.
        """
        if self.inbox.newest is None:
            return None
        with self._changed:
            return self.inbox.take(ema=ema)

    def applied(self, version: Version) -> None:
        """The control loop acts on this version now."""
        self._version, self._acted = version, 0

    def take_words(self) -> list[str]:
        """Words that were said to this actor from elsewhere, and not taken yet."""
        with self._changed:
            words, self._words = self._words, []
        return words

    def event(self, message: m.Message, *frames: Raw) -> None:
        """Send a message that may be lost (episode ends, evaluations)."""
        with self._changed:
            parts: Parts = [encode(message), *frames]
            if len(self._events) < MAX_EVENTS and self._event_bytes + size_of(parts) <= EVENT_BYTES:
                self._events.append(parts)
                self._event_bytes += size_of(parts)

    @property
    def next_episode(self) -> int:
        """Number of the first episode of this process."""
        return self._outbox.next_episode

    @property
    def outlives(self) -> bool:
        """Whether what waits outlives the process."""
        return self._outbox.outlives

    @property
    def stream(self) -> int:
        """Number of the stream; 0 before the first welcome."""
        return self._outbox.stream

    @property
    def counts(self) -> Counts:
        """What became of the steps so far."""
        with self._changed:
            box = self._outbox
            executed = self._executed + self.missed + self._inherited
            known = (self._settled - self._rejected, self._rejected, box.steps, box.dropped + self.missed, box.damaged)
            return Counts(executed, *known, executed - sum(known))

    @property
    def unacknowledged(self) -> int:
        """Blocks and labels that the buffer has not acknowledged."""
        return len(self._outbox) + len(self._labels)

    def close(self) -> None:
        """Close the outbox; the link has ended."""
        self._outbox.close()

    # --- link's thread ----------------------------------------------------------------------------------------------

    def welcomed(self, welcome: m.Welcome) -> None:
        """Start or go on with a session: forget what is acknowledged, send the rest again."""
        with self._changed:
            self.heard_at = self._clock.now()
            self._labels.rewind()
            self.inbox.fetch.restart()
            self._changed.notify_all()
            self._settled += self._outbox.welcomed(welcome.epoch, welcome.pool, dict(welcome.streams))

    def received(self, message: m.Message, frames: list[Frame]) -> None:
        """A message of the buffer."""
        with self._changed:
            self.heard_at = self._clock.now()
            if isinstance(message, m.State):
                self._allowance = Allowance(message.granted, message.random, message.final)
                self.env_steps, self.heard = message.env_steps, self.heard + 1
                self._owed, self.paused = self._are_owed(message), message.phase == m.PAUSED
                if self.follows:
                    self.inbox.fetch.announced(message)
            elif isinstance(message, m.Ack) and message.stream == self._outbox.stream:
                self._settled += self._outbox.acknowledge(message.seq)
            elif isinstance(message, m.Reject) and message.stream == self._outbox.stream:
                self._settled += self._outbox.acknowledge(message.last)
                self._rejected += max(0, message.last - message.first + 1)
            elif isinstance(message, m.Labelled):
                if self._labels.answered(message.number) and message.reason:
                    self.refused_labels += 1
                    if n := self._told.count(self._clock.now()):
                        LOG.warning("%d labels were refused, the last one: %s", n, message.detail or message.reason)
            elif isinstance(message, m.Declined):
                self._declined += 1
            elif isinstance(message, m.WeightsPart):
                self.inbox.put(message, frames)
            elif isinstance(message, m.Word):
                if message.word not in VERDICTS:  # whoever is beside a robot arms it, and nobody else
                    raise WireError("word", f"{message.word!r} is none of {', '.join(VERDICTS)}")
                self._words = [*self._words, message.word][-MAX_WORDS:]
            elif isinstance(message, m.Stop):
                self._stop = message
            self._changed.notify_all()

    def _are_owed(self, state: m.State) -> bool:
        """Whether newer weights than those that act are there, or would be if learner and link were well."""
        newest = (state.epoch, state.step)
        if newest != self._newest:
            self._newest, self._newest_at = newest, state.env_steps
        behind = newest != (self._version.epoch, self._version.step)
        return state.phase == "training" and (behind or state.env_steps - self._newest_at >= self.due_steps)

    def outgoing(self, room: int) -> Iterable[Parts]:
        """Requests and events first, then blocks while there is room, and each label as soon as its rows were sent."""
        out: list[Parts] = []
        with self._changed:
            out.extend([encode(get)] for get in self.inbox.fetch.requests())
            out.extend(self._events)
            self._events, self._event_bytes = [], 0
            room -= sum(size_of(parts) for parts in out)
            while room > 0 and (parts := self._next_parts(room)):
                out.append(parts)
                room -= size_of(parts)
        return out

    def _next_parts(self, room: int) -> Parts:
        """The next label or block; empty when there is none."""
        while (label := self._labels.next_unsent(self._outbox.sent_through)) is not None:
            first, last = (self._outbox.on_wire(seq) for seq in (label[1].first, label[1].last))
            if last >= 1:
                return label_parts(label[0], replace(label[1], stream=self._outbox.stream, first=max(first, 1), last=last))
            self._labels.answered(label[0])  # its rows went into another pool, or their numbers were lost
            self.dropped_labels += 1
        if not self._rate.is_open(self._clock.now()):
            return []
        item = self._outbox.next_unsent(min(room, self._part_bytes))
        if item is None:
            return []
        self._rate.spend(item.block.nbytes)
        head = m.BlockHead(self._outbox.stream, item.first, item.block.n_rows, item.block.n_frames)
        return block_parts(head, item.block, self._spec)

    def pulse(self) -> m.Pulse:
        """The heartbeat."""
        since = self._in_step_since
        report: dict[str, Any] = {
            "in_step_s": 0.0 if since is None else round(max(0.0, self._clock.now() - since), 1),
            "spooled_blocks": len(self._outbox),
            "spooled_steps": self._outbox.steps,
            "spooled_bytes": self._outbox.nbytes,
            "dropped_steps": self._outbox.dropped + self.missed,
            "damaged_steps": self._outbox.damaged,
            "rejected": self._rejected,
            "waiting_labels": len(self._labels),
            "refused_labels": self.refused_labels,
            "dropped_labels": self.dropped_labels,
            "declined": self._declined,
            "refused_weights": self.inbox.refused,
            **self.about,
        }
        return m.Pulse(self._executed, self._settled, self._version.epoch, self._version.step, report)

    def position(self) -> tuple[int, int]:
        """Env steps executed, and those not yet settled."""
        return self._executed, max(0, self._executed + self._inherited - self._settled)
