"""Accounts: what a session brings to the run: an actor's steps and streams, a shard's rows, somebody less to wait for."""

from __future__ import annotations

from headrace.buffer.admission import refuse_actor
from headrace.buffer.awaited import Awaited
from headrace.buffer.pacing import Pacing
from headrace.buffer.satellites import Satellites, account
from headrace.buffer.status import Watch
from headrace.common.specs import TransitionSpec
from headrace.common.wire.fleet import Session
from headrace.common.wire.messages import SHARD, Hello, Refused


class Accounts:
    """Those of all sessions of one buffer.

    Args:
        pacing: gives actors their allowances.
        satellites: the further shards.
        awaited: actors and shards of before that have not come back.
        watch: remembers every actor.
        most_actors: as many the pool's ledger has places for.
    """

    def __init__(self, pacing: Pacing, satellites: Satellites, awaited: Awaited, watch: Watch, most_actors: int) -> None:
        self._pacing, self._satellites, self._awaited, self._watch = pacing, satellites, awaited, watch
        self._most_actors = most_actors

    def refuse(self, hello: Hello) -> Refused | None:
        """Why there is no account for it: an actor that was never seen, when the ledger has no place for one."""
        if hello.role != "actor" or self._watch.knows(hello.id):
            return None
        return refuse_actor(self._watch.actors, self._most_actors)

    def open(self, session: Session, hello: Hello, spec: TransitionSpec | None) -> tuple[tuple[int, int], ...]:
        """Begin or go on; the streams of an actor and their last committed seqs."""
        if hello.role == "actor":
            window = spec.window if spec is not None else 1
            steps = {"executed": hello.executed, "pending": hello.pending, "lanes": hello.lanes}
            self._pacing.join(hello.id, **steps, window=window, robot=hello.robot)
            self._awaited.returned(hello.id)
            return self._watch.streams(hello.id)
        if hello.role == SHARD:
            self._satellites.join(session, hello)
            self._awaited.returned(account(hello.id))
        return ()

    def close(self, session: Session) -> None:
        """The session has ended, however it did."""
        if session.role == "actor":
            self._pacing.leave(session.id)
        elif session.role == SHARD:
            self._satellites.leave(session)

    def lost(self, session: Session, now: float) -> None:
        """Its lease has run out."""
        self._watch.lost(session, now)
        if session.role == SHARD:  # what its actors have under way comes when it is back
            self._awaited.expect(account(session.id), now)
