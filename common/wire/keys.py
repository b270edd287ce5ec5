"""Keys of the wire: whose a CURVE key is, and which sessions it opens. No disk and no socket here."""

from __future__ import annotations

import re
from dataclasses import dataclass

import zmq
from zmq.utils import z85

from headrace.common.config import option
from headrace.common.errors import ConfigError
from headrace.common.wire.messages import POLICY_SERVER, READERS, SHARD

BUFFER, LEARNER, OPERATOR = "buffer", "learner", "operator"
SESSIONS = {  # what a key is for -> the roles of the sessions that it opens
    "actor": ("actor",),
    "evaluator": ("evaluator",),
    POLICY_SERVER: (POLICY_SERVER,),
    LEARNER: READERS,
    SHARD: (SHARD,),
    OPERATOR: ("observer",),
    BUFFER: (),
}
BOUND = ("actor", "evaluator")  # sessions of these bear the name of their key
Z85_CHARS = 40
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)


@dataclass(frozen=True)
class Key:
    """What the buffer knows of a key: everything but the secret."""

    name: str = option(help="whose key it is; of an actor or an evaluator its id")
    role: str = option(help="what it is for", choices=tuple(SESSIONS))
    public: str = option(help="the public half, in Z85")
    made: str = option("", help="when it was made")

    def check(self, path: str = "") -> None:
        """Refuse a name that is no file name, and what is no key."""
        check_name(self.name)
        check_half(self.public, "public")


@dataclass(frozen=True)
class Secret:
    """What the owner of a key has: its secret half, and how to know the buffer."""

    name: str = option(help="whose key it is")
    role: str = option(help="what it is for", choices=tuple(SESSIONS))
    secret: str = option(help="the secret half, in Z85")
    buffer: str = option(help="the public half of the buffer's key, in Z85")

    def check(self, path: str = "") -> None:
        """Refuse what is no key."""
        check_half(self.secret, "secret")
        check_half(self.buffer, "buffer")

    def __repr__(self) -> str:
        """Without the secret, so that it can go to a log."""
        return f"Secret(name={self.name!r}, role={self.role!r})"

    @property
    def public(self) -> bytes:
        """The public half that belongs to it, in Z85."""
        return zmq.curve_public(self.secret.encode("ascii"))


def new_pair() -> tuple[str, str]:
    """A fresh public and secret half, in Z85."""
    public, secret = zmq.curve_keypair()
    return public.decode("ascii"), secret.decode("ascii")


def holder(role: str, identity: str) -> tuple[str, str]:
    """Name and role of the key that a session of this role and id takes."""
    kind = next(kind for kind, roles in SESSIONS.items() if role in roles)
    return (identity if kind in BOUND else kind), kind


def check_name(name: str) -> None:
    """Raise :class:`ConfigError` unless ``name`` can name a key and its files."""
    if not _NAME.fullmatch(name):
        raise ConfigError(f"name: {name[:80]!r} cannot name a key; letters, digits, '.', '_' and '-' can, at most 64 of them")


def check_half(text: str, field: str) -> None:
    """Raise :class:`ConfigError` unless ``text`` is 32 bytes in Z85, written in the one way in which they can be."""
    try:
        raw = z85.decode(text) if len(text) == Z85_CHARS else b""
        good = bool(raw) and z85.encode(raw).decode("ascii") == text
    except Exception:  # the decoder raises whatever its parts do
        good = False
    if not good:
        raise ConfigError(f"{field}: not a key, which is {Z85_CHARS} characters of Z85; make a new one")
