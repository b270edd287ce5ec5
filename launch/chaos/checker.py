"""The checker: what became of every step that an env executed and of every row that a pool held.

It trusts the envs' own histories, what clients noted before they acted, and rows read from the pool's files; it knows neither
ledger nor protocol. Rules, for 1-step rows and one lane a process:

1. the rows that a client numbered are the steps that its env executed, in that order, and a block that is sent again is the
   same to the bit;
2. a row of the pool is one that its actor sent under that stream and seq, its content is that step's by the env's history
   (the digest is computed here), no seq of a stream and no transition is there twice, and seqs rise with ids;
3. what was acknowledged is in the pool, or was rejected by name;
4. what a process executed and the pool never had is a remainder that only a process that was cut short may leave;
5. every action by weights shows one number, that of the version which its actor applied last and which its row names;
   versions rise, also from one process of an actor to the next;
6. a process that was succeeded gets nothing more into the pool;
7. the pool's counters are what was read, and accepted = live + evicted + retired + discarded.
"""

from __future__ import annotations

import bisect
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, pairwise

import numpy as np

from headrace.launch.chaos.evidence import Client, Evidence, Process, Row, Sent, Step
from headrace.launch.chaos.verdict import Verdict

KEPT = ("rows_live", "rows_evicted", "rows_retired", "rows_discarded")
Place = tuple[int, int]  # episode, t
Streams = Mapping[tuple[str, int], Client]  # (actor, stream) -> who sent it first


def judge(evidence: Evidence) -> Verdict:
    """Apply the rules."""
    verdict = Verdict()
    actors = [client for client in evidence.clients if client.role == "actor"]
    owners: dict[tuple[str, int], Client] = {}
    for client in actors:
        _judge_sent(client, verdict)
        for sent in client.sent:
            owners.setdefault((client.id, sent.stream), client)
    rows = _judge_rows(evidence, owners, verdict)
    _judge_acks(evidence, actors, owners, rows, verdict)
    _judge_weights(evidence, verdict)
    _judge_succession(actors, rows, verdict)
    _judge_balance(evidence, actors, owners, rows, verdict)
    verdict.figures |= joins(evidence.clients)
    return verdict


def _judge_sent(client: Client, verdict: Verdict) -> None:
    """Rule 1."""
    known: dict[tuple[int, int], Sent] = {}
    executed = {(step.episode, step.t): index for index, step in enumerate(client.steps)}
    following: dict[int, int] = {}
    at = 0
    for sent in client.sent:
        before = known.get((sent.stream, sent.first))
        if before is not None:
            verdict.figures["resent"] = verdict.figures.get("resent", 0) + sent.rows
            if (before.rows, before.digest) != (sent.rows, sent.digest):
                verdict.blame("corrupted", f"{_who(client)}: block {sent.first} of stream {sent.stream} is another when resent")
            continue
        known[sent.stream, sent.first] = sent
        if sent.first != following.setdefault(sent.stream, 1):
            verdict.blame("reordered", f"{_who(client)}: block {sent.first} after seq {following[sent.stream] - 1}")
        following[sent.stream] = sent.first + sent.rows
        for place in _places(sent):
            index = executed.get(place)
            if index is None:
                verdict.blame("phantom", f"{_who(client)}: sent episode {place[0]}, t {place[1]}, which was not executed")
            elif index != at:
                verdict.blame("reordered", f"{_who(client)}: sent step {index} as its row {at + 1}")
            at += 1


def _judge_rows(evidence: Evidence, owners: Streams, verdict: Verdict) -> dict[tuple[str, int], dict[int, Row]]:
    """Rule 2; the rows of each stream by seq."""
    held: dict[int, Row] = {}
    for row in evidence.rows:
        before = held.setdefault(row.id, row)
        if before != row:
            verdict.blame("corrupted", f"row {row.id} was {before}, and is {row}")
    numbered = {key: _numbered(owner, key[1]) for key, owner in owners.items()}
    steps = {key: {(s.episode, s.t): s for s in owner.steps} for key, owner in owners.items()}
    last = {key: owner.steps[-1] for key, owner in owners.items() if owner.steps}
    streams: dict[tuple[str, int], dict[int, Row]] = {}
    strangers: list[Row] = []
    for _, row in sorted(held.items()):
        key = (row.actor, row.stream)
        place = numbered[key].get(row.seq) if key in owners else None
        if place is None:
            strangers.append(row)
            continue
        rows = streams.setdefault(key, {})
        if row.seq in rows:
            verdict.blame("duplicated", f"{_name(row)} is row {rows[row.seq].id} and row {row.id}")
            continue
        if rows and row.seq < next(reversed(rows)):
            verdict.blame("reordered", f"{_name(row)} came after seq {next(reversed(rows))}")
        rows[row.seq] = row
        step = steps[key].get(place)
        if (row.episode, row.t) != place or step is None or row.digest not in _digests(step, is_last=step is last[key]):
            verdict.blame("corrupted", f"{_name(row)} is {row}, executed was {step}")
        elif step is not None:
            _judge_version(row, step, verdict)
    _judge_strangers(strangers, streams, verdict)
    for kind in ("duplicated", "corrupted", "phantom", "reordered"):
        verdict.trials[kind] = len(held)
    if evidence.unproved:
        verdict.blame("corrupted", f"{evidence.unproved} batches did not prove themselves to the learner", evidence.unproved)
    return streams


