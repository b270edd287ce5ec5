"""The buffer's decisions, without sockets: a message and a time come in, messages and pool work go out.

    receive(peer, parts, now)   decode, find the session, act or queue work for the pool's thread
    take_work()                 the queued work, once the thread is free
    finish(done, totals, now)   acks, rejects, batches, announcements
    tick(now)                   leases, heartbeats, allowances, the end of the run

What is wrong is counted by reason in ``refused``; strangers get no answer but, for a well-formed message that
needs a session, a request to say hello.
"""

from __future__ import annotations

import json
import logging
from collections import Counter, deque
from collections.abc import Callable
from typing import Any

from headrace.buffer import admission
from headrace.buffer.backups import Backups
from headrace.buffer.client import Client
from headrace.buffer.drawing import Again, Draw
from headrace.buffer.fleet import Fleet
from headrace.buffer.pacing import UNBOUNDED, Pacing
from headrace.buffer.status import Watch
from headrace.buffer.worker import Amend, Done, Insert, Open, Shelve, Totals, Update, Work
from headrace.common.errors import WireError
from headrace.common.specs import TransitionSpec
from headrace.common.weights import Version
from headrace.common.wire import messages as m
from headrace.common.wire.batches import parse_rate
from headrace.common.wire.codec import Frame, Parts, decode, encode, parse_block, parse_label, take_array
from headrace.common.wire.fragments import Joiner, size_of
from headrace.common.wire.network import NetworkConfig

LOG = logging.getLogger(__name__)
Out = tuple[bytes, Parts]


