"""The schedule: which fault is begun when, on whom and for how long, from a seed alone.

Faults come from a bag that holds each (kind, role) as often as its weight says; it is emptied in random order and filled again,
so that nothing is forgotten in a short campaign and nothing is rare in a long one. Gaps are exponential behind a shortest one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

ROLES = ("buffer", "learner", "actor", "evaluator")
CLIENTS = ("learner", "actor", "evaluator")
SHORTEST_GAP_S, MEAN_GAP_S = 0.2, 2.2


@dataclass(frozen=True)
class Kind:
    """One kind of fault.

    Attributes:
        what: in words.
        roles: whom it may hit.
        weight: how often it is in the bag, for each of them.
        seconds: how long it lasts, least and most (s); nothing for one that is over at once.
    """

    what: str
    roles: tuple[str, ...]
    weight: int = 1
    seconds: tuple[float, float] = (0.0, 0.0)


PROCESS: Mapping[str, Kind] = {
    "kill": Kind("SIGKILL", ROLES, 4),
    "restart": Kind("SIGTERM, and started again", ROLES),
    "pause": Kind("SIGSTOP, and SIGCONT later", ROLES, 1, (0.2, 5.0)),
    "usurp": Kind("SIGSTOP, a successor under the same id, and SIGCONT", ("actor", "learner"), 1, (4.0, 6.0)),
}
NETWORK: Mapping[str, Kind] = {
    "partition": Kind("nothing passes, and all of it later", CLIENTS, 1, (0.2, 5.0)),
    "half-open": Kind("what is said is swallowed, and nobody is told", CLIENTS, 1, (0.5, 3.0)),
    "reset": Kind("the connection is reset", CLIENTS),
    "cut": Kind("a message ends in its middle, and the connection with it", CLIENTS),
    "half-close": Kind("one direction ends", CLIENTS),
    "lost-answers": Kind("most of what the buffer answers to rows is dropped", ("actor",), 1, (1.0, 5.0)),
    "slow": Kind("20 KB/s, and 50 ms later", CLIENTS, 1, (1.0, 4.0)),
}
FULL_DISK = "full-disk"  # only where somebody may mount a disk
HOST: Mapping[str, Kind] = {FULL_DISK: Kind("the disk of the run directory is full", ("host",), 2, (0.5, 4.0))}
INTRUDE = "intrude"
KEYED: Mapping[str, Kind] = {INTRUDE: Kind("somebody without a key, or with another's, wants a session", ("host",), 4)}
NOISE = "noise"
ALWAYS: Mapping[str, Kind] = {
    NOISE: Kind("30 % of the acks are lost, 10 % of the rows come twice, and old rows come again", ("actor",), 0)
}
KINDS: Mapping[str, Kind] = {**PROCESS, **NETWORK, **HOST, **KEYED, **ALWAYS}
# Under CURVE nobody between the two sees where a message ends.
PLAIN_ONLY, KEYED_ONLY = ("lost-answers", NOISE), (INTRUDE,)
KEYED_SHARE = 1 / 3  # of the time, where a campaign has both chapters


@dataclass(frozen=True)
class Fault:
    """A fault that is due.

    Attributes:
        at: seconds since the schedule's begin.
        kind: key of :data:`KINDS`.
        role: whom it hits.
        seconds: how long it lasts (s); 0 for one that is over at once.
        pick: in [0, 1), chooses among several of the role, and in which direction.
    """

    at: float
    kind: str
    role: str
    seconds: float
    pick: float


class Schedule:
    """Faults in the order of their times, without end.

    Args:
        seed: decides everything.
        kinds: keys of :data:`KINDS`.
    """

    def __init__(self, seed: int, kinds: Sequence[str]) -> None:
        self._rng = np.random.default_rng(seed)
        self._whole = [(kind, role) for kind in kinds for role in KINDS[kind].roles for _ in range(KINDS[kind].weight)]
        self._bag: list[tuple[str, str]] = []
        self._next: Fault | None = self._draw(0.0) if self._whole else None

    def due(self, now: float) -> list[Fault]:
        """Faults up to ``now``, seconds since the begin, that were not given before."""
        out = []
        while self._next is not None and self._next.at <= now:
            out.append(self._next)
            self._next = self._draw(self._next.at)
        return out

    def _draw(self, after: float) -> Fault:
        if not self._bag:
            self._bag = [self._whole[i] for i in self._rng.permutation(len(self._whole))]
        kind, role = self._bag.pop()
        low, high = KINDS[kind].seconds
        gap = SHORTEST_GAP_S + float(self._rng.exponential(MEAN_GAP_S - SHORTEST_GAP_S))
        return Fault(after + gap, kind, role, float(self._rng.uniform(low, high)), float(self._rng.random()))


@dataclass(frozen=True)
class Chapter:
    """A part of a campaign, with a job of its own.

    Attributes:
        name: of its directory.
        kinds: of its faults.
        seconds: how long faults happen.
        keyed: whether everybody has a key.
    """

    name: str
    kinds: tuple[str, ...]
    seconds: float
    keyed: bool


def chapters(kinds: Sequence[str], seconds: float) -> list[Chapter]:
    """The chapters for faults of ``kinds``: one with keys where some need them, one without where some can't have them."""
    plain = Chapter("plain", tuple(kind for kind in kinds if kind not in KEYED_ONLY), seconds, keyed=False)
    keyed = Chapter("keyed", tuple(kind for kind in kinds if kind not in PLAIN_ONLY), seconds, keyed=True)
    if not set(kinds) & set(KEYED_ONLY):
        return [plain]
    if not set(kinds) & set(PLAIN_ONLY):
        return [keyed]
    return [replace(plain, seconds=(1 - KEYED_SHARE) * seconds), replace(keyed, seconds=KEYED_SHARE * seconds)]
