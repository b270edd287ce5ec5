"""What the fuzzing trials say together, for the results page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from campaign.fuzzing import MESSAGES, PARTS, TRIALS
from campaign.gate import FAILED, NOT_RUN, PASSED, UNFINISHED
from campaign.guiding import PARTS as GUIDED
from campaign.markdown import DASH, Line, Records, commits, table
from campaign.records import Record, latest

KINDS = (*PARTS, *(f"guided {part}" for part in GUIDED))
LEAST = MESSAGES * TRIALS


def of_kind(kind: str, known: Sequence[Record]) -> list[Record]:
    """The newest record of each trial of one kind, in order."""
    return [r for (part, _), r in sorted(latest(list(known), "part", "trial").items()) if part == kind]


def summarise(known: Sequence[Record], kinds: Sequence[str] = KINDS) -> dict[str, dict[str, Any]]:
    """Kind -> counts over its trials."""
    out = {}
    for kind in kinds:
        own = of_kind(kind, known)
        counts = {name: sum(r[name] for r in own) for name in ("messages", "accepted", "crashes", "hangs")}
        out[kind] = {**counts, "peak_bytes": max((r.get("peak_bytes", 0) for r in own), default=0)}
    return out


def fuzz_line(lines: Records) -> Line:
    """The verdict."""
    own = tuple(r for kind in KINDS for r in of_kind(kind, lines))
    if not own:
        return Line("mutated messages", NOT_RUN, "", ())
    said = summarise(lines)
    crashes, hangs = (sum(part[name] for part in said.values()) for name in ("crashes", "hangs"))
    messages, peak = sum(part["messages"] for part in said.values()), max(part["peak_bytes"] for part in said.values())
    text = f"{messages:,} messages: {crashes} crashes, {hangs} hangs; memory at most {peak / 2**20:.0f} MiB"
    whole = all(said[part]["messages"] >= LEAST for part in PARTS)
    return Line("mutated messages", FAILED if crashes or hangs else PASSED if whole else UNFINISHED, text, own)


def fuzz_section(lines: Records) -> str:
    """A row for each kind."""
    rows = []
    for kind, said in summarise(lines).items():
        if own := of_kind(kind, lines):
            accepted = f"{said['accepted']:,}" if kind in PARTS else DASH  # of the guided ones nobody counts them
            counts = [f"{said['messages']:,}", accepted, *(f"{said[name]:,}" for name in ("crashes", "hangs"))]
            cap = own[-1]["cap_bytes"] / 2**20
            rows.append((kind, len(own), *counts, f"{said['peak_bytes'] / 2**20:.0f} of {cap:.0f}", commits(own)))
    head = ("part", "trials", "messages", "accepted in whole or part", "crashes", "hangs", "peak MiB", "commit")
    return table(head, rows) if rows else NOT_RUN
