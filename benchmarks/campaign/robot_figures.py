"""What a robot's run comes to: episodes and their curve, rows that must be there once and in order, and the bars."""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from campaign.records import Record
from campaign.robot_course import PERIODS
from headrace.common.specs import OUTCOME_SUCCESS
from headrace.launch.chaos.robot_log import RobotLog

WINDOW = 50  # episodes of one point of the curve
HANDED_OVER_S = 1.0  # by when an ended episode is the actor's no more
RATE, BETTER, MINUTES = 0.9, 0.2, 90.0  # least success, how far above cloning alone, and most wall clock


def episodes_of(rows: Iterable[Mapping[str, Any]]) -> list[list[int]]:
    """Episodes in the order of their first row: (steps, steps of a human, 1 for success)."""
    found: dict[tuple[int, int], list[int]] = {}
    for row in rows:
        episode = found.setdefault((int(row["stream"]), int(row["episode"])), [0, 0, 0])
        episode[0] += 1
        episode[1] += "human" in row["source"]
        episode[2] = int(row["outcome"] == OUTCOME_SUCCESS)
    return list(found.values())


def curve_of(episodes: Sequence[Sequence[int]]) -> list[list[float]]:
    """For each :data:`WINDOW` episodes: env steps so far, share that succeeded without a human, share of human steps."""
    points, steps = [], 0
    for begin in range(0, len(episodes) - WINDOW + 1, WINDOW):
        part = np.array(episodes[begin : begin + WINDOW])
        steps += int(part[:, 0].sum())
        alone = float(((part[:, 1] == 0) & (part[:, 2] == 1)).mean())
        points.append([steps, round(alone, 4), round(float(part[:, 1].sum() / part[:, 0].sum()), 4)])
    return points


def conserved(
    rows: Iterable[Mapping[str, Any]], acked: Mapping[int, int], log: RobotLog, left_at: Sequence[float] = ()
) -> dict[str, int]:
    """What became of every executed step.

    Args:
        rows: of the pool, in their order.
        acked: stream -> last number that was acknowledged.
        log: of the arm.
        left_at: when an actor was killed or left (monotonic s), and with it what it had not handed over.

    Returns:
        ``lost``: acknowledged and not there; ``duplicated``; ``out_of_order``; ``missing``: steps that the arm carried out to
        their end, of episodes that ended by themselves, and that have no row; ``cut_episodes``: those that did not end so, or
        while an actor left, as the last one.
    """
    numbers: dict[int, list[int]] = defaultdict(list)
    per_episode: Counter[int] = Counter()
    for row in rows:
        numbers[int(row["stream"])].append(int(row["seq"]))
        per_episode[int(row["episode"])] += 1
    lost = sum(last - sum(seq <= last for seq in set(numbers[stream])) for stream, last in acked.items())
    done, asked = _carried_out(log), Counter[int]()
    cut = min(1, len(done))  # the last one
    for episode, steps, ended in done[:-1]:
        whole = ended > 0 and not any(abs(at - ended) < HANDED_OVER_S for at in left_at)
        cut += not whole
        asked[episode] += steps if whole else 0
    missing = sum(max(0, steps - per_episode[episode]) for episode, steps in asked.items())
    return {
        "lost": lost,
        "duplicated": sum(len(seqs) - len(set(seqs)) for seqs in numbers.values()),
        "out_of_order": sum(int((np.diff(seqs) <= 0).sum()) for seqs in numbers.values()),
        "missing": missing,
        "cut_episodes": cut,
    }


def off_period_ms(log: RobotLog, begin: float, end: float, rate_hz: float) -> tuple[float, float]:
    """How far commands of the policy are from a period behind the one before, p50 and p99 (ms); of episodes within a time.

    Args:
        log: of the arm.
        begin: of the time (monotonic s).
        end: of it.
        rate_hz: of the arm.
    """
    acts = [line for line in log.lines if line.get("kind") == "policy" and begin <= line["at"] <= end]
    next_to = [(a, b) for a, b in itertools.pairwise(acts) if (a["episode"], a["tick"] + 1) == (b["episode"], b["tick"])]
    off = [abs(b["at"] - a["at"] - 1 / rate_hz) * 1e3 for a, b in next_to]
    p50, p99 = np.percentile(off or [0.0], [50, 99]).round(3).tolist()
    return p50, p99


def unbalanced(counters: Mapping[str, int]) -> int:
    """By how many rows a pool's counters are off: accepted are live, evicted, retired or discarded."""
    return counters["rows_accepted"] - sum(counters[f"rows_{end}"] for end in ("live", "evicted", "retired", "discarded"))


def _carried_out(log: RobotLog) -> list[tuple[int, int, float]]:
    """Episodes in their order: number, commands carried out, and when it ended by itself, the arm holding unstopped; else 0.

    A number comes again where an actor has lost what it knew of its stream.
    """
    found: list[tuple[int, int, float]] = []
    running = False
    for line in log.lines:
        if line["what"] == "reset":
            found.append((int(line["episode"]), 0, 0.0))
            running = True
            continue
        running = running and line["what"] != "stop"
        if not running:
            continue
        episode, steps, _ = found[-1]
        if line["episode"] == episode:
            found[-1] = (episode, steps + 1, 0.0)
        elif steps:  # a hold behind its last step
            found[-1] = (episode, steps, float(line["at"]))
            running = False
    return found


def problems(record: Record, rate_hz: float) -> list[str]:
    """Which bars a record misses, in words; empty: none."""
    found = []
    policy, cloned = record["policy"]["success"], record["cloning"]["success"]
    if policy < RATE:
        found.append(f"success {policy:.0%}, {RATE:.0%} is asked for")
    if cloned > policy - BETTER:
        found.append(f"cloning alone has {cloned:.0%}, {BETTER:.0%} below {policy:.0%} is asked for")
    if record["wall_min"] > MINUTES:
        found.append(f"{record['wall_min']:.0f} min, {MINUTES:.0f} are allowed")
    return found + mishaps(record, rate_hz)


def mishaps(record: Record, rate_hz: float) -> list[str]:
    """The bars of safety and of what became of every step that a record misses, in words."""
    found = []
    bars = ("stale_commands", "crossed_resets", "lost", "duplicated", "out_of_order", "missing", "unbalanced")
    found += [f"{name} {record[name]}, 0 is asked for" for name in bars if record[name]]
    if not record["hurt"]:
        return found
    safe = [ms for kind in record["safe_ms"].values() for ms in kind]
    found += [f"never safe after {safe.count(None)} faults"] if None in safe else []
    known = [ms for ms in safe if ms is not None]
    p99, most = float(np.percentile(known, 99)) if known else math.inf, PERIODS * 1e3 / rate_hz
    if p99 > most:
        found.append(f"safe within {p99:.0f} ms (p99), {most:.0f} are allowed")
    if not record["spooled"]:
        found.append("no step waited in the cut")
    if not record["course_done"]:
        found.append("the run ended before all faults had happened")
    return found
