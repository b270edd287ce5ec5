"""What the records of runs on many hosts say: a verdict each, and a table of their troubles."""

from __future__ import annotations

from campaign.gate import FAILED, NOT_RUN, PASSED
from campaign.markdown import DASH, Line, Records, commit, table
from campaign.records import Record, latest

FILE = "many_hosts.jsonl"
TRIALS = {
    "undisturbed": "six hosts learn HalfCheetah-v4",
    "hurt": "six hosts, each rebooted once",
    "links": "six hosts, links cut, slow, half open",
}


def hosts_lines(lines: Records) -> list[Line]:
    """The verdict of each trial."""
    return [_line(trial, name, _newest(lines, trial)) for trial, name in TRIALS.items()]


def hosts_section(lines: Records) -> list[str]:
    """What each run came to, and how long rates took to be back after each trouble."""
    own = [record for trial in TRIALS for record in _newest(lines, trial)]
    if not own:
        return [NOT_RUN]
    head = (
        "run",
        "return",
        "env steps",
        "updates",
        "rows by shard",
        "lost",
        "doubled",
        "abandoned",
        "wall s",
        "commit",
        "date",
    )
    rows = [(_name(r), *_told(r), commit(r), r["date"][:10]) for r in own]
    parts = [table(head, rows)]
    troubled = [(_name(r), f"{one['kind']} of {one['host']}", _seconds(one["back_s"])) for r in own for one in r["troubles"]]
    if troubled:
        parts.append(table(("run", "trouble", "rates within 10 % again after (s)"), troubled))
    return parts


def _line(trial: str, name: str, own: Records) -> Line:
    if not own:
        return Line(name, NOT_RUN, "", ())
    problems = [problem for record in own for problem in record["problems"]]
    worst = [one["back_s"] for record in own for one in record["troubles"]]
    back = f"; rates back after {_seconds(None if None in worst else max(worst))} s at most, bar 30" if worst else ""
    returns = ", ".join(f"{record['return_mean']:.0f}" for record in own) if trial != "links" else ""
    text = f"lost {sum(r['lost'] for r in own)}, doubled {sum(r['duplicated'] for r in own)}, bar 0{back}"
    text += f"; return {returns}, bar 2500" if returns else ""
    text += f"; missed: {'; '.join(problem.replace('|', '/') for problem in problems)}" if problems else ""
    return Line(name, FAILED if problems else PASSED, text, tuple(own))


def _newest(lines: Records, trial: str) -> list[Record]:
    own = [record for record in lines if record["trial"] == trial]
    return [record for _, record in sorted(latest(own, "seed").items())]


def _name(record: Record) -> str:
    return f"{record['trial']}, seed {record['seed']}"


def _told(record: Record) -> tuple[str, ...]:
    shards = " + ".join(f"{rows:,}" for rows in record["rows_by_shard"])
    returned = f"{record['return_mean']:.1f} ± {record['return_std']:.1f}"
    counts = (record["lost"], record["duplicated"], record["abandoned"], record["wall_s"])
    return (returned, f"{record['env_steps']:,}", f"{record['updates']:,}", shards, *map(str, counts))


def _seconds(value: float | None) -> str:
    return DASH if value is None else f"{value:.1f}"
