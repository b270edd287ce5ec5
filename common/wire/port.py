"""The port: a listening socket with its gate. Messages come with their key; those that go wait for each peer, up to a bound."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

import zmq

from headrace.common.wire.answers import Out
from headrace.common.wire.codec import Parts
from headrace.common.wire.fragments import size_of
from headrace.common.wire.gate import Gate
from headrace.common.wire.line import Line

LOG = logging.getLogger(__name__)
REVOKED_S = 1.0  # in which whoever is told that its key was revoked can read it, before its connection is cut
PEER_QUEUE_BYTES = 256 << 20
COPIED_BYTES = 1 << 16


@dataclass(frozen=True)
class Came:
    """One message of a peer, the public half of its key where keys are used, and what it came by."""

    peer: bytes
    parts: Parts
    user: str
    frame: zmq.Frame

    def line(self) -> Line:
        """The connection."""
        return Line.of(self.frame)


class Port:
    """What a process that is dialled does with its socket.

    Args:
        socket: bound.
        gate: guards it; none where no keys are used.
    """

    def __init__(self, socket: zmq.Socket[bytes], gate: Gate | None) -> None:
        self._socket, self._gate = socket, gate
        self._held: dict[bytes, deque[Out]] = {}
        self._cut_from = 0.0

    @property
    def sockets(self) -> list[zmq.Socket[bytes]]:
        """The listening one, and those of the gate: readable when there is something to do."""
        return [self._socket, *(self._gate.sockets if self._gate is not None else [])]

    @property
    def fds(self) -> list[int]:
        """Their descriptors, each of which becomes readable once, and not again until all was taken."""
        return [int(socket.getsockopt(zmq.FD)) for socket in self.sockets]

    def take(self) -> Came | None:
        """The next message; none when there is none now."""
        try:
            first, *rest = self._socket.recv_multipart(zmq.NOBLOCK, copy=False)
        except zmq.Again:
            return None
        user = "" if self._gate is None else str(first.get("User-Id"))  # what the gate has called it by
        return Came(first.bytes, [f.buffer for f in rest], user, first)

    def heard(self, came: Came, now: float) -> None:
        """It was answered: cut the connection of whoever was told that its key was revoked, and goes on talking."""
        if self._gate is not None and self._gate.keyring.who(came.user) is None and now >= self._cut_from:
            came.line().hang_up()

    def guard(self) -> bool:
        """Let the gate answer what it was asked; true when there may be more."""
        return self._gate is not None and self._gate.serve()

    def look(self, now: float) -> bool:
        """Whether other keys are known from now on."""
        if self._gate is None or not self._gate.keys.look(now):
            return False
        self._cut_from = now + REVOKED_S
        return True

    def send(self, out: Iterable[Out]) -> None:
        """Send these messages, and what waited before; for who takes none they wait, up to a bound."""
        for peer, parts in out:
            held = self._held.get(peer)
            if held is not None:
                held.append((peer, parts))
            elif not self._try(peer, parts):
                self._held[peer] = deque([(peer, parts)])
        for peer in list(self._held):
            self._flush(peer)

    def _flush(self, peer: bytes) -> None:
        held = self._held[peer]
        while held and self._try(*held[0]):
            held.popleft()
        if not held:
            del self._held[peer]
        elif sum(size_of(parts) for _, parts in held) > PEER_QUEUE_BYTES:
            LOG.warning("a peer does not take its messages: %d dropped", len(held))
            del self._held[peer]

    def _try(self, peer: bytes, parts: Parts) -> bool:
        try:
            self._socket.send_multipart([peer, *parts], zmq.NOBLOCK, copy=size_of(parts) < COPIED_BYTES)
        except zmq.Again:
            return False
        except zmq.ZMQError as error:
            if error.errno != zmq.EHOSTUNREACH:
                raise
        return True
