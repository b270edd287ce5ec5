"""A declared bound of memory: the most that a role takes, part by part, so that a reader sees what to change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

MIB = 1 << 20


@dataclass(frozen=True)
class Bound:
    """Bytes of private memory by what they are for."""

    parts: Mapping[str, int]

    @property
    def total(self) -> int:
        """All parts together."""
        return sum(self.parts.values())

    def __str__(self) -> str:
        parts = ", ".join(f"{name} {size / MIB:,.0f}" for name, size in self.parts.items())
        return f"{self.total / MIB:,.0f} MiB ({parts})"
