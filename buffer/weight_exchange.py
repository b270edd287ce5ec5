"""The exchange of weights: learners publish them to the shelf, and whoever acts fetches them from there in ranges."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.buffer.board import Board
from headrace.buffer.client import Client
from headrace.buffer.shelf import Shelf
from headrace.buffer.worker import Done, Rewrite, Shelve
from headrace.common.weights import Version
from headrace.common.wire import messages as m
from headrace.common.wire.answers import Out
from headrace.common.wire.codec import Frame, Parts, encode
from headrace.common.wire.compression import NONE, WEIGHTS, compress
from headrace.common.wire.fleet import name_of
from headrace.common.wire.fragments import size_of
from headrace.common.wire.network import FRAGMENTS_A_RANGE

KEPT_BYTES = 16 << 20
AGAIN_S = 1.0  # between two attempts to write what a disk did not take
Range = tuple[tuple[int, int], int, int]  # version, offset, length


class WeightExchange:
    """Publishes and fetches.

    Args:
        board: of the service.
        shelf: what is published; only read here.
        part_bytes: ``network.fragment_bytes``.
    """

    def __init__(self, board: Board, shelf: Shelf, part_bytes: int) -> None:
        self._board, self._shelf, self._range_bytes = board, shelf, FRAGMENTS_A_RANGE * part_bytes
        self._compressed: dict[Range, Parts] = {}  # of the newest ranges, since every actor asks for the same ones
        self._kept = 0
        self._again_at = 0.0

    def tick(self, now: float) -> None:
        """Have the shelf's file written when a disk did not take it."""
        if self._shelf.not_written and now >= self._again_at:
            self._again_at = now + AGAIN_S
            self._board.work.append(Rewrite())

    def fetch(self, client: Client, get: m.WeightsGet) -> list[Out]:
        """The range that was asked for; empty when another version is on the shelf."""
        wanted = (get.epoch, get.step), get.offset, min(get.length, self._range_bytes)
        found = self._shelf.read(*wanted)
        if found is None:
            return []
        data, total = found
        parts: Parts = [encode(m.WeightsPart(get.epoch, get.step, get.offset, total)), data]
        if client.session.compression != NONE:
            plain, parts = size_of(parts), self._compress(wanted, parts)
            self._board.traffic["weights"].add(plain, size_of(parts))
        return [(client.session.peer, parts)]

    def _compress(self, wanted: Range, parts: Parts) -> Parts:
        if wanted not in self._compressed:
            self._compressed[wanted] = compress(parts, WEIGHTS)
            self._kept += size_of(self._compressed[wanted])
        out = self._compressed[wanted]
        while self._kept > KEPT_BYTES:
            self._kept -= size_of(self._compressed.pop(next(iter(self._compressed))))
        return out

    def publish(self, client: Client, publish: m.Publish, frames: Sequence[Frame], now: float) -> list[Out]:
        """Take a learner's weights for the shelf; raises :class:`WireError`."""
        session = client.session
        if publish.epoch != session.epoch:
            self._board.refused.add(session.name, "stale")
            answer = m.Published(publish.epoch, publish.step, "stale", f"this learner's epoch is {session.epoch}")
            return [(session.peer, [encode(answer)])]
        work = Shelve(session.peer, Version(session.id, publish.epoch, publish.step), frames[0])
        client.queued += work.nbytes
        self._board.work.append(work)
        return []

    def shelved(self, work: Shelve, done: Done) -> list[Out]:
        """Answer a publish."""
        if done.reason:
            self._board.refused.add(name_of("learner", work.version.learner), f"publish-{done.reason}", done.detail)
        answer = m.Published(work.version.epoch, work.version.step, done.reason, done.detail)
        return [(work.peer, [encode(answer)])]
