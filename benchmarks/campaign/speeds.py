"""The sections of the speed tables, and their verdicts: the newest record of each row, and of each other processor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from speed.rows import Row

from campaign.gate import FAILED, NOT_RUN, PASSED
from campaign.markdown import DASH, Line, Records, commit, table
from campaign.records import Record, latest


def speed_line(of: str, name: str, lines: Records) -> Line:
    """The verdict on row ``name`` of the table ``of``."""
    own = latest(list(lines), "row").get((name,))
    if own is None:
        return Line(f"{of}: {name}", NOT_RUN, "", ())
    judged = _judged(own)
    state = PASSED if all(c["met"] for c in judged) else FAILED
    return Line(f"{of}: {name}", state if judged else "measured", _told(judged or own["checks"]), (own,))


def _judged(record: Record) -> list[Mapping[str, Any]]:
    return [c for c in record["checks"] if c["bar"] != DASH]


def _told(checks: Sequence[Mapping[str, Any]]) -> str:
    return "; ".join(f"{c['what']} {_digits(c['value'])} ({c['bar']}){'' if c['met'] else ' **missed**'}" for c in checks)


def speed_section(rows_of: Mapping[str, Row], lines: Records) -> list[str]:
    """Each row of a table with its figures, its bars, and the parts of what was measured."""
    newest = latest(list(lines), "row")
    parts = ["Medians of windows in turn; in brackets lowest and highest. Bars compare within a round."]
    for name, row in rows_of.items():
        own = newest.get((name,))
        if own is None:
            parts += [f"### {name}", f"{row.title}: {NOT_RUN}"]
            continue
        rows = [(f"{who} ({row.unit})", _spread(f["median"], f), "") for who, f in own["figures"].items()]
        rows += [(c["what"], _spread(c["value"], c), f"{c['bar']}{'' if c['met'] else ' **missed**'}") for c in own["checks"]]
        versions = ", ".join(f"{k} {v}" for k, v in own["peers"].items())
        when = f"{own['rounds']} windows of {own['window_s']} s, {commit(own)}, {own['date'][:10]}"
        tables = [table(("what", "median", "bar"), rows), *_parts(own)]
        parts += [f"### {name}", f"{row.title}. {row.bound}", *tables, f"{when}. {versions}", *_elsewhere(own, lines)]
    return parts


def _elsewhere(own: Record, lines: Records) -> list[str]:
    """What the row came to on each other processor, newest first: which it is decides over some figures."""
    newest: dict[str, Record] = {}
    for record in reversed([r for r in lines if r.get("row") == own["row"]]):
        newest.setdefault(record["machine"]["cpu"], record)
    others = [r for cpu, r in newest.items() if cpu != own["machine"]["cpu"]]
    return [f"On {r['machine']['cpu']}: {_told(_judged(r) or r['checks'])}. {commit(r)}, {r['date'][:10]}." for r in others]


def _parts(record: Record) -> list[str]:
    found = record.get("parts", {})
    names = list(dict.fromkeys(name for ms in found.values() for name in ms))
    rows = [(who, *(f"{ms[name]:.3f}" if name in ms else DASH for name in names)) for who, ms in found.items()]
    return [table(("ms each", *names), rows)] if rows else []


def _spread(value: float, spread: Mapping[str, float]) -> str:
    return f"{_digits(value)} ({_digits(spread['low'])} to {_digits(spread['high'])})"


def _digits(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"
