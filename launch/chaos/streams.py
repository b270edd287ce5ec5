"""Streams: the seqs that clients gave to steps, the steps that these can be, and the rows that the pool had of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from headrace.launch.chaos.evidence import Client, Process, Row, Sent, Step

Place = tuple[int, int]  # episode, t


@dataclass(slots=True)
class Deed:
    """One executed step.

    Attributes:
        client: whose process executed it.
        step: by its env's own history.
        is_last: whether nothing followed in its lane, so that its row may be cut off there.
        row: of the pool.
        settled: whether it is known what became of it: it has a row, was rejected, or was evicted unread.
    """

    client: Client
    step: Step
    is_last: bool
    row: Row | None = None
    settled: bool = False


@dataclass
class Stream:
    """One stream of one actor.

    Attributes:
        deeds: the steps that its rows can be: those of one process, or with a spool those of all processes of the actor.
        numbered: seq -> the step that was sent under it.
        acked: highest seq that was acknowledged.
        rejected: seqs that were rejected.
        rows: seq -> row, in the order of ids.
    """

    deeds: Mapping[Place, Sequence[Deed]]
    numbered: dict[int, Place] = field(default_factory=dict)
    acked: int = 0
    rejected: set[int] = field(default_factory=set)
    rows: dict[int, Row] = field(default_factory=dict)

    def unseen(self, ranges: Sequence[tuple[int, int]]) -> set[int]:
        """Seqs whose rows nobody read before they were evicted: those between the rows around such a range of ids."""
        out: set[int] = set()
        for first, last in ranges:
            low = max((seq for seq, row in self.rows.items() if row.id < first), default=0)
            high = min((seq for seq, row in self.rows.items() if row.id >= last), default=low + 1)
            out.update(range(low + 1, high))
        return out

    def settle(self, seq: int) -> None:
        """The step of ``seq`` has no row, and that is known."""
        left = (deed for deed in self.deeds.get(self.numbered.get(seq, (-1, -1)), ()) if not deed.settled)
        if (deed := next(left, None)) is not None:
            deed.settled = True


Deeds = Mapping[Process, Sequence[Deed]]
Streams = Mapping[tuple[str, int], Stream]  # by actor and number


def deeds_of(clients: Sequence[Client]) -> Deeds:
    """Process -> its steps, those of each lane in their order."""
    out = {}
    for client in clients:
        last = {step.lane: step for step in client.steps}
        out[client.process] = [Deed(client, step, step is last[step.lane]) for step in client.steps]
    return out


def streams_of(clients: Sequence[Client], deeds: Deeds) -> Streams:
    """(actor, stream) -> what these actors say of it; without a spool it is that of the first process that says so."""
    spools: dict[str, list[Client]] = {}
    for client in clients:
        if client.spooled:
            spools.setdefault(client.id, []).append(client)
    shared = {name: _by_place(own, deeds) for name, own in spools.items()}
    out: dict[tuple[str, int], Stream] = {}
    owners: dict[tuple[str, int], Client] = {}
    for client in clients:
        own = None
        for sent in client.sent:
            key = client.id, sent.stream
            owner = owners.setdefault(key, client)
            if owner is not client and not (client.spooled and owner.spooled):
                continue
            if key not in out:
                own = own or (shared[client.id] if client.spooled else _by_place([client], deeds))
                out[key] = Stream(own)
            out[key].numbered.update(zip(range(sent.first, sent.first + sent.rows), places(sent), strict=True))
    for client in clients:
        for number, seq in client.acked.items():
            if (client.id, number) in out:
                out[client.id, number].acked = max(seq, out[client.id, number].acked)
        for number, seqs in client.rejected.items():
            if (client.id, number) in out:
                out[client.id, number].rejected |= seqs
    return out


def places(sent: Sent) -> list[Place]:
    """The steps of a block."""
    return [place for run in sent.runs for place in steps_of(run)]


def steps_of(run: Sequence[int]) -> list[Place]:
    """The steps of a run (episode, first t, count)."""
    episode, t, count = run
    return [(episode, t + i) for i in range(count)]


def _by_place(clients: Sequence[Client], deeds: Deeds) -> dict[Place, list[Deed]]:
    out: dict[Place, list[Deed]] = {}
    for client in clients:
        for deed in deeds[client.process]:
            out.setdefault((deed.step.episode, deed.step.t), []).append(deed)
    return out


def who(client: Client) -> str:
    """For people."""
    return f"{client.id} (pid {client.pid})"


def named(row: Row) -> str:
    """For people."""
    return f"{row.actor} stream {row.stream} seq {row.seq}"
