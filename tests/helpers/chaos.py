"""Evidence of a job that never was: two actors, one of them in two processes, whose rows a real pool has digested."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from headrace.actor.assembler import Assembler
from headrace.buffer import SACReplayPool
from headrace.common.specs import ActionSpec, ObsSpec, TransitionSpec
from headrace.common.weights import Version
from headrace.launch.chaos.evidence import Applied, Client, Evidence, Row, Sent, Step
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
    for i in range(steps):
        if i % SWAP == 0:
            applied.append(Applied(begun + i + 0.4, epoch, i // SWAP))
        done, odd, version = t + 1 == LENGTHS[episode % 2], episode % 2 == 1, i // SWAP
        flags = int(done and not odd), int(done and odd)
        noted.append(Step(begun + i + 0.5, pid, episode, t, acted(version, version), *flags))
        episode, t = (episode + 1, 0) if done else (episode, t + 1)
    handed = steps if ended else steps - 2
    sent = [_block(stream, first, noted[first - 1 : min(handed, first + BLOCK - 1)]) for first in range(1, handed + 1, BLOCK)]
    acked = {stream: handed if ended else max(0, handed - BLOCK)}
    session = [(begun + 0.1, epoch)]
    return Client("actor", name, pid, begun, 0 if ended else None, session, sent, acked, {}, applied, noted)


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
    rows = [Row(*(row[name] for name in COLUMNS)) for row in pool.dump()]
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
    return Evidence(clients, rows, (), {(100, 10.0): frozenset({"kill"})}, len(rows), counters, published)


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
