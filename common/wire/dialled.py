"""A client's socket, with the one connection that it has at a time, and how both are ended.

ZeroMQ (4.3.5, ``session_base.cpp``) ends the whole process by an assertion when a socket is closed in the middle of a message
of several frames and its peer hangs up just then: with whatever linger, if that runs out. So a socket is closed here only with
a linger without end, which is safe, and what would take too long is cut by ending the connection itself.
"""

from __future__ import annotations

import threading
import time

import zmq

from headrace.common.wire import sockets
from headrace.common.wire.keys import Secret
from headrace.common.wire.line import Line
from headrace.common.wire.network import NetworkConfig, split_endpoint

MADE, LOST = int(zmq.EVENT_CONNECTED), int(zmq.EVENT_DISCONNECTED)
HANG_UP_S = 0.5  # in which ZeroMQ notices that a connection has ended


class Dialled:
    """A DEALER that dials ``endpoint`` again and again, each time on a connection of its own.

    Attributes:
        socket: to send to and to receive from.

    Args:
        endpoint: where it dials.
        network: says whether strangers may be there.
        secret: its key, if it has one.
        context: of many connections of this process, which outlives them; none: one of its own.

    Raises:
        ConfigError: as :func:`headrace.common.wire.sockets.dealer`.
    """

    def __init__(
        self,
        endpoint: str,
        network: NetworkConfig,
        secret: Secret | None,
        context: zmq.Context[zmq.Socket[bytes]] | None = None,
    ) -> None:
        sockets.refuse_strangers(endpoint, network, secret)
        self._owns = context is None
        self._context = context or zmq.Context()
        try:
            self.socket, self._told = sockets.watched_dealer(self._context, endpoint, secret, MADE | LOST)
        except BaseException:
            if self._owns:
                self._context.destroy(0)
            raise
        self._port = split_endpoint(endpoint).port or 0
        self._line = self._none = Line()

    @property
    def line(self) -> Line:
        """The connection that there is now."""
        self.look()
        return self._line

    def look(self) -> None:
        """Take what ZeroMQ tells of connections; to be called now and then, since it keeps all that nobody took."""
        while (event := sockets.next_event(self._told)) is not None:
            kind, value = event
            self._line = Line(value) if kind == MADE else self._none
            if self._line.port != self._port:
                self._line = self._none  # what was told is past, and the descriptor another's

    def hang_up(self) -> None:
        """End the connection; what was not sent is lost with it, and ZeroMQ dials anew."""
        line, end = self.line, time.monotonic() + HANG_UP_S
        line.hang_up()
        while line is not self._none and self.line is line and time.monotonic() < end:
            self._told.poll(10)

    def close(self, linger_s: float) -> None:
        """Have what was sent leave within ``linger_s``, and end everything."""
        line = self.line
        sockets.unwatch(self.socket, self._told)
        self.socket.close(-1)
        if not self._owns:
            return  # what was sent leaves in the time that the context has
        cut = threading.Timer(linger_s, line.hang_up)
        cut.daemon = True
        cut.start()
        self._context.term()
        cut.cancel()
        cut.join()  # no thread is left when this returns
