"""Live progress of a run for people: a table that stays in place on a terminal, one line every few seconds elsewhere."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from headrace.common.clock import Clock

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

LINE_EVERY_S = 5.0
MAX_ACTORS_SHOWN = 16
MAX_LOST_SHOWN = 3
UNKNOWN = "-"
FLEET_HEAD = ("actor", "host", "pid", "env steps/s", "env steps", "policy age", "silent")
LEFT_COLUMNS = 2  # of these: text is on the left, numbers on the right
Status = Mapping[str, Any]


def duration(seconds: float | None) -> str:
    """Seconds as ``m:ss`` or ``h:mm:ss``; ``-`` when unknown."""
    if seconds is None or not math.isfinite(seconds):
        return UNKNOWN
    whole = max(0, round(seconds))
    hours, minutes = whole // 3600, whole // 60 % 60
    return f"{hours}:{minutes:02d}:{whole % 60:02d}" if hours else f"{minutes}:{whole % 60:02d}"


def eta_s(status: Status) -> float | None:
    """Seconds until the run's goal at the present rates; none when it has no goal or nothing moves."""
    goal, rates = status.get("env_steps_goal", 0), status.get("rates", {})
    offline = status.get("offline_updates_goal", 0)
    left = status.get("updates_owed", 0) - status.get("updates", 0)
    if status.get("offline_updates", 0) < offline:
        # No env step has been timed yet; the updates that each of them will owe have been.
        return _ratio(left + goal * status.get("target_ratio", 0.0), rates.get("updates_s", 0.0))
    if not goal and not offline:
        return None
    steps = goal - status.get("env_steps", 0)
    if steps > 0:
        return _ratio(steps, rates.get("env_steps_s", 0.0))
    return _ratio(max(0, left), rates.get("updates_s", 0.0))


def _reading(status: Status) -> str:
    reading = (status.get("learner") or {}).get("reading")
    return f"   read: {reading}" if reading else ""


def facts(status: Status) -> list[tuple[str, str]]:
    """What is shown of a status, as (label, text) pairs in order."""
    rates, pool = status.get("rates", {}), status.get("pool", {})
    goal, capacity = status.get("env_steps_goal", 0), pool.get("capacity", 0)
    of_goal = f" of {goal:,}" if goal else ""
    rows = pool.get("rows", 0)
    fill = f" ({rows / capacity:.0%} of {capacity:,})" if capacity else ""
    demos = f" and {pool['demo_rows']:,} demonstrations" if pool.get("demo_rows") else ""
    lag, age = status.get("policy_lag_updates", 0), status.get("policy_age_s", 0.0)
    pairs = [
        ("env steps", f"{status.get('env_steps', 0):,}{of_goal}   {rates.get('env_steps_s', 0.0):,.1f}/s"),
        ("updates", f"{status.get('updates', 0):,}{_offline(status)}   {rates.get('updates_s', 0.0):,.1f}/s"),
        ("updates per env step", f"{status.get('achieved_ratio', 0.0):.3f}   target {status.get('target_ratio', 0.0):g}"),
        ("pool", f"{rows:,} rows{fill}{demos}{_reading(status)}"),
        *_ranks(status),
        *_sets(status),
        ("return, training", _number(status.get("return_mean"))),
        ("return, evaluation", _evaluation(status)),
        ("policy age", f"{lag:,} updates, {age:.1f} s"),
        ("time, ETA", f"{duration(status.get('uptime_s'))}, {duration(eta_s(status))}"),
    ]
    return pairs + _remarks(status)


def line(status: Status) -> str:
    """The status in one line."""
    goal, rates, pool = status.get("env_steps_goal", 0), status.get("rates", {}), status.get("pool", {})
    last = (status.get("evaluations") or [{}])[-1]
    parts = [
        f"{duration(status.get('uptime_s')):>7} {status.get('phase', UNKNOWN):<9}",
        f"env steps {status.get('env_steps', 0)}{f'/{goal}' if goal else ''} ({rates.get('env_steps_s', 0.0):.0f}/s)",
        f"updates {status.get('updates', 0)}{_offline(status)} ({rates.get('updates_s', 0.0):.0f}/s)",
        f"ratio {status.get('achieved_ratio', 0.0):.3f}",
        f"pool {pool.get('rows', 0)}",
        f"return {_number(status.get('return_mean'))} (eval {_number(last.get('return_mean'))})",
        f"policy age {status.get('policy_lag_updates', 0)} updates {status.get('policy_age_s', 0.0):.1f} s",
        f"ETA {duration(eta_s(status))}",
    ]
    return "  ".join(parts + [f"{label}: {remark}" for label, remark in _remarks(status)])


def fleet(status: Status) -> list[list[str]]:
    """Cells of a table of actors and evaluators, its head first; empty when there are none."""
    actors = [*status.get("actors", []), *status.get("evaluators", [])]
    exploring = any(actor.get("epsilon") for actor in actors)
    head = [*FLEET_HEAD, *(["epsilon"] if exploring else [])]
    rows = [_actor_cells(actor)[: len(head)] for actor in actors[:MAX_ACTORS_SHOWN]]
    if len(actors) > MAX_ACTORS_SHOWN:
        rows.append([f"... {len(actors) - MAX_ACTORS_SHOWN} more", *[""] * (len(head) - 1)])
    return [head, *rows] if rows else []


