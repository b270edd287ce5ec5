"""Versions of the protocol: which of them a buffer speaks, and what an older one lacks of the present one.

Clients speak the newest alone; a buffer speaks that and the one before, so that the buffer is replaced first and a fleet of
robots one by one. A change of the wire

1. adds a kind of message, or a field with a default; what is there stays (a message that must change gets a new tag),
2. raises ``PROTOCOL`` in :mod:`headrace.common.wire.messages`,
3. adds a line here: what the version before lacks, by ``Kind`` or ``Kind.field``; the line of the one before that goes.

``Hello.protocol`` and all of ``Refused`` are the same in every version, so that whoever is turned away can read why.
"""

from __future__ import annotations

from headrace.common.wire.messages import PROTOCOL

LACKS: dict[int, frozenset[str]] = {PROTOCOL: frozenset()}


def spoken() -> str:
    """The versions that a buffer speaks, in words."""
    return str(PROTOCOL) if len(LACKS) == 1 else f"{min(LACKS)} to {max(LACKS)}"
