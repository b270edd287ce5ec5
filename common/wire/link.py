"""A client's connection: one thread that owns the socket and drives a session and a role, both without I/O."""

from __future__ import annotations

import logging
import math
import os
import socket as stdlib_socket
import threading
from collections import deque
from collections.abc import Iterable
from dataclasses import replace
from typing import Protocol

import zmq

from headrace.common.clock import Clock
from headrace.common.errors import ConfigError, DeadlineExceeded, HeadraceError, WireError
from headrace.common.specs import TransitionSpec
from headrace.common.throttle import Throttle
from headrace.common.wire import compression, fragments
from headrace.common.wire.codec import Frame, Parts, check_sender, decode, encode
from headrace.common.wire.dialled import Dialled
from headrace.common.wire.fields import printable
from headrace.common.wire.key_files import own_secret
from headrace.common.wire.messages import BUFFER, PROTOCOL, Compressed, Declined, Goodbye, Hello, Message, Pulse, Welcome
from headrace.common.wire.network import NetworkConfig
from headrace.common.wire.session import ClientSession, Phase

LOG = logging.getLogger(__name__)
MAX_TAKE = 256
MAX_POLL_S = 0.2
GOODBYE_S = 1.0
ZERO_COPY_BYTES = 1 << 16


class Role(Protocol):
    """What a client does with its session; every call comes from the link's thread."""

    def welcomed(self, welcome: Welcome) -> None:
        """A session has begun (the first, or after a loss)."""
        ...

    def received(self, message: Message, frames: list[Frame]) -> None:
        """A message of the buffer; raise :class:`WireError` to refuse it."""
        ...

    def outgoing(self, room: int) -> Iterable[Parts]:
        """Messages to send now; the last one may exceed ``room`` bytes and is then cut to fit."""
        ...

    def pulse(self) -> Pulse:
        """The heartbeat."""
        ...

    def position(self) -> tuple[int, int]:
        """Env steps executed by this process, and those of them not yet acknowledged (0, 0 for others)."""
        ...


def new_hello(role: str, identity: str, **fields: object) -> Hello:
    """A hello of this process, with a fresh incarnation."""
    host = stdlib_socket.gethostname()[:255]
    return Hello(PROTOCOL, role, identity, os.urandom(16), host, os.getpid(), **fields)  # type: ignore[arg-type]  # fields of Hello