def text(status: Status) -> str:
    """The whole status as plain text, for a pipe or a file."""
    lines = [f"{label:<22}{value}" for label, value in facts(status)]
    rows = fleet(status)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    pads = [str.ljust if column < LEFT_COLUMNS else str.rjust for column in range(len(widths))]
    lines += [""] if rows else []
    lines += ["  ".join(pad(cell, width) for pad, cell, width in zip(pads, row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join(lines)


def table(status: Status, title: str) -> RenderableType:
    """The status as a table for a terminal."""
    from rich import box
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    head = Table(
        box=box.SIMPLE_HEAD, title=Text(f"{title}   {status.get('phase', UNKNOWN)}", style="bold"), title_justify="left"
    )
    head.add_column("run", style="cyan", no_wrap=True)
    head.add_column(str(status.get("run", "")))
    for label, text in facts(status):
        head.add_row(label, Text(text))
    rows = fleet(status)
    if not rows:
        return head
    below = Table(box=box.SIMPLE_HEAD)
    for number, column in enumerate(rows[0]):
        below.add_column(column, justify="left" if number < LEFT_COLUMNS else "right")
    for row in rows[1:]:
        below.add_row(*map(Text, row))
    return Group(head, below)


class Progress:
    """Shows a run on a console.

    Args:
        console: where to.
        title: the run's name.
        clock: paces the lines where the console is no terminal.
    """

    def __init__(self, console: Console, title: str, clock: Clock) -> None:
        self._console, self._title, self._clock = console, title, clock
        self._next_line = 0.0
        self._live: Any = None

    def notice(self, text: str) -> None:
        """Print one line; it stays above the table."""
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)

    def update(self, status: Status) -> None:
        """Show the newest status."""
        if self._console.is_terminal:
            if self._live is None:
                from rich.live import Live

                self._live = Live(console=self._console, auto_refresh=False)
                self._live.start()
            self._live.update(table(status, self._title), refresh=True)
        elif self._clock.now() >= self._next_line:
            self._next_line = self._clock.now() + LINE_EVERY_S
            self._console.print(line(status), highlight=False, markup=False, soft_wrap=True)

    def close(self) -> None:
        """Leave the last table on the screen and give the terminal back."""
        if self._live is not None:
            self._live.stop()
            self._live = None


def _sets(status: Status) -> list[tuple[str, str]]:
    """Rows of each named set, and which part of the rows drawn for each mix came from it, beside its share."""
    sampling = status.get("sampling", {})
    mixes = sampling.get("mixes", {})
    return [
        (
            f"set {name}",
            f"{rows:,} rows"
            + "".join(f"   {mix} {m[name]['realised']:.1%} of {m[name]['share']:.1%}" for mix, m in mixes.items() if name in m),
        )
        for name, rows in sampling.get("sets", {}).items()
    ]


def _ranks(status: Status) -> list[tuple[str, str]]:
    """Each rank of a learner that has several, with its state, and who was lost; nothing of a learner that is alone."""
    learner = status.get("learner") or {}
    here = [who for who in (learner, *status.get("ranks", [])) if who]
    size = max(_count(learner, "ranks"), len(here))
    if size < 2:
        return []
    lost = [who for who in status.get("lost_sessions", []) if who.get("role") in ("learner", "rank")]
    last = ", ".join(f"{who.get('id')} ({who.get('why')}, pid {who.get('pid')})" for who in lost[-MAX_LOST_SHOWN:])
    return [
        ("ranks", f"{len(here)} of {size}" + (f"   {len(lost)} lost so far: {last}" if lost else "")),
        *(("rank", _rank(who)) for who in here),
    ]


def _rank(who: Status) -> str:
    hungry = _count(who, "updates_without_rows")
    without = f", {hungry:,} without rows" if hungry else ""
    updates = f"{_count(who, 'learner/updates'):,} updates{without}"
    return f"{who.get('id')}   {updates}   pid {who.get('pid')}   silent {who.get('silent_s', 0.0):.1f} s"


def _count(report: Status, key: str) -> int:
    """A whole number of what a process says of itself, which may be anything."""
    value = report.get(key, 0)
    return value if isinstance(value, int) else 0


def _remarks(status: Status) -> list[tuple[str, str]]:
    """What the run waits for, and what looks wrong, as (label, text) pairs."""
    waiting = [("waiting", str(reason)) for reason in status.get("waiting", [])]
    return waiting + [("warning", str(reason)) for reason in status.get("warnings", [])]


def _actor_cells(actor: Status) -> list[str]:
    """Cells of one row; an evaluator has no rate, no steps of the run, no policy age and no random actions."""
    epsilon = actor.get("epsilon")
    age = f"{actor.get('lag_updates', 0):,} updates, {actor['age_s']:.1f} s" if "age_s" in actor else UNKNOWN
    return [
        str(actor.get("id", "")),
        str(actor.get("host", "")),
        str(actor.get("pid", "")),
        f"{actor['rate']:,.1f}" if "rate" in actor else UNKNOWN,
        f"{actor['executed']:,}" if "executed" in actor else UNKNOWN,
        age,
        f"{actor.get('silent_s', 0.0):.1f} s",
        f"{epsilon:.2g}" if isinstance(epsilon, (int, float)) else UNKNOWN,
    ]


def _offline(status: Status) -> str:
    """How many of the updates were made offline; nothing for a run without an offline phase."""
    goal = status.get("offline_updates_goal", 0)
    return f" ({status.get('offline_updates', 0):,} of {goal:,} offline)" if goal else ""


def _evaluation(status: Status) -> str:
    evaluations = status.get("evaluations") or []
    if not evaluations:
        return UNKNOWN
    last = evaluations[-1]
    spread = _number(last.get("return_std"))
    return (
        f"{_number(last.get('return_mean'))} ± {spread} over {last.get('episodes', 0)} episodes at {last.get('env_steps', 0):,}"
    )


def _number(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:,.1f}"


def _ratio(amount: float, rate: float) -> float | None:
    return amount / rate if rate > 0 else None