class Service:
    """One buffer's protocol state."""

    def __init__(
        self,
        fleet: Fleet,
        pacing: Pacing,
        network: NetworkConfig,
        watch: Watch,
        totals: Totals,
        read_shelf: Callable[[tuple[int, int], int, int], bytes | None],
        most_actors: int,
    ) -> None:
        self.fleet, self.pacing, self.watch = fleet, pacing, watch
        self.refused: Counter[str] = Counter()
        self.rejected: Counter[str] = Counter()
        self.learner_done = False
        self.stopping = ""
        self.backups: Backups | None = None
        self._network = network
        self._read_shelf = read_shelf
        self._most_actors = most_actors
        self._totals = totals
        self._opening = False
        self._batch_size = 0  # also of a learner that has left: whether its batches can be drawn decides over the end
        self._clients: dict[bytes, Client] = {}
        self._work: deque[Work] = deque()
        self._later: list[Again] = []  # too few rows are live now
        self._short = self._paused = False  # the last draw found too few rows; and it is not the time to try again
        self._handlers: dict[type[m.Message], Callable[[Client, Any, list[Frame], float], list[Out]]] = {
            m.Fragment: self._on_fragment,
            m.BlockHead: self._on_block,
            m.Pulse: self._on_pulse,
            m.Draw: self._on_draw,
            m.Redraw: self._on_draw,
            m.Rate: self._on_rate,
            m.WeightsGet: self._on_weights_get,
            m.Publish: self._on_publish,
            m.LabelHead: self._on_label,
            m.EpisodeEnd: self._on_episode_end,
            m.Evaluation: self._on_evaluation,
            m.Query: self._on_query,
            m.Goodbye: self._on_goodbye,
        }
        pacing.observe(totals.env_steps, totals.updates, totals.offline_updates)
        self._awaited = set(watch.names) if totals.env_steps else set()  # actors of the buffer before this one
        self._awaited_until: float | None = None

    @property
    def totals(self) -> Totals:
        """The pool's counters as of the last finished work."""
        return self._totals

    @property
    def is_empty(self) -> bool:
        """Whether no client is left but observers, who only look."""
        return all(client.session.role == "observer" for client in self._clients.values())

    @property
    def phase(self) -> str:
        """``offline``, ``waiting``, ``filling``, ``training``, ``finishing``, ``done`` or ``stopping``."""
        if self.stopping:
            return "stopping"
        if self.pacing.finished and (self.learner_done or self._totals.updates + self.pacing.owed == 0):
            return "done"
        if self.pacing.offline:
            return "offline"
        if self.pacing.collected:
            return "finishing"
        if self._totals.env_steps == 0:
            return "waiting"
        return "training" if self.pacing.owed > 0 and self.pacing.drawable else "filling"

    # --- in ---------------------------------------------------------------------------------------------------------

    def receive(self, peer: bytes, parts: Parts, now: float) -> list[Out]:
        """Act on one message of a peer; never raises for what a peer sent."""
        try:
            return self._receive(peer, parts, now)
        except WireError as error:
            self.refused[error.reason] += 1
        except Exception:  # a defect of ours that one peer's bytes have found must not stop the others
            self.refused["defect"] += 1
            LOG.exception("a message of %d frames was dropped by a defect", len(parts))
        return []

    def _receive(self, peer: bytes, parts: Parts, now: float) -> list[Out]:
        if not parts:
            raise WireError("arity", "a message without frames")
        message = decode(parts[0])
        if isinstance(message, m.Hello):
            return self._on_hello(peer, message, now)
        client = self._clients.get(peer)
        if client is None or self.fleet.find(peer, now) is None:
            return [(peer, [encode(admission.HELLO_FIRST)])]
        client.taken += size_of(parts)
        return self._handle(client, message, list(parts[1:]), now) + self._credit(client, self._network.credit_bytes // 8)

    def _handle(self, client: Client, message: m.Message, frames: list[Frame], now: float) -> list[Out]:
        handler = self._handlers.get(type(message))
        if handler is None:
            raise WireError("direction", f"{type(message).__name__} is not for a buffer")
        return handler(client, message, frames, now)

    def _on_hello(self, peer: bytes, hello: m.Hello, now: float) -> list[Out]:
        answer = self._refusal(hello) or self.fleet.hello(peer, hello, now)
        if isinstance(answer, m.Refused):
            if answer not in admission.WAIT:
                self.refused[answer.reason] += 1
            return [(peer, [encode(answer)])]
        session, old = answer
        if old is not None:
            self._clients.pop(old.peer, None)
        client = self._clients[peer] = Client(session, Joiner(self._network.message_bytes), state_at=now)
        spec = self._totals.spec
        streams: tuple[tuple[int, int], ...] = ()
        if hello.role == "actor":
            streams = self.watch.streams(hello.id)
            window = spec.window if spec is not None else 1
            steps = {"executed": hello.executed, "pending": hello.pending, "lanes": hello.lanes}
            self.pacing.join(hello.id, **steps, window=window, robot=hello.robot)
            self._awaited.discard(hello.id)
            self.pacing.absent = bool(self._awaited)
        if hello.role == "learner":
            self.learner_done = False
        welcome = admission.welcome(session, self._network, spec, streams, self._totals.info)
        return [(peer, [encode(welcome)]), self._state(client, now)]

    def _refusal(self, hello: m.Hello) -> m.Refused | None:
        if self.stopping:
            return admission.stopping(self.stopping)
        refused = admission.refuse_role(hello)
        if refused is None and hello.role == "actor" and not self.watch.knows(hello.id):
            refused = admission.refuse_actor(self.watch.actors, self._most_actors)
        spec = refused or admission.compare_specs(hello, self._totals.spec)
        if isinstance(spec, TransitionSpec):
            if not self._opening:
                self._opening = True
                self._work.append(Open(spec))
            return admission.OPENING
        return spec

    def _on_fragment(self, client: Client, head: m.Fragment, frames: list[Frame], now: float) -> list[Out]:
        if len(frames) != 1:
            raise WireError("arity", "a fragment has one frame")
        parts = client.joiner.add(head, frames[0])
        if parts is None:
            return []
        message = decode(parts[0])
        if not isinstance(message, (m.BlockHead, m.Publish, m.Rate)):
            raise WireError("fragment", f"{type(message).__name__} does not travel in parts")
        return self._handle(client, message, list(parts[1:]), now)

    def _on_block(self, client: Client, head: m.BlockHead, frames: list[Frame], now: float) -> list[Out]:
        spec = self._totals.spec
        if client.session.role != "actor" or spec is None:
            raise WireError("direction", "only actors send blocks")
        if head.rows < 1 or head.seq < 1 or head.seq + head.rows >= 1 << 63:
            raise WireError("malformed", f"block of {head.rows} rows at seq {head.seq}")
        block = parse_block(head, frames, spec)
        client.queued += block.nbytes
        self._work.append(Insert(client.session.peer, client.session.id, head.stream, head.seq, block))
        return []

    def _on_label(self, client: Client, head: m.LabelHead, frames: list[Frame], now: float) -> list[Out]:
        spec = self._totals.spec
        if client.session.role != "actor" or spec is None:
            raise WireError("direction", "only actors label rows, and only their own")
        work = Amend(client.session.peer, client.session.id, head.number, parse_label(head, frames, spec))
        client.queued += work.nbytes
        self._work.append(work)
        return []

    def _on_pulse(self, client: Client, pulse: m.Pulse, frames: list[Frame], now: float) -> list[Out]:
        if client.session.role == "actor":
            self.pacing.settled(client.session.id, pulse.settled)
        self.watch.pulse(client.session, pulse, now)
        return []

    def _on_draw(self, client: Client, draw: m.Draw | m.Redraw, frames: list[Frame], now: float) -> list[Out]:
        if client.session.role != "learner":
            raise WireError("direction", "only learners draw")
        if isinstance(draw, m.Draw):
            client.demand.ask(draw)
        else:
            self._work.append(client.demand.again(client.session.peer, draw))
        return []

    def _on_rate(self, client: Client, head: m.Rate, frames: list[Frame], now: float) -> list[Out]:
        if client.session.role != "learner":
            raise WireError("direction", "only learners rate rows")
        work = Update(client.session.peer, head.pool_epoch, *parse_rate(head, frames))
        client.queued += work.nbytes
        self._work.append(work)
        return []

    def _on_weights_get(self, client: Client, get: m.WeightsGet, frames: list[Frame], now: float) -> list[Out]:
        data = self._read_shelf((get.epoch, get.step), get.offset, min(get.length, self._network.fragment_bytes))
        if data is None:
            return [self._state(client, now)]  # a newer version has replaced it: say which
        part = m.WeightsPart(get.epoch, get.step, get.offset, self._totals.shelf_bytes)
        return [(client.session.peer, [encode(part), data])]

    def _on_publish(self, client: Client, publish: m.Publish, frames: list[Frame], now: float) -> list[Out]:
        session = client.session
        if session.role != "learner" or len(frames) != 1:
            raise WireError("direction", "only learners publish, one frame each")
        if publish.epoch != session.epoch:
            self.refused["stale"] += 1
            answer = m.Published(publish.epoch, publish.step, "stale", f"this learner's epoch is {session.epoch}")
            return [(session.peer, [encode(answer)])]
        version = Version(session.id, publish.epoch, publish.step)
        client.queued += len(frames[0])
        self._work.append(Shelve(session.peer, version, bytes(frames[0])))
        return []

    def _on_episode_end(self, client: Client, end: m.EpisodeEnd, frames: list[Frame], now: float) -> list[Out]:
        self.watch.episode(client.session, end)
        return []

    def _on_evaluation(self, client: Client, head: m.Evaluation, frames: list[Frame], now: float) -> list[Out]:
        if len(frames) != 3:
            raise WireError("arity", "an evaluation has three frames")
        shape = (head.episodes,)
        returns = take_array(frames[0], "<f8", shape, "returns")
        lengths = take_array(frames[1], "<i8", shape, "lengths")
        outcomes = take_array(frames[2], "|u1", shape, "outcomes")
        self.watch.evaluation(head, returns, lengths, outcomes)
        return []

    def _on_query(self, client: Client, query: m.Query, frames: list[Frame], now: float) -> list[Out]:
        if query.what == "status":
            answer = self.watch.status_json(self, now)
        elif query.what == "snapshot" and self.backups is not None:
            answer = json.dumps({"number": self.backups.ask()}).encode()
        else:
            raise WireError("query", f"unknown query {query.what!r}")
        return [(client.session.peer, [encode(m.Answer(query.what)), answer])]

    def _on_goodbye(self, client: Client, goodbye: m.Goodbye, frames: list[Frame], now: float) -> list[Out]:
        if client.session.role == "learner" and goodbye.done:
            self.learner_done = True
        self._end(client)
        return []

    def _end(self, client: Client) -> None:
        self._clients.pop(client.session.peer, None)
        self.fleet.forget(client.session)
        if client.session.role == "actor":
            self.pacing.leave(client.session.id)

    # --- pool work --------------------------------------------------------------------------------------------------

    def take_work(self) -> list[Work]:
        """Queued work, with the draws that pacing allows now; empty when there is none."""
        work = list(self._work)
        self._work.clear()
        totals = self._totals
        self._batch_size = max((c.demand.batch_size for c in self._clients.values()), default=0) or self._batch_size
        self.pacing.drawable = not self._short and totals.drawable >= self._batch_size
        allowed, offline = self.pacing.updates_allowed(), self.pacing.offline
        allowed -= sum(c.demand.drawing for c in self._clients.values())  # the phase ends only when they are granted
        for client in () if self._paused else self._clients.values():
            draw = client.demand.work(client.session.peer, allowed, totals.drawable, totals.spec, offline=offline)
            if draw is not None:
                work.append(draw)
                allowed -= draw.batches
        return work

    def finish(self, done: list[Done], totals: Totals, now: float) -> list[Out]:
        """Answer finished work."""
        before = self._totals.version
        self._totals = totals
        self.pacing.observe(totals.env_steps, totals.updates, totals.offline_updates)
        out: list[Out] = []
        acks: dict[tuple[bytes, int], int] = {}
        for d in done:
            work = d.work
            if isinstance(work, (Insert, Shelve, Update, Amend)) and (client := self._clients.get(work.peer)) is not None:
                client.queued -= work.nbytes
                out.extend(self._credit(client, self._network.credit_bytes // 8))
            if isinstance(work, Insert):
                out.extend(self._inserted(work, d, acks))
            elif isinstance(work, (Draw, Again)):
                out.extend(self._drawn(work, d))
            elif isinstance(work, Update):
                self.refused.update([d.reason] if d.reason else [])
            elif isinstance(work, Shelve):
                answer = m.Published(work.version.epoch, work.version.step, d.reason, d.detail)
                out.append((work.peer, [encode(answer)]))
                self.refused.update([f"publish-{d.reason}"] if d.reason else [])
            elif isinstance(work, Amend):
                self.refused.update([f"label-{d.reason}"] if d.reason else [])
                labelled = m.Labelled(work.number, d.labelled.rows, d.labelled.gone, d.reason, _printable(d.detail))
                out.append((work.peer, [encode(labelled)]))
        out.extend((peer, [encode(m.Ack(stream, seq))]) for (peer, stream), seq in acks.items())
        if totals.version != before:
            self.watch.published(totals.version, now)
            out.extend(self._state(c, now) for c in self._clients.values() if c.session.role in ("actor", "evaluator"))
        out.extend(self._share(now, urgent=True))
        return out

    def _inserted(self, work: Insert, done: Done, acks: dict[tuple[bytes, int], int]) -> list[Out]:
        if done.reason:
            return []  # neither committed nor passed over, so not acknowledged either
        last = work.seq + work.block.n_rows - 1
        self.pacing.accounted(work.actor, done.steps)
        self.watch.cursor(work.actor, work.stream, last)
        acks[work.peer, work.stream] = max(last, acks.get((work.peer, work.stream), 0))
        rejects = []
        for r in done.refused:
            self.rejected[r.reason] += r.last - r.first + 1
            rejects.append(m.Reject(work.stream, r.first, r.last, r.reason[:32], _printable(r.detail)[:256]))
        return [(work.peer, [encode(reject)]) for reject in rejects]

    def _drawn(self, work: Draw | Again, done: Done) -> list[Out]:
        client = self._clients.get(work.peer)
        if client is not None and done.reason and isinstance(work, Again):
            self._later.append(work)
            return []
        if isinstance(work, Draw):
            self._short = self._paused = bool(done.reason)
        if client is not None:
            client.demand.done(work, done.batches)
        return [(work.peer, parts) for parts in done.parts]

    # --- time -------------------------------------------------------------------------------------------------------

    def tick(self, now: float) -> list[Out]:
        """Move time on: leases, heartbeats, allowances, and the end of the run."""
        for session in self.fleet.expired(now):
            client = self._clients.get(session.peer)
            self.watch.lost(session, now)
            if client is not None:
                self._end(client)
            else:
                self.fleet.forget(session)
        self.watch.observe(self._totals, now)
        if self._awaited_until is None:
            self._awaited_until = now + self._network.lease_s  # who lives has spoken by then
        if now >= self._awaited_until and self._awaited:
            self._awaited.clear()
            self.pacing.absent = False
        self._work.extend(self._later)
        self._later.clear()
        self._paused = False
        out = self._share(now, urgent=False)
        for client in self._clients.values():
            if client.session.role != "observer" and now - client.state_at >= self._network.heartbeat_s:
                out.append(self._state(client, now))
                out.extend(self._credit(client, 1))
                if self.phase == "done" or (self.pacing.finished and client.session.role == "learner"):
                    out.append((client.session.peer, [encode(m.Stop(True, "the run has reached its env steps and updates"))]))
        return out

    def stop(self, reason: str) -> list[Out]:
        """Begin to end: no new sessions, every client is asked to leave."""
        self.stopping = reason
        return [(peer, [encode(m.Stop(False, reason))]) for peer in self._clients]

    def _credit(self, client: Client, least: int) -> list[Out]:
        received = client.credit(least)
        return [] if received is None else [(client.session.peer, [encode(received)])]

    def _share(self, now: float, *, urgent: bool) -> list[Out]:
        """Tell actors their new allowance: all of them on a tick, those that are running out at once."""
        allowances = self.pacing.allowances()
        least = self.pacing.config.lead_steps // (4 * max(1, len(allowances))) if urgent else -UNBOUNDED
        actors = [c for c in self._clients.values() if c.session.role == "actor" and c.session.id in allowances]
        return [self._state(c, now) for c in actors if c.allow(allowances[c.session.id], least)]

    def _state(self, client: Client, now: float) -> Out:
        client.state_at = now
        version, allowance = self._totals.version, client.allowance
        report = self.watch.summary(self, now) if client.session.role == "learner" else None
        state = m.State(
            version.learner,
            version.epoch,
            version.step,
            allowance.granted,
            allowance.random,
            allowance.final,
            self.phase,
            self._totals.env_steps,
            report,
        )
        return client.session.peer, [encode(state)]


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in text)
