"""The fleet: which process holds which id, until when, and who is turned away.

an id is ...   and the newcomer is ...     decision
free           anybody                     granted: the id's epoch is raised
free           an actor that returns       granted: the epoch stays, as in a reconnect
held, lease on the same incarnation        granted: the epoch stays (a reconnect)
held, lease on another process             refused ``held``, told who holds it, may ask again
held, expired  another process             granted: the epoch is raised; the old session is fenced
any            a writer that was replaced  refused ``fenced`` for ever: its id has had another process since

A lease is renewed by messages, and by bytes of one that is long on its way.
Who was replaced is not remembered by name: a process that says it has had a session with this pool, and is not the one that
took its id over last, was. The latter is on disk with its epoch, so no restart lets a zombie in.
A run has one learner: all that ask to be it ask for the same id.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

from headrace.common.errors import describe_os_error
from headrace.common.wire.compression import NONE, agreed
from headrace.common.wire.line import Line
from headrace.common.wire.messages import PROTOCOL, Hello, Refused

LEARNER = "learner"
DISK_S = 1.0  # between two attempts of a client while the disk takes nothing
WRITERS = ("actor", LEARNER)


class Epochs(Protocol):
    """Numbers the processes that hold a name one after the other."""

    def raise_epoch(self, who: str, process: bytes) -> int:
        """The next number of ``who``, above all that it ever had; it is not kept before :meth:`write`."""
        ...

    def write(self) -> None:
        """Keep all that was raised; raises :class:`OSError` when that cannot be, and then nothing of it was raised."""
        ...

    def held(self, who: str, process: bytes) -> int:
        """The epoch of ``who`` that ``process`` has; 0 where it has none."""
        ...

    def holder(self, who: str) -> bytes:
        """The process that it was raised for last; empty where there was none."""
        ...


@dataclass
class Session:
    """One client process as the process sees it that it has dialled."""

    peer: bytes
    role: str
    id: str
    epoch: int
    incarnation: bytes
    host: str
    pid: int
    since: float
    seen: float
    report: dict[str, Any] = field(default_factory=dict)
    compression: str = NONE
    protocol: int = PROTOCOL
    user: str = ""  # its public key, where keys are used
    line: Line = field(default_factory=Line)
    kept: bool = True  # whether its epoch is on disk, where it must be
    garbled: bool = False  # what it said last was refused, and renews no lease

    @property
    def name(self) -> str:
        """The key of its epoch."""
        return name_of(self.role, self.id)


def name_of(role: str, identity: str) -> str:
    """Role and id; a learner's is the same whatever it calls itself."""
    return f"{role}/{role if role == LEARNER else identity}"


