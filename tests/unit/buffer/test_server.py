"""The buffer's loop and its threads: what one of them does is not waited for by the others."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from collections import deque

import numpy as np
import pytest
from helpers.serving import SPEC, Buffer, block

from headrace.buffer.server import BYTES_A_DRAIN, Server
from headrace.common.clock import MonotonicClock
from headrace.common.weights import Version, WeightSet
from headrace.common.wire import messages as m
from headrace.common.wire.codec import block_parts, decode, encode
from headrace.common.wire.port import Came

WAIT_S = 30.0


@pytest.fixture
def port():
    made = Port()
    yield made
    made.close()


class Port:
    """A socket that gives what is put into it, and keeps what is sent."""

    def __init__(self):
        self._ours, theirs = socket.socketpair()
        self.fds, self._theirs = [theirs.fileno()], theirs
        self.came, self.sent = deque(), []

    def close(self):
        self._ours.close()
        self._theirs.close()

    def put(self, peer, *parts):
        self.came.append((peer, [memoryview(part) for part in parts]))
        self._ours.send(b"\0")

    def take(self):
        if not self.came:
            return None
        peer, parts = self.came.popleft()
        return Came(peer, parts, "", None)

    def send(self, out):
        self.sent += [decode(parts[0]) for _, parts in out]

    def heard(self, came, now):
        pass

    def guard(self):
        return False

    def look(self, now):
        return False

    async def said(self, kind):
        """The first message of a kind."""
        end = time.monotonic() + WAIT_S
        while not (found := [message for message in self.sent if isinstance(message, kind)]):
            assert time.monotonic() < end, f"no {kind.__name__} among {self.sent}"
            await asyncio.sleep(0.005)
        return found[0]


def test_rows_are_acknowledged_while_a_large_weight_set_is_put_on_the_shelf(tmp_path, port, monkeypatch):
    buffer, acknowledged = Buffer(tmp_path), threading.Event()
    buffer.now = MonotonicClock().now()
    buffer.actor()
    buffer.learner()
    epoch = buffer.service.fleet.find(b"L", buffer.now).epoch
    shelf = buffer.worker.shelf
    put = shelf.put

    def slow(blob, version):
        assert acknowledged.wait(WAIT_S), "the rows waited for the weights"
        put(blob, version)

    monkeypatch.setattr(shelf, "put", slow)
    weights = WeightSet(Version("l", epoch, 3), {"type": "mlp"}, {"w": np.zeros(3, np.float32)})
    rows = block(range(4))

    async def main():
        server = asyncio.ensure_future(Server(buffer.service, buffer.worker, port, MonotonicClock()).run())
        port.put(b"L", encode(m.Publish(epoch, 3)), weights.pack())
        port.put(b"A", *block_parts(m.BlockHead(1, 1, rows.n_rows, rows.n_frames), rows, SPEC))
        assert (await port.said(m.Ack)).seq == 4
        assert shelf.version.order == (0, 0)
        acknowledged.set()
        assert (await port.said(m.Published)).reason == ""
        assert shelf.version.order == (epoch, 3)
        server.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await server

    asyncio.run(main())


def test_what_was_done_meanwhile_is_told_after_so_many_bytes(tmp_path, port):
    buffer = Buffer(tmp_path)

    async def main():
        server = Server(buffer.service, buffer.worker, port, MonotonicClock())
        for _ in range(9):
            port.put(b"X", bytes(BYTES_A_DRAIN // 4))
        server._drain()
        assert len(port.came) == 5
        while port.came:
            await asyncio.sleep(0)

    asyncio.run(main())
