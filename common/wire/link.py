"""A client's connection: one thread that owns the socket and lets a conversation go on, waiting for both sides."""

from __future__ import annotations

import logging
import os
import socket as stdlib_socket
import threading
from dataclasses import replace

import zmq

from headrace.common.clock import Clock
from headrace.common.errors import DeadlineExceeded, HeadraceError
from headrace.common.wire.absence import Absence
from headrace.common.wire.conversation import Conversation, Role
from headrace.common.wire.dialled import Dialled
from headrace.common.wire.key_files import own_secret
from headrace.common.wire.messages import BUFFER, PROTOCOL, Goodbye, Hello, Welcome
from headrace.common.wire.network import NetworkConfig
from headrace.common.wire.session import Phase

LOG = logging.getLogger(__name__)
MAX_POLL_S = 0.2
GOODBYE_S = 1.0


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
        self._endpoint, self._network, self._clock = endpoint, network, clock
        self._secret = own_secret(network, hello.role, hello.id, listener)
        self._talk = Conversation(hello, role, endpoint, network, clock, listener, zero_copy=zero_copy)
        self.session = self._talk.session
        self.session.advice = _advice(listener, "" if self._secret is None else self._secret.name)
        self._absence = Absence(self.session, endpoint)
        self._failure: BaseException | None = None
        self._stop: Goodbye | None = None
        self._changed = threading.Condition()
        self._wake_read, self._wake_write = stdlib_socket.socketpair()
        self._wake_read.setblocking(False)
        self._wake_write.setblocking(False)
        self._woken = False  # set by whoever wakes, reset by the thread before it looks what there is to send
        self._thread = threading.Thread(target=self._run, name="headrace-link", daemon=True)

    @property
    def endpoint(self) -> str:
        """Who is dialled."""
        return self._endpoint

    def declare(self, spec: object) -> None:
        """Say this spec in hellos from now on: the one that was said before was none."""
        self.session.hello = replace(self.session.hello, spec=spec)

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
                raise DeadlineExceeded(f"no session within {deadline_s:g} s: {self.session.why}")
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
                said = self._stop is not None and self._talk.leave(connection.socket, self._stop)
                connection.close(GOODBYE_S if said else 0.0)
        except BaseException as error:
            self._failure = error
            if not isinstance(error, HeadraceError):
                LOG.exception("the connection thread ended by a defect")
        finally:
            self._tell()

    def _loop(self, connection: Dialled) -> None:
        while self._stop is None:
            due = self._talk.speak(connection)
            if self.session.phase is Phase.ENDED:
                break
            self._poll(connection.socket, max(0.0, min(MAX_POLL_S, due)))
            try:
                self._talk.hear(connection.socket)
                if told := self._absence.look(self._clock.now()):
                    LOG.info("%s", told)
            finally:
                self._tell()

    def _tell(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _poll(self, socket: zmq.Socket[bytes], seconds: float) -> None:
        poller = zmq.Poller()
        poller.register(socket, zmq.POLLIN)
        poller.register(self._wake_read.fileno(), zmq.POLLIN)
        for source, _ in poller.poll(int(seconds * 1000) + 1):
            if source == self._wake_read.fileno():
                self._wake_read.recv(4096)
                self._woken = False


def _advice(listener: str, key: str) -> str:
    """What to look at where nobody answers: none there, another address, and an unknown key cannot be told apart from here."""
    known = f" and does it know our key, that of {key!r} (`headrace keys list` there; it is silent to others)" if key else ""
    return f"is the {listener} running there{known}? `headrace doctor` with the topology tries the link"