class Link:
    """The thread between a role and its buffer, or whom else it dials.

    Args:
        hello: of this process.
        role: what it does with its session.
        endpoint: where the buffer listens.
        network: limits and times.
        clock: of the session.
        listener: who is dialled.
        zero_copy: whether large messages are sent without a copy; pyzmq then keeps a thread to the end of the process.

    Raises:
        ConfigError: ``network.keys`` holds no key for the role and id of ``hello``.
    """

    def __init__(
        self,
        hello: Hello,
        role: Role,
        endpoint: str,
        network: NetworkConfig,
        clock: Clock,
        *,
        listener: str = BUFFER,
        zero_copy: bool = True,
    ) -> None:
        self._role, self._endpoint, self._clock, self._listener = role, endpoint, clock, listener
        self._secret = own_secret(network, hello.role, hello.id, listener)
        self._copied = ZERO_COPY_BYTES if zero_copy else math.inf  # messages below are
        hello = replace(hello, compression=network.compression)
        self.session = ClientSession(hello, network, endpoint, clock.now())
        if self._secret is not None:
            self.session.waiting += f", which is silent to keys that it does not know (ours is that of {self._secret.name!r})"
        self._widths: tuple[int, ...] = ()  # by which messages are shuffled; none, and messages are not compressed
        self._network = network
        self._refused, self._declined = Throttle(), Throttle()
        self._failure: BaseException | None = None
        self._queue: deque[Parts] = deque()
        self._stop: Goodbye | None = None
        self._changed = threading.Condition()
        self._wake_read, self._wake_write = stdlib_socket.socketpair()
        self._wake_read.setblocking(False)
        self._wake_write.setblocking(False)
        self._woken = False  # set by whoever wakes, reset by the thread before it looks what there is to send
        self._thread = threading.Thread(target=self._run, name="headrace-link", daemon=True)

    def start(self) -> None:
        """Start dialling."""
        self._thread.start()

    def wake(self) -> None:
        """Tell the thread that the role has something to send."""
        if not self._woken:
            self._woken = True
            self._wake_write.send(b"\0")

    def check(self) -> None:
        """Raise what ended the session for good, if anything did."""
        if self._failure is not None:
            raise self._failure
        if self.session.failure is not None:
            raise self.session.failure

    def wait_welcome(self, deadline_s: float) -> Welcome:
        """Wait for the session; raises what refused it, or :class:`DeadlineExceeded` with the reason for waiting."""
        end = self._clock.now() + deadline_s
        while True:
            self.check()
            if self.session.phase is Phase.LIVE and self.session.welcome is not None:
                return self.session.welcome
            left = end - self._clock.now()
            if left <= 0:
                raise DeadlineExceeded(f"no session within {deadline_s:g} s: {self.session.waiting}")
            with self._changed:
                self._changed.wait(min(left, MAX_POLL_S))

    def close(self, goodbye: Goodbye) -> None:
        """Say goodbye if there is a session, and end the thread."""
        self._stop = goodbye
        self.wake()
        if self._thread.is_alive():
            self._thread.join(GOODBYE_S + 2.0)
        self._wake_read.close()
        self._wake_write.close()

    def _run(self) -> None:
        try:
            connection = Dialled(self._endpoint, self._network, self._secret)
            try:
                self._loop(connection)
            finally:
                connection.close(self._leave(connection.socket))
        except BaseException as error:
            self._failure = error
            if not isinstance(error, HeadraceError):
                LOG.exception("the connection thread ended by a defect")
        finally:
            with self._changed:
                self._changed.notify_all()

    def _leave(self, socket: zmq.Socket[bytes]) -> float:
        """Say goodbye if there is a session; how long that may take (s)."""
        if self._stop is None or self.session.phase is not Phase.LIVE:
            return 0.0
        self._send(socket, [encode(self._stop)])
        return GOODBYE_S

    def _loop(self, connection: Dialled) -> None:
        socket, pulse_at = connection.socket, 0.0
        while self._stop is None:
            now = self._clock.now()
            if self.session.overdue(now):
                self.session.arriving(now - connection.line.quiet_s())
            hello = self.session.tick(now)
            if self.session.reconnect:
                self.session.reconnect, hello = False, None
                connection.hang_up()
                self.session.unsent(now)
            if self.session.phase is Phase.ENDED:
                break
            if hello is not None:
                connection.look()  # a session that begins anew has mostly another connection
                self._queue.clear()
                executed, pending = self._role.position()
                if not self._send(socket, [encode(replace(hello, executed=executed, pending=pending))]):
                    self.session.unsent(now)
            if self.session.phase is Phase.LIVE and now >= pulse_at:
                pulse_at = now + self._network.heartbeat_s
                self._send(socket, [encode(self._role.pulse())])
            self._pump(socket)
            due = pulse_at - now if self.session.phase is Phase.LIVE else self.session.hello_in(now)
            self._poll(socket, max(0.0, min(MAX_POLL_S, due)))
            self._take(socket)

    def _pump(self, socket: zmq.Socket[bytes]) -> None:
        room = self.session.room()
        while room > 0:
            if not self._queue:
                for message in self._role.outgoing(room):
                    self._check_size(message)
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

    def _check_size(self, message: Parts) -> None:
        welcome, size = self.session.welcome, fragments.size_of(message)
        if welcome is not None and size > welcome.message_bytes:
            raise ConfigError(
                f"network.message_bytes: {welcome.message_bytes} at the buffer is below a message of {size} bytes that this"
                f" process has to send; nearest valid: {size}"
            )

    def _poll(self, socket: zmq.Socket[bytes], seconds: float) -> None:
        poller = zmq.Poller()
        poller.register(socket, zmq.POLLIN)
        poller.register(self._wake_read.fileno(), zmq.POLLIN)
        for source, _ in poller.poll(int(seconds * 1000) + 1):
            if source == self._wake_read.fileno():
                self._wake_read.recv(4096)
                self._woken = False

    def _take(self, socket: zmq.Socket[bytes]) -> None:
        for _ in range(MAX_TAKE):
            try:
                frames = socket.recv_multipart(zmq.NOBLOCK, copy=False)
            except zmq.Again:
                return
            parts: Parts = [f.buffer for f in frames]
            try:
                message, inside = self._open(parts)
                if not self.session.receive(message, self._clock.now()):
                    continue
                if isinstance(message, Declined) and (n := self._declined.count(self._clock.now())):
                    LOG.warning(
                        "the %s declined %d messages, the last one: %s", self._listener, n, message.detail or message.reason
                    )
                if isinstance(message, Welcome):
                    self._queue.clear()
                    self._welcomed(message)
                else:
                    self._role.received(message, inside)
            except WireError as error:
                if n := self._refused.count(self._clock.now()):
                    LOG.warning("%d messages of the %s refused, the last one: %s", n, self._listener, printable(str(error)))
            finally:
                with self._changed:
                    self._changed.notify_all()

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

    def _send(self, socket: zmq.Socket[bytes], parts: Parts) -> bool:
        try:
            socket.send_multipart(parts, zmq.NOBLOCK, copy=fragments.size_of(parts) < self._copied)
        except zmq.Again:
            return False
        return True
