"""A TCP proxy that breaks the link between clients and a buffer on purpose: sockets in a thread around ``Tamper``."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable, Coroutine
from types import TracebackType

import numpy as np

from headrace.common.errors import WireError
from headrace.common.wire.network import split_endpoint
from headrace.launch.chaos.tampering import Act, Faults, Passed, Past, Tamper, Way
from headrace.launch.chaos.zmtp import Splitter

CHUNK = 1 << 16
SLICE = 8 << 10  # what passes at a time where the rate is limited
QUEUE_BYTES = 32 << 20  # may wait in the proxy in each direction of a connection; beyond it TCP makes the sender wait
ANSWER_S = 10.0
DIAL_S = 5.0
COUNTED = (*(act.value for act in Act), "connections", "unreachable", "dead", "swallowed_bytes", "bytes")


class Proxy:
    """Between clients that dial ``endpoint`` and the buffer at ``target``; as it comes, everything passes.

    Its thread lives from :meth:`start` to :meth:`close`, or as long as the context. One that replays messages is for one client
    alone: it would say one's rows in the session of another.

    Args:
        target: ``tcp://HOST:PORT``; it may be down, and clients are turned away then.
        seed: of the random numbers by which messages are chosen.
        listen: where clients dial; port 0 picks a free one.

    Raises:
        ConfigError: one of them is no endpoint.
    """

    def __init__(self, target: str, seed: int = 0, listen: str = "tcp://127.0.0.1:0") -> None:
        self._target, self._listen = _address(target), _address(listen)
        self._counts = Counter(dict.fromkeys(COUNTED, 0))
        self._link = _Link(Tamper(np.random.default_rng(seed), self._counts), self._counts)
        self.endpoint = ""
        self._failure: BaseException | None = None
        self._connections: dict[asyncio.Task[None], _Connection | None] = {}
        self._ready = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._ended = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="headrace-proxy", daemon=True)

    def start(self) -> Proxy:
        """Listen; returns when clients may dial.

        Raises:
            OSError: the port is taken, or the address is not ours.
        """
        self._thread.start()
        self._ready.wait(ANSWER_S)
        if self._failure is not None:
            raise self._failure
        return self

    def close(self) -> None:
        """Reset what is open, and end; raises what ended the thread before, if anything did."""
        with contextlib.suppress(RuntimeError):  # its loop has ended by itself
            self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join(ANSWER_S)
        if self._failure is not None:
            raise self._failure

    def __enter__(self) -> Proxy:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def set(self, faults: Faults) -> None:
        """From now on the link is like this; returns when it is so."""
        self._ask(lambda: self._set(faults))

    def reset(self) -> None:
        """Reset every open connection, as a router does that has lost its table."""
        self._ask(self._reset)

    def counts(self) -> dict[str, int]:
        """What was done so far: acts by the values of ``Act``, connections, and what passed or was swallowed."""
        return dict(self._counts)

    # --- the proxy's thread -----------------------------------------------------------------------------------------

    def _ask(self, what: Callable[[], None]) -> None:
        async def call() -> None:
            what()

        asyncio.run_coroutine_threadsafe(call(), self._loop).result(ANSWER_S)

    def _set(self, faults: Faults) -> None:
        self._link.use(faults)
        if faults.dead:
            for connection in self._connections.values():
                if connection is not None:
                    connection.die()

    def _reset(self) -> None:
        for connection in self._connections.values():
            if connection is not None:
                connection.reset()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._serve())
        except BaseException as error:
            self._failure = error
        finally:
            self._ready.set()
            self._loop.close()

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._accept, *self._listen)
        host, port = server.sockets[0].getsockname()[:2]
        self.endpoint = f"tcp://[{host}]:{port}" if ":" in host else f"tcp://{host}:{port}"
        self._ready.set()
        await self._ended.wait()
        server.close()
        self._reset()
        tasks = list(self._connections)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._counts["connections"] += 1
        task = self._loop.create_task(self._connect(_End(reader, writer)))
        self._connections[task] = None
        task.add_done_callback(self._over)

    def _over(self, task: asyncio.Task[None]) -> None:
        del self._connections[task]
        if not task.cancelled() and task.exception() is not None:  # a defect of ours: whoever closes us is told
            self._failure = task.exception()
            self._ended.set()

    async def _connect(self, client: _End) -> None:
        try:
            buffer = _End(*await asyncio.wait_for(asyncio.open_connection(*self._target), DIAL_S))
        except (OSError, asyncio.TimeoutError):
            self._counts["unreachable"] += 1
            client.reset()
            return
        connection = _Connection(self._link, client, buffer)
        self._connections[asyncio.current_task()] = connection  # type: ignore[index]  # this runs in a task
        if self._link.faults.dead:
            connection.die()
        await connection.run()


class _Link:
    """What all connections share: the faults of now, and what carries out and counts them."""

    def __init__(self, tamper: Tamper, counts: Counter[str]) -> None:
        self.tamper, self.counts = tamper, counts
        self.faults = Faults()
        self._changed = asyncio.Event()

    def use(self, faults: Faults) -> None:
        """From now on these."""
        self.faults = faults
        self.tamper.use(faults.rules)
        self._changed.set()
        self._changed = asyncio.Event()

    async def pause(self, seconds: float) -> None:
        """Wait so long, or until the faults change."""
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._changed.wait(), seconds)

    async def passable(self) -> None:
        """Wait while nothing passes."""
        while self.faults.held:
            await self._changed.wait()


class _End:
    """The socket to one side."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def reset(self) -> None:
        """End by RST, which also discards what was said and not read yet."""
        with contextlib.suppress(OSError):
            at_once = struct.pack("ii", 1, 0)
            self.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, at_once)
        self.writer.transport.abort()


