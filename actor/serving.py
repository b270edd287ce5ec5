"""What a policy server decides, without sockets and without a policy: who may ask, what goes together, and what is late.

    receive(peer, parts, now, user)   sessions, and requests that wait
    late(now)                         answers to requests whose time has passed
    batch(now)                        the requests that are to be decided together now
    decided(batch, ...), failed(...)  their answers
    tick(now)                         leases and heartbeats
    rekeyed(now), stop(reason)        the end of sessions

a request ...                                         is answered
whose time has passed before anybody looked at it     ``late``, and not computed
while there are no weights                            ``no-weights``
in a batch that the policy raised at                  ``failed``
behind which the same actor has sent another          not at all: who asks again has given it up
else                                                  with actions, the version of the weights, and the generator
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from headrace.actor import noise
from headrace.actor.deciding import Decided
from headrace.actor.server_config import PolicyServerConfig
from headrace.common.errors import WireError
from headrace.common.specs import ObsSpec, TransitionSpec
from headrace.common.weights import NO_VERSION, Version
from headrace.common.wire import answers
from headrace.common.wire import messages as m
from headrace.common.wire.answers import Out, declined
from headrace.common.wire.codec import (
    MAX_HEADER_BYTES,
    MAX_PARTS,
    Parts,
    Raw,
    check_sender,
    decode,
    encode,
    raw_bytes,
    take_array,
    unspoken_hello,
)
from headrace.common.wire.deflate import plain
from headrace.common.wire.fleet import Fleet, Session, name_of
from headrace.common.wire.fragments import Joiner, size_of
from headrace.common.wire.keyring import Keyring
from headrace.common.wire.line import Line
from headrace.common.wire.network import NetworkConfig
from headrace.common.wire.refusals import STRANGERS, Refusals

Array = np.ndarray[Any, Any]
LOG = logging.getLogger(__name__)
MOST_TRACEBACKS = 10
MOST_DECLINED = 32  # answers to garbage of one session between two heartbeats
NOT_SERVED = m.Refused("role", "a policy server decides for actors alone", 0.0)


@dataclass(frozen=True)
class Request:
    """One actor's request; ``obs`` is key -> ``(lanes, ...)``, and it is of use until ``due``."""

    peer: bytes
    number: int
    lanes: int
    due: float
    since: float
    rng: np.random.Generator | None
    obs: dict[str, Array]


@dataclass
class Asker:
    """One session.

    Attributes:
        taken: bytes that came, and were given back as soon as they were looked at.
        waiting: its request that was not answered yet.
    """

    session: Session
    joiner: Joiner
    told_at: float
    taken: int = 0
    noticed: int = 0
    declined: int = 0
    waiting: Request | None = None


class _Counted:
    """Epochs of sessions: no process writes anything here, so they need no disk."""

    def __init__(self) -> None:
        self._epochs: Counter[str] = Counter()

    def raise_epoch(self, who: str, process: bytes) -> int:
        """The next one."""
        self._epochs[who] += 1
        return self._epochs[who]

    def write(self) -> None:
        """Nothing to keep."""

    def held(self, who: str, process: bytes) -> int:
        """None: an epoch here is of one session."""
        return 0

    def holder(self, who: str) -> bytes:
        """Nobody: who was replaced may ask all the same."""
        return b""


