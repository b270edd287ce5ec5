"""The conservation checker: is every executed step of a run in its pool, exactly once and unchanged?

It trusts two things only: what the environment itself logged in each process (:mod:`headrace.launch.chaos.scripted`), and
`headrace pool dump`. Rules, for 1-step rows, one lane a process and a pool that evicts nothing:

1. no (actor, stream, seq) is there twice;
2. the rows of a stream are those of one process, and row seq is the seq-th step that its environment logged: same
   episode, t, and content (the dump's digest, computed again here from the log);
3. a step that is not in the pool belongs to a process that was killed, behind its last row (it was never handed over:
   ``abandoned``);
4. nothing beyond the newest acknowledgement of a stream that anyone saw is missing;
5. acked = live + evicted + retired + discarded, with the live rows counted in the dump, and nothing was declared lost or
   rejected.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from headrace.launch.chaos import history
from headrace.launch.chaos.scripted import STEPS

Row = Mapping[str, Any]
Stream = tuple[str, int]
SABOTAGES = ("remove", "duplicate", "flip", "replay")
KEPT = ("rows_evicted", "rows_retired", "rows_discarded")
SHOWN = 3


@dataclass(frozen=True)
class Step:
    """One executed step by its environment's own log; ``digests`` of its row as it ended, and cut off by an end of acting."""

    episode: int
    t: int
    digests: tuple[str, ...]


@dataclass(frozen=True)
class Life:
    """One actor process: its pid, the number that its observations begin with, the actor's name, and the steps that its
    environment logged, in order."""

    pid: int
    number: int
    actor: str
    steps: tuple[Step, ...]


