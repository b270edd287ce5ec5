"""The buffer process: one ROUTER socket on an event loop, a thread each for pool and shelf, and the service between them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import platform
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any

import zmq

import headrace
from headrace.buffer.backups import Backups
from headrace.buffer.epochs import Epochs
from headrace.buffer.lent import LentPacing
from headrace.buffer.limits import Limits
from headrace.buffer.live import Live
from headrace.buffer.lock import BUFFER_LOCK, PoolLock
from headrace.buffer.opening import existing, make_pool
from headrace.buffer.pacing import Pacing
from headrace.buffer.satellite import Satellite
from headrace.buffer.satellite_service import SatelliteService
from headrace.buffer.satellites import Satellites
from headrace.buffer.service import Service
from headrace.buffer.settings import BufferSettings
from headrace.buffer.shelf import Shelf
from headrace.buffer.status import Watch
from headrace.buffer.worker import Done, PoolWorker, Rewrite, Shelve, Shelving, Totals, Work
from headrace.common.clock import Clock, MonotonicClock
from headrace.common.errors import DiskFailed, MemoryCapped, describe_os_error
from headrace.common.exporter import Exporter
from headrace.common.figures import BUFFER, Family, families
from headrace.common.wire.answers import Out
from headrace.common.wire.fleet import Fleet
from headrace.common.wire.fragments import size_of
from headrace.common.wire.gate import Gate, listen
from headrace.common.wire.link import Link, new_hello
from headrace.common.wire.messages import SHARD, Goodbye
from headrace.common.wire.port import Port

LOG = logging.getLogger(__name__)
LOOK_S = 5.0  # in which the loop answers a thread that asks
TICK_S = 0.05
MESSAGES_A_DRAIN = 512
BYTES_A_DRAIN = 4 << 20  # acks of what the threads have done meanwhile wait for the end of a drain
STOP_S = 1.0
TELL_S = 1.0


class Server:
    """Moves messages between the socket, the service and the threads of pool and shelf."""

    def __init__(
        self,
        service: Service,
        worker: PoolWorker,
        port: Port,
        clock: Clock,
        ready: Callable[[], None] | None = None,
    ) -> None:
        self._service, self._worker, self._port, self._clock = service, worker, port, clock
        self._ready, self._ready_at = ready, 0.0
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="headrace-pool")
        self._shelving = ThreadPoolExecutor(1, thread_name_prefix="headrace-shelf")
        self._busy = False
        self._end_at = 0.0
        self._loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._loop.set_exception_handler(lambda loop, context: self._end(context.get("exception") or _unsaid(context)))

    async def run(self) -> None:
        """Serve until told to stop; raises what made the pool unusable."""
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(number, self._stop, signal.Signals(number).name)
        listening, *asking = self._port.fds
        self._loop.add_reader(listening, self._drain)
        for fd in asking:
            self._loop.add_reader(fd, self._serve_gate)
        ticker = self._loop.create_task(self._tick())
        ticker.add_done_callback(lambda t: None if t.cancelled() else self._end(t.exception()))
        try:
            await self._ended
        finally:
            ticker.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await ticker
            for fd in (listening, *asking):
                self._loop.remove_reader(fd)
            self._executor.shutdown(wait=True)
            self._shelving.shutdown(wait=True)

    def figures(self) -> Iterator[Family]:
        """What the status says, for any other thread; nothing once the loop has ended."""
        found: Future[dict[str, Any]] = Future()
        with contextlib.suppress(RuntimeError, TimeoutError):
            self._loop.call_soon_threadsafe(self._look, found)
            yield from families(BUFFER, found.result(LOOK_S))

    def _look(self, found: Future[dict[str, Any]]) -> None:
        if found.set_running_or_notify_cancel():
            found.set_result(self._service.watch.status(self._service, self._clock.now()))

    def soon(self, answer: Callable[[float], list[Out]]) -> None:
        """Have the loop say what ``answer`` gives for the time then; any thread may."""
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._say, answer)

    def _say(self, answer: Callable[[float], list[Out]]) -> None:
        self._port.send(answer(self._clock.now()))
        self._work()

    def _stop(self, reason: str) -> None:
        if self._service.stopping:
            self._end(None)
            return
        self._port.send(self._service.stop(reason))
        self._end_at = self._clock.now() + STOP_S

    def _end(self, error: BaseException | None) -> None:
        if self._ended.done():
            return
        if error is None:
            self._ended.set_result(None)
        else:
            self._ended.set_exception(error)

    def _tell(self, now: float) -> None:
        """Write down where this buffer listens; a full disk takes it later, and who knows the port is served meanwhile."""
        if self._ready is None or now < self._ready_at:
            return
        self._ready_at = now + TELL_S
        try:
            self._ready()
        except OSError as error:
            self._service.not_told = describe_os_error(error)
        else:
            self._ready, self._service.not_told = None, ""

    async def _tick(self) -> None:
        while True:
            now = self._clock.now()
            self._tell(now)
            self._serve_gate()
            self._port.send(self._service.tick(now))
            if self._port.look(now):
                self._port.send(self._service.reception.rekeyed(now))
            if self._service.backups is not None:
                self._service.backups.tick(self._worker.pool, now)
            self._drain()
            if self._service.stopping and (self._service.is_empty or now >= self._end_at):
                self._end(None)
            await asyncio.sleep(TICK_S)

    def _drain(self) -> None:
        """Take what the socket has. Its descriptor is edge-triggered: what is left is asked for again."""
        now, room = self._clock.now(), BYTES_A_DRAIN
        for _ in range(MESSAGES_A_DRAIN):
            came = self._port.take()
            if came is None:
                break
            self._port.send(self._service.receive(came.peer, came.parts, now, came.user, came.line))
            self._port.heard(came, now)
            room -= size_of(came.parts)
            if room <= 0:
                self._loop.call_soon(self._drain)
                break
        else:
            self._loop.call_soon(self._drain)
        self._port.send(self._service.reception.admit())
        self._work()

    def _serve_gate(self) -> None:
        if self._port.guard():
            self._loop.call_soon(self._serve_gate)

    def _work(self) -> None:
        if self._busy or self._ended.done():
            return
        work: list[Work] = []
        for each in self._service.take_work():
            if isinstance(each, (Shelve, Rewrite)):
                self._shelve(each)
            else:
                work.append(each)
        if not work:
            return
        self._busy = True
        future = self._executor.submit(self._worker.run, work)
        future.add_done_callback(lambda f: self._loop.call_soon_threadsafe(self._finished, f))

    def _shelve(self, work: Shelving) -> None:
        """What a learner sends waits for its credit, so few sets are here at a time."""
        future = self._shelving.submit(self._worker.shelve, work)
        future.add_done_callback(lambda f: self._loop.call_soon_threadsafe(self._shelved, f))

    def _shelved(self, future: Future[Done]) -> None:
        error = future.exception()
        if error is not None:
            self._end(error)
            return
        self._port.send(self._service.finish([future.result()], self._service.totals, self._clock.now()))

    def _finished(self, future: Future[tuple[list[Done], Totals]]) -> None:
        self._busy = False
        error = future.exception()
        if error is not None:
            self._end(error)
            return
        self._port.send(self._service.finish(*future.result(), self._clock.now()))
        self._drain()


def serve(settings: BufferSettings, clock: Clock | None = None) -> int:
    """Run a buffer until SIGTERM or SIGINT; 0 when it ended in order.

    Raises:
        ConfigError: the port is taken or open to strangers, or the buffer has no key.
        PoolLocked: another process owns the pool directory.
        NoSpace: the pool does not fit.
        PoolError, SpecError: the past cannot be opened, or does not fit the pool.
        DiskFailed: nothing that waited for it is acknowledged; it may be started again.
        MemoryCapped: it needed more memory than its cap; it may be started again.
    """
    clock = clock or MonotonicClock()
    settings.pool_dir.mkdir(parents=True, exist_ok=True)
    lock = PoolLock(settings.pool_dir, BUFFER_LOCK)
    context = zmq.Context()
    try:
        with contextlib.ExitStack() as stack:
            socket, gate = listen(settings.network, context, stack)
            worker = PoolWorker(existing(settings), lambda spec: make_pool(settings, spec), Shelf(settings.pool_dir))
            stack.callback(worker.close)
            spec = worker.totals().spec
            limits = Limits.set(settings.bound(spec), settings.limits.memory_cap_bytes, settings.pool.max_actors)
            _run(settings, worker, socket, limits, clock, gate)
    except MemoryError:  # a peer may have brought it so far; what was acknowledged is in the pool
        raise MemoryCapped("the buffer needed more memory than buffer.memory_cap_bytes lets it have") from None
    except OSError as error:
        why = describe_os_error(error)
        raise DiskFailed(
            f"{settings.pool_dir}: the disk failed: {why}; nothing of what it failed to take is acknowledged"
        ) from error
    finally:
        context.term()
        lock.release()
    return 0


def _about() -> dict[str, Any]:
    """What a buffer says of itself to whoever has a session; ``at_s`` is its wall clock."""
    return {"headrace": headrace.__version__, "python": platform.python_version(), "at_s": time.time()}


def _run(
    settings: BufferSettings,
    worker: PoolWorker,
    socket: zmq.Socket[bytes],
    limits: Limits,
    clock: Clock,
    gate: Gate | None,
) -> None:
    network = settings.network
    totals = worker.totals()
    watch = Watch(settings.run_id, clock.now(), limits)
    for warning in limits.warnings():
        LOG.warning("%s", warning)
    for actor, streams in worker.streams().items():
        watch.record(actor).streams.update(streams)
    fleet = Fleet(
        Epochs(settings.pool_dir),
        lease_s=network.lease_s,
        heartbeat_s=network.heartbeat_s,
        most=settings.sessions,
    )
    pacing = LentPacing(settings.pacing) if settings.home else Pacing(settings.pacing)
    live, satellites = Live(pacing, settings.pool_dir), Satellites(pacing, settings.pool_dir)
    parts = fleet, pacing, network, watch, totals, worker.shelf, settings.pool.max_actors, live, satellites
    link: Link | None = None
    service = Service(*parts)
    if settings.home:
        satellite = Satellite(network.fragment_bytes, worker.shelf.version)
        hello = new_hello(SHARD, f"shard-{settings.shard}", spec=None if totals.spec is None else totals.spec.to_dict())
        link = Link(hello, satellite, settings.home, network, clock)
        service = SatelliteService(*parts, satellite=satellite, link=link)
    service.reception.keyring = gate.keyring if gate is not None else None
    service.about = _about
    backups = None
    if settings.snapshot_dir is not None:
        backups = Backups(settings.snapshot_dir, settings.pool.snapshot_every_s, settings.pool.snapshot_keep, clock.now())
    service.backups = backups
    endpoint = socket.getsockopt_string(zmq.LAST_ENDPOINT)
    LOG.info("listening on %s", endpoint)
    ready = None if settings.ready is None else partial(settings.ready, endpoint)
    try:
        _runner()(_main(service, worker, Port(socket, gate), clock, ready, settings.exporter))
    finally:
        if link is not None:
            link.close(Goodbye(False))
        if backups is not None:
            backups.close()


async def _main(
    service: Service, worker: PoolWorker, port: Port, clock: Clock, ready: Callable[[], None] | None, exporter: Exporter
) -> None:
    server = Server(service, worker, port, clock, ready)
    if isinstance(service, SatelliteService):
        service.begin(server.soon)
    with exporter.serve(server.figures):
        await server.run()


def _unsaid(context: dict[str, Any]) -> RuntimeError:
    return RuntimeError(str(context.get("message", "the event loop failed")))


def _runner() -> Callable[..., None]:
    try:
        import uvloop
    except ImportError:  # the standard loop is slower, not different
        return asyncio.run
    return uvloop.run