@dataclass
class Serving:
    """Sessions and requests of one policy server.

    Attributes:
        spec: of the rows, which actors must share.
        network: leases and bounds.
        config: how requests are gathered.
        version: of the weights that decide now; none yet while its epoch is 0.
        keyring: which keys are known, where keys are used.
        counts: requests by what became of them.
        refused: messages that were not accepted.
    """

    spec: TransitionSpec
    network: NetworkConfig
    config: PolicyServerConfig
    version: Version = NO_VERSION
    keyring: Keyring | None = None
    counts: Counter[str] = field(default_factory=Counter)
    refused: Refusals = field(default_factory=lambda: Refusals("messages"))
    stopping: str = ""

    def __post_init__(self) -> None:
        network = self.network
        self._fleet = Fleet(_Counted(), lease_s=network.lease_s, heartbeat_s=network.heartbeat_s, most=self.config.actors)
        self._askers: dict[bytes, Asker] = {}
        self._seen = seen_by_actors(self.spec)
        lane = self.spec.stack * sum(o.nbytes for o in self._seen)
        self._largest = self.config.batch * lane + MAX_HEADER_BYTES  # bytes of a request

    # --- in ---------------------------------------------------------------------------------------------------------

    def receive(self, peer: bytes, parts: Parts, now: float, user: str = "", line: Callable[[], Line] = Line) -> list[Out]:
        """Act on one message of a peer, whose key is ``user`` where keys are used; never raises for what a peer sent.

        ``line`` is asked what it came by when it opens a session.
        """
        try:
            return self._receive(peer, parts, now, user, line)
        except WireError as error:
            version = unspoken_hello(parts[0]) if error.reason == "version" else None
            if version is not None:
                return self._turn_away(peer, answers.refuse_version(version, m.POLICY_SERVER), version)
            return self._decline(peer, error.reason, str(error))
        except Exception:  # a defect of ours that one peer's bytes have found must not stop the others
            if self.refused.by_reason["defect"] < MOST_TRACEBACKS:
                LOG.exception("a message of %d frames was dropped by a defect", len(parts))
            return self._decline(peer, "defect", "the policy server has a defect; its log says where")

    def _receive(self, peer: bytes, parts: Parts, now: float, user: str, line: Callable[[], Line]) -> list[Out]:
        if self.keyring is not None and self.keyring.who(user) is None:
            raise WireError("key-revoked", "the connection is older than that")
        if not 1 <= len(parts) <= MAX_PARTS:
            raise WireError("arity", f"a message of {len(parts)} frames, at most {MAX_PARTS}")
        message = decode(parts[0])
        if isinstance(message, m.Hello):
            check_sender(message, parts[1:], message.role)
            return self._on_hello(peer, message, now, user, line)
        asker = self._askers.get(peer)
        if asker is None or asker.session.user != user or self._fleet.find(peer, now) is None:
            return self._turn_away(peer, answers.HELLO_FIRST, m.PROTOCOL)
        check_sender(message, parts[1:], asker.session.role)
        if isinstance(message, m.Pulse):
            return []
        if isinstance(message, m.Goodbye):
            return self._end(asker)
        asker.taken += size_of(parts)
        if isinstance(message, m.Fragment):
            whole = asker.joiner.add(message, plain(parts[1]))
            if whole is None:
                return self._give_back(asker)
            message, parts = decode(whole[0]), whole
        if not isinstance(message, m.Ask):
            raise WireError("direction", f"{type(message).__name__} is not for a policy server")
        return self._on_ask(asker, message, parts[1:], now) + self._give_back(asker)

    def _on_hello(self, peer: bytes, hello: m.Hello, now: float, user: str, line: Callable[[], Line]) -> list[Out]:
        barred = self.keyring.refuse(user, hello) if self.keyring is not None else None
        known = self._askers.get(peer)
        if barred is None and known is not None and known.session.name != name_of(hello.role, hello.id):
            self._end(known)  # a peer is one client
        answer = barred or self._refusal(hello) or self._fleet.hello(peer, hello, now)
        if isinstance(answer, m.Refused):
            return self._turn_away(peer, answer, m.PROTOCOL)
        session, old = answer
        session.user, session.line = user, line()
        if old is not None:
            self._askers.pop(old.peer, None)
        asker = self._askers[peer] = Asker(session, Joiner(min(self.network.message_bytes, self._largest)), now)
        network = self.network
        limits = network.credit_bytes, network.fragment_bytes, network.message_bytes
        welcome = m.Welcome(session.epoch, network.lease_s, network.heartbeat_s, *limits, self.spec.to_dict())
        return [(peer, [encode(welcome)]), self._state(asker, now)]

    def _refusal(self, hello: m.Hello) -> m.Refused | None:
        if self.stopping:
            return answers.stopping(self.stopping, m.POLICY_SERVER)
        if hello.role != "actor":
            return NOT_SERVED
        return answers.refuse_name(hello) or answers.refuse_spec(hello.spec, self.spec, "policy server")

    def _on_ask(self, asker: Asker, ask: m.Ask, frames: Sequence[Raw], now: float) -> list[Out]:
        if ask.lanes > self.config.batch:
            raise WireError("size", f"{ask.lanes} lanes, at most {self.config.batch} (policy_server.batch)")
        if len(frames) != len(self._seen) or ask.lanes < 1:
            raise WireError("arity", f"{len(frames)} frames for {ask.lanes} lanes, an actor sees {len(self._seen)} keys")
        stack = (self.spec.stack,) if self.spec.stack > 1 else ()
        obs = {
            o.key: take_array(frame, o.dtype, (ask.lanes, *stack, *o.shape), o.key)
            for o, frame in zip(self._seen, frames, strict=True)
        }
        rng = noise.unpack(ask.noise) if ask.noise else None
        self.counts["asked"] += 1
        self.counts["given_up"] += asker.waiting is not None
        request = Request(asker.session.peer, ask.number, ask.lanes, now + ask.within_s, now, rng, obs)
        asker.waiting = request if self.version.epoch else None
        return [] if self.version.epoch else self.failed([request], "no-weights")

    def _give_back(self, asker: Asker) -> list[Out]:
        """Byte credit: what was looked at no longer waits, but for one request a session."""
        if asker.taken - asker.noticed < self.network.credit_bytes // 8:
            return []
        asker.noticed = asker.taken
        return [(asker.session.peer, [encode(m.Received(asker.taken))])]

    def _decline(self, peer: bytes, reason: str, detail: str) -> list[Out]:
        asker = self._askers.get(peer)
        self.refused.add(STRANGERS if asker is None else asker.session.name, reason, detail)
        if asker is None:
            return []
        asker.session.garbled = True
        asker.declined += 1
        return [(peer, [encode(declined(reason, detail))])] if asker.declined <= MOST_DECLINED else []

    def _turn_away(self, peer: bytes, refused: m.Refused, version: int) -> list[Out]:
        if refused is not answers.HELLO_FIRST:  # part of any restart
            self.refused.add(STRANGERS, refused.reason, refused.detail)
        return [(peer, [encode(refused, version)])]

    def _end(self, asker: Asker) -> list[Out]:
        self._askers.pop(asker.session.peer, None)
        self._fleet.forget(asker.session)
        return []

    # --- requests ---------------------------------------------------------------------------------------------------

    def batch(self, now: float) -> list[Request]:
        """What is to be decided now, together: requests of one kind, the oldest first; empty while more may come."""
        waiting = sorted((r for r in self._waiting() if r.due > now), key=lambda r: r.since)
        if not waiting:
            return []
        complete = len(waiting) == len(self._askers) or sum(r.lanes for r in waiting) >= self.config.batch
        if not complete and now - waiting[0].since < self.config.gather_s:
            return []
        out: list[Request] = []
        for request in waiting:
            same = (request.rng is None) == (waiting[0].rng is None)
            if same and (not out or sum(r.lanes for r in out) + request.lanes <= self.config.batch):
                out.append(request)
                self._askers[request.peer].waiting = None
        return out

    def late(self, now: float) -> list[Out]:
        """The answers of requests that nobody has a use for any more; they are not decided."""
        late = [r for r in self._waiting() if r.due <= now]
        for request in late:
            self._askers[request.peer].waiting = None
        return self.failed(late, "late")

    def wait_s(self, now: float) -> float:
        """How long nothing is to be done unless somebody says something, for the sake of requests; infinite without any."""
        waiting = self._waiting()
        if not waiting:
            return math.inf
        return max(0.0, min(min(r.since for r in waiting) + self.config.gather_s, *(r.due for r in waiting)) - now)

    def decided(self, batch: Sequence[Request], found: Array | Decided, version: Version) -> list[Out]:
        """The answers of a batch: what was ``found`` is of all lanes, one request after the other."""
        out: list[Out] = []
        start = 0
        for request in batch:
            mine = slice(start, start + request.lanes)
            start += request.lanes
            state = b"" if request.rng is None else noise.pack(request.rng)
            head = m.Decision(request.number, "", version.learner, version.epoch, version.step, state)
            columns = found if isinstance(found, Decided) else (found,)
            out.append((request.peer, [encode(head), *(raw_bytes(np.asarray(column[mine], "<f4")) for column in columns)]))
        self.counts["decided"] += len(batch)
        return out

    def failed(self, batch: Sequence[Request], reason: str = "failed") -> list[Out]:
        """The answers of requests that nothing was decided for."""
        self.counts[reason] += len(batch)
        return [(request.peer, [encode(m.Decision(request.number, reason))]) for request in batch]

    def _waiting(self) -> list[Request]:
        return [asker.waiting for asker in self._askers.values() if asker.waiting is not None]

    # --- time -------------------------------------------------------------------------------------------------------

    def tick(self, now: float) -> list[Out]:
        """Move time on: heartbeats and leases."""
        self.refused.tick(now)
        if self.keyring is not None:
            self.keyring.refused.tick(now)
        out: list[Out] = []
        for asker in list(self._askers.values()):
            if now - asker.told_at >= self.network.heartbeat_s:
                asker.noticed, asker.declined = asker.taken, 0
                out += [self._state(asker, now), (asker.session.peer, [encode(m.Received(asker.taken))])]
        for session in self._fleet.expired(now):
            self._askers.pop(session.peer, None)
            self._fleet.forget(session)
        return out

    def rekeyed(self) -> list[Out]:
        """The keyring has changed: end the sessions whose key does not open them any more."""
        out: list[Out] = []
        for asker in list(self._askers.values()):
            session = asker.session
            if self.keyring is not None and not self.keyring.allows(session.user, session.role, session.id):
                self.refused.add(session.name, answers.REVOKED.reason)
                self._end(asker)
                out.append((session.peer, [encode(answers.REVOKED)]))
        return out

    def stop(self, reason: str) -> list[Out]:
        """Begin to end: nobody is let in, and who is in hears of it."""
        self.stopping = reason
        return [(peer, [encode(m.Stop(False, f"the policy server stops: {reason}"[:256]))]) for peer in self._askers]

    def report(self) -> dict[str, Any]:
        """For the status."""
        report: dict[str, Any] = {"actors": len(self._askers), "requests": dict(self.counts)}
        report["refused"] = dict(self.refused.by_reason)
        if self.keyring is not None:
            report["turned_away"] = dict(self.keyring.refused.by_reason)
        return report

    def _state(self, asker: Asker, now: float) -> Out:
        asker.told_at = now
        return asker.session.peer, [encode(m.State(self.version.learner, self.version.epoch, self.version.step))]


def seen_by_actors(spec: TransitionSpec) -> tuple[ObsSpec, ...]:
    """The keys that an actor decides by, in the order in which a request has them."""
    return tuple(o for o in spec.obs if o.role != "critic")


def decided_shapes(spec: TransitionSpec, *, sampled: bool) -> dict[str, tuple[int, ...]]:
    """Name -> shape for one lane of what a decision consists of; the mode has no latents."""
    latents = {"latents": (spec.latent,)} if spec.latent and sampled else {}
    return {"actions": spec.action.shape, **latents}


def joined(batch: Sequence[Request]) -> tuple[dict[str, Array], np.random.Generator | None]:
    """The observations of a batch, one request after the other, and what its noise is drawn from; none for the mode."""
    obs = {key: np.concatenate([r.obs[key] for r in batch]) for key in batch[0].obs}
    drawing = [(r.rng, r.lanes) for r in batch if r.rng is not None]
    return obs, noise.Joined(drawing) if drawing else None
