"""The only place that makes and configures ZeroMQ sockets."""

from __future__ import annotations

import errno
import itertools
import struct

import zmq

from headrace.common.errors import ConfigError
from headrace.common.wire.addresses import own_addresses
from headrace.common.wire.keys import Secret
from headrace.common.wire.network import NetworkConfig, is_loopback

# A peer's queue holds whole messages; bytes are bounded by credit and by the server's own queues above it.
HIGH_WATER = 1000
# A connection costs an open file from its first byte on, and those of strangers too.
BACKLOG = (
    1024  # connections that wait to be accepted; ZeroMQ's 100 are gone in a burst, and whoever comes then waits for seconds
)
HANDSHAKE_S = 5.0  # a greeting that is not complete by then is hung up on
PING_S = 5.0  # so often a peer's library is asked whether it lives
PONG_S = (
    60.0  # and it is given up when it says nothing for so long: its answer waits behind a frame, which takes that at 4.5 kB/s
)
DIAL_S = 5.0  # in which a buffer that is there takes a client's connection
DOMAIN = b"headrace"  # of the questions that ZeroMQ asks about keys
_PLACES = itertools.count()


def dealer(
    context: zmq.Context[zmq.Socket[bytes]], endpoint: str, network: NetworkConfig, secret: Secret | None
) -> zmq.Socket[bytes]:
    """A client's socket, dialling ``endpoint`` with its key if it has one; sends fail at once while there is no connection.

    Raises:
        ConfigError: it is no endpoint, cannot be dialled, or is another host's, and there is no key.
    """
    refuse_strangers(endpoint, network, secret)
    socket = _client(context, endpoint, secret)
    _dial(socket, endpoint)
    return socket


def watched_dealer(
    context: zmq.Context[zmq.Socket[bytes]], endpoint: str, secret: Secret | None, events: int
) -> tuple[zmq.Socket[bytes], zmq.Socket[bytes]]:
    """As :func:`dealer`, to wherever it may be, and a socket that tells these ``events`` of its connection."""
    socket = _client(context, endpoint, secret)
    told = watch(socket, events)
    _dial(socket, endpoint)
    return socket, told


def _dial(socket: zmq.Socket[bytes], endpoint: str) -> None:
    try:
        socket.connect(endpoint)
    except zmq.ZMQError as error:
        socket.close(0)
        raise ConfigError(f"network.endpoint: cannot dial {endpoint!r}: {error}; expected tcp://HOST:PORT") from None


def router(context: zmq.Context[zmq.Socket[bytes]], network: NetworkConfig, secret: Secret | None = None) -> zmq.Socket[bytes]:
    """The buffer's listening socket, bound to ``network.endpoint``; with a key it takes only peers that somebody vouches for.

    Raises:
        ConfigError: when the port is taken, the address is not ours, or it is open to strangers.
    """
    refuse_strangers(network.endpoint, network, secret)
    socket = context.socket(zmq.ROUTER)
    _common(socket, network.endpoint)
    socket.setsockopt(zmq.BACKLOG, BACKLOG)
    socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
    socket.setsockopt(zmq.HANDSHAKE_IVL, int(HANDSHAKE_S * 1000))
    socket.setsockopt(zmq.HEARTBEAT_IVL, int(PING_S * 1000))
    socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, int(PONG_S * 1000))
    socket.setsockopt(zmq.MAXMSGSIZE, network.fragment_bytes + (64 << 10))
    if secret is not None:  # before bind: what is set later is not true of who comes in by the port
        socket.setsockopt(zmq.CURVE_SERVER, 1)
        socket.setsockopt(zmq.ZAP_DOMAIN, DOMAIN)
        socket.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)
        _own(socket, secret)
    try:
        socket.bind(network.endpoint)
    except zmq.ZMQError as error:
        socket.close(0)
        raise ConfigError(f"network.endpoint: cannot listen on {network.endpoint!r}: {error}; {fix_of(error.errno)}") from None
    return socket


def fix_of(number: int | None) -> str:
    """What to do where the system lets nobody listen."""
    if number == errno.EADDRNOTAVAIL:
        return f"this machine has no such address, but {', '.join(own_addresses())}"
    return "free the port or name another"


def watch(socket: zmq.Socket[bytes], events: int) -> zmq.Socket[bytes]:
    """A socket that tells these ``events`` of ``socket``'s connections, until :func:`unwatch`."""
    place = f"inproc://headrace-events-{next(_PLACES)}"
    socket.monitor(place, events)
    told: zmq.Socket[bytes] = socket.context.socket(zmq.PAIR)
    told.setsockopt(zmq.LINGER, 0)
    told.setsockopt(zmq.RCVHWM, 0)  # else ZeroMQ's own thread would wait for us
    told.connect(place)
    return told


def unwatch(socket: zmq.Socket[bytes], told: zmq.Socket[bytes]) -> None:
    """Close what :func:`watch` gave."""
    socket.monitor(None, 0)  # first: without a reader ZeroMQ's own thread would wait for one
    told.close(0)


def next_event(told: zmq.Socket[bytes]) -> tuple[int, int] | None:
    """The next event that :func:`watch` tells, with its value; none when there is none now."""
    try:
        event, _ = told.recv_multipart(zmq.NOBLOCK)
    except zmq.Again:
        return None
    number, value = struct.unpack("=Hi", event)
    return number, value


def refuse_strangers(endpoint: str, network: NetworkConfig, secret: Secret | None) -> None:
    """Refuse a non-loopback endpoint without a key, unless ``network.insecure`` says that the network itself is trusted."""
    if is_loopback(endpoint) or network.insecure or secret is not None:
        return
    raise ConfigError(
        f"network.endpoint: {endpoint!r} is not loopback and network.keys is empty, so anybody could read, write and publish."
        " Two ways out: make keys (`headrace keys new DIR NAME --role ROLE`) and say --network.keys DIR; or, where nobody else"
        " can reach the port, --network.insecure true"
    )


def _client(context: zmq.Context[zmq.Socket[bytes]], endpoint: str, secret: Secret | None) -> zmq.Socket[bytes]:
    socket = context.socket(zmq.DEALER)
    _common(socket, endpoint)
    socket.setsockopt(zmq.IMMEDIATE, 1)
    # Else the system dials for two minutes, ever more rarely, and a half-open connection is waited for half a minute.
    socket.setsockopt(zmq.CONNECT_TIMEOUT, int(DIAL_S * 1000))
    socket.setsockopt(zmq.HANDSHAKE_IVL, int(HANDSHAKE_S * 1000))
    socket.setsockopt(zmq.RECONNECT_IVL, 50)
    socket.setsockopt(zmq.RECONNECT_IVL_MAX, 1000)
    if secret is not None:
        socket.setsockopt(zmq.CURVE_SERVERKEY, secret.buffer.encode("ascii"))
        _own(socket, secret)
    return socket


def _own(socket: zmq.Socket[bytes], secret: Secret) -> None:
    socket.setsockopt(zmq.CURVE_PUBLICKEY, secret.public)
    socket.setsockopt(zmq.CURVE_SECRETKEY, secret.secret.encode("ascii"))


def _common(socket: zmq.Socket[bytes], endpoint: str) -> None:
    socket.setsockopt(zmq.LINGER, 0)
    socket.setsockopt(zmq.SNDHWM, HIGH_WATER)
    socket.setsockopt(zmq.RCVHWM, HIGH_WATER)
    socket.setsockopt(zmq.IPV6, int("[" in endpoint))  # else the bound IPv4 address is shown in its IPv6 form
    socket.setsockopt(zmq.TCP_KEEPALIVE, 1)
