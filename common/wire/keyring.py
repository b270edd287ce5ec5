"""The keyring: which keys a listener knows at this moment, what each may do, and who was turned away. No I/O.

a connection with ...                      is let in     and is counted as
a key that is known                        yes
a key that is unknown, or was revoked      no            ``key-unknown``
the buffer's own key                       no            ``key-unknown``
no key, or none of this domain             no            ``key-none``

A session needs a key of its role, and one of an actor or an evaluator the key that bears its id (:meth:`Keyring.refuse`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from zmq.utils import z85

from headrace.common.wire.fields import printable
from headrace.common.wire.keys import BOUND, SESSIONS, Key
from headrace.common.wire.messages import Hello, Refused
from headrace.common.wire.refusals import STRANGERS, Refusals

VERSION, OK, DENIED = b"1.0", b"200", b"400"  # of the protocol in which ZeroMQ asks (ZAP, RFC 27)
MECHANISM = b"CURVE"
MAX_SHOWN, MAX_PLACE = 8, 64


class Keyring:
    """Public keys and their owners, exchanged while the buffer runs.

    Args:
        domain: that the buffer's socket asks for.

    Attributes:
        refused: connections that were turned away, by reason and address.
    """

    def __init__(self, domain: bytes) -> None:
        self._domain = domain
        self._known: dict[str, Key] = {}
        self._problems: list[str] = []
        self._admits = False
        self.refused = Refusals("connections")

    def replace(self, keys: Iterable[Key], problems: Sequence[str]) -> None:
        """Know these keys and no others; one that two owners claim is nobody's."""
        owners: dict[str, set[tuple[str, str]]] = {}
        keys = list(keys)
        for key in keys:
            owners.setdefault(key.public, set()).add((key.name, key.role))
        self._known = {key.public: key for key in keys if len(owners[key.public]) == 1}
        twice = ["/".join(sorted(name for name, _ in claims)) for claims in owners.values() if len(claims) > 1]
        self._problems = [*problems, *(f"one key has several owners, so it is nobody's: {names}" for names in sorted(twice))]
        self._admits = True

    def close(self, problem: str) -> None:
        """Let nobody in any more: what keys there are cannot be told. Those who are in stay."""
        self._problems, self._admits = [problem], False

    def who(self, public: str) -> Key | None:
        """Whose key it is; none for the unknown and the buffer's own."""
        key = self._known.get(public)
        return key if key is not None and SESSIONS[key.role] else None

    def allows(self, public: str, role: str, identity: str) -> bool:
        """Whether the key opens sessions of this role and id."""
        key = self.who(public)
        return key is not None and role in SESSIONS[key.role] and (key.role not in BOUND or key.name == identity)

    def refuse(self, public: str, hello: Hello) -> Refused | None:
        """The refusal of a hello that its key does not allow."""
        if self.allows(public, hello.role, hello.id):
            return None
        key = self.who(public)
        if key is None:
            return Refused("key-unknown", "this key is not known here", 0.0)
        if hello.role in SESSIONS[key.role]:
            return Refused("key-id", f"the key of {key.name!r} is not for {hello.role} id {hello.id!r}", 0.0)
        return Refused("key-role", f"the key of {key.role} {key.name!r} opens no session of role {hello.role!r}", 0.0)

    def admit(self, request: Sequence[bytes]) -> list[bytes]:
        """Answer ZeroMQ's question whether a connection may be made; it then calls the peer by its public key.

        Args:
            request: version, request id, domain, address, routing id, mechanism, credentials.
        """
        known = list(request[:7]) + [b""] * (7 - len(request))
        version, number, domain, address, _, mechanism, credential = known
        curve = mechanism == MECHANISM and version == VERSION and domain == self._domain and len(request) == 7
        public = z85.encode(credential).decode("ascii") if curve and len(credential) == 32 else ""
        if public and self._admits and self.who(public) is not None:
            return [VERSION, number, OK, b"", public.encode("ascii"), b""]
        reason = "key-unknown" if public else "key-none"
        self.turn_away(reason, address.decode("ascii", "replace"), f"public half {public}" if public else "")
        return [VERSION, number, DENIED, b"", b"", b""]

    def turn_away(self, reason: str, place: str = STRANGERS, detail: str = "") -> None:
        """Count a connection that is not made."""
        self.refused.add(printable(place)[:MAX_PLACE], reason, detail)

    def forget(self) -> None:
        """Nobody has been turned away so far."""
        self.refused = Refusals("connections")

    def report(self) -> dict[str, Any]:
        """For the status: how many keys are known, what is wrong with others, and who was turned away from where."""
        return {"known": len(self._known), "problems": self._problems[:MAX_SHOWN], "turned_away": self.refused.by_peer}