def _judge_strangers(strangers: Sequence[Row], streams: Mapping[tuple[str, int], Mapping[int, Row]], verdict: Verdict) -> None:
    """Rows under a name that nobody sent: they are transitions that are there already, or were never executed."""
    if not strangers:
        return
    known = {row.digest for rows in streams.values() for row in rows.values()}
    for row in strangers:
        kind = "duplicated" if row.digest in known else "phantom"
        verdict.blame(kind, f"{_name(row)} was never sent; it is row {row.id}")


def _judge_version(row: Row, step: Step, verdict: Verdict) -> None:
    """The part of rule 5 that rows tell."""
    low, high = _ends(step)
    if row.epoch and low == high and low != row.step:
        verdict.blame("stale", f"{_name(row)} names update {row.step}, its action is by update {low:g}")


def _judge_acks(
    evidence: Evidence,
    actors: Sequence[Client],
    owners: Streams,
    rows: Mapping[tuple[str, int], Mapping[int, Row]],
    verdict: Verdict,
) -> None:
    """Rule 3."""
    acked: dict[tuple[str, int], int] = {}
    for client in actors:
        for stream, seq in client.acked.items():
            acked[client.id, stream] = max(seq, acked.get((client.id, stream), 0))
    for key, last in sorted(acked.items()):
        if key not in owners:  # nobody numbered it, so nobody can miss it
            continue
        verdict.trials["lost"] += last
        there, rejected = rows.get(key, {}), owners[key].rejected.get(key[1], frozenset())
        excused = _unseen(there, evidence)
        gone = [seq for seq in range(1, last + 1) if seq not in there and seq not in rejected and seq not in excused]
        if gone:
            verdict.blame("lost", f"{key[0]} stream {key[1]} seq {gone[0]} and {len(gone) - 1} more of {last}", len(gone))
    unseen = sum(last - first for first, last in evidence.unseen)
    verdict.figures |= {"acked": verdict.trials["lost"], "unseen": unseen}


def _judge_weights(evidence: Evidence, verdict: Verdict) -> None:
    """Rule 5."""
    for client in evidence.clients:
        _judge_order(client, [c for c in evidence.clients if c.id == client.id and c is not client], verdict)
        for applied in client.applied:
            if (applied.epoch, applied.step) not in evidence.published:
                verdict.blame("torn", f"{_who(client)}: version {applied.epoch, applied.step} was never published")
        verdict.figures["swaps"] = verdict.figures.get("swaps", 0) + len(client.applied)
        times = [applied.at for applied in client.applied]
        for step in client.steps:
            low, high = _ends(step)
            verdict.trials["torn"] += 1
            if low != high:
                verdict.blame("torn", f"{_who(client)}: an action by updates {low:g} to {high:g}")
            elif client.role == "actor":
                verdict.trials["stale"] += 1
                place = bisect.bisect(times, step.at)
                expected = client.applied[place - 1].step if place else None
                if low != expected:
                    verdict.blame("stale", f"{_who(client)}: an action by update {low:g}, applied was {expected}")


def _judge_order(client: Client, others: Sequence[Client], verdict: Verdict) -> None:
    """Each version is newer than the one before, and none is older than what others of the id had before its session."""
    welcomes = [at for at, _ in client.welcomed]
    theirs = sorted((a.at, (a.epoch, a.step)) for other in others for a in other.applied)
    times, newest = [at for at, _ in theirs], list(accumulate((version for _, version in theirs), max))
    before = (0, 0)
    for applied in client.applied:
        version = (applied.epoch, applied.step)
        known = bisect.bisect(times, welcomes[bisect.bisect(welcomes, applied.at) - 1])
        floor = newest[known - 1] if known else (0, 0)
        if version <= before or version < floor:
            verdict.blame("stale", f"{_who(client)}: version {version} after {max(before, floor)}")
        before = version


def _judge_succession(actors: Sequence[Client], rows: Mapping[tuple[str, int], Mapping[int, Row]], verdict: Verdict) -> None:
    """Rule 6: a block in the pool was sent at least once by a process that had its id then."""
    sessions: dict[str, list[tuple[float, Process]]] = {}  # actor -> (since, process) of each session
    for client in actors:
        sessions.setdefault(client.id, []).extend((at, client.process) for at, _ in client.welcomed)
    rightful: set[tuple[str, int, int]] = set()
    doubtful: dict[tuple[str, int, int], str] = {}
    for client in actors:
        own = sorted(sessions.get(client.id, ()))
        for sent in client.sent:
            _, holder = own[bisect.bisect_left(own, sent.at, key=lambda session: session[0]) - 1]
            block = (client.id, sent.stream, sent.first)
            if holder == client.process:
                rightful.add(block)
            else:
                doubtful[block] = _who(client)
    for (actor, stream, first), who in doubtful.items():
        if (actor, stream, first) not in rightful and first in rows.get((actor, stream), {}):
            verdict.blame("phantom", f"{who}: seq {first} entered although it had a successor")


