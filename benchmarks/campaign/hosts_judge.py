"""What became of every step of a run of several shards: judged by their pools and the actors' own histories."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from campaign import conservation
from campaign.conservation import SABOTAGES, Evidence, Life, Row, Stream
from headrace.launch.pools import open_pool

Counts = dict[str, int]


@dataclass(frozen=True)
class Held:
    """What the pool of one shard holds after the run: its rows, oldest first, and its counters."""

    rows: Sequence[Row]
    counters: Mapping[str, int]

    @classmethod
    def read(cls, pool: Path) -> Held:
        """Of the pool in a directory, which nobody writes any more."""
        with open_pool(pool) as view:
            return cls(list(view.dump()), dict(view.counters()))


@dataclass(frozen=True)
class Account:
    """Every step: ``problems`` (empty: all is accounted for), and how many went where.

    Attributes:
        lost: executed, handed over by their process, and in no pool.
        duplicated: transitions that are in the pools more than once.
        abandoned: what processes that went with their host had not handed over.
        rows: of each shard.
    """

    problems: tuple[str, ...]
    lost: int
    duplicated: int
    abandoned: int
    rows: tuple[int, ...]


def account(shards: Sequence[Held], lives: Sequence[Life], killed: frozenset[int], acked: Mapping[Stream, int]) -> Account:
    """Judge.

    Args:
        shards: of all buffers, the home shard's first.
        lives: every actor process.
        killed: pids that went with a host.
        acked: (actor, stream) -> highest acknowledged seq that a status told.
    """
    rows = [row for shard in shards for row in shard.rows]
    counters: Counter[str] = Counter()
    for shard in shards:
        counters.update(shard.counters)
    balance = conservation.check(Evidence(rows, counters, lives, killed, acked))
    problems = list(balance.problems)
    for number, shard in enumerate(shards):
        problems += [f"shard {number}: {problem}" for problem in conservation.unbalanced(shard.rows, shard.counters)]
    there = Counter(row["digest"] for row in rows)
    produced = sum(len(life.steps) for life in lives)
    abandoned = balance.counts["abandoned"]
    lost = max(0, produced - len(there) - abandoned)
    return Account(tuple(problems), lost, sum(there.values()) - len(there), abandoned, tuple(len(s.rows) for s in shards))


def controls(shards: Sequence[Held], lives: Sequence[Life], killed: frozenset[int], acked: Mapping[Stream, int]) -> list[str]:
    """Which planted faults :func:`account` finds in what it has found nothing wrong with; each shard gets each of them."""
    found = []
    for kind in SABOTAGES:
        rng = np.random.default_rng(len(kind))
        verdicts = []
        for number, shard in enumerate(shards):
            planted = list(shards)
            planted[number] = Held(conservation.sabotage(shard.rows, kind, rng), shard.counters)
            verdicts.append(bool(account(planted, lives, killed, acked).problems))
        found += [kind] * all(verdicts)
    return found


def figures(told: Account) -> dict[str, Any]:
    """For a record."""
    return {"lost": told.lost, "duplicated": told.duplicated, "abandoned": told.abandoned, "rows_by_shard": list(told.rows)}
