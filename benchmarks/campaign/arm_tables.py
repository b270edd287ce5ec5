"""What records say of a robot's periods under load, and of a policy server beside the least that could do its work."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from campaign.gate import FAILED, NOT_RUN, PASSED
from campaign.markdown import DASH, Line, Records, commit, table
from campaign.records import Record, latest

JITTER, SERVER = FILES = ("robot_jitter.jsonl", "policy_server.jsonl")
SIDES = ("echo", "bare", "server")
STATES = ("loaded", "stopped")


def arm_lines(found: Mapping[str, Records]) -> list[Line]:
    """The verdict on periods, and what a policy server gives; ``found``: records by the name of their file."""
    return [_jitter_line(found.get(JITTER, ())), _server_line(found.get(SERVER, ()))]


def arm_sections(found: Mapping[str, Records]) -> list[str]:
    """A table of each."""
    return [
        "## A robot's periods while learner and buffer are at full load",
        _jitter(found.get(JITTER, ())),
        "## A policy server beside the least that could do its work",
        _server(found.get(SERVER, ())),
    ]


def _jitter_line(lines: Records) -> Line:
    name = "jitter of a robot's periods"
    if not lines:
        return Line(name, NOT_RUN, "", ())
    r = lines[-1]
    late = {state: f"{r[state]['late_ms_p99']:.2f} ms" for state in STATES}
    text = f"p99 {late['loaded']} under full load, {late['stopped']} with the buffer stopped; bar: 1 ms apart at most"
    return Line(name, PASSED if r["passed"] else FAILED, text, (r,))


def _jitter(lines: Records) -> str:
    if not lines:
        return NOT_RUN
    r = lines[-1]
    head = ("state", "late p50, p99 (ms)", "off a period p50, p99 (ms)", "overruns", "updates/s", "commit", "date")
    rows = []
    for state in STATES:
        said = r[state]
        pairs = (f"{said[f'{what}_ms_p50']:.2f}, {said[f'{what}_ms_p99']:.2f}" for what in ("late", "off"))
        rows.append((state, *pairs, said["overruns"], said["updates_s"], commit(r), r["date"][:10]))
    return table(head, rows)


def _newest(lines: Records) -> list[Record]:
    return [record for _, record in sorted(latest(list(lines), "policy", "device").items())]


def _server_line(lines: Records) -> Line:
    name, own = "policy server", _newest(lines)
    if not own:
        return Line(name, NOT_RUN, "", ())
    return Line(name, "measured", "; ".join(_spoken(r) for r in own), tuple(own))


def _spoken(r: Record) -> str:
    robots = max(r["robots"], key=int)
    server, bare = (r["robots"][robots][side] for side in ("server", "bare"))
    rates = f"{server['per_s']:,.0f} decisions/s for {robots} robots, p99 {server['p99']:.1f} ms"
    return f"{r['policy']} on {r['device']}: {rates} (one pass a request: {bare['per_s']:,.0f}, {bare['p99']:.1f} ms)"


def _server(lines: Records) -> str:
    head = ("policy", "device", "robots", *(f"{side}: decisions/s, p50, p99 (ms)" for side in SIDES), "commit", "date")
    rows = []
    for r in _newest(lines):
        about = (r["policy"], r["device"])
        origin = (commit(r), r["date"][:10])
        counts = sorted(r["robots"].items(), key=lambda each: int(each[0]))
        rows += [(*about, robots, *(_figures(said[side]) for side in SIDES), *origin) for robots, said in counts]
        rows.append((*about, "1, as an actor", DASH, DASH, _figures(r["actor"]), *origin))
    return table(head, rows) if rows else NOT_RUN


def _figures(said: Mapping[str, Any]) -> str:
    return f"{said['per_s']:,.0f}, {said['p50']:.2f}, {said['p99']:.2f}"
