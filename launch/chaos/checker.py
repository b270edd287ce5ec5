"""The checker: what became of every step that an env executed and of every row that a pool held.

It trusts the envs' own histories, what clients noted before they acted, and rows read from the pool's files; it knows neither
ledger nor protocol. Rules, for 1-step rows:

1. the rows that a client numbered are the steps that its envs executed, those of each lane in their order, and a block that is
   sent again is the same to the bit; a spool's stream has the steps of all its processes, whoever sends them;
2. a row of the pool is one that its actor sent under that stream and seq, its content is that step's by the env's history
   (the digest is computed here), no seq of a stream and no transition is there twice, and seqs rise with ids;
3. what was acknowledged, or lay in a spool, is in the pool, or was rejected by name;
4. what a process executed and the pool never had is a remainder that only a process that was cut short may leave;
5. every action by weights shows one number, that of the version which its actor applied last and which its row names;
   versions rise, also from one process of an actor to the next;
6. a process that was succeeded gets nothing more into the pool;
7. the pool's counters are what was read, and accepted = live + evicted + retired + discarded;
8. a row has the outcome of its own episode or none yet, never loses it, and has it when the label was answered;
9. who has no key, or another's, opens no session.
"""

from __future__ import annotations

import bisect
import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise

import numpy as np

from headrace.launch.chaos import labelling
from headrace.launch.chaos.evidence import Client, Evidence, Process, Row, Sent, Step
from headrace.launch.chaos.streams import Deeds, Place, Stream, Streams, deeds_of, named, places, steps_of, streams_of, who
from headrace.launch.chaos.verdict import Verdict

KEPT = ("rows_live", "rows_evicted", "rows_retired", "rows_discarded")
OPENED = "opened"  # how an intruder is never answered


def judge(evidence: Evidence) -> Verdict:
    """Apply the rules."""
    verdict = Verdict()
    actors = [client for client in evidence.clients if client.role == "actor"]
    for client in actors:
        _judge_sent(client, verdict)
    deeds = deeds_of(actors)
    streams = streams_of(actors, deeds)
    _judge_rows(evidence, streams, verdict)
    _judge_acks(evidence, actors, deeds, streams, verdict)
    _judge_weights(evidence, verdict)
    _judge_succession(actors, streams, verdict)
    _judge_balance(evidence, actors, deeds, streams, verdict)
    labelling.judge(evidence, actors, deeds, streams, verdict)
    _judge_intruders(evidence, verdict)
    verdict.figures |= joins(evidence.clients)
    return verdict


def _judge_sent(client: Client, verdict: Verdict) -> None:
    """Rule 1. A spool sends its earlier processes' steps too, from where they were; of those the rows tell."""
    known: dict[tuple[int, int], Sent] = {}
    lanes: dict[int, list[Place]] = {}
    for step in client.steps:
        lanes.setdefault(step.lane, []).append((step.episode, step.t))
    lane_of = {place: lane for lane, order in lanes.items() for place in order}
    at: Counter[int] = Counter()
    following: dict[int, int] = {}
    for sent in client.sent:
        before = known.get((sent.stream, sent.first))
        if before is not None:
            verdict.figures["resent"] = verdict.figures.get("resent", 0) + sent.rows
            if (before.rows, before.digest) != (sent.rows, sent.digest):
                verdict.blame("corrupted", f"{who(client)}: block {sent.first} of stream {sent.stream} is another when resent")
            continue
        known[sent.stream, sent.first] = sent
        if client.spooled:
            continue
        if sent.first != following.setdefault(sent.stream, 1):
            verdict.blame("reordered", f"{who(client)}: block {sent.first} after seq {following[sent.stream] - 1}")
        following[sent.stream] = sent.first + sent.rows
        for place in places(sent):
            lane = lane_of.get(place)
            if lane is None:
                verdict.blame("phantom", f"{who(client)}: sent episode {place[0]}, t {place[1]}, which was not executed")
                continue
            due = lanes[lane][at[lane]] if at[lane] < len(lanes[lane]) else None
            if place != due:
                verdict.blame("reordered", f"{who(client)}: sent episode {place[0]}, t {place[1]} of lane {lane} before {due}")
            at[lane] += 1


