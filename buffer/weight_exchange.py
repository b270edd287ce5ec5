"""The exchange of weights: learners publish them to the shelf, and whoever acts fetches them from there in ranges."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from headrace.buffer.board import Board, Out
from headrace.buffer.client import Client
from headrace.buffer.worker import Done, Shelve
from headrace.common.errors import WireError
from headrace.common.weights import Version
from headrace.common.wire import messages as m
from headrace.common.wire.codec import Frame, encode


class WeightExchange:
    """Publishes and fetches.

    Args:
        board: of the service.
        read: ``(version, offset, length)`` -> bytes of what is on the shelf; none when another version is.
        part_bytes: most bytes of one range.
    """

    def __init__(self, board: Board, read: Callable[[tuple[int, int], int, int], bytes | None], part_bytes: int) -> None:
        self._board, self._read, self._part_bytes = board, read, part_bytes

    def fetch(self, client: Client, get: m.WeightsGet) -> list[Out]:
        """The range that was asked for; empty when another version is on the shelf."""
        data = self._read((get.epoch, get.step), get.offset, min(get.length, self._part_bytes))
        if data is None:
            return []
        part = m.WeightsPart(get.epoch, get.step, get.offset, self._board.totals.shelf_bytes)
        return [(client.session.peer, [encode(part), data])]

    def publish(self, client: Client, publish: m.Publish, frames: Sequence[Frame], now: float) -> list[Out]:
        """Take a learner's weights for the shelf; raises :class:`WireError`."""
        session = client.session
        if session.role != "learner" or len(frames) != 1:
            raise WireError("direction", "only learners publish, one frame each")
        if publish.epoch != session.epoch:
            self._board.refuse("stale")
            answer = m.Published(publish.epoch, publish.step, "stale", f"this learner's epoch is {session.epoch}")
            return [(session.peer, [encode(answer)])]
        version = Version(session.id, publish.epoch, publish.step)
        client.queued += len(frames[0])
        self._board.work.append(Shelve(session.peer, version, bytes(frames[0])))
        return []

    def shelved(self, work: Shelve, done: Done) -> list[Out]:
        """Answer a publish."""
        if done.reason:
            self._board.refuse(f"publish-{done.reason}")
        answer = m.Published(work.version.epoch, work.version.step, done.reason, done.detail)
        return [(work.peer, [encode(answer)])]
