"""The buffer's decisions, without sockets: a message and a time come in, messages and pool work go out.

    receive(peer, parts, now, user)   decode, find the session, act or queue work for the pool's thread
    take_work()                       the queued work, once the pool's thread is free
    finish(done, totals, now)         acks, rejects, batches, announcements
    tick(now)                         leases, heartbeats, allowances, the end of the run

What is wrong is counted by reason and peer in ``refused``, and who has a session is told why (:class:`Declined`). Strangers get
no answer but, for a well-formed message that needs a session, a request to say hello. Sessions, rows, batches and weights are
the business of :class:`Reception`, :class:`Intake`, :class:`Demands` and :class:`WeightExchange`; time and the run are decided
here.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from typing import Any

from headrace.buffer.accounts import Accounts
from headrace.buffer.awaited import Awaited
from headrace.buffer.backups import Backups
from headrace.buffer.board import Board, Traffic
from headrace.buffer.changes import Changes
from headrace.buffer.client import Client
from headrace.buffer.credits import Credits
from headrace.buffer.demands import Demands
from headrace.buffer.drawing import Again, Draw, Grant
from headrace.buffer.intake import Intake
from headrace.buffer.live import Live
from headrace.buffer.pacing import UNBOUNDED, Allowance, Pacing
from headrace.buffer.reception import Reception
from headrace.buffer.satellites import Satellites, account
from headrace.buffer.shelf import Shelf
from headrace.buffer.status import Watch
from headrace.buffer.weight_exchange import WeightExchange
from headrace.buffer.worker import Amend, Done, Insert, Settle, Shelve, Totals, Update, Work
from headrace.common.errors import WireError
from headrace.common.wire import answers
from headrace.common.wire import messages as m
from headrace.common.wire.answers import Out, declined
from headrace.common.wire.codec import (
    MAX_PARTS,
    Frame,
    Parts,
    check_sender,
    decode,
    encode,
    take_array,
    unspoken_hello,
    version_of,
)
from headrace.common.wire.compression import NONE, expand
from headrace.common.wire.deflate import plain
from headrace.common.wire.fleet import Fleet
from headrace.common.wire.fragments import size_of
from headrace.common.wire.line import Line
from headrace.common.wire.network import NetworkConfig
from headrace.common.wire.refusals import STRANGERS, Refusals
from headrace.common.wire.versions import LACKS

LOG = logging.getLogger(__name__)
MOST_TRACEBACKS = 10
SHARED_BY = 64  # clients for each piece of work after which allowances are told at once


class Service:
    """One buffer's protocol state."""

    def __init__(
        self,
        fleet: Fleet,
        pacing: Pacing,
        network: NetworkConfig,
        watch: Watch,
        totals: Totals,
        shelf: Shelf,
        most_actors: int,
        live: Live | None = None,
        satellites: Satellites | None = None,
    ) -> None:
        self.fleet, self.pacing, self.watch = fleet, pacing, watch
        self.about: Callable[[], Mapping[str, Any]] = dict  # what it says of itself
        self.not_told = ""  # why where this buffer listens is not written down
        self.backups: Backups | None = None
        self.shelf, self._announced = shelf, shelf.version
        self._network = network
        self._board = Board(totals)
        self._intake = Intake(self._board, pacing, watch)
        self.satellites = satellites or Satellites(pacing)
        self._demands = Demands(self._board, pacing, self.satellites)
        self.live = live or Live(pacing)
        self._changes = Changes(self.live)
        self._weights = WeightExchange(self._board, shelf, network.fragment_bytes)
        self._credits = Credits(network)
        self._unshared = 0  # pieces of work finished since allowances were last told
        self._observe()
        before = [*watch.names, *self.satellites.names] if self.env_steps else []  # those of the buffer before this one
        self._awaited = Awaited(pacing, before, network.lease_s)
        accounts = Accounts(pacing, self.satellites, self._awaited, watch, most_actors)
        self.reception = Reception(fleet, network, self._board, accounts, self._credits, watch, self._state)
        self._handlers: dict[type[m.Message], Callable[[Client, Any, list[Frame], float], list[Out]]] = {
            m.Fragment: self._on_fragment,
            m.Compressed: self._on_compressed,
            m.BlockHead: self._intake.block,
            m.Pulse: self._on_pulse,
            m.LabelHead: self._intake.label,
            m.Draw: self._demands.ask,
            m.Redraw: self._demands.ask,
            m.Claim: self._demands.claim,
            m.Holdings: self._on_holdings,
            m.Rate: self._demands.rate,
            m.WeightsGet: self._on_weights_get,
            m.Publish: self._weights.publish,
            m.EpisodeEnd: self._on_episode_end,
            m.Evaluation: self._on_evaluation,
            m.Query: self._on_query,
            m.Change: self._on_change,
            m.Goodbye: self._on_goodbye,
        }

    @property
    def totals(self) -> Totals:
        """The pool's counters as of the last finished work."""
        return self._board.totals

    @property
    def stopping(self) -> str:
        """Why this buffer ends; empty while it does not."""
        return self.reception.closed

    @property
    def home(self) -> dict[str, Any] | None:
        """Of a further shard, how it stands with the home shard; none of that one itself."""
        return None

    @property
    def env_steps(self) -> int:
        """Online env steps of the run that are committed, in all shards."""
        return self.pacing.env_steps

    @property
    def refused(self) -> Refusals:
        """Messages that were not accepted."""
        return self._board.refused

    @property
    def traffic(self) -> dict[str, Traffic]:
        """What compression did to rows, batches and weights, by that name."""
        return self._board.traffic

    @property
    def rejected(self) -> Refusals:
        """Rows that may not enter the pool."""
        return self._intake.rejected

    @property
    def is_empty(self) -> bool:
        """Whether no client is left but observers, who only look."""
        return all(client.session.role == "observer" for client in self.reception.clients.values())

    @property
    def phase(self) -> str:
        """``offline``, ``waiting``, ``filling``, ``training``, ``paused``, ``finishing``, ``done`` or ``stopping``."""
        if self.stopping:
            return "stopping"
        if self.pacing.finished and (self.totals.settled or self.totals.updates + self.pacing.owed == 0):
            return "done"
        if self.pacing.paused:
            return m.PAUSED
        if self.pacing.offline:
            return "offline"
        if self.pacing.collected:
            return "finishing"
        if self.env_steps == 0:
            return "waiting"
        return "training" if self.pacing.owed > 0 and self.pacing.drawable else "filling"

    # --- in ---------------------------------------------------------------------------------------------------------

    def receive(self, peer: bytes, parts: Parts, now: float, user: str = "", line: Callable[[], Line] = Line) -> list[Out]:
        """Act on one message of a peer, whose key is ``user`` where keys are used; never raises for what a peer sent.

        ``line`` is asked what it came by when it opens a session.
        """
        client = self.reception.clients.get(peer)
        if client is not None:
            client.taken += size_of(parts)
            client.silent = False
        try:
            return self.reception.as_spoken(self._receive(peer, parts, now, user, line))
        except WireError as error:
            version = unspoken_hello(parts[0]) if error.reason == "version" else None
            if version is not None:
                return self.reception.turn_away(peer, answers.refuse_version(version), version)
            return self._decline(peer, error.reason, str(error), now)
        except MemoryError:
            raise  # there is a cap, and a new process is back sooner than this one would be in order
        except Exception:  # a defect of ours that one peer's bytes have found must not stop the others
            if self.refused.by_reason["defect"] < MOST_TRACEBACKS:
                LOG.exception("a message of %d frames was dropped by a defect", len(parts))
            return self._decline(peer, "defect", "the buffer has a defect; its log says where", now)

    def _receive(self, peer: bytes, parts: Parts, now: float, user: str, line: Callable[[], Line]) -> list[Out]:
        if self.reception.keyring is not None and self.reception.keyring.who(user) is None:
            raise WireError("key-revoked", "the connection is older than that")
        if not 1 <= len(parts) <= MAX_PARTS:
            raise WireError("arity", f"a message of {len(parts)} frames, at most {MAX_PARTS}")
        message = decode(parts[0], LACKS)
        if isinstance(message, m.Hello):
            check_sender(message, parts[1:], message.role)
            return self.reception.hello(peer, message, now, user, line)
        client = self.reception.find(peer, user, now)
        if client is None:
            return self.reception.ask_to_greet(peer, version_of(parts[0]))
        self._credits.check(client, message, size_of(parts))
        return self._handle(client, message, list(parts[1:]), now) + self._credits.give(client)

    def _handle(self, client: Client, message: m.Message, frames: list[Frame], now: float) -> list[Out]:
        check_sender(message, frames, client.session.role)
        handler = self._handlers.get(type(message))
        if handler is None:  # a policy server may send it, to its own clients
            raise WireError("direction", f"{type(message).__name__} is not for a buffer")
        return handler(client, message, frames, now)

    def _decline(self, peer: bytes, reason: str, detail: str, now: float) -> list[Out]:
        """Count a message that was not accepted, and tell whoever has a session."""
        client = self.reception.clients.get(peer)
        self.refused.add(STRANGERS if client is None else client.session.name, reason, detail)
        if client is not None:
            client.session.garbled = True
        if client is None or not client.may_decline(now, self._network.heartbeat_s):
            return []
        return self.reception.as_spoken([(peer, [encode(declined(reason, detail))])])

    def _on_fragment(self, client: Client, head: m.Fragment, frames: list[Frame], now: float) -> list[Out]:
        if head.index == 0:
            self._credits.begin(client, head.total)
        parts = client.joiner.add(head, plain(frames[0]))
        if parts is None:
            return []
        self._credits.complete(client, head.total)
        message = decode(parts[0], LACKS)
        if not isinstance(message, (m.BlockHead, m.Publish, m.Rate, m.Compressed)):
            raise WireError("fragment", f"{type(message).__name__} does not travel in parts")
        return self._handle(client, message, list(parts[1:]), now)

    def _on_compressed(self, client: Client, head: m.Compressed, frames: list[Frame], now: float) -> list[Out]:
        if client.session.compression == NONE:
            raise WireError("compressed", "this session agreed on no compression")
        return self._handle(client, *expand(head, frames, self._network.message_bytes), now)

    def _on_pulse(self, client: Client, pulse: m.Pulse, frames: list[Frame], now: float) -> list[Out]:
        self.watch.pulse(client.session, pulse, now)
        if client.session.role != "actor":
            return []
        self.pacing.settled(client.session.id, pulse.settled)
        if pulse.settled >= pulse.executed:
            return []
        return [(client.session.peer, [encode(ack)]) for ack in client.acked.values()]  # one may have been lost on its way

    def _on_holdings(self, client: Client, holdings: m.Holdings, frames: list[Frame], now: float) -> list[Out]:
        self.satellites.holds(client.session, holdings)
        who = client.session.name
        (self.live.pause if holdings.paused else self.live.resume)(who)
        self._observe()
        return self._share_soon(1, now)

    def _on_weights_get(self, client: Client, get: m.WeightsGet, frames: list[Frame], now: float) -> list[Out]:
        return self._weights.fetch(client, get) or [self._state(client, now)]  # a newer version has replaced it: say which

    def _on_episode_end(self, client: Client, end: m.EpisodeEnd, frames: list[Frame], now: float) -> list[Out]:
        self.watch.episode(client.session, end)
        return []

    def _on_evaluation(self, client: Client, head: m.Evaluation, frames: list[Frame], now: float) -> list[Out]:
        shape = (head.episodes,)
        returns = take_array(frames[0], "<f8", shape, "returns")
        lengths = take_array(frames[1], "<i8", shape, "lengths")
        outcomes = take_array(frames[2], "|u1", shape, "outcomes")
        self.watch.evaluation(head, returns, lengths, outcomes)
        return []

    def _on_query(self, client: Client, query: m.Query, frames: list[Frame], now: float) -> list[Out]:
        if len(frames) > (query.what == "about"):
            raise WireError("arity", f"a query for {query.what!r} with {len(frames)} frames")
        if query.what == "about":
            answer = json.dumps(self.about()).encode()
        elif client.session.role != "observer":
            raise WireError("direction", f"a query for {query.what!r} is not for an {client.session.role} to send")
        elif query.what == "status":
            answer = self.watch.status_json(self, now)
        elif query.what == "snapshot" and self.backups is not None:
            answer = json.dumps({"number": self.backups.ask()}).encode()
        else:
            raise WireError("query", f"unknown query {query.what!r}")
        return [(client.session.peer, [encode(m.Answer(query.what)), answer])]

    def _on_change(self, client: Client, change: m.Change, frames: list[Frame], now: float) -> list[Out]:
        before = self.pacing.paused
        out = self._changes.change(client, change, self.reception.clients.values())
        if self.pacing.paused != before:
            out += [self._state(c, now) for c in self.reception.clients.values() if c.session.role != "observer"]
        return out

    def _on_goodbye(self, client: Client, goodbye: m.Goodbye, frames: list[Frame], now: float) -> list[Out]:
        if client.session.role == "learner" and goodbye.done:
            self._board.work.append(Settle())  # durable: the next buffer must not wait for a learner that will not come
        self.watch.left(client.session, goodbye.reason, now)
        self.reception.end(client)
        return []

    def _observe(self) -> None:
        """Take the counters of all pools."""
        totals = self.totals
        self.pacing.observe(totals.env_steps + self.satellites.env_steps, totals.updates, totals.offline_updates)

    # --- pool work --------------------------------------------------------------------------------------------------

    def take_work(self) -> list[Work]:
        """Queued work, with the draws that pacing allows now; empty when there is none."""
        work = list(self._board.work)
        self._board.work.clear()
        return work + self._demands.draws(self.reception.readers.values())

    def finish(self, done: list[Done], totals: Totals, now: float) -> list[Out]:
        """Answer finished work."""
        self._board.totals = totals
        self._observe()
        out: list[Out] = []
        for d in done:
            out.extend(self._answer(d))
        for peer, ack in self._intake.acks():
            client = self.reception.clients.get(peer)
            out.append((peer, [encode(ack if client is None else client.ack(ack))]))
        if self.shelf.version != self._announced:
            self._announced = self.shelf.version
            self.watch.published(self._announced, now)
            out.extend(self._state(c, now) for c in self.reception.clients.values() if c.session.role in m.FOLLOWERS)
        return self.reception.as_spoken(out + self._share_soon(len(done), now))

    def _answer(self, done: Done) -> list[Out]:
        work = done.work
        out: list[Out] = []
        if isinstance(work, (Insert, Shelve, Update, Amend)) and (client := self.reception.clients.get(work.peer)) is not None:
            client.queued -= work.nbytes
            out = self._credits.settle(self.reception.clients.values()) if client.landing else []
            out += self._credits.give(client)
        if isinstance(work, Insert):
            out += self._intake.inserted(work, done)
        elif isinstance(work, Amend):
            out += self._intake.amended(work, done)
        elif isinstance(work, (Draw, Again, Grant)):
            out += self._demands.drawn(self.reception.clients.get(work.peer), work, done)
        elif isinstance(work, Update):
            out += self._demands.rated(self.reception.clients.get(work.peer), work, done)
        elif isinstance(work, Shelve):
            out += self._weights.shelved(work, done)
        return out

    # --- time -------------------------------------------------------------------------------------------------------

    def tick(self, now: float) -> list[Out]:
        """Move time on: leases, heartbeats, allowances, and the end of the run."""
        self.refused.tick(now)
        self.rejected.tick(now)
        self.reception.tick(now)
        self.watch.observe(self.env_steps, self.totals.updates, now)
        self._awaited.tick(now)
        self.satellites.tick(now)
        self._demands.tick()
        self._weights.tick(now)
        out = self._share(now, urgent=False) + self._credits.settle(self.reception.clients.values())
        for client in self.reception.clients.values():
            if client.session.role != "observer" and now - client.state_at >= self._network.heartbeat_s:
                out.append(self._state(client, now))
                out.extend(self._credits.give(client, 1))
                if self.phase == "done" or (self.pacing.finished and client.session.role == "learner"):
                    out.append((client.session.peer, [encode(m.Stop(True, "the run has reached its env steps and updates"))]))
        return self.reception.as_spoken(out)

    def stop(self, reason: str) -> list[Out]:
        """Begin to end: no new sessions, every client is asked to leave."""
        self.reception.closed = reason
        told = m.Stop(False, f"the buffer stops: {reason}")
        return self.reception.as_spoken([(peer, [encode(told)]) for peer in self.reception.clients])

    def _share_soon(self, news: int, now: float) -> list[Out]:
        """Tell allowances after so much news, as often as pays: it costs more the more there are, and a tick tells all."""
        self._unshared += news
        return self._share(now, urgent=True) if self._unshared * SHARED_BY >= len(self.reception.clients) else []

    def _share(self, now: float, *, urgent: bool) -> list[Out]:
        """Tell actors their new allowance: all of them on a tick, those that are running out at once."""
        self._unshared = 0
        allowances = self.pacing.allowances()
        least = self.pacing.config.lead_steps // (4 * max(1, len(allowances))) if urgent else -UNBOUNDED
        return [self._state(c, now) for c, new in self._allowed(allowances) if c.allow(new, least)]

    def _allowed(self, allowances: Mapping[str, Allowance]) -> list[tuple[Client, Allowance]]:
        """Who has an account, and its allowance."""
        names: dict[str, Callable[[str], str]] = {"actor": str, m.SHARD: account}
        having = [(c, names[c.session.role](c.session.id)) for c in self.reception.clients.values() if c.session.role in names]
        return [(c, allowances[name]) for c, name in having if name in allowances]

    def _state(self, client: Client, now: float) -> Out:
        client.state_at = now
        version, allowance = self.shelf.version, client.allowance
        report: dict[str, Any] | None = None
        if client.session.role == "learner":
            report = self.watch.summary(self, now)
        elif client.session.role == "rank":
            report = {m.LIVE_ROWS: self.totals.live}
        state = m.State(
            version.learner,
            version.epoch,
            version.step,
            allowance.granted,
            allowance.random,
            allowance.final,
            self.phase,
            self.env_steps,
            report,
        )
        return client.session.peer, [encode(state)]
