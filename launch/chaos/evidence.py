"""The evidence: the histories of a job put together, as the checker reads them. Nothing here is shared with the buffer."""

from __future__ import annotations

import bisect
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from headrace.launch.chaos import history
from headrace.launch.chaos.history import Told

CUTTING = ("kill", "usurp")  # kinds of faults after which a process may leave executed steps behind
Process = tuple[int, float]  # pid, and when the history of its client begins: the system gives a pid again


class Row(NamedTuple):
    """A row that was read from the pool's files."""

    id: int
    actor: str
    stream: int
    seq: int
    episode: int
    t: int
    epoch: int
    step: int
    digest: str
    outcome: int


class Step(NamedTuple):
    """An executed env step by its env's own history; ``action`` are its bytes in hex, ``outcome`` what its episode ends in."""

    at: float
    lane: int
    number: int
    episode: int
    t: int
    action: str
    terminated: int
    truncated: int
    outcome: int


class Sent(NamedTuple):
    """A block as it left: rows ``first .. first + rows - 1``, in runs of (episode, first t, count)."""

    at: float
    stream: int
    first: int
    rows: int
    runs: list[list[int]]
    digest: str


class Said(NamedTuple):
    """A label that was answered: rows ``first .. last`` of an episode have this outcome."""

    stream: int
    first: int
    last: int
    outcome: int
    episode: int


class Applied(NamedTuple):
    """From then on a client acted by this version."""

    at: float
    epoch: int
    step: int


@dataclass(frozen=True)
class Client:
    """One actor or evaluator process.

    Attributes:
        role: ``actor`` or ``evaluator``.
        id: its name.
        pid: its own.
        begun: when its history begins.
        ended: how many blocks it left behind that were not acknowledged; none when it did not end in order.
        welcomed: (time, epoch) of each session.
        sent: every block, resends too.
        acked: stream -> highest seq that was acknowledged to it.
        rejected: stream -> seqs that were rejected to it.
        applied: in order.
        steps: executed in its process, those of a lane in order.
        spooled: whether its rows lie in a file, so that they outlive it and its successor sends them.
        kept: runs of the rows that were in that file.
        said: labels that were answered to it.
    """

    role: str
    id: str
    pid: int
    begun: float
    ended: int | None
    welcomed: Sequence[tuple[float, int]]
    sent: Sequence[Sent]
    acked: Mapping[int, int]
    rejected: Mapping[int, frozenset[int]]
    applied: Sequence[Applied]
    steps: Sequence[Step]
    spooled: bool = False
    kept: Sequence[list[list[int]]] = ()
    said: Sequence[Said] = ()

    @property
    def process(self) -> Process:
        """Which process it was."""
        return self.pid, self.begun


@dataclass(frozen=True)
class Evidence:
    """What is known of a job.

    Attributes:
        clients: every actor and evaluator process.
        rows: every reading of a row, in the order of reading; one that changed is there again.
        unseen: ranges of ids that were evicted before anybody read them.
        hits: process of a client -> kinds of faults that hit it.
        left: how many rows lived at the end, as they were read.
        tail: id of the first of them.
        counters: of the pool at the end: ``rows_accepted``, ``rows_evicted``, ``rows_retired``, ``rows_discarded``,
            ``rows_live``, ``lost_before``, ``env_steps``.
        published: versions that learners sent, (epoch, step).
        unproved: sampled rows that did not prove themselves to the learner.
        tried: how strangers and impostors tried to come in, and how each was answered.
    """

    clients: Sequence[Client]
    rows: Sequence[Row]
    unseen: Sequence[tuple[int, int]] = ()
    hits: Mapping[Process, frozenset[str]] = field(default_factory=dict)
    left: int = 0
    tail: int = 0
    counters: Mapping[str, int] = field(default_factory=dict)
    published: frozenset[tuple[int, int]] = frozenset()
    unproved: int = 0
    tried: Sequence[tuple[str, str]] = ()

    def may_abandon(self, client: Client) -> bool:
        """Whether steps that a client executed may be nowhere: it was cut short."""
        return bool(self.hits.get(client.process, frozenset()) & set(CUTTING)) or bool(client.ended)


