"""The promises on the results page: one row for each part of a promise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from campaign.markdown import DASH, Records, commits, table
from campaign.promise import Promise, Tally

HEAD = (
    "promise",
    "trials of",
    "command",
    "verdict",
    "trials",
    "failures",
    "95 % upper bound",
    "figure",
    "bar",
    "commits",
    "dates",
)


def tallies(promises: Mapping[str, Promise], found: Mapping[str, Records]) -> dict[str, Tally]:
    """``P12/name`` -> what the records say; ``found``: records by the name of their file."""
    return {
        f"{p.number}/{row.name}": row.tally(p.number, found.get(row.file, ())) for p in promises.values() for row in p.parts
    }


def promise_section(promises: Mapping[str, Promise], found: Mapping[str, Records]) -> list[str]:
    """What is promised, and the table."""
    said = tallies(promises, found)
    lines = [f"- **{p.number}** {p.text}" for p in promises.values()]
    rows = [
        _row(p.number, row.name, row.command(p.number), said[f"{p.number}/{row.name}"])
        for p in promises.values()
        for row in p.parts
    ]
    return ["\n".join(lines), table(HEAD, rows)] if rows else []


def _row(number: str, name: str, command: str, tally: Tally) -> Sequence[object]:
    days = sorted({r["date"][:10] for r in tally.records})
    dates = " to ".join(dict.fromkeys([*days[:1], *days[-1:]]))
    bound = DASH if tally.bound is None else f"{tally.bound:.2g}"
    count = f"{tally.trials:,} of {tally.wanted:,}"
    told = (tally.figures or DASH, tally.bar or DASH, commits(tally.records) or DASH, dates or DASH)
    return (number, name, f"`{command}`", f"**{tally.state}**", count, tally.failures, bound, *told)
