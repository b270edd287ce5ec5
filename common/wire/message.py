"""The base of all messages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True)
class Message:
    """Base of all messages; ``TAG`` is the kind on the wire and never reused."""

    TAG: ClassVar[int] = 0