@dataclass(frozen=True)
class Evidence:
    """What is known of a run after its end.

    Attributes:
        rows: `headrace pool dump --json`, one mapping a row.
        counters: of the pool: ``rows_accepted``, ``rows_evicted``, ``rows_retired``, ``rows_discarded``,
            ``lost_before`` and ``rejected_*``.
        lives: every actor process.
        killed: pids that were killed.
        acked: (actor, stream) -> highest acknowledged seq that any status told.
    """

    rows: Sequence[Row]
    counters: Mapping[str, int]
    lives: Sequence[Life]
    killed: frozenset[int] = frozenset()
    acked: Mapping[Stream, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Balance:
    """What the checker found: ``problems`` (empty: all is accounted for) and how many steps went where."""

    problems: tuple[str, ...]
    counts: dict[str, int]


def check(evidence: Evidence) -> Balance:
    """Apply the rules."""
    problems: list[str] = []
    streams: dict[Stream, dict[int, Row]] = {}
    twice: list[str] = []
    for row in evidence.rows:
        rows = streams.setdefault((row["actor"], row["stream"]), {})
        if row["seq"] in rows:
            twice.append(_name(row))
        rows[row["seq"]] = row
    _report(problems, "there twice", twice)
    lives = {life.pid: life for life in evidence.lives}
    owners = {digest: life.pid for life in evidence.lives for step in life.steps for digest in step.digests}
    found: dict[int, int] = {}
    for stream, rows in sorted(streams.items()):
        life = lives.get(_owner(rows, owners))
        if life is None or life.actor != stream[0]:
            problems.append(f"stream {stream[1]} of {stream[0]}: no process of that actor logged its steps")
            continue
        if life.pid in found:
            problems.append(f"process {life.pid} of {life.actor}: its steps are in more than one stream")
        found[life.pid] = max(rows)
        _check_stream(stream, rows, life, evidence.acked.get(stream, 0), problems)
    _report(problems, "acked, but nothing of the stream is there", [str(s) for s in evidence.acked.keys() - streams.keys()])
    abandoned = _check_ends(evidence, found, problems)
    problems += unbalanced(evidence.rows, evidence.counters)
    live = sum(not row.get("discarded") for row in evidence.rows)
    counts = {"produced": sum(len(life.steps) for life in evidence.lives), "live": live, "abandoned": abandoned}
    counts |= {k: evidence.counters.get(k, 0) for k in ("rows_accepted", *KEPT, "rows_duplicate")}
    if counts["produced"] != live + sum(counts[k] for k in KEPT) + abandoned:
        problems.append(f"produced {counts['produced']} is not live + evicted + retired + discarded + abandoned: {counts}")
    return Balance(tuple(problems), counts)


def _check_stream(stream: Stream, rows: Mapping[int, Row], life: Life, acked: int, problems: list[str]) -> None:
    last = max(rows)
    missing = [f"{stream[0]} stream {stream[1]} seq {seq}" for seq in range(1, last + 1) if seq not in rows]
    _report(problems, "missing", missing)
    if acked > last:
        problems.append(f"{stream[0]} stream {stream[1]}: acknowledged up to seq {acked}, the pool ends at {last}")
    wrong, phantom = [], []
    for seq, row in sorted(rows.items()):
        if not 1 <= seq <= len(life.steps):
            phantom.append(_name(row))
            continue
        step = life.steps[seq - 1]
        if (row["episode"], row["t"]) != (step.episode, step.t) or row["digest"] not in step.digests:
            wrong.append(f"{_name(row)}: episode {row['episode']}, t {row['t']}, digest {row['digest']}, logged {step}")
    _report(problems, "not what was executed", wrong)
    _report(problems, "never executed", phantom)


def _check_ends(evidence: Evidence, found: Mapping[int, int], problems: list[str]) -> int:
    """Steps that killed processes never handed over; those of the others are lost."""
    abandoned, lost = 0, []
    for life in evidence.lives:
        left = max(0, len(life.steps) - found.get(life.pid, 0))
        if life.pid in evidence.killed:
            abandoned += left
        elif left:
            lost.append(f"{left} steps of process {life.pid} of {life.actor}")
    _report(problems, "lost although their process was not killed", lost)
    return abandoned


def unbalanced(rows: Sequence[Row], counters: Mapping[str, int]) -> list[str]:
    """Rule 5, for the rows and counters of one pool, or of all pools of a run together."""
    problems = []
    kept = sum(not row.get("discarded") for row in rows) + sum(counters.get(name, 0) for name in KEPT)
    if counters.get("rows_accepted", 0) != kept:
        problems.append(f"acked {counters.get('rows_accepted', 0)} rows, but live + evicted + retired + discarded are {kept}")
    for name, count in counters.items():
        if count and (name == "lost_before" or name.startswith("rejected")):
            problems.append(f"{name}: {count}, expected 0")
    return problems


def _owner(rows: Mapping[int, Row], owners: Mapping[str, int]) -> int:
    """The process that logged most of these rows (one wrong row must not hide whose stream it is); -1 for none."""
    votes = Counter(owners[row["digest"]] for row in rows.values() if row["digest"] in owners)
    return votes.most_common(1)[0][0] if votes else -1


def _report(problems: list[str], what: str, cases: Sequence[str]) -> None:
    if cases:
        problems.append(f"{len(cases)} {what}: {'; '.join(cases[:SHOWN])}{' ...' if len(cases) > SHOWN else ''}")


def _name(row: Row) -> str:
    return f"{row['actor']} stream {row['stream']} seq {row['seq']}"


def read_lives(log_dir: Path) -> list[Life]:
    """The actor processes that logged steps; those of evaluations are left out."""
    lives = []
    for told in history.read_all(log_dir, STEPS):
        argv, number = told.about["argv"], told.about["actor"]
        if "actor" in argv and "--evaluate" not in argv:
            steps = tuple(step_of(number, *line[3:8]) for line in told.lines)
            lives.append(Life(told.about["pid"], number, argv[argv.index("--id") + 1], steps))
    return lives


def step_of(number: int, episode: int, t: int, action: str, terminated: int, truncated: int) -> Step:
    """A step from its line in the log."""
    flags = {(terminated, truncated), (terminated, int(truncated or not terminated))}  # the last row of all may be cut off
    return Step(episode, t, tuple(digest(number, episode, t, bytes.fromhex(action), *f) for f in sorted(flags)))


def digest(number: int, episode: int, t: int, action: bytes, terminated: int, truncated: int) -> str:
    """What `headrace pool dump` must say of this step: BLAKE2b over action, reward, steps, flags, obs and next obs."""
    out = hashlib.blake2b(digest_size=8)
    out.update(action + np.array([t], "<f4").tobytes() + np.array([1], "<u2").tobytes() + bytes([terminated, truncated]))
    for now in (t, t + 1):
        out.update(np.array([number, episode, now], "<f4").tobytes())
    return out.hexdigest()


def sabotage(rows: Sequence[Row], kind: str, rng: np.random.Generator) -> list[Row]:
    """The dump with one fault that :func:`check` must find.

    Args:
        rows: a dump of which nothing is wrong.
        kind: ``remove`` a row, ``duplicate`` one, ``flip`` a byte of one's content, ``replay`` one under a new seq.
        rng: chooses the row.
    """
    out = list(rows)
    at = int(rng.integers(len(out)))
    row = out[at]
    if kind == "remove":
        del out[at]
    elif kind == "duplicate":
        out.insert(at, dict(row))
    elif kind == "flip":
        out[at] = {**row, "digest": f"{int(row['digest'], 16) ^ (1 << int(rng.integers(64))):016x}"}
    elif kind == "replay":
        last = max(r["seq"] for r in out if (r["actor"], r["stream"]) == (row["actor"], row["stream"]))
        out.append({**row, "seq": last + 1})
    else:
        raise ValueError(f"sabotage {kind!r} is not one of {', '.join(SABOTAGES)}")
    return out
