"""A client of a few lines, which sends whatever bytes it is given to a real buffer."""

from __future__ import annotations

import time
from types import TracebackType

import zmq

from headrace.common.wire import messages as m
from headrace.common.wire import sockets
from headrace.common.wire.codec import decode, encode
from headrace.common.wire.keys import Secret
from headrace.common.wire.network import NetworkConfig

ANSWER_MS = 10_000


class Peer:
    """One socket, which dials again when its connection is closed; ``heard`` are the messages that came.

    Args:
        context: of ZeroMQ.
        endpoint: the buffer's.
        secret: its key, if it has one.
    """

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], endpoint: str, secret: Secret | None = None) -> None:
        self.heard: list[m.Message] = []
        self.socket = sockets.dealer(context, endpoint, NetworkConfig(), secret)

    def is_let_in(self, timeout_ms: int) -> bool:
        """Whether there is a connection before long."""
        return bool(self.socket.poll(timeout_ms, zmq.POLLOUT))

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, kind: type[BaseException] | None, why: BaseException | None, where: TracebackType | None) -> None:
        self.socket.close(0)

    def send(self, parts: list[bytes]) -> None:
        """Send a message, and hear what is there."""
        if not self.is_let_in(ANSWER_MS):
            raise AssertionError("no connection")
        self.socket.send_multipart(parts or [b""])
        self.hear(0)

    def hear(self, timeout_ms: int) -> None:
        """Wait so long for messages."""
        while self.socket.poll(timeout_ms):
            self.heard.append(decode(self.socket.recv_multipart()[0]))
            timeout_ms = 0

    def reasons(self, kind: type[m.Refused | m.Declined], least: int) -> set[str]:
        """Why so many of its messages were refused or declined, once it has heard of them."""
        end = time.monotonic() + ANSWER_MS / 1000
        while len(found := {message.reason for message in self.heard if isinstance(message, kind)}) < least:
            if time.monotonic() > end:
                break
            self.hear(100)
        return found

    def greet(self, identity: str) -> None:
        """Get a session as an actor."""
        hello = [encode(m.Hello(m.PROTOCOL, "actor", identity, b"7", "host", 1))]
        end = time.monotonic() + 20
        while time.monotonic() < end:
            self.heard.clear()
            self.send(hello)
            self.hear(500)
            if any(isinstance(message, m.Welcome) for message in self.heard):
                return
        raise AssertionError(f"no session: {self.heard}")
