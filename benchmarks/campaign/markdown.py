"""Pieces of the results page: tables, numbers, and a line of its summary."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from campaign.records import Record

Records = Sequence[Record]
DASH = "-"


@dataclass(frozen=True)
class Line:
    """One line of the summary: what, its state, its numbers in words, and the records it stands on."""

    name: str
    state: str
    text: str
    records: tuple[Record, ...]


def table(head: Sequence[Any], rows: Sequence[Sequence[Any]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


def commit(record: Record) -> str:
    """The commit of a record."""
    return f"`{record['commit']}`{' (dirty)' if record['dirty'] else ''}"


def commits(own: Records) -> str:
    """The commits of records, each once."""
    return ", ".join(sorted({commit(r) for r in own}))


def number(value: float | None) -> str:
    """A measured number, one that may be missing."""
    return DASH if value is None else f"{value:,.1f}" if abs(value) < 1e5 else f"{value:,.0f}"


def filled(text: str, part: str, made: str) -> str:
    """The page ``text`` with ``made`` in its part of that name."""
    begin, end = f"<!-- {part}: begin -->", f"<!-- {part}: end -->"
    before, _, rest = text.partition(begin)
    _, _, after = rest.partition(end)
    return f"{before}{begin}\n\n{made}\n\n{end}{after}"
