"""Intruders: who tries to get into a buffer with which key, what he then says, and how much of it was accepted."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import numpy as np
import zmq
from speed import data

from headrace.common.weights import Version, WeightSet
from headrace.common.wire import messages as m
from headrace.common.wire import sockets
from headrace.common.wire.codec import Parts, block_parts, decode, encode
from headrace.common.wire.key_files import KeyFiles
from headrace.common.wire.keys import Secret, new_pair
from headrace.common.wire.link import new_hello

ACTOR, OTHER, REVOKED = "arm", "leg", "gone"
NAMES = {ACTOR: "actor", OTHER: "actor", REVOKED: "actor", "eve": "evaluator", "learner": "learner", "operator": "operator"}
IN = int(zmq.EVENT_HANDSHAKE_SUCCEEDED)
OUT = int(zmq.EVENT_HANDSHAKE_FAILED_AUTH | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL)
WAIT_S, QUIET_S = 5.0, 0.1
HELLOS = 20
_STEPS = count(1)


@dataclass(frozen=True)
class Attack:
    """One way to try.

    Attributes:
        key: whose key is used; ``unknown``, ``none`` and ``other-buffer`` are keys that nobody was given.
        role: of the session that is asked for.
        identity: likewise.
        opens: whether that session is rightly his, so that what he says in it is what must be refused.
    """

    key: str
    role: str
    identity: str
    opens: bool = False

    @property
    def name(self) -> str:
        """In words."""
        return f"{self.key} as {self.role} {self.identity}" if not self.opens else f"{self.role} says what is not his to say"


STRANGERS = [Attack(key, "actor", ACTOR) for key in ("none", "unknown", "other-buffer", REVOKED, "buffer")]
IMPOSTORS = [
    *(Attack(ACTOR, role, ACTOR) for role in ("learner", "rank", "evaluator", "observer")),
    *(Attack(ACTOR, "actor", name) for name in (OTHER, "new")),
    *(Attack("eve", role, "eve") for role in ("actor", "learner", "observer")),
    Attack("eve", "evaluator", ACTOR),
    *(Attack("learner", role, OTHER) for role in ("actor", "evaluator", "observer")),
    *(Attack("operator", role, OTHER) for role in ("actor", "evaluator", "learner", "rank")),
]
TRESPASSERS = [
    Attack(OTHER, "actor", OTHER, opens=True),
    Attack("eve", "evaluator", "eve", opens=True),
    Attack("learner", "learner", "learner", opens=True),
    Attack("learner", "rank", "learner.1", opens=True),
    Attack("operator", "observer", "watcher", opens=True),
]
ATTACKS = [*STRANGERS, *IMPOSTORS, *TRESPASSERS]
# What each role may say; everything else of SAYINGS is said by those who may not.
MAY = {
    "actor": ("rows", "label", "change", "fetch"),
    "evaluator": ("fetch",),
    "learner": ("publish", "draw", "rate"),
    "rank": ("draw", "rate"),
    "observer": ("status", "snapshot", "change"),
}
SAYINGS = ("rows", "label", "publish", "draw", "rate", "status", "snapshot", "change", "fetch")


def make_keys(files: KeyFiles) -> dict[str, Secret | None]:
    """Make the keys of all whom attacks name, revoke one, and give every attacker his secret."""
    for name, role in NAMES.items():
        files.new(name, role)
    secrets: dict[str, Secret | None] = {name: files.secret(name, role) for name, role in NAMES.items()}
    files.revoke(REVOKED)
    own = secrets[ACTOR]
    assert own is not None
    secrets["buffer"] = files.secret("buffer", "buffer")
    return {
        **secrets,
        "none": None,
        "unknown": replace(own, secret=new_pair()[1]),
        "other-buffer": replace(own, buffer=new_pair()[0]),
    }


def attack(context: zmq.Context[zmq.Socket[bytes]], endpoint: str, secret: Secret | None, what: Attack) -> int:
    """Carry out one attack; how many things were accepted that must not be."""
    socket, told = sockets.watched_dealer(context, endpoint, secret, IN | OUT)
    try:
        if not _let_in(told):
            return 0
        spec = data.FLAT.to_dict() if what.role == "actor" else None
        welcome = _welcome(socket, new_hello(what.role, what.identity, spec=spec))
        if welcome is None:
            return 0
        taken = 0 if what.opens else 1
        for saying, parts in _sayings(welcome.epoch, what.identity):
            if saying not in MAY[what.role]:
                taken += sum(_is_taken(a) for a in _say(socket, parts))
        socket.send(encode(m.Goodbye(False)))
        return taken
    finally:
        sockets.unwatch(socket, told)
        socket.close(200)


def _let_in(told: zmq.Socket[bytes]) -> bool:
    end = time.monotonic() + WAIT_S
    while time.monotonic() < end:
        if told.poll(10) and (event := sockets.next_event(told)):
            return bool(event[0] & IN)
    return False


def _welcome(socket: zmq.Socket[bytes], hello: m.Hello) -> m.Welcome | None:
    """The answer to a hello, which is said again for as long as it is to be."""
    for _ in range(HELLOS):
        answers = _say(socket, [encode(hello)])
        found = next((a for a in answers if isinstance(a, m.Welcome)), None)
        if found is not None or not any(isinstance(a, m.Refused) and a.retry_s > 0 for a in answers):
            return found
    return None


def _say(socket: zmq.Socket[bytes], parts: Parts) -> list[m.Message]:
    """Say one thing and hear what comes until it is quiet."""
    socket.send_multipart(parts)
    heard = []
    while socket.poll(int(QUIET_S * 1000)):
        heard.append(decode(socket.recv_multipart()[0]))
    return heard


def _sayings(epoch: int, identity: str) -> Iterator[tuple[str, Parts]]:
    """Each message that would change or tell something, well-formed."""
    block = data.block(data.FLAT, 4, np.random.default_rng(0))
    step = next(_STEPS)
    weights = WeightSet(Version(identity, epoch, step), {"type": "intruder"}, {"w": np.zeros(1, np.float32)})
    yield "rows", block_parts(m.BlockHead(1, 1, block.n_rows, block.n_frames), block, data.FLAT)
    yield "label", [encode(m.LabelHead(1, 1, 1, 1, 1, 1))]
    yield "publish", [encode(m.Publish(epoch, step)), weights.pack()]
    yield "draw", [encode(m.Draw(1, 4))]
    yield "rate", [encode(m.Rate(1, 1)), np.zeros(1, "<i8").tobytes(), np.ones(1, "<f4").tobytes()]
    yield "status", [encode(m.Query("status"))]
    yield "snapshot", [encode(m.Query("snapshot"))]
    yield "change", [encode(m.Change("resume", 1))]
    yield "fetch", [encode(m.WeightsGet(epoch, 1, 0, 1 << 10))]


def _is_taken(answer: m.Message) -> bool:
    if isinstance(answer, (m.Published, m.Labelled)):
        return not answer.reason
    return isinstance(answer, (m.Ack, m.BatchHead, m.DrawnHead, m.StatisticsHead, m.Answer, m.WeightsPart))


def unaccounted(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """What a status tells that only an intruder can have done."""
    wrong = []
    if after["weights"] != before["weights"]:
        wrong.append("weights were published")
    names = {a["id"] for a in after["actors"]} - {ACTOR, OTHER}
    wrong += [f"actor {name!r} is there" for name in sorted(names)]
    return wrong


def sabotaged(attacks: Sequence[Attack]) -> list[Attack]:
    """Those that a buffer without keys must be seen to let in, or nothing that this module counts means anything."""
    return [a for a in attacks if not a.opens]
