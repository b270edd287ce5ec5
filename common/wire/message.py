"""The base of all messages: what is true of a kind, whoever sends it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

BUFFER = "buffer"  # a sender beside the roles of clients
POLICY_SERVER = "policy-server"  # one too, and a client of the buffer
LISTENERS = (BUFFER, POLICY_SERVER)  # those who are dialled


@dataclass(frozen=True)
class Message:
    """Base of all messages; a kind is declared as ``class Kind(Message, tag=..., senders=..., frames=...)``.

    Attributes:
        TAG: the kind on the wire, never reused.
        SENDERS: who may send it: roles of clients, or those who are dialled.
        FRAMES: how many frames follow the header; none where header and spec say it.
    """

    TAG: ClassVar[int] = 0
    SENDERS: ClassVar[tuple[str, ...]] = ()
    FRAMES: ClassVar[int | None] = 0

    def __init_subclass__(cls, tag: int, senders: tuple[str, ...] = (BUFFER,), frames: int | None = 0) -> None:
        cls.TAG, cls.SENDERS, cls.FRAMES = tag, senders, frames