class _Connection:
    """A client's connection and the one to the buffer that belongs to it, with a pump for each direction."""

    def __init__(self, link: _Link, client: _End, buffer: _End) -> None:
        self._link, self._ends = link, (client, buffer)
        self._pumps = (_Pump(link, self, Way.UP, client, buffer), _Pump(link, self, Way.DOWN, buffer, client))
        self.dead = False

    async def run(self) -> None:
        """Until both sides have ended, or one was reset; a dead connection until both are gone."""
        try:
            await asyncio.gather(*(pump.run() for pump in self._pumps))
        finally:
            for end in self._ends:
                end.writer.close()

    def die(self) -> None:
        """Swallow everything from now on, for ever."""
        self._link.counts["dead"] += not self.dead
        self.dead = True

    def reset(self) -> None:
        """Reset both sides."""
        for end in self._ends:
            end.reset()

    def close(self) -> None:
        """Close both sides in order: what was said before still arrives."""
        for end in self._ends:
            end.writer.close()


class _Pump:
    """One direction of a connection: what is read waits until it is due, and is written."""

    def __init__(self, link: _Link, connection: _Connection, way: Way, source: _End, sink: _End) -> None:
        self._link, self._connection, self._way = link, connection, way
        self._source, self._sink = source, sink
        self._splitter, self._past = Splitter(), Past()
        self._queue: asyncio.Queue[tuple[float, Passed | None]] = asyncio.Queue()  # when it is due; none is the end
        self._queued_bytes = 0
        self._room = asyncio.Event()
        self._mute = False

    async def run(self) -> None:
        """Until the source has ended and what it said is sent on."""
        await asyncio.gather(self._guard(self._take()), self._guard(self._send()))

    async def _guard(self, part: Coroutine[None, None, None]) -> None:
        try:
            await part
        except (OSError, WireError):  # a reset of one side is one of both; and so is what no proxy can hold
            if not self._connection.dead:
                self._connection.reset()

    async def _take(self) -> None:
        try:
            while data := await self._source.reader.read(CHUNK):
                if self._connection.dead or self._mute:
                    self._link.counts["swallowed_bytes"] += len(data)
                    continue
                self._judge(data)
                while self._queued_bytes > QUEUE_BYTES:
                    self._room.clear()
                    await self._room.wait()
        finally:
            self._put(None)

    def _judge(self, data: bytes) -> None:
        for unit in self._splitter.feed(data):
            passed = self._link.tamper.pass_on(self._way, unit, self._past)
            self._put(passed)
            if passed.end is not None:
                self._mute = True
                return

    def _put(self, passed: Passed | None) -> None:
        self._queued_bytes += passed.size if passed is not None else 0
        self._queue.put_nowait((asyncio.get_running_loop().time() + self._link.faults.delay_s, passed))

    async def _send(self) -> None:
        while True:
            due, passed = await self._queue.get()
            await asyncio.sleep(due - asyncio.get_running_loop().time())
            await self._link.passable()
            if passed is None:
                if not self._connection.dead:
                    self._sink.writer.write_eof()
                return
            for chunk in passed.chunks:
                await self._write(chunk)
            self._queued_bytes -= passed.size
            self._room.set()
            if passed.end is not None:
                self._end(passed.end)
                return

    async def _write(self, chunk: bytes) -> None:
        at = 0
        while at < len(chunk):
            await self._link.passable()
            rate = self._link.faults.bytes_per_s
            piece = chunk[at : at + SLICE] if rate else chunk[at:]
            at += len(piece)
            if self._connection.dead:
                self._link.counts["swallowed_bytes"] += len(piece)
                continue
            self._sink.writer.write(piece)
            await self._sink.writer.drain()
            self._link.counts["bytes"] += len(piece)
            if rate:
                await self._link.pause(len(piece) / rate)

    def _end(self, how: Act) -> None:
        if how is Act.RESET:
            self._connection.reset()
        elif how is Act.CUT:
            self._connection.close()
        else:
            self._sink.writer.write_eof()


def _address(endpoint: str) -> tuple[str, int]:
    parts = split_endpoint(endpoint, "proxy")
    return str(parts.hostname), int(parts.port or 0)
