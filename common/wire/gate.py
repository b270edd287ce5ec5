"""The gate: where ZeroMQ asks who may connect, and the proof that strangers may not, before anybody is served.

ZeroMQ asks over a socket inside the process, once a connection (ZAP, RFC 27). Nothing that goes wrong with one question can
keep the next one from its answer: the socket is a ROUTER, which unlike a REP owes none. Whoever does not get as far as that
question (no key, or another listener's) is known only from the events of the guarded socket.
"""

from __future__ import annotations

import contextlib
import logging
import time

import zmq

from headrace.common.errors import ConfigError, DeadlineExceeded
from headrace.common.wire import sockets
from headrace.common.wire.key_files import KeyFiles
from headrace.common.wire.key_watch import KeyWatch
from headrace.common.wire.keyring import DENIED, VERSION, Keyring
from headrace.common.wire.keys import BUFFER, Secret, new_pair
from headrace.common.wire.network import NetworkConfig

LOG = logging.getLogger(__name__)
PLACE = "inproc://zeromq.zap.01"  # where ZeroMQ asks
MOST_AT_ONCE = 256
PROOF_S = 5.0
IN = int(zmq.EVENT_HANDSHAKE_SUCCEEDED)
ODD = int(zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL)
OUT = ODD | int(zmq.EVENT_HANDSHAKE_FAILED_AUTH)
REASONS = {  # why the other side never came to the question; anything else is a "handshake"
    int(zmq.PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH): "key-none",
    int(zmq.PROTOCOL_ERROR_ZMTP_CRYPTOGRAPHIC): "key-buffer",
}
# of these ZeroMQ tells no address
MEANINGS = {
    "key-none": "somebody dials without a key",
    "key-buffer": "somebody dials by the key of another buffer: that secret is of another directory of keys, such as of another"
    " run (ZeroMQ does not tell from where; the log of that process does)",
    "handshake": "somebody does not get to the end of the greeting: a cut link, or a scan of ports",
}


class Gate:
    """Answers ZeroMQ's questions by a keyring. Make it before the socket that it guards is bound.

    Args:
        context: of that socket.
        files: the keys.

    Attributes:
        keyring: decides, and counts who is turned away.
        keys: keeps it as the files say.

    Raises:
        ConfigError: the keys cannot be read.
    """

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], files: KeyFiles) -> None:
        self._context, self.keyring = context, Keyring(sockets.DOMAIN)
        self.keys = KeyWatch(files, self.keyring)
        self._asked = context.socket(zmq.ROUTER)
        self._asked.setsockopt(zmq.LINGER, 0)
        self._asked.bind(PLACE)
        self._guarded: zmq.Socket[bytes] | None = None
        self._told: zmq.Socket[bytes] | None = None

    def guard(self, socket: zmq.Socket[bytes], public: str) -> None:
        """Prove that ``socket``, which is bound, lets no stranger in; from then on those who try are counted.

        Args:
            socket: with its CURVE options.
            public: half of its key.

        Raises:
            ConfigError: it lets one in.
            DeadlineExceeded: it cannot be told.
        """
        self._prove_closed(socket.getsockopt_string(zmq.LAST_ENDPOINT), public)
        self.keyring.forget()  # these were ours
        self._guarded, self._told = socket, sockets.watch(socket, ODD)

    @property
    def sockets(self) -> list[zmq.Socket[bytes]]:
        """Become readable when there is something to do."""
        return [s for s in (self._asked, self._told) if s is not None]

    def serve(self) -> bool:
        """Answer what was asked and count what was told; true when there may be more. Never raises for what a peer sent."""
        more = all(self._answer() for _ in range(MOST_AT_ONCE))
        for _ in range(MOST_AT_ONCE):
            event = sockets.next_event(self._told) if self._told is not None else None
            if event is None:
                return more
            reason = REASONS.get(event[1], "handshake")
            self.keyring.turn_away(reason, detail=f"{reason}: {MEANINGS[reason]}")
        return True

    def release(self) -> None:
        """Look at the guarded socket no more, since it will be closed."""
        if self._guarded is not None and self._told is not None:
            sockets.unwatch(self._guarded, self._told)
            self._guarded = self._told = None

    def close(self) -> None:
        """Answer no more: from now on nobody gets in."""
        self._asked.close(0)

    def _answer(self) -> bool:
        try:
            peer, empty, *request = self._asked.recv_multipart(zmq.NOBLOCK)  # only ZeroMQ asks here, always in its form
        except zmq.Again:
            return False
        try:
            reply = self.keyring.admit(request)
        except Exception:  # a defect of ours must not lock out whoever comes next
            if not self.keyring.refused.by_reason["defect"]:  # once: a stranger decides how often it happens
                LOG.exception("who may connect could not be decided: refused")
            self.keyring.turn_away("defect")
            reply = [VERSION, request[1], DENIED, b"", b"", b""]
        self._asked.send_multipart([peer, empty, *reply], zmq.NOBLOCK)
        return True

    def _prove_closed(self, endpoint: str, public: str) -> None:
        """Dial as strangers do, and see each of them refused."""
        unknown = Secret("stranger", "operator", new_pair()[1], public)
        for who, secret in (("without a key", None), ("with an unknown key", unknown)):
            if self._becomes_of(endpoint, secret, who) & IN:
                raise ConfigError(
                    f"network.keys: {endpoint} lets clients in {who}: it is not guarded, so this process does not start"
                )

    def _becomes_of(self, endpoint: str, secret: Secret | None, who: str) -> int:
        dialled, told = sockets.watched_dealer(self._context, endpoint, secret, IN | OUT)
        end = time.monotonic() + PROOF_S
        try:
            while time.monotonic() < end:
                self._answer()
                if told.poll(1) and (event := sockets.next_event(told)):
                    return event[0]
        finally:
            sockets.unwatch(dialled, told)
            dialled.close(0)
        raise DeadlineExceeded(
            f"{endpoint} has not refused a client {who} within {PROOF_S:g} s, so this process does not start"
        )


def listen(
    network: NetworkConfig, context: zmq.Context[zmq.Socket[bytes]], stack: contextlib.ExitStack, name: str = BUFFER
) -> tuple[zmq.Socket[bytes], Gate | None]:
    """The socket that listens at ``network.endpoint``, and where keys are used its gate, which was seen to refuse strangers.

    Args:
        network: endpoint and keys.
        context: to be ended behind ``stack``.
        stack: closes both.
        name: of the listener's key, and its role.

    Raises:
        ConfigError: the port is taken or open to strangers, or there is no key.
        DeadlineExceeded: the gate could not be proved.
    """
    if not network.keys:
        socket = sockets.router(context, network)
        stack.callback(socket.close)
        return socket, None
    files = KeyFiles.of(network)
    secret = files.secret(name, name)
    gate = Gate(context, files)
    stack.callback(gate.close)
    socket = sockets.router(context, network, secret)
    stack.callback(socket.close)
    gate.guard(socket, secret.public.decode("ascii"))
    stack.callback(gate.release)
    return socket, gate