def _judge_balance(
    evidence: Evidence,
    actors: Sequence[Client],
    owners: Streams,
    rows: Mapping[tuple[str, int], Mapping[int, Row]],
    verdict: Verdict,
) -> None:
    """Rules 4 and 7."""
    totals = {"produced": 0, "committed": 0, "rejected": 0, "abandoned": 0}
    unseen = sum(last - first for first, last in evidence.unseen)
    for client in actors:
        verdict.trials["unbalanced"] += 1
        own = [stream for (actor, stream), owner in owners.items() if owner is client]
        there = [rows.get((client.id, stream), {}) for stream in own]
        committed = sum(len(seqs) + len(_unseen(seqs, evidence)) for seqs in there)
        rejected = sum(len(client.rejected.get(stream, ())) for stream in own)
        left = len(client.steps) - committed - rejected
        if left < 0 or (left > 0 and not evidence.may_abandon(client)):
            verdict.blame("unbalanced", f"{_who(client)}: executed {len(client.steps)}, {committed} in the pool")
        for name, count in zip(totals, (len(client.steps), committed, rejected, left), strict=True):
            totals[name] += count
    verdict.figures |= {**totals, **evidence.counters}
    counters = evidence.counters
    if not counters:
        return
    held = len({row.id for row in evidence.rows}) + unseen
    for name, ours, theirs in (
        ("rows_accepted", held, counters["rows_accepted"]),
        ("rows_live", evidence.left, counters["rows_live"]),
        ("accepted = live + evicted + retired + discarded", sum(counters[k] for k in KEPT), counters["rows_accepted"]),
        ("env_steps", held, counters["env_steps"]),
        ("lost_before", _gaps(rows, evidence) - totals["rejected"], counters["lost_before"]),
    ):
        verdict.trials["unbalanced"] += 1
        if ours != theirs:
            verdict.blame("unbalanced", f"{name}: the pool says {theirs}, read and counted were {ours}")


def joins(clients: Iterable[Client]) -> dict[str, float | int]:
    """How long actors waited from their first welcome for weights: count, median, 99 % and longest (s)."""
    waits = [c.applied[0].at - c.welcomed[0][0] for c in clients if c.role == "actor" and c.applied and c.welcomed]
    if not waits:
        return {"joins": 0}
    p50, p99 = np.quantile(waits, (0.5, 0.99))
    return {
        "joins": len(waits),
        "join_p50_s": round(float(p50), 3),
        "join_p99_s": round(float(p99), 3),
        "join_max_s": round(max(waits), 3),
    }


def _unseen(there: Mapping[int, Row], evidence: Evidence) -> set[int]:
    """Seqs of a stream whose rows nobody read before they were evicted: those between the rows around such a range of ids."""
    out: set[int] = set()
    for first, last in evidence.unseen:
        low = max((seq for seq, row in there.items() if row.id < first), default=0)
        high = min((seq for seq, row in there.items() if row.id >= last), default=low + 1)
        out.update(range(low + 1, high))
    return out


def _gaps(rows: Mapping[tuple[str, int], Mapping[int, Row]], evidence: Evidence) -> int:
    """Rows that are missing before others of their stream."""
    return sum(b - a - 1 for there in rows.values() for a, b in pairwise([0, *sorted({*there, *_unseen(there, evidence)})]))


def _numbered(client: Client, stream: int) -> dict[int, Place]:
    out: dict[int, Place] = {}
    for sent in client.sent:
        if sent.stream == stream:
            out.update(zip(range(sent.first, sent.first + sent.rows), _places(sent), strict=True))
    return out


def _places(sent: Sent) -> list[Place]:
    return [(episode, t + i) for episode, t, count in sent.runs for i in range(count)]


def _ends(step: Step) -> tuple[float, float]:
    low, high = np.frombuffer(bytes.fromhex(step.action), "<f4").tolist()
    return low, high


def _digests(step: Step, *, is_last: bool) -> tuple[str, ...]:
    """What a dump must say of this step: as it ended, or cut off where its process stopped acting."""
    as_ended = _digest(step, step.truncated)
    return (as_ended, _digest(step, 1)) if is_last and not step.terminated else (as_ended,)


def _digest(step: Step, truncated: int) -> str:
    """BLAKE2b over action, reward, steps, flags, obs and next obs."""
    out = hashlib.blake2b(bytes.fromhex(step.action), digest_size=8)
    out.update(np.array([step.t], "<f4").tobytes() + np.array([1], "<u2").tobytes() + bytes([step.terminated, truncated]))
    for t in (step.t, step.t + 1):
        out.update(np.array([step.number, step.episode, t], "<f4").tobytes())
    return out.hexdigest()


def _who(client: Client) -> str:
    return f"{client.id} (pid {client.pid})"


def _name(row: Row) -> str:
    return f"{row.actor} stream {row.stream} seq {row.seq}"
