"""The conversation: what a client says on its connection and does with what comes, turn by turn, whoever waits in between."""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Iterable
from dataclasses import replace
from typing import Protocol

import zmq

from headrace.common.clock import Clock
from headrace.common.errors import ConfigError, WireError
from headrace.common.specs import TransitionSpec
from headrace.common.throttle import Throttle
from headrace.common.wire import compression, fragments
from headrace.common.wire.codec import Frame, Parts, check_sender, decode, encode
from headrace.common.wire.dialled import Dialled
from headrace.common.wire.fields import printable
from headrace.common.wire.messages import Compressed, Declined, Goodbye, Hello, Message, Welcome
from headrace.common.wire.network import NetworkConfig
from headrace.common.wire.session import ClientSession, Phase

LOG = logging.getLogger(__name__)
MAX_TAKE = 256
ZERO_COPY_BYTES = 1 << 16


class Role(Protocol):
    """What a client does with its session; every call comes from the thread that owns the connection."""

    def welcomed(self, welcome: Welcome) -> None:
        """A session has begun (the first, or after a loss)."""
        ...

    def received(self, message: Message, frames: list[Frame]) -> None:
        """A message of the buffer; raise :class:`WireError` to refuse it."""
        ...

    def outgoing(self, room: int) -> Iterable[Parts]:
        """Messages to send now; the last one may exceed ``room`` bytes and is then cut to fit."""
        ...

    def pulse(self) -> Message:
        """The heartbeat."""
        ...

    def position(self) -> tuple[int, int]:
        """Env steps executed by this process, and those of them not yet acknowledged (0, 0 for others)."""
        ...


class Conversation:
    """A session and a role on one connection after the other.

    Attributes:
        session: where it stands.

    Args:
        hello: of this process.
        role: what it does with its session.
        endpoint: where the buffer listens.
        network: limits and times.
        clock: of the session.
        listener: who is dialled.
        zero_copy: whether large messages are sent without a copy; pyzmq then keeps a thread to the end of the process.
    """

    def __init__(
        self, hello: Hello, role: Role, endpoint: str, network: NetworkConfig, clock: Clock, listener: str, *, zero_copy: bool
    ) -> None:
        self._role, self._network, self._clock, self._listener = role, network, clock, listener
        self._copied = ZERO_COPY_BYTES if zero_copy else math.inf  # messages below are
        hello = replace(hello, compression=network.compression)
        self.session = ClientSession(hello, network, endpoint, clock.now())
        self._pulse_at = 0.0
        self._widths: tuple[int, ...] = ()  # by which messages are shuffled; none, and messages are not compressed
        self._refused, self._declined = Throttle(), Throttle()
        self._queue: deque[Parts] = deque()

    def speak(self, connection: Dialled) -> float:
        """Say what is due; seconds until something is due again, if nothing comes meanwhile."""
        socket, now = connection.socket, self._clock.now()
        if self.session.overdue(now):
            self.session.arriving(now - connection.line.quiet_s())
        hello = self.session.tick(now)
        if self.session.reconnect:
            self.session.reconnect, hello = False, None
            connection.hang_up()
            self.session.unsent(now)
        if self.session.phase is Phase.ENDED:
            return math.inf
        if hello is not None:
            connection.look()  # a session that begins anew has mostly another connection
            self._queue.clear()
            executed, pending = self._role.position()
            if not self._send(socket, [encode(replace(hello, executed=executed, pending=pending))]):
                self.session.unsent(now)
        if self.session.phase is Phase.LIVE and now >= self._pulse_at:
            self._pulse_at = now + self._network.heartbeat_s
            self._send(socket, [encode(self._role.pulse())])
        self._pump(socket)
        return self._pulse_at - now if self.session.phase is Phase.LIVE else self.session.hello_in(now)

    def hear(self, socket: zmq.Socket[bytes]) -> bool:
        """Take what came, a bounded number of messages; whether anything did."""
        for taken in range(MAX_TAKE):
            try:
                frames = socket.recv_multipart(zmq.NOBLOCK, copy=False)
            except zmq.Again:
                return taken > 0
            try:
                self._take([f.buffer for f in frames])
            except WireError as error:
                if n := self._refused.count(self._clock.now()):
                    LOG.warning("%d messages of the %s refused, the last one: %s", n, self._listener, printable(str(error)))
        return True

    def leave(self, socket: zmq.Socket[bytes], goodbye: Goodbye) -> bool:
        """Say goodbye; false where there is no session to end."""
        if self.session.phase is not Phase.LIVE:
            return False
        self._send(socket, [encode(goodbye)])
        return True

    def _take(self, parts: Parts) -> None:
        message, inside = self._open(parts)
        if not self.session.receive(message, self._clock.now()):
            return
        if isinstance(message, Declined) and (n := self._declined.count(self._clock.now())):
            LOG.warning("the %s declined %d messages, the last one: %s", self._listener, n, message.detail or message.reason)
        if isinstance(message, Welcome):
            self._queue.clear()
            self._welcomed(message)
        else:
            self._role.received(message, inside)

    def _open(self, parts: Parts) -> tuple[Message, list[Frame]]:
        message, frames = decode(parts[0]), list[Frame](parts[1:])
        if isinstance(message, Compressed):
            if not self._widths:
                raise WireError("compressed", "this session agreed on no compression")
            message, frames = compression.expand(message, frames, self._network.message_bytes)
        check_sender(message, frames, self._listener)
        return message, frames

    def _welcomed(self, welcome: Welcome) -> None:
        spoken = welcome.compression == self._network.compression == compression.ZLIB
        self._widths = compression.widths(TransitionSpec.from_dict(welcome.spec)) if spoken else ()
        self._role.welcomed(welcome)

    def _pump(self, socket: zmq.Socket[bytes]) -> None:
        room = self.session.room()
        while room > 0:
            if not self._queue:
                for message in self._role.outgoing(room):
                    self.check_size(message)
                    packed = compression.compress(message, self._widths) if self._widths else message
                    self._queue.extend(fragments.split(packed, self._network.fragment_bytes))
                if not self._queue:
                    return
            parts = self._queue[0]
            if not self._send(socket, parts):
                return
            self._queue.popleft()
            self.session.sent(fragments.size_of(parts))
            room = self.session.room()

    def check_size(self, message: Parts) -> None:
        """Refuse a message that the buffer takes from nobody; raises :class:`ConfigError` with its size."""
        welcome, size = self.session.welcome, fragments.size_of(message)
        if welcome is not None and size > welcome.message_bytes:
            raise ConfigError(
                f"network.message_bytes: {welcome.message_bytes} at the buffer is below a message of {size} bytes that this"
                f" process has to send; nearest valid: {size}"
            )

    def _send(self, socket: zmq.Socket[bytes], parts: Parts) -> bool:
        try:
            socket.send_multipart(parts, zmq.NOBLOCK, copy=fragments.size_of(parts) < self._copied)
        except zmq.Again:
            return False
        return True
