"""The campaigns of `headrace chaos`: what is asked for, and what their records say of each promise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from campaign.gate import FAILED, NOT_RUN, PASSED, UNFINISHED
from campaign.markdown import DASH, Line, Records, commits, table
from campaign.promise import Recorded, Tally
from campaign.records import Record, latest
from headrace.launch.chaos.schedule import KEYED_ONLY, KINDS, ROLES
from headrace.launch.chaos.verdict import KINDS as FAULTS

FILE = "chaos.jsonl"
SCRIPT = "chaos.py"
MINUTES = 60.0
TRIALS, KILLS = 1_000_000, 100  # acknowledged transitions, and kills of each role
ASKED = frozenset(KINDS) - frozenset(KEYED_ONLY)  # faults; intruders were added later, and judge none of these promises


def newest(known: Sequence[Record]) -> list[Record]:
    """The newest record of each seed of the campaigns that count: as long as asked for, with all faults that are."""
    whole = [r for r in known if r["minutes"] >= MINUTES and set(r["kinds"]) >= ASKED]
    return [record for _, record in sorted(latest(whole, "seed").items())]


def tell(faults: Sequence[str], wanted: int, bars: Mapping[str, float]) -> Recorded:
    """A row of the table of promises: trials of the first of some faults, failures of any, and bars of figures.

    Args:
        faults: keys of a verdict's ``KINDS``.
        wanted: trials.
        bars: figure -> what it must reach at least.
    """

    def said(known: Sequence[Record]) -> Tally:
        own = newest(known)
        bar = "; ".join([f"{', '.join(faults)} 0", *(f"{name} >= {low:,g}" for name, low in bars.items())])
        if not own:
            return Tally(0, wanted, 0, "", bar)
        counts = {fault: sum(r["table"][fault]["failures"] for r in own) for fault in faults}
        figures = {name: sum(figure_of(r, name) for r in own) for name in bars}
        shown = "; ".join(f"{name} {value:,}" for name, value in {**counts, **figures}.items())
        missed = any(figures[name] < low for name, low in bars.items()) or not all(map(convicted, own))
        trials = sum(r["table"][faults[0]]["trials"] for r in own)
        return Tally(trials, wanted, sum(counts.values()), shown, bar, missed, tuple(own))

    return Recorded("chaos", SCRIPT, FILE, said)


def figure_of(record: Record, name: str) -> int:
    """A figure by its name; ``kills`` are the fewest of any role, ``kills of X`` those of one."""
    if name == "kills":
        return min(record["kills_by_role"].values())
    return int(record["kills_by_role"][name[9:]] if name.startswith("kills of ") else record["figures"][name])


def convicted(record: Record) -> bool:
    """Whether every lie that was told was found, and nothing at the honest one."""
    return all(record["controls"].values())


def reached(record: Record) -> bool:
    """Whether a campaign was as large as asked for."""
    return bool(record["trials"] >= TRIALS) and figure_of(record, "kills") >= KILLS


def chaos_line(lines: Records) -> Line:
    """The verdict."""
    own = newest(lines)
    if not own:
        return Line("all faults at once", NOT_RUN, "", ())
    record = own[-1]
    found = sum(said["failures"] for said in record["table"].values())
    what = f"{record['trials']:,} acknowledged transitions, {record['kills']} kills in {record['minutes']:g} minutes"
    text = f"{what}: {found} at fault"
    state = FAILED if not all(r["passed"] for r in own) else PASSED if all(map(reached, own)) else UNFINISHED
    return Line("all faults at once", state, text, tuple(own))


def chaos_section(lines: Records) -> list[str]:
    """What the newest campaign found, and what it did."""
    own = newest(lines)
    if not own:
        return [NOT_RUN]
    record = own[-1]
    rows = [
        (kind, what, f"{said['trials']:,}", str(said["failures"]), _bound(said["bound_95"]))
        for kind, what in FAULTS.items()
        if (said := record["table"].get(kind)) is not None
    ]
    kills = ", ".join(f"{role} {record['kills_by_role'][role]}" for role in ROLES)
    others = ", ".join(f"{kind} {count}" for kind, count in sorted(record["faults"].items()) if kind != "kill")
    figures = ", ".join(f"{name} {value:,}" for name, value in record["figures"].items())
    return [
        f"`headrace chaos --minutes {record['minutes']:g} --seed {record['seed']}`, commit {commits(own[-1:])}. Kills: {kills}."
        f" Other faults: {others}. Of {len(record['controls']) - 1} lies the checker found {record['controls_fired']}.",
        table(("fault", "what it is", "trials", "failures", "95 % upper bound"), rows),
        f"History: {figures}.",
    ]


def _bound(value: Any) -> str:
    return DASH if value is None else f"{value:.2g}"
