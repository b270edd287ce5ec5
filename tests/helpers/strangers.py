"""Peers that speak to a port byte by byte, and mean no good."""

from __future__ import annotations

import socket
import struct
import time
from urllib.parse import urlsplit

GREETING = b"\xff" + bytes(8) + b"\x7f" + b"\x03\x01" + b"NULL".ljust(20, b"\0") + b"\0" + bytes(31)  # ZMTP 3.1
_READY = b"\x05READY" + b"\x0bSocket-Type" + struct.pack(">I", 6) + b"DEALER"
READY = bytes([0x04, len(_READY)]) + _READY
MORE_LONG = 0x03  # flags of a long frame that is followed by another one of the same message
HUGE = b"\x02" + struct.pack(">Q", 1 << 62)  # the head of a frame that nobody could send
HTTP = b"GET / HTTP/1.1\r\nHost: headrace\r\n\r\n"
WAIT_S = 5.0


def dial(endpoint: str, data: bytes = b"") -> socket.socket:
    """A connection on which ``data`` was sent."""
    at = urlsplit(endpoint)
    made = socket.create_connection((at.hostname, at.port), timeout=WAIT_S)
    made.sendall(data)
    return made


def join(endpoint: str) -> socket.socket:
    """A connection that ZeroMQ takes for a peer's."""
    made = dial(endpoint, GREETING)
    exactly(made, len(GREETING))
    made.sendall(READY)
    return made


def exactly(peer: socket.socket, size: int) -> bytes:
    """So many bytes. A socket with a timeout does not wait for all of them by itself, whatever its flags say."""
    taken = b""
    while len(taken) < size:
        more = peer.recv(size - len(taken))
        if not more:
            raise ConnectionError(f"hung up after {len(taken)} of {size} bytes")
        taken += more
    return taken


def answer(peer: socket.socket) -> None:
    """Be the ROUTER that a DEALER has dialled."""
    peer.sendall(GREETING[:32] + b"\x01" + GREETING[33:])
    exactly(peer, len(GREETING))
    peer.sendall(READY.replace(b"DEALER", b"ROUTER"))
    _, length = exactly(peer, 2)
    exactly(peer, length)


def flood(endpoint: str, frame_bytes: int, seconds: float) -> int:
    """Send frames of a message that never ends, until nobody takes them; bytes that were taken."""
    frame = bytes([MORE_LONG]) + struct.pack(">Q", frame_bytes) + bytes(frame_bytes)
    sent, end = 0, time.monotonic() + seconds
    try:
        with join(endpoint) as made:
            while time.monotonic() < end:
                made.sendall(frame)
                sent += frame_bytes
    except OSError:
        pass  # hung up, or its process is gone
    return sent


def reset(endpoint: str, data: bytes) -> None:
    """Connect, send ``data`` and reset the connection."""
    made = dial(endpoint, data)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    made.close()
