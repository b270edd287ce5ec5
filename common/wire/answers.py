"""Answers that every process gives to those who dial it: what it turns away, and why."""

from __future__ import annotations

from typing import Any

from headrace.common.errors import SpecError
from headrace.common.specs import TransitionSpec
from headrace.common.wire.codec import Parts
from headrace.common.wire.fields import printable
from headrace.common.wire.messages import BUFFER, MAX_ID, PROTOCOL, Declined, Hello, Refused
from headrace.common.wire.versions import spoken

Out = tuple[bytes, Parts]  # a peer, and a message for it
RETRY_S = 0.25
HELLO_FIRST = Refused("hello-first", "no session here; say hello", RETRY_S)
REVOKED = Refused("key-revoked", "its key was revoked", 0.0)


def declined(reason: str, detail: str) -> Declined:
    """The answer to a message that was not accepted."""
    return Declined(reason[:32], printable(detail)[:256])


def stopping(why: str, who: str = BUFFER) -> Refused:
    """The answer of a process that is about to end."""
    return Refused("stopping", f"the {who} is stopping: {why}", RETRY_S)


def refuse_version(version: int, who: str = BUFFER) -> Refused:
    """The answer to a hello of a protocol version that is not spoken here."""
    fix = f"upgrade the {who}" if version > PROTOCOL else "upgrade this process"
    return Refused("protocol", f"this process speaks protocol version {version}, the {who} {spoken()}; {fix}", 0.0)


def refuse_name(hello: Hello) -> Refused | None:
    """Refuse an id that no ledger can hold."""
    size = len(hello.id.encode())
    if 1 <= size <= MAX_ID:
        return None
    return Refused("id", f"{hello.role} id of {size} bytes; expected 1 to {MAX_ID}", 0.0)


def refuse_spec(theirs: Any, ours: TransitionSpec, whose: str) -> Refused | None:
    """Refuse the spec of a hello unless it is ``ours``, which are those of ``whose``; names each field that differs."""
    try:
        differences = ours.differences(TransitionSpec.from_dict(theirs))
    except SpecError as error:
        return Refused("spec", printable(str(error))[:1000], 0.0)
    if not differences:
        return None
    detail = f"the {whose}'s spec and this process's differ ({whose} first): " + "; ".join(differences[:8])
    return Refused("spec", printable(detail)[:1000], 0.0)
