"""A finding of the doctor: what was looked at, the verdict, and what to do."""

from __future__ import annotations

from dataclasses import dataclass

GOOD, WARN, BAD = "ok", "look", "bad"


@dataclass(frozen=True)
class Finding:
    """One line: what was looked at, the verdict, what was seen, and what to do about it."""

    what: str
    verdict: str
    seen: str
    advice: str = ""

    def __str__(self) -> str:
        advice = f"; {self.advice}" if self.advice else ""
        return f"{self.verdict:<5} {self.what:<18} {self.seen}{advice}"