def _judge_rows(evidence: Evidence, streams: Streams, verdict: Verdict) -> None:
    """Rule 2; tells each stream its rows, and each step its own."""
    held: dict[int, Row] = {}
    for row in evidence.rows:
        before = held.get(row.id, row)
        if before._replace(outcome=row.outcome) != row:
            verdict.blame("corrupted", f"row {row.id} was {before}, and is {row}")
            continue
        if before.outcome not in (0, row.outcome):
            verdict.blame("mislabelled", f"{named(row)} had outcome {before.outcome}, and has {row.outcome}")
        held[row.id] = row
    strangers: list[Row] = []
    for _, row in sorted(held.items()):
        stream = streams.get((row.actor, row.stream))
        if stream is None or row.seq not in stream.numbered:
            strangers.append(row)
        elif row.seq in stream.rows:
            verdict.blame("duplicated", f"{named(row)} is row {stream.rows[row.seq].id} and row {row.id}")
        else:
            _judge_row(row, stream, verdict)
    _judge_strangers(strangers, streams, verdict)
    for kind in ("duplicated", "corrupted", "phantom", "reordered"):
        verdict.trials[kind] = len(held)
    if evidence.unproved:
        verdict.blame("corrupted", f"{evidence.unproved} batches did not prove themselves to the learner", evidence.unproved)


def _judge_row(row: Row, stream: Stream, verdict: Verdict) -> None:
    if stream.rows and row.seq < next(reversed(stream.rows)):
        verdict.blame("reordered", f"{named(row)} came after seq {next(reversed(stream.rows))}")
    stream.rows[row.seq] = row
    place = stream.numbered[row.seq]
    could = stream.deeds.get(place, ())
    deed = next((deed for deed in could if row.digest in _digests(deed.step, is_last=deed.is_last)), None)
    if (row.episode, row.t) != place or deed is None:
        verdict.blame("corrupted", f"{named(row)} is {row}, executed was {[deed.step for deed in could]}")
        stream.settle(row.seq)
        return
    if deed.row is not None:
        verdict.blame("duplicated", f"{named(row)} is seq {deed.row.seq} too")
        return
    deed.row, deed.settled = row, True
    low, high = _ends(deed.step)
    if row.epoch and low == high and low != row.step:
        verdict.blame("stale", f"{named(row)} names update {row.step}, its action is by update {low:g}")


def _judge_strangers(strangers: Sequence[Row], streams: Streams, verdict: Verdict) -> None:
    """Rows under a name that nobody sent: they are transitions that are there already, or were never executed."""
    if not strangers:
        return
    known = {row.digest for stream in streams.values() for row in stream.rows.values()}
    for row in strangers:
        kind = "duplicated" if row.digest in known else "phantom"
        verdict.blame(kind, f"{named(row)} was never sent; it is row {row.id}")


def _judge_acks(evidence: Evidence, actors: Sequence[Client], deeds: Deeds, streams: Streams, verdict: Verdict) -> None:
    """Rule 3. What a spool kept and no process ever sent has no seq, and is told by its step."""
    counted: set[tuple[str, Place]] = set()
    for (actor, number), stream in sorted(streams.items()):
        verdict.trials["lost"] += stream.acked
        excused = stream.unseen(evidence.unseen) | stream.rejected
        for seq in sorted(excused - set(stream.rows)):
            stream.settle(seq)
        gone = [seq for seq in range(1, stream.acked + 1) if seq not in stream.rows and seq not in excused]
        if gone:
            case = f"{actor} stream {number} seq {gone[0]} and {len(gone) - 1} more of {stream.acked}"
            verdict.blame("lost", case, len(gone))
            counted.update((actor, stream.numbered[seq]) for seq in gone if seq in stream.numbered)
    kept = 0
    for client in actors:
        known = {(client.id, place) for runs in client.kept for run in runs for place in steps_of(run)}
        kept += len(known)
        missing = [deed.step for deed in deeds[client.process] if not deed.settled]
        lost = [step for step in missing if (client.id, (step.episode, step.t)) in known - counted]
        if lost:
            verdict.blame("lost", f"{who(client)}: {lost[0]} and {len(lost) - 1} more were in its spool", len(lost))
    unseen = sum(last - first for first, last in evidence.unseen)
    verdict.figures |= {"acked": verdict.trials["lost"], "spooled": kept, "unseen": unseen}


