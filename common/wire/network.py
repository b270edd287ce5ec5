"""Limits and times of the wire that every role shares."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

from headrace.common.config import option
from headrace.common.errors import ConfigError

MAX_PORT = 65535
FRAGMENTS_A_RANGE = 2  # of weights: a buffer takes half the time for ranges twice as long, and acks pass after two of them


def split_endpoint(endpoint: str, key: str = "network.endpoint") -> SplitResult:
    """The parts of ``tcp://HOST:PORT`` or ``ipc://PATH``.

    Raises:
        ConfigError: it is neither, or its port is none: ZeroMQ would take 65536 more than one for the same.
    """
    try:
        parts = urlsplit(endpoint)
        host = parts.hostname
    except ValueError as error:
        raise ConfigError(f"{key}: {endpoint!r} is not an endpoint: {error}; expected tcp://HOST:PORT") from None
    if parts.scheme not in ("tcp", "ipc") or (parts.scheme == "tcp" and not host):
        raise ConfigError(f"{key}: {endpoint!r} is not an endpoint; expected tcp://HOST:PORT")
    port = parts.netloc.rpartition(":")[2]
    if parts.scheme == "tcp" and not (port.isascii() and port.isdigit()):
        raise ConfigError(f"{key}: {endpoint!r} names no port; expected tcp://HOST:PORT")
    if parts.scheme == "tcp" and int(port) > MAX_PORT:
        raise ConfigError(f"{key}: port {port} of {endpoint!r} is above the largest; nearest valid: {MAX_PORT}")
    return parts


def is_loopback(endpoint: str) -> bool:
    """Whether only this host can reach ``endpoint``."""
    parts = split_endpoint(endpoint)
    host = (parts.hostname or "").strip("[]")
    try:
        return parts.scheme == "ipc" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


@dataclass(frozen=True)
class NetworkConfig:
    """How roles meet and how long they wait for each other."""

    endpoint: str = option(
        "tcp://127.0.0.1:0", help="where the buffer listens; port 0 picks a free one (train writes it to the run directory)"
    )
    shards: tuple[str, ...] = option(
        (),
        help="where the buffers of the run listen, for whoever dials them; the first one, the home shard, paces the run; empty:"
        " there is one buffer, at network.endpoint",
        resume=True,
    )
    keys: str = option(
        "",
        help="directory of keys (headrace keys): everybody proves who he is and all is encrypted; a non-loopback endpoint needs"
        " it, and train then makes keys in the run directory",
        resume=True,
    )
    insecure: bool = option(
        False, help="allow a non-loopback endpoint without keys: anybody who reaches the port may write and publish"
    )
    lease_s: float = option(5.0, help="a silent peer is given up after this long", unit="s", low=0.2, high=600, resume=True)
    heartbeat_s: float = option(0.5, help="time between two signs of life", unit="s", low=0.02, high=60, resume=True)
    connect_s: float = option(
        600.0, help="how long a role waits for its session or for data before it gives up", unit="s", low=1, resume=True
    )
    credit_bytes: int = option(
        8 << 20, help="unacknowledged bytes that one client may have under way", unit="B", low=1 << 16, resume=True
    )
    fragment_bytes: int = option(
        256 << 10, help="messages above this travel in parts", unit="B", low=4096, high=64 << 20, resume=True
    )
    message_bytes: int = option(256 << 20, help="largest message a peer may send in parts", unit="B", low=1 << 16, resume=True)
    compression: str = option(
        "none",
        help="zlib: deflate what this process and its buffer tell each other; for links of less than about 20 MB/s",
        choices=("none", "zlib"),
        resume=True,
    )

    def check(self, path: str = "network") -> None:
        """Refuse what is no endpoint, and times that cannot work together."""
        split_endpoint(self.endpoint, f"{path}.endpoint")
        for number, shard in enumerate(self.shards):
            if split_endpoint(shard, f"{path}.shards").port == 0:
                raise ConfigError(f"{path}.shards: {shard!r} names no port that could be dialled; nearest valid: {shard}5555")
            if shard in self.shards[:number]:
                raise ConfigError(f"{path}.shards: {shard!r} is named twice; each is a buffer of its own")
        if self.keys and self.insecure:
            raise ConfigError(
                f"{path}.insecure: true with {path}.keys {self.keys!r}, which say the opposite; nearest valid: false"
            )
        if self.lease_s < 3 * self.heartbeat_s:
            raise ConfigError(
                f"{path}.lease_s: {self.lease_s:g} s is below three heartbeats ({path}.heartbeat_s {self.heartbeat_s:g} s);"
                f" nearest valid: {3 * self.heartbeat_s:g}"
            )
        if self.credit_bytes < 2 * self.fragment_bytes:
            raise ConfigError(
                f"{path}.credit_bytes: {self.credit_bytes} is below two fragments ({path}.fragment_bytes"
                f" {self.fragment_bytes}); nearest valid: {2 * self.fragment_bytes}"
            )
