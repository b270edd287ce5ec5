"""The reception: who gets a session, in which version each is spoken to, and what goes when a session ends."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from headrace.buffer import admission
from headrace.buffer.accounts import Accounts
from headrace.buffer.board import Board
from headrace.buffer.client import Client
from headrace.buffer.credits import Credits
from headrace.buffer.status import Watch
from headrace.buffer.worker import Open
from headrace.common.specs import TransitionSpec
from headrace.common.wire import answers
from headrace.common.wire import messages as m
from headrace.common.wire.answers import Out
from headrace.common.wire.codec import encode, in_version
from headrace.common.wire.fleet import Fleet, name_of
from headrace.common.wire.fragments import Joiner
from headrace.common.wire.keyring import Keyring
from headrace.common.wire.line import Line
from headrace.common.wire.network import NetworkConfig
from headrace.common.wire.refusals import STRANGERS

SILENT_HEARTBEATS = 2  # after which a client is told nothing that would be lost with it


class Reception:
    """The clients of one buffer.

    Args:
        fleet: knows who holds which id.
        network: leases, sizes and whether anybody may dial.
        board: what the parts of the service share.
        accounts: opened and closed with the sessions.
        credits: likewise.
        watch: is told who was lost.
        state: what a client hears of the buffer at a time.

    Attributes:
        clients: peer -> who has a session.
        readers: those of them that draw.
        keyring: where keys are used.
        closed: why nobody gets in any more; empty while they do.
        asked_to_greet: messages whose sender was asked to say hello, as after a restart.
    """

    def __init__(
        self,
        fleet: Fleet,
        network: NetworkConfig,
        board: Board,
        accounts: Accounts,
        credits: Credits,
        watch: Watch,
        state: Callable[[Client, float], Out],
    ) -> None:
        self._fleet, self._network, self._board = fleet, network, board
        self._accounts, self._credits, self._watch, self._state = accounts, credits, watch, state
        self.clients: dict[bytes, Client] = {}
        self.readers: dict[bytes, Client] = {}
        self.keyring: Keyring | None = None
        self.closed = ""
        self.asked_to_greet = 0
        self._older: dict[bytes, int] = {}  # of the clients, those that do not speak the newest version: which they speak
        self._arrived: list[tuple[Client, list[Out]]] = []  # who has said hello, and how each is welcomed
        self._opening = False

    @property
    def security(self) -> dict[str, Any]:
        """What keeps strangers out: ``keys``, ``loopback``, or with ``insecure`` nothing."""
        if self.keyring is not None:
            return {"mode": "keys", **self.keyring.report()}
        return {"mode": "insecure" if self._network.insecure else "loopback"}

    @property
    def turned_away(self) -> Mapping[str, int]:
        """Connections that had no known key, by reason."""
        return {} if self.keyring is None else self.keyring.refused.by_reason

    def find(self, peer: bytes, user: str, now: float) -> Client | None:
        """The client that a peer is by the key ``user``, while its lease runs."""
        client = self.clients.get(peer)
        return None if client is None or client.session.user != user or self._fleet.find(peer, now) is None else client

    def ask_to_greet(self, peer: bytes, version: int) -> list[Out]:
        """Who has no session is asked to say hello, in the version in which it spoke."""
        self.asked_to_greet += 1
        return self.turn_away(peer, answers.HELLO_FIRST, version)

    def turn_away(self, peer: bytes, refused: m.Refused, version: int) -> list[Out]:
        """No session for a peer: say why, in its own version."""
        if refused not in admission.WAIT:
            self._board.refused.add(STRANGERS, refused.reason, refused.detail)
        return [(peer, [encode(refused, version)])]

    def as_spoken(self, out: list[Out]) -> list[Out]:
        """Every message in the version of the session that it is for, without those that this version has not."""
        if not self._older:
            return out
        worded = [(peer, in_version(parts, self._older[peer]) if peer in self._older else parts) for peer, parts in out]
        return [(peer, parts) for peer, parts in worded if parts]

    def hello(self, peer: bytes, hello: m.Hello, now: float, user: str, line: Callable[[], Line]) -> list[Out]:
        """Open a session, whose welcome :meth:`admit` gives, or say why not.

        Args:
            peer: who speaks.
            hello: what it says.
            now: s.
            user: its key, where keys are used.
            line: what it came by.
        """
        barred = self.keyring.refuse(user, hello) if self.keyring is not None else None
        if barred is not None:
            return self.turn_away(peer, barred, hello.protocol)
        known = self.clients.get(peer)
        if known is not None and known.session.name != name_of(hello.role, hello.id):
            self.end(known)  # a peer is one client
        totals = self._board.totals
        returns = hello.pool != "" and hello.pool == totals.info.get("uuid")
        answer = self._refusal(hello) or self._fleet.hello(peer, hello, now, returns=returns)
        if isinstance(answer, m.Refused):
            return self.turn_away(peer, answer, hello.protocol)
        session, old = answer
        session.user, session.line = user, line()
        if old is not None:
            if old.incarnation != session.incarnation:  # its lease had run out, and its heir was quicker than the clock
                self._watch.lost(old, now)
            self._forget(old.peer)
        if hello.protocol != m.PROTOCOL:
            self._older[peer] = hello.protocol
        client = self.clients[peer] = Client(session, Joiner(self._network.message_bytes), state_at=now)
        if hello.role in m.READERS:
            self.readers[peer] = client
        streams = self._accounts.open(session, hello, totals.spec)
        welcome = admission.welcome(session, self._network, totals.spec, streams, totals.info)
        self._arrived.append((client, [(peer, [encode(welcome)]), self._state(client, now)]))
        return []

    def admit(self) -> list[Out]:
        """Welcome those who came since the last call, once it is written down that they did, for all of them at once."""
        arrived, self._arrived = self._arrived, []
        if not arrived:
            return []
        refused, out = self._fleet.write_down(), list[Out]()
        for client, welcome in arrived:
            session = client.session
            if self.clients.get(session.peer) is not client:
                continue  # it has said hello twice
            if refused is None or session.kept:
                out += self.as_spoken(welcome)
            else:
                self.end(client)
                out += self.turn_away(session.peer, refused, session.protocol)
        return out

    def _refusal(self, hello: m.Hello) -> m.Refused | None:
        if self.closed:
            return answers.stopping(self.closed)
        refused = answers.refuse_name(hello) or self._accounts.refuse(hello)
        spec = refused or admission.compare_specs(hello, self._board.totals.spec)
        if isinstance(spec, TransitionSpec):
            self.declare(spec)
            return admission.OPENING
        return spec

    def declare(self, spec: TransitionSpec) -> None:
        """Have the pool made for a spec, once."""
        if not self._opening:
            self._opening = True
            self._board.work.append(Open(spec))

    def end(self, client: Client) -> None:
        """End a session."""
        self._forget(client.session.peer)
        self._fleet.forget(client.session)
        self._accounts.close(client.session)

    def _forget(self, peer: bytes) -> None:
        client = self.clients.pop(peer, None)
        if client is not None:
            self._credits.end(client)
        self._older.pop(peer, None)
        self.readers.pop(peer, None)

    def tick(self, now: float) -> None:
        """End the sessions whose lease has run out, and see who is silent."""
        if self.keyring is not None:
            self.keyring.refused.tick(now)
        for session in self._fleet.expired(now):
            self._accounts.lost(session, now)
            client = self.clients.get(session.peer)
            if client is not None:
                self.end(client)
            else:
                self._fleet.forget(session)
        patience = SILENT_HEARTBEATS * self._network.heartbeat_s
        for client in self.clients.values():
            client.silent = self._fleet.silent_s(client.session, now, patience) > patience

    def rekeyed(self, now: float) -> list[Out]:
        """The keyring has changed: end the sessions whose key does not open them any more."""
        out: list[Out] = []
        for client in list(self.clients.values()):
            session = client.session
            if self.keyring is None or self.keyring.allows(session.user, session.role, session.id):
                continue
            self._board.refused.add(session.name, answers.REVOKED.reason)
            self._watch.lost(session, now, answers.REVOKED.detail)
            self.end(client)
            out.append((session.peer, [encode(answers.REVOKED)]))
        return out
