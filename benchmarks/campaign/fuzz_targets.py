"""What is fuzzed, each without sockets and with the very classes that serve: the codec, an actor's session, a buffer's service.

Each takes one message, honest or not, and says whether any of it was accepted. What must not be is raised: any exception but a
refusal, anything accepted that does not encode to the bytes it came as, a state that contradicts itself.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import numpy as np

from campaign import honest
from headrace.actor.outbox import Outbox
from headrace.actor.store import Memory
from headrace.actor.uplink import Uplink
from headrace.buffer.config import PoolConfig, SamplingConfig
from headrace.buffer.epochs import Epochs
from headrace.buffer.pacing import Pacing, PacingConfig
from headrace.buffer.pool import SACReplayPool
from headrace.buffer.service import Service
from headrace.buffer.shelf import Shelf
from headrace.buffer.status import Watch
from headrace.buffer.worker import PoolWorker
from headrace.common.clock import ManualClock
from headrace.common.errors import CountedRefusal, SpecError, WireError
from headrace.common.specs import TransitionSpec
from headrace.common.weights import WeightSet
from headrace.common.wire import codec, compression
from headrace.common.wire import messages as m
from headrace.common.wire.deflate import plain
from headrace.common.wire.fleet import Fleet
from headrace.common.wire.fragments import Joiner
from headrace.common.wire.network import NetworkConfig
from headrace.common.wire.session import ClientSession, Phase

Parts = list[bytes]
SPEC = honest.SPEC
NETWORK = NetworkConfig(fragment_bytes=honest.FRAGMENT_BYTES, message_bytes=1 << 24, credit_bytes=1 << 20)
WHO = {b"M": ("actor", "m"), b"L": ("learner", "l"), b"E": ("evaluator", "e"), b"O": ("observer", "o")}
STRANGE_EVERY, PULSE_EVERY = 16, 50  # messages


class Wrong(Exception):
    """Something was accepted, or came to be, that must not."""


class Target(Protocol):
    """One thing that is fuzzed."""

    honest: list[Parts]

    def feed(self, parts: Parts, origin: int) -> bool:
        """Take a message that was made from ``honest[origin]``; whether any of it was accepted."""
        ...

    def look(self) -> None:
        """Whether all is as it must be; raises :class:`Wrong`."""
        ...


class Codec:
    """Headers and what follows them, as either side reads them."""

    def __init__(self) -> None:
        self.honest = [*honest.of_actors(), *honest.of_learners()]
        self.honest += [*honest.of_evaluators(), *honest.of_observers(), *honest.of_buffers()]
        self._joiner = Joiner(NETWORK.message_bytes)

    def feed(self, parts: Parts, origin: int) -> bool:
        """Decode, parse, and encode again what was accepted."""
        try:
            message, frames = codec.decode(parts[0] if parts else b""), list(parts[1:])
            if isinstance(message, m.Compressed):
                message, frames = compression.expand(message, frames, NETWORK.message_bytes)
            codec.check_sender(message, frames, message.SENDERS[0])
            header = codec.encode(message)
            if codec.encode(codec.decode(header)) != header:
                raise Wrong(f"{message} does not stay what it is")
            self._parse(message, [plain(frame) for frame in frames])
        except CountedRefusal:
            return False
        except SpecError:
            return False
        return True

    def look(self) -> None:
        """There is nothing to look at."""

    def _parse(self, message: m.Message, frames: list[bytes | memoryview]) -> None:
        if isinstance(message, m.BlockHead):
            block = codec.parse_block(message, frames, SPEC)
            block.check(SPEC)
            _same(codec.block_parts(message, block, SPEC)[1:], frames)
        elif isinstance(message, m.LabelHead):
            label = codec.parse_label(message, frames, SPEC)
            label.check(SPEC)
            _same(codec.label_parts(message.number, label)[1:], frames)
        elif isinstance(message, m.Publish):
            self._unpack(bytes(frames[0]))
        elif isinstance(message, m.Hello) and message.spec is not None:
            spec = TransitionSpec.from_dict(message.spec)
            if TransitionSpec.from_dict(spec.to_dict()) != spec:
                raise Wrong(f"{spec} does not stay what it is")
        elif isinstance(message, m.Fragment):
            self._joiner.add(message, frames[0])

    @staticmethod
    def _unpack(blob: bytes) -> None:
        signed = blob[:-32] + hashlib.sha256(blob[:-32]).digest()  # whoever forges a weight set forges its digest too
        weights = WeightSet.unpack(signed)
        again = WeightSet.unpack(weights.pack())
        if again.version != weights.version or again.fingerprint() != weights.fingerprint():
            raise Wrong(f"weights {weights.version} do not stay what they are")


class Session:
    """An actor's side of a session, told lies by its buffer."""

    def __init__(self) -> None:
        self.honest = honest.of_buffers()
        self._clock = ManualClock()
        self._number = 0
        self._begin()

    def _begin(self) -> None:
        hello = codec.decode(honest.hello("actor", "a", b"1")[0])
        if not isinstance(hello, m.Hello):
            raise Wrong("a hello is none")
        self._session = ClientSession(hello, NETWORK, "tcp://x:1", self._clock.now())
        self._uplink = Uplink(SPEC, Outbox(Memory(1 << 20)), 512, self._clock)
        self._sent = 0  # rows

    def feed(self, parts: Parts, origin: int) -> bool:
        """As the link takes a message, and as the control loop goes on meanwhile."""
        self._number += 1
        before = self._uplink.unacknowledged
        message = self._take(parts)
        settled = before - self._uplink.unacknowledged
        if settled > 0 and (message is None or _answered(message) > self._sent):
            raise Wrong(f"{settled} blocks were given up for {message}, and rows up to {self._sent} were sent")
        if self._number % 8 == 0:
            self._go_on()
        return message is not None

    def _take(self, parts: Parts) -> m.Message | None:
        try:
            message, frames = codec.decode(parts[0] if parts else b""), list[codec.Frame](parts[1:])
            if isinstance(message, m.Compressed):
                message, frames = compression.expand(message, frames, NETWORK.message_bytes)
            codec.check_sender(message, frames, m.BUFFER)
            if not self._session.receive(message, self._clock.now()):
                return None
            if isinstance(message, m.Welcome):
                TransitionSpec.from_dict(message.spec)
                self._uplink.welcomed(message)
            else:
                self._uplink.received(message, frames)
        except (CountedRefusal, SpecError):
            return None
        return message

    def _go_on(self) -> None:
        self._clock.advance(0.01)
        self._session.tick(self._clock.now())
        if self._session.phase is Phase.ENDED or self._uplink.stop is not None:
            self._begin()
        self._uplink.offer(honest.rows(2), 0.0)
        room = self._session.room()
        if room > NETWORK.credit_bytes:
            raise Wrong(f"{room} bytes of credit, its own bound is {NETWORK.credit_bytes}")
        for parts in self._uplink.outgoing(room):
            self._session.sent(sum(map(len, parts)))
            message = codec.decode(parts[0])
            if isinstance(message, m.BlockHead):
                self._sent = max(self._sent, message.seq + message.rows - 1)
        codec.decode(codec.encode(self._uplink.pulse()))

    def look(self) -> None:
        """Whatever weights were taken are whole and finite."""
        weights = self._uplink.take_weights()
        if weights is not None and weights.first_non_finite() is not None:
            raise Wrong("weights that are not finite were taken")


