"""The line: one connection of this process, how long no byte has come by it, and its end."""

from __future__ import annotations

import math
import os
import socket
import struct
from collections.abc import Callable
from typing import TypeVar

import zmq

_LAST_DATA_RECV = struct.Struct("@52xI")  # of the kernel's tcp_info: ms since bytes came last
_T = TypeVar("_T")


class Line:
    """A connection that ZeroMQ has made or taken. It tells of whole frames only, and has no call to end one.

    A descriptor may be another connection's by the time it is used: nothing is told of that, nor done to it.

    Args:
        fd: its descriptor, which ZeroMQ owns; none for a line of which nothing is known.
    """

    def __init__(self, fd: int = -1) -> None:
        self._fd = fd
        self._names = self._with(lambda s: (s.getsockname(), s.getpeername()), None)

    @classmethod
    def of(cls, frame: zmq.Frame) -> Line:
        """The one that ``frame`` has come by."""
        try:
            return cls(int(frame.get(zmq.SRCFD)))
        except zmq.ZMQError:
            return cls()

    @property
    def port(self) -> int:
        """The peer's; 0 where it has none."""
        peer = None if self._names is None else self._names[1]
        return int(peer[1]) if isinstance(peer, tuple) else 0

    def quiet_s(self) -> float:
        """Seconds since bytes came; infinite where that is not known, as when it is gone or no TCP."""

        def ask(found: socket.socket) -> float:
            told = found.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _LAST_DATA_RECV.size)
            return float(_LAST_DATA_RECV.unpack(told)[0]) / 1000

        return self._as_it_was(ask, math.inf)

    def hang_up(self) -> None:
        """End it, for both sides; nothing if it is gone already."""
        self._as_it_was(lambda s: s.shutdown(socket.SHUT_RDWR), None)

    def _as_it_was(self, what: Callable[[socket.socket], _T], otherwise: _T) -> _T:
        def check(found: socket.socket) -> _T:
            same = self._names is not None and (found.getsockname(), found.getpeername()) == self._names
            return what(found) if same else otherwise

        return self._with(check, otherwise)

    def _with(self, what: Callable[[socket.socket], _T], otherwise: _T) -> _T:
        """Do it to a copy of the descriptor, which stays what it is meanwhile."""
        if self._fd < 0:
            return otherwise
        try:
            with socket.socket(fileno=os.dup(self._fd)) as found:
                return what(found)
        except OSError:
            return otherwise
