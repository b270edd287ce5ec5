"""The line: the connection that a message came by, and how long no byte has come by it."""

from __future__ import annotations

import math
import os
import socket
import struct

import zmq

_LAST_DATA_RECV = struct.Struct("@52xI")  # of the kernel's tcp_info: ms since bytes came last


class Line:
    """One TCP connection of this process. ZeroMQ tells of whole frames only, and on a slow link one is long on its way.

    Args:
        frame: any frame of a message that came by it; none where nothing is known of it.
    """

    def __init__(self, frame: zmq.Frame | None = None) -> None:
        self._fd, self._peer = -1, ""
        if frame is None:
            return
        try:
            self._fd = int(frame.get(zmq.SRCFD))
            with _copy(self._fd) as found:
                self._peer = repr(found.getpeername())
        except (OSError, zmq.ZMQError):  # it is gone already
            self._fd = -1

    def quiet_s(self) -> float:
        """Seconds since bytes came; infinite where that is not known, as when the connection is gone."""
        if self._fd < 0:
            return math.inf
        try:
            with _copy(self._fd) as found:
                if repr(found.getpeername()) != self._peer:
                    return math.inf  # the descriptor is another connection's by now
                told = found.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _LAST_DATA_RECV.size)
        except OSError:
            return math.inf
        return float(_LAST_DATA_RECV.unpack(told)[0]) / 1000


def _copy(fd: int) -> socket.socket:
    return socket.socket(fileno=os.dup(fd))