class BufferService:
    """A buffer's service with a pool that samples by priority; beside the liar there are an honest actor and a learner.

    Args:
        directory: of the pool, empty.
    """

    def __init__(self, directory: Path) -> None:
        by_peer = {b"M": honest.of_actors(), b"L": honest.of_learners()}
        by_peer |= {b"E": honest.of_evaluators(), b"O": honest.of_observers()}
        self.honest = [parts for messages in by_peer.values() for parts in messages]
        self._senders = [peer for peer, messages in by_peer.items() for _ in messages]
        config, rng = PoolConfig(capacity=512, max_actors=8), np.random.default_rng(0)
        sampling = SamplingConfig("prioritised")

        def make(spec: TransitionSpec) -> SACReplayPool:
            return SACReplayPool(512, path=directory, spec=spec, config=config, sampling=sampling, rng=rng)

        self._now, self._number, self._seq = 0.0, 0, 1
        self._worker = PoolWorker(None, make, Shelf(directory))
        fleet = Fleet(Epochs(None), lease_s=NETWORK.lease_s, heartbeat_s=NETWORK.heartbeat_s, most=16)
        pacing = Pacing(PacingConfig(min_fill=8, env_steps=0, random_steps=0))
        watch = Watch("fuzz", self._now)
        self._service = Service(fleet, pacing, NETWORK, watch, self._worker.totals(), self._worker.shelf, 8)
        for _ in range(2):  # the first opens the pool
            self._say(b"A", honest.hello("actor", "honest", b"1"))
        self._pulse()

    def feed(self, parts: Parts, origin: int) -> bool:
        """From a peer with a session that may send such messages, now and then from one without."""
        self._number += 1
        peer = b"X" if self._number % STRANGE_EVERY == 0 else self._senders[origin]
        if peer in WHO and self._service.fleet.find(peer, self._now) is None:
            self._say(peer, honest.hello(*WHO[peer], peer))
        before = self._refusals()
        self._say(peer, parts)
        if self._service.refused.by_reason["defect"]:
            raise Wrong("a message found a defect; the log has it")
        if self._number % PULSE_EVERY == 0:
            self._pulse()
        return before == self._refusals()

    def _refusals(self) -> int:
        return self._service.refused.by_reason.total() + self._service.rejected.by_reason.total()

    def look(self) -> None:
        """The honest actor is acknowledged, and the pool, the fleet and the status are sound."""
        answers = self._say(b"A", honest.block(self._seq))
        self._seq += 4
        if m.Ack(1, self._seq - 1) not in answers:
            raise Wrong(f"rows up to {self._seq - 1} of the honest actor are not acknowledged: {answers[:3]}")
        pool = self._worker.pool
        sound = [self._service.fleet.check_valid(), self._service.pacing.check_valid()]
        sound += [] if pool is None else [pool.check_valid()]
        for valid, why in sound:
            if not valid:
                raise Wrong(why)
        self._service.watch.status_json(self._service, self._now)

    def close(self) -> None:
        """Close the pool."""
        self._worker.close()

    def _pulse(self) -> None:
        self._now += NETWORK.heartbeat_s
        if not self._service.fleet.find(b"A", self._now):
            self._say(b"A", honest.hello("actor", "honest", b"1"))
        self._say(b"A", [codec.encode(m.Pulse())])
        self._decoded(self._service.tick(self._now))

    def _say(self, peer: bytes, parts: Parts) -> list[m.Message]:
        out = self._service.receive(peer, parts, self._now) + self._service.reception.admit()
        while work := self._service.take_work():
            out += self._service.finish(*self._worker.run(work), self._now)
        return self._decoded(out)

    @staticmethod
    def _decoded(out: list[tuple[bytes, codec.Parts]]) -> list[m.Message]:
        try:
            return [codec.decode(parts[0]) for _, parts in out]
        except WireError as error:
            raise Wrong(f"an answer that nobody can read: {error}") from error


def _answered(message: m.Message) -> int:
    """Up to which row it says that the buffer knows them."""
    if isinstance(message, m.Ack):
        return message.seq
    return message.last if isinstance(message, m.Reject) else 0


def _same(again: list[codec.Raw], frames: list[codec.Raw]) -> None:
    if [bytes(part) for part in again] != [bytes(frame) for frame in frames]:
        raise Wrong("what was accepted does not encode to the bytes it came as")


TARGETS: dict[str, Callable[[Path], Target]] = {
    "codec": lambda place: Codec(),
    "session": lambda place: Session(),
    "service": BufferService,
}
