"""Which boot of the machine this is: memory, and what the kernel had not yet written, does not outlive one."""

from __future__ import annotations

import hashlib
import socket
from pathlib import Path

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def kernel() -> str:
    """Names the running kernel: processes that see the same name share the pages of a mapped file."""
    try:
        return BOOT_ID.read_text().strip()
    except OSError:
        return socket.gethostname()[:255]


def boot_number() -> int:
    """Number of this boot, of 40 bits and never 0; 1 where the system does not say."""
    try:
        text = BOOT_ID.read_bytes()
    except OSError:
        return 1
    return int.from_bytes(hashlib.sha256(text).digest()[:5], "little") | 1