def _judge_weights(evidence: Evidence, verdict: Verdict) -> None:
    """Rule 5."""
    for client in evidence.clients:
        _judge_order(client, [c for c in evidence.clients if c.id == client.id and c is not client], verdict)
        for applied in client.applied:
            if (applied.epoch, applied.step) not in evidence.published:
                verdict.blame("torn", f"{who(client)}: version {applied.epoch, applied.step} was never published")
        verdict.figures["swaps"] = verdict.figures.get("swaps", 0) + len(client.applied)
        times = [applied.at for applied in client.applied]
        for step in client.steps:
            low, high = _ends(step)
            verdict.trials["torn"] += 1
            if low != high:
                verdict.blame("torn", f"{who(client)}: an action by updates {low:g} to {high:g}")
            elif client.role == "actor":
                verdict.trials["stale"] += 1
                place = bisect.bisect(times, step.at)
                expected = client.applied[place - 1].step if place else None
                if low != expected:
                    verdict.blame("stale", f"{who(client)}: an action by update {low:g}, applied was {expected}")


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
            verdict.blame("stale", f"{who(client)}: version {version} after {max(before, floor)}")
        before = version


def _judge_succession(actors: Sequence[Client], streams: Streams, verdict: Verdict) -> None:
    """Rule 6: a row of the pool was sent at least once by a process that had its id then."""
    sessions: dict[str, list[tuple[float, Process]]] = {}  # actor -> (since, process) of each session
    for client in actors:
        sessions.setdefault(client.id, []).extend((at, client.process) for at, _ in client.welcomed)
    rightful: dict[tuple[str, int], set[int]] = {}
    doubtful: list[tuple[Client, Sent]] = []
    for client in actors:
        own = sorted(sessions.get(client.id, ()))
        for sent in client.sent:
            _, holder = own[bisect.bisect_left(own, sent.at, key=lambda session: session[0]) - 1]
            if holder == client.process:
                rightful.setdefault((client.id, sent.stream), set()).update(range(sent.first, sent.first + sent.rows))
            else:
                doubtful.append((client, sent))
    for client, sent in doubtful:
        key = client.id, sent.stream
        late = set(range(sent.first, sent.first + sent.rows)) - rightful.get(key, set())
        if key in streams and late & streams[key].rows.keys():
            verdict.blame("phantom", f"{who(client)}: seq {min(late)} entered although it had a successor")


def _judge_balance(evidence: Evidence, actors: Sequence[Client], deeds: Deeds, streams: Streams, verdict: Verdict) -> None:
    """Rules 4 and 7, and that the steps of a spool came in their order."""
    totals = {"produced": 0, "committed": 0, "rejected": 0, "abandoned": 0}
    unseen = sum(last - first for first, last in evidence.unseen)
    totals["rejected"] = sum(len(stream.rejected) for stream in streams.values())
    for client in actors:
        verdict.trials["unbalanced"] += 1
        left = sum(not deed.settled for deed in deeds[client.process])
        if left > 0 and not evidence.may_abandon(client):
            verdict.blame("unbalanced", f"{who(client)}: executed {len(client.steps)}, {left} of them are nowhere")
        if client.spooled:
            seqs = [deed.row.seq for deed in deeds[client.process] if deed.row is not None]
            late = sum(b < a for a, b in pairwise(seqs))
            verdict.blame("reordered", f"{who(client)}: {late} steps came before what was executed before them", late)
        totals["produced"] += len(client.steps)
        totals["abandoned"] += left
    totals["committed"] = totals["produced"] - totals["rejected"] - totals["abandoned"]
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
        ("lost_before", _gaps(streams, evidence) - totals["rejected"], counters["lost_before"]),
    ):
        verdict.trials["unbalanced"] += 1
        if ours != theirs:
            verdict.blame("unbalanced", f"{name}: the pool says {theirs}, read and counted were {ours}")


def _judge_intruders(evidence: Evidence, verdict: Verdict) -> None:
    """Rule 9."""
    answers = Counter(answer for _, answer in evidence.tried)
    verdict.trials["intruded"] = len(evidence.tried)
    verdict.figures |= {f"intruders_{answer}": count for answer, count in sorted(answers.items())}
    for way, answer in evidence.tried:
        if answer == OPENED:
            verdict.blame("intruded", f"a session for {way}")


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


def _gaps(streams: Streams, evidence: Evidence) -> int:
    """Rows that are missing before others of their stream."""
    seen = ([0, *sorted({*stream.rows, *stream.unseen(evidence.unseen)})] for stream in streams.values())
    return sum(b - a - 1 for seqs in seen for a, b in pairwise(seqs))


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
