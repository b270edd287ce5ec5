"""The only place that makes and configures ZeroMQ sockets."""

from __future__ import annotations

import ipaddress

import zmq

from headrace.common.errors import ConfigError
from headrace.common.wire.network import NetworkConfig, split_endpoint

# A peer's queue holds whole messages; bytes are bounded by credit and by the server's own queues above it.
HIGH_WATER = 1000
# A connection costs an open file from its first byte on, and those of strangers too.
BACKLOG = (
    1024  # connections that wait to be accepted; ZeroMQ's 100 are gone in a burst, and whoever comes then waits for seconds
)
HANDSHAKE_S = 5.0  # a greeting that is not complete by then is hung up on
PING_S, PONG_S = 5.0, 10.0  # so often a peer's library is asked whether it lives, and given up when it says nothing for so long
DIAL_S = 5.0  # in which a buffer that is there takes a client's connection


def dealer(context: zmq.Context[zmq.Socket[bytes]], endpoint: str) -> zmq.Socket[bytes]:
    """A client's socket, dialling ``endpoint``; sends fail at once while there is no connection.

    Raises:
        ConfigError: it is no endpoint, or cannot be dialled.
    """
    split_endpoint(endpoint)
    socket = context.socket(zmq.DEALER)
    _common(socket, endpoint)
    socket.setsockopt(zmq.IMMEDIATE, 1)
    # Else the system dials for two minutes, ever more rarely, and a half-open connection is waited for half a minute.
    socket.setsockopt(zmq.CONNECT_TIMEOUT, int(DIAL_S * 1000))
    socket.setsockopt(zmq.HANDSHAKE_IVL, int(HANDSHAKE_S * 1000))
    socket.setsockopt(zmq.RECONNECT_IVL, 50)
    socket.setsockopt(zmq.RECONNECT_IVL_MAX, 1000)
    try:
        socket.connect(endpoint)
    except zmq.ZMQError as error:
        socket.close(0)
        raise ConfigError(f"network.endpoint: cannot dial {endpoint!r}: {error}; expected tcp://HOST:PORT") from None
    return socket


def router(context: zmq.Context[zmq.Socket[bytes]], network: NetworkConfig) -> zmq.Socket[bytes]:
    """The buffer's listening socket, bound to ``network.endpoint``.

    Raises:
        ConfigError: when the port is taken, the address is not ours, or it is open to strangers.
    """
    refuse_strangers(network)
    socket = context.socket(zmq.ROUTER)
    _common(socket, network.endpoint)
    socket.setsockopt(zmq.BACKLOG, BACKLOG)
    socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
    socket.setsockopt(zmq.HANDSHAKE_IVL, int(HANDSHAKE_S * 1000))
    socket.setsockopt(zmq.HEARTBEAT_IVL, int(PING_S * 1000))
    socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, int(PONG_S * 1000))
    socket.setsockopt(zmq.MAXMSGSIZE, network.fragment_bytes + (64 << 10))
    try:
        socket.bind(network.endpoint)
    except zmq.ZMQError as error:
        socket.close(0)
        raise ConfigError(
            f"network.endpoint: cannot listen on {network.endpoint!r}: {error}; free the port or name another"
        ) from None
    return socket


def refuse_strangers(network: NetworkConfig) -> None:
    """Refuse a non-loopback endpoint unless ``network.insecure`` says that the network itself is trusted."""
    parts = split_endpoint(network.endpoint)
    if parts.scheme == "ipc" or network.insecure:
        return
    host = (parts.hostname or "").strip("[]")
    try:
        loopback = ipaddress.ip_address(host).is_loopback
    except ValueError:
        loopback = host == "localhost"
    if not loopback:
        raise ConfigError(
            f"network.endpoint: {network.endpoint!r} is not loopback and there are no keys, so anybody who reaches the port"
            " could write; bind 127.0.0.1, tunnel, or set network.insecure: true on a network that you trust"
        )


def _common(socket: zmq.Socket[bytes], endpoint: str) -> None:
    socket.setsockopt(zmq.LINGER, 0)
    socket.setsockopt(zmq.SNDHWM, HIGH_WATER)
    socket.setsockopt(zmq.RCVHWM, HIGH_WATER)
    socket.setsockopt(zmq.IPV6, int("[" in endpoint))  # else the bound IPv4 address is shown in its IPv6 form
    socket.setsockopt(zmq.TCP_KEEPALIVE, 1)
