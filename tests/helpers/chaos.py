"""Evidence of a job that never was: two actors, one of them in two processes, whose rows a real pool has digested.

Beside them an actor of two lanes, and a robot whose second process sends what the first one left in its spool.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from headrace.actor.assembler import Assembler
from headrace.buffer import SACReplayPool
from headrace.common.specs import ActionSpec, ObsSpec, TransitionSpec
from headrace.common.weights import Version
from headrace.launch.chaos.evidence import Applied, Client, Evidence, Row, Said, Sent, Step
from headrace.launch.chaos.harvest import COLUMNS

SPEC = TransitionSpec((ObsSpec("obs", (3,), "<f4"),), ActionSpec((2,), (0.0, 0.0), (1e6, 1e6)))
LENGTHS = (3, 5)
BLOCK = 4
SWAP = 6  # steps between two versions


def acted(low: float, high: float) -> str:
    """The action of a witness, as its env notes it."""
    return np.array([low, high], "<f4").tobytes().hex()


def play(name: str, pid: int, stream: int, steps: int, begun: float, epoch: int, *, ended: bool) -> Client:
    """A process that executes ``steps`` steps, one a second from ``begun`` on, swaps versions, and sends all it may send."""
    noted, applied = [], []
    episode, t = 0, 0
    said: list[Said] = []
    for i in range(steps):
        if i % SWAP == 0:
            applied.append(Applied(begun + i + 0.4, epoch, i // SWAP))
        done, odd, version = t + 1 == LENGTHS[episode % 2], episode % 2 == 1, i // SWAP
        flags = int(done and not odd), int(done and odd)
        noted.append(Step(begun + i + 0.5, 0, pid, episode, t, acted(version, version), *flags, outcome_of(episode) * done))
        if done:
            said.append(Said(stream, i + 1 - t, i + 1, outcome_of(episode), episode))
        episode, t = (episode + 1, 0) if done else (episode, t + 1)
    handed = steps if ended else steps - 2
    sent = [_block(stream, first, noted[first - 1 : min(handed, first + BLOCK - 1)]) for first in range(1, handed + 1, BLOCK)]
    acked = {stream: handed if ended else max(0, handed - BLOCK)}
    session = [(begun + 0.1, epoch)]
    answered = [label for label in said if label.last <= acked[stream]]
    return Client("actor", name, pid, begun, 0 if ended else None, session, sent, acked, {}, applied, noted, said=answered)


def outcome_of(episode: int) -> int:
    """Odd ones succeed."""
    return 1 + (episode + 1) % 2


def rows_of(clients: Sequence[Client]) -> tuple[list[Row], dict[str, int]]:
    """What a pool that took every block would hold, as it dumps it, and its counters."""
    pool = SACReplayPool(1000, spec=SPEC)
    for client in clients:
        assembler = Assembler(SPEC)
        for i, step in enumerate(client.steps):
            if step.t == 0:
                assembler.begin(step.episode, {"obs": _obs(step, 0)})
            version = max((a for a in client.applied if a.at < step.at), key=lambda a: a.at)
            action = np.frombuffer(bytes.fromhex(step.action), "<f4")
            flags = bool(step.terminated), bool(step.truncated)
            named = Version("canary", version.epoch, version.step)
            assembler.step(action, float(step.t), *flags, {"obs": _obs(step, 1)}, version=named)
            if i + 1 == len(client.steps) and client.ended is not None:
                assembler.abort()
        stream = client.sent[0].stream
        for sent in client.sent:
            pool.insert(assembler.take(sent.rows), client.id, stream, sent.first)
    outcomes = {
        (client.id, client.sent[0].stream, seq): label.outcome
        for client in clients
        for label in client.said
        for seq in range(label.first, label.last + 1)
    }
    rows = [Row(*(row[name] for name in COLUMNS)) for row in pool.dump()]
    rows = [row._replace(outcome=outcomes.get((row.actor, row.stream, row.seq), 0)) for row in rows]
    counters = dict(pool.counters())
    pool.close()
    return rows, counters


def honest() -> Evidence:
    """Evidence in which nothing is wrong: actor-0 was killed and succeeded, actor-1 ended in order."""
    clients = [
        play("actor-0", 100, 1, 18, 10.0, 1, ended=False),
        play("actor-1", 101, 1, 21, 10.0, 1, ended=True),
        play("actor-0", 102, 2, 13, 40.0, 2, ended=True),
    ]
    rows, counters = rows_of(clients)
    published = frozenset((a.epoch, a.step) for client in clients for a in client.applied)
    hits = {(100, 10.0): frozenset({"kill"})}
    return Evidence(clients, rows, (), hits, len(rows), counters=counters, published=published)


def spooled() -> Evidence:
    """Evidence of a robot: its first process was killed with its last 6 rows in the spool, and its second one sent them."""
    whole = play("robot", 200, 1, 18, 10.0, 1, ended=True)
    early, late = ([sent for sent in whole.sent if (sent.first > 12) is after] for after in (False, True))
    dead = replace(whole, ended=None, spooled=True, kept=[sent.runs for sent in whole.sent], sent=early, acked={1: 12})
    heir = Client(
        "actor",
        "robot",
        201,
        60.0,
        0,
        [(60.1, 2)],
        [s._replace(at=s.at + 60) for s in late],
        {1: 18},
        {},
        [],
        [],
        spooled=True,
        said=whole.said[3:],
    )
    rows, counters = rows_of([whole])
    published = frozenset((applied.epoch, applied.step) for applied in whole.applied)
    hits = {dead.process: frozenset({"kill"})}
    clients = [replace(dead, said=whole.said[:3]), heir]
    return Evidence(clients, rows, (), hits, len(rows), counters=counters, published=published)


def laned() -> Evidence:
    """Evidence of an actor of two lanes, even and odd episodes: a block of the odd ones leaves before one of the even."""
    whole = play("actor-2", 300, 1, 16, 10.0, 1, ended=True)
    rows, counters = rows_of([whole])
    by_place = {(row.episode, row.t): row for row in rows}
    steps = [step._replace(lane=step.episode % 2) for step in whole.steps]
    sent: list[Sent] = []
    order: list[Row] = []
    for episode in (1, 0, 3, 2):
        own = [step for step in steps if step.episode == episode]
        sent.append(_block(1, len(order) + 1, own)._replace(at=100.0 + episode))
        order += [by_place[step.episode, step.t] for step in own]
    rows = [row._replace(id=i, seq=i + 1) for i, row in enumerate(order)]
    said = [Said(1, s.first, s.first + s.rows - 1, outcome_of(s.runs[0][0]), s.runs[0][0]) for s in sent]
    client = replace(whole, steps=sorted(steps, key=lambda step: step.lane), sent=sent, said=said)
    published = frozenset((applied.epoch, applied.step) for applied in whole.applied)
    return Evidence([client], rows, (), {}, len(rows), counters=counters, published=published)


def changed(evidence: Evidence, index: int, **changes: object) -> Evidence:
    """With one client changed."""
    clients = list(evidence.clients)
    clients[index] = replace(clients[index], **changes)
    return replace(evidence, clients=clients)


def _block(stream: int, first: int, steps: Sequence[Step]) -> Sent:
    runs: list[list[int]] = []
    for step in steps:
        if runs and runs[-1][0] == step.episode:
            runs[-1][2] += 1
        else:
            runs.append([step.episode, step.t, 1])
    return Sent(steps[-1].at + 0.2, stream, first, len(steps), runs, f"{stream}-{first}")


def _obs(step: Step, ahead: int) -> np.ndarray:
    return np.array([step.number, step.episode, step.t + ahead], np.float32)