class Fleet:
    """Sessions by peer and by name.

    Attributes:
        fenced: sessions that another process took over.
        not_written: why the disk did not take the last new epoch; empty when it did.
    """

    def __init__(self, epochs: Epochs, *, lease_s: float, heartbeat_s: float, most: int) -> None:
        self._epochs = epochs
        self._lease_s, self._heartbeat_s, self._most = lease_s, heartbeat_s, most
        self._by_peer: dict[bytes, Session] = {}
        self._by_name: dict[str, Session] = {}
        self.fenced = 0
        self.not_written = ""

    def hello(
        self, peer: bytes, hello: Hello, now: float, *, returns: bool = False
    ) -> tuple[Session, Session | None] | Refused:
        """Decide on a hello: the session and the one it replaces, or a refusal. The session may begin after :meth:`write_down`.

        Args:
            peer: who says it.
            hello: what it says.
            now: time (s).
            returns: whether this process has had a session with this pool, by its own word.
        """
        name = name_of(hello.role, hello.id)
        old = self._by_name.get(name)
        if returns and hello.role in WRITERS and self._epochs.holder(name) not in (b"", hello.incarnation):
            by = "" if old is None else f": pid {old.pid} on {old.host} (epoch {old.epoch})"
            detail = f"{hello.role} id {hello.id!r} was taken over by another process since this one was last heard{by}"
            return Refused("fenced", detail, 0.0)
        if old is not None and old.incarnation != hello.incarnation and self._lives(old, now):
            one = "" if old.id == hello.id else f"a run has one {hello.role}, and "
            detail = f"{one}{hello.role} id {old.id!r} is held by pid {old.pid} on {old.host} (epoch {old.epoch})"
            return Refused("held", detail, self._heartbeat_s)
        if old is None and len(self._by_name) >= self._most:
            return Refused("full", f"{len(self._by_name)} sessions, at most {self._most}; raise pool.max_actors", 0.0)
        same = old is not None and old.incarnation == hello.incarnation
        if same and old is not None:
            epoch, kept = old.epoch, old.kept
        else:
            epoch, kept = self._next_epoch(hello, name, old, returns=returns)
        if old is not None:
            self._by_peer.pop(old.peer, None)
            self.fenced += 0 if same else 1
        session = Session(peer, hello.role, hello.id, epoch, hello.incarnation, hello.host, hello.pid, now, now)
        session.compression, session.protocol, session.kept = agreed(hello.compression), hello.protocol, kept
        self._by_peer[peer] = self._by_name[name] = session
        return session, old

    def write_down(self) -> Refused | None:
        """Have the disk hold all new epochs; else what those are told whose session is not ``kept``, and is to end."""
        try:
            self._epochs.write()
        except OSError as error:  # an epoch that is not on disk could be given out again
            self.not_written = describe_os_error(error)
            return Refused("disk", f"the buffer cannot write the session down: {self.not_written}"[:1000], DISK_S)
        self.not_written = ""
        for session in self._by_name.values():
            session.kept = True
        return None

    def _next_epoch(self, hello: Hello, name: str, old: Session | None, *, returns: bool) -> tuple[int, bool]:
        """That of a new session, and whether it needs no writing down.

        It does where it fences what somebody writes; of who only looks it would fill a file.
        An actor that goes on keeps its own, so that nothing is written when all come back to a buffer that was started again.
        A learner does not: what it publishes then must be newer than what it published to the buffer before.
        """
        if hello.role not in WRITERS:
            return 1 + (0 if old is None else old.epoch), True
        if returns and hello.role != LEARNER and (held := self._epochs.held(name, hello.incarnation)):
            return held, True
        return self._epochs.raise_epoch(name, hello.incarnation), False

    def find(self, peer: bytes, now: float) -> Session | None:
        """The session of a peer, its lease renewed; none for strangers and the fenced."""
        session = self._by_peer.get(peer)
        if session is not None:
            session.seen, session.garbled = now, False
        return session

    def forget(self, session: Session) -> None:
        """End a session."""
        self._by_peer.pop(session.peer, None)
        if self._by_name.get(session.name) is session:
            del self._by_name[session.name]

    def expired(self, now: float) -> list[Session]:
        """Sessions whose lease has run out."""
        return [s for s in self._by_name.values() if not self._lives(s, now)]

    def silent_s(self, session: Session, now: float, least: float) -> float:
        """How long nothing has come of a session, not even bytes of a message that is long on its way.

        The latter are asked for only where no message came for ``least`` (s).
        """
        if now - session.seen >= least and not session.garbled:
            session.seen = max(session.seen, now - session.line.quiet_s())
        return now - session.seen

    def _lives(self, session: Session, now: float) -> bool:
        return self.silent_s(session, now, self._lease_s) < self._lease_s

    def sessions(self, role: str | None = None) -> list[Session]:
        """Sessions, of one role or of all."""
        return [s for s in self._by_name.values() if role is None or s.role == role]

    def get_state(self) -> dict[str, Any]:
        """Sessions as plain values, and how many were fenced."""
        sessions = [{k: v for k, v in vars(s).items() if k != "line"} for s in self._by_name.values()]
        return {"sessions": sessions, "fenced": self.fenced}

    def set_state(self, state: dict[str, Any]) -> None:
        """Restore :meth:`get_state`."""
        sessions = [Session(**s) for s in state["sessions"]]
        self._by_peer = {s.peer: s for s in sessions}
        self._by_name = {s.name: s for s in sessions}
        self.fenced = state["fenced"]

    def check_valid(self) -> tuple[bool, str]:
        """Whether both indexes hold the same sessions."""
        same = sorted(map(id, self._by_peer.values())) == sorted(map(id, self._by_name.values()))
        return same, "" if same else f"{len(self._by_peer)} peers for {len(self._by_name)} names"
