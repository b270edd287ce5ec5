"""The addresses of this machine, for errors that say where it could listen."""

from __future__ import annotations

import contextlib
import fcntl
import ipaddress
import socket
import struct
from pathlib import Path

SIOCGIFADDR = 0x8915  # linux/sockios.h: the IPv4 address of a network device
IF_INET6 = Path("/proc/net/if_inet6")  # an address in 32 hexadecimal digits, and what it is of


def own_addresses() -> tuple[str, ...]:
    """The first IPv4 address of each network device and all IPv6 ones, none of them link-local; loopback comes last."""
    found: list[str] = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):  # a device without one
                told = fcntl.ioctl(asked, SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
                found.append(socket.inet_ntoa(told[20:24]))
    with contextlib.suppress(OSError):
        found += [str(ipaddress.IPv6Address(int(line.split()[0], 16))) for line in IF_INET6.read_text().splitlines()]
    kept = [a for a in map(ipaddress.ip_address, dict.fromkeys(found)) if not a.is_link_local]
    return tuple(str(a) for a in sorted(kept, key=lambda a: a.is_loopback))
