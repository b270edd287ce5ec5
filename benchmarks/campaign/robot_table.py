"""What the records of a robot that learns say: a verdict, a table, a curve."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from campaign.gate import FAILED, NOT_RUN, PASSED
from campaign.markdown import DASH, Line, Records, commit, table
from campaign.records import Record, latest
from campaign.robot_figures import BETTER, MINUTES, RATE

FILE, PICTURE = "robot_learning.jsonl", "robot-reach.png"
CONSERVED = ("lost", "duplicated", "out_of_order", "missing", "unbalanced")


def newest(lines: Records) -> list[Record]:
    """The newest record of each seed, undisturbed ones first."""
    return [record for _, record in sorted(latest(list(lines), "hurt", "seed").items())]


def robot_line(lines: Records) -> Line:
    """The verdict."""
    own, name = newest(lines), "a robot learns on two hosts"
    if not own:
        return Line(name, NOT_RUN, "", ())
    text = "; ".join(f"{_name(r)}: {_success(r['policy'])}, cloning alone {_success(r['cloning'])}" for r in own)
    bar = f"bar: {RATE:.0%}, cloning {BETTER:.0%} below it, {MINUTES:.0f} min"
    return Line(name, PASSED if all(r["passed"] for r in own) else FAILED, f"{text}; {bar}", tuple(own))


def robot_section(lines: Records, *, drawn: bool) -> list[str]:
    """What each run came to."""
    own = newest(lines)
    if not own:
        return [NOT_RUN]
    head = (
        "run",
        "success",
        "cloning alone",
        "wall clock",
        "env steps",
        "updates",
        "updates/s",
        "human steps",
        "commit",
        "date",
    )
    rows = [(_name(r), *_learning(r), commit(r), r["date"][:10]) for r in own]
    safe = (
        "late commands",
        "crossed resets",
        *CONSERVED,
        "period p50, p99 (ms)",
        "jitter p99 (ms)",
        "safe p99, most (ms)",
        "cut",
    )
    parts = [table(head, rows), table(("run", *safe), [(_name(r), *_safety(r)) for r in own])]
    parts += [f"![success without help while it learns]({PICTURE})"] if drawn else []
    hurt = [r for r in own if r["hurt"]]
    if hurt:
        kinds = {
            kind: ", ".join(DASH if ms is None else f"{ms:.0f}" for ms in found) for kind, found in hurt[-1]["safe_ms"].items()
        }
        parts += [
            "From each fault until the arm followed the policy no more, beyond what is declared:",
            table(("fault", "ms"), list(kinds.items())),
        ]
    missed = [f"{_name(r)}: {'; '.join(r['problems'])}." for r in own if r["problems"]]
    return [*parts, *missed]


def draw_robot(lines: Records, out: Path) -> bool:
    """Draw success without help over env steps into ``out``; whether there was anything to draw."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    own = [r for r in newest(lines) if r["curve"]]
    if not own:
        out.unlink(missing_ok=True)
        return False
    figure = Figure(figsize=(7, 4.2), dpi=120, layout="constrained")  # no pyplot: no global state, no window system
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    for number, record in enumerate(own):
        steps, alone, human = np.array(record["curve"], np.float64).T  # None is NaN: not known
        axes.plot(steps, alone, color=f"C{number}", label=f"{_name(record)}: success without help, of 50 episodes")
        axes.plot(steps, human, color=f"C{number}", ls=":", label=f"{_name(record)}: share of human steps")
        axes.scatter([record["env_steps"]], [record["policy"]["success"]], color=f"C{number}", s=18, label="final exam")
        axes.axhline(record["cloning"]["success"], color=f"C{number}", ls="--", lw=0.8, label="cloning alone")
    axes.axhline(RATE, color="black", lw=0.8, ls="-.", label=f"bar, {RATE:.0%}")
    axes.set(xlabel="env steps, 20 a second", ylabel="share", title="fake arm, goal in the pictures alone", ylim=(0, 1.02))
    axes.grid(alpha=0.3)
    axes.legend(fontsize="x-small")
    figure.savefig(out, metadata={"Software": None})  # the same records give the same bytes
    return True


def _name(record: Record) -> str:
    return f"seed {record['seed']}, {'hurt' if record['hurt'] else 'undisturbed'}"


def _success(exam: dict[str, Any]) -> str:
    low, high = exam["interval"]
    return f"{exam['success']:.0%} of {exam['episodes']} [{low:.0%}, {high:.0%}]"


def _learning(record: Record) -> tuple[Any, ...]:
    exams, steps = (_success(record["policy"]), _success(record["cloning"])), (record["env_steps"], record["updates"])
    counts = [f"{count:,}" for count in steps]
    return (*exams, f"{record['wall_min']:.0f} min", *counts, record["updates_s"], f"{record['human_share']:.0%}")


def _safety(record: Record) -> tuple[Any, ...]:
    jitter = DASH if record["jitter_ms_p99"] is None else record["jitter_ms_p99"]
    shared = (record["stale_commands"], record["crossed_resets"], *(record[name] for name in CONSERVED))
    periods = f"{record['period_ms_p50']:.1f}, {record['period_ms_p99']:.1f}"
    if not record["hurt"]:
        return (*shared, periods, jitter, DASH, DASH)
    known = [ms for found in record["safe_ms"].values() for ms in found if ms is not None]
    safe = f"{np.percentile(known, 99):.0f}, {max(known):.0f}" if known else DASH
    return (*shared, periods, jitter, safe, f"{record['cut_s']:.0f} s, {record['spooled']:,} steps waited")
