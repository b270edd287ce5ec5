"""The learning gates on the results page: their verdicts, and for each picture its runs and settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from campaign.comparison import compare
from campaign.gate import NOT_RUN, SUCCESS, UNFINISHED, Gate, Verdict, judge, of_gate
from campaign.markdown import Line, Records, commit, number, table
from campaign.registry import COMPARISONS, GATES, PICTURES

SETTINGS = ("learner", "model", "sampling", "pacing", "actor", "env", "window", "eval", "pool")


def gate_lines(records: Records) -> list[Line]:
    """The verdict of every gate, then of every comparison."""
    lines = [_line(name, judge(gate, records), of_gate(gate, records)) for name, gate in GATES.items()]
    for name, comparison in COMPARISONS.items():
        own = [*of_gate(comparison.ours, records), *of_gate(comparison.theirs, records)]
        lines.append(_line(name, compare(comparison, records), own))
    return lines


def picture_parts(name: str, records: Records, drawn: bool) -> list[str]:
    """The part of the page about one picture and its gates."""
    parts = [f"### {name}: {GATES[PICTURES[name][0]].env.rpartition(':')[2]}"]
    if drawn:
        parts.append(f"![{name}]({name}.png)")
    for gate in (GATES[g] for g in PICTURES[name]):
        own = of_gate(gate, records)
        parts.append(_runs_table(gate, own) if own else f"`{gate.name}`: {NOT_RUN}")
        if own:
            parts.append(_made_with(gate, own))
    return parts


def _line(name: str, verdict: Verdict, own: Records) -> Line:
    text = "; ".join(f"{c.what} {c.value} ({c.bar}){'' if c.holds else ' **missed**'}" for c in verdict.checks)
    if verdict.state == UNFINISHED:
        text = f"{len(own)} runs are done"
    return Line(name, verdict.state, "; ".join(filter(None, (text, verdict.note))), tuple(own))


def _runs_table(gate: Gate, own: Records) -> str:
    marks = [f"at {mark:,}" for mark in gate.marks]
    success = [SUCCESS] if gate.measured == SUCCESS else []
    counts = ("env steps", "updates", "achieved ratio", "wall s")
    head = (gate.name, *success, "return", "episodes", *marks, *counts, "commit", "date")
    rows = []
    for r in own:
        at = [r["marks"].get(str(mark)) for mark in gate.marks]
        shown = [gate.text(v) if v is not None and success else number(v) for v in at]
        rate = [gate.text(r[gate.value])] if success else []
        result = f"{r['return_mean']:.1f} ± {r['return_std']:.1f}"
        done = (r["env_steps"], r["updates"], f"{r['achieved_ratio']:.4f}", r["wall_s"])
        rows.append((f"seed {r['seed']}", *rate, result, r["episodes"], *shown, *done, commit(r), r["date"][:10]))
    return table(head, rows)


def _made_with(gate: Gate, own: Records) -> str:
    record = own[-1]
    preset = f", `examples/presets/{record['preset']}`" if record.get("preset") else ""
    text = f"Settings of `{gate.name}` (`examples/{record['example']}`{preset} with overrides): {_settings(record['settings'])}"
    if versions := record.get("versions"):
        text += f" Versions: {' '.join(f'{k} {v}' for k, v in versions.items())}."
    return text


def _settings(settings: Mapping[str, Any]) -> str:
    texts = []
    for section in SETTINGS:
        values = {key: value for key, value in settings.get(section, {}).items() if value not in ({}, [], None, "")}
        if values:
            texts.append(f"{section} " + ", ".join(f"{key} {value}" for key, value in values.items()))
    return "; ".join(texts) + "."