def load(directory: Path, counters: Mapping[str, int]) -> Evidence:
    """The histories in a directory."""
    clients = history.read_all(directory, "client")
    begins: dict[int, list[float]] = {}
    for told in clients:
        begins.setdefault(told.about["pid"], []).append(told.begun)
    steps: dict[Process, list[Step]] = {}
    for told in history.read_all(directory, "steps"):
        number = told.about["actor"]
        own = steps.setdefault(_process(begins, told.about["pid"], told.begun), [])
        own += [Step(at, lane, number, *values) for at, _, lane, *values in told.lines]
    rows, unseen, (left, tail) = _harvested(history.read_all(directory, "rows"))
    hits: dict[Process, set[str]] = {}
    for told in history.read_all(directory, "faults"):
        for at, what, *values in told.lines:
            if what == "hit":
                hits.setdefault(_process(begins, values[2], at), set()).add(values[0])
    canaries = [line for told in history.read_all(directory, "canary") for line in told.lines]
    return Evidence(
        [_client(told, steps) for told in clients],
        rows,
        unseen,
        {process: frozenset(kinds) for process, kinds in hits.items()},
        left,
        tail,
        counters,
        frozenset((line[2], line[3]) for line in canaries if line[1] == "published"),
        sum(line[1] == "unproved" for line in canaries),
        [(line[2], line[3]) for told in history.read_all(directory, "intruder") for line in told.lines],
    )


def _process(begins: Mapping[int, Sequence[float]], pid: int, at: float) -> Process:
    """The client's process that had a pid at a time: the last of those that begin before it; for any other role begin 0."""
    own = begins.get(pid, ())
    place = bisect.bisect(own, at)
    return pid, own[place - 1] if place else 0.0


def faults(directory: Path) -> Counter[tuple[str, str]]:
    """(kind, role) -> how often a fault hit."""
    out: Counter[tuple[str, str]] = Counter()
    for told in history.read_all(directory, "faults"):
        out.update((line[2], line[3]) for line in told.lines if line[1] == "hit")
    return out


def _harvested(told: Sequence[Told]) -> tuple[list[Row], list[tuple[int, int]], tuple[int, int]]:
    rows: list[Row] = []
    unseen: list[tuple[int, int]] = []
    left = (0, 0)
    for one in told:
        for _, what, *values in one.lines:
            if what == "row":
                rows.append(Row(*values))
            elif what == "unseen":
                unseen.append((values[0], values[1]))
            elif what == "left":
                left = values[0], values[1]
    return rows, unseen, left


def _client(told: Told, steps: Mapping[Process, list[Step]]) -> Client:
    lines: dict[str, list[Any]] = {}
    for at, what, *values in told.lines:
        lines.setdefault(what, []).append((at, *values))
    acked: dict[int, int] = {}
    for _, stream, seq in lines.get("acked", ()):
        acked[stream] = max(seq, acked.get(stream, 0))
    for _, _, streams in lines.get("welcomed", ()):
        for stream, seq in streams:  # what a new session says of its own stream is an acknowledgement too
            acked[stream] = max(seq, acked.get(stream, 0))
    rejected: dict[int, set[int]] = {}
    for _, stream, first, last, _ in lines.get("rejected", ()):
        rejected.setdefault(stream, set()).update(range(first, last + 1))
    said = {number: Said(*label) for _, number, *label in lines.get("said", ())}
    pid = told.about["pid"]
    return Client(
        told.about["role"],
        told.about["id"],
        pid,
        told.begun,
        lines["ended"][-1][1] if "ended" in lines else None,
        [(at, epoch) for at, epoch, _ in lines.get("welcomed", ())],
        [Sent(*line) for line in lines.get("sent", ())],
        acked,
        {stream: frozenset(seqs) for stream, seqs in rejected.items()},
        [Applied(*line) for line in lines.get("applied", ())],
        steps.get((pid, told.begun), ()),
        bool(told.about.get("spooled")),
        [runs for _, runs in lines.get("kept", ())],
        [said[number] for _, number, reason in lines.get("labelled", ()) if not reason],
    )
