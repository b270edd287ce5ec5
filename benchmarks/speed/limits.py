"""What this machine can do at best, and what the obvious design without a library does: numpy and ZeroMQ alone.

Roles: ``gather`` (random rows with ``numpy.take``), ``push`` (messages over loopback TCP), ``reply`` (request and reply of one
size over loopback TCP), ``straw`` (a pyzmq server that gathers packed rows for each request).
"""

from __future__ import annotations

import json
import math
import mmap
import os
import socket
import sys
import tempfile
from collections.abc import Callable, Mapping
from itertools import cycle
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import zmq

from speed.children import answer_windows, repeat

BATCH = 256
HIGH_WATER = 64
READY_S = 60.0
Options = dict[str, Any]
Window = Callable[[float], Mapping[str, float]]


def gather(options: Options) -> Window:
    """``BATCH`` random rows of each of the ``widths`` (bytes) from as many arrays of ``rows`` rows, into reused arrays.

    The arrays lie in this process's own memory, for which the system has large pages, or in files in ``place``. One place is
    written over and over, so that it stays in the cache, or as many ``batches`` in turn as a reader holds that works ahead.
    """
    rng = np.random.default_rng(0)
    rows = options["rows"]
    stored = [_stored((rows, width), options.get("place")) for width in options["widths"]]
    for array in stored:
        array[:] = 1
    taken = cycle([rng.integers(0, rows, BATCH) for _ in range(64)])
    # One move a row instead of one a byte.
    wide = [a.view(f"V{a.shape[1]}")[:, 0] for a in stored]
    places = cycle([[np.empty(BATCH, a.dtype) for a in wide] for _ in range(options.get("batches", 1))])

    def take() -> None:
        ids = next(taken)
        for array, out in zip(wide, next(places), strict=True):
            array.take(ids, out=out, mode="clip")

    return lambda seconds: repeat(take, seconds)


def _stored(shape: tuple[int, int], place: str | None) -> np.ndarray[Any, Any]:
    if place is None:
        return np.zeros(shape, np.uint8)
    with tempfile.TemporaryFile(dir=place) as file:
        file.truncate(math.prod(shape))
        return np.frombuffer(mmap.mmap(file.fileno(), 0), np.uint8).reshape(shape)


def push(options: Options) -> Window:
    """Messages of ``size`` bytes from another process, cut into pieces of at most ``piece`` bytes that are copied together."""
    endpoint = _free_tcp()
    _start(_pusher, endpoint, options["size"], options.get("piece", options["size"]))
    context = zmq.Context()
    receiver = context.socket(zmq.PULL)
    receiver.set_hwm(HIGH_WATER)
    receiver.connect(endpoint)
    whole = memoryview(bytearray(options["size"]))

    def receive() -> None:
        at = 0
        while at < len(whole):
            data = receiver.recv(copy=False).buffer
            whole[at : at + len(data)] = data
            at += len(data)

    receive()
    return lambda seconds: repeat(receive, seconds)


def _pusher(ready: Connection, endpoint: str, size: int, piece: int) -> None:
    sender = zmq.Context().socket(zmq.PUSH)
    sender.set_hwm(HIGH_WATER)
    sender.bind(endpoint)
    ready.send("up")
    data = os.urandom(size)
    parts = [memoryview(data)[at : at + piece] for at in range(0, size, piece)]
    while True:
        for part in parts:
            sender.send(part, copy=False)


def reply(options: Options) -> Window:
    """One request for ``size`` bytes after the other."""
    endpoint = _free_tcp()
    _start(_replier, endpoint, options["size"])
    return _requests(endpoint, options["size"])


def _replier(ready: Connection, endpoint: str, size: int) -> None:
    server = zmq.Context().socket(zmq.REP)
    server.bind(endpoint)
    ready.send("up")
    data = os.urandom(size)
    while True:
        server.recv()
        server.send(data, copy=False)


def straw(options: Options) -> Window:
    """Sixty lines that anybody would write: packed rows of ``width`` bytes, one request a batch, over a Unix socket."""
    endpoint = f"ipc://{tempfile.mkdtemp()}/straw"
    _start(_straw_server, endpoint, options["rows"], options["width"])
    return _requests(endpoint, BATCH * options["width"])


def _straw_server(ready: Connection, endpoint: str, rows: int, width: int) -> None:
    rng = np.random.default_rng(0)
    ring = rng.integers(0, 256, (rows, width), np.uint8)
    server = zmq.Context().socket(zmq.REP)
    server.bind(endpoint)
    ready.send("up")
    while True:
        server.recv()
        server.send(np.take(ring, rng.integers(0, rows, BATCH), axis=0), copy=False)


def _requests(endpoint: str, size: int) -> Window:
    client = zmq.Context().socket(zmq.REQ)
    client.connect(endpoint)

    def ask() -> None:
        client.send(b"sample")
        if len(client.recv(copy=False).buffer) != size:
            raise RuntimeError(f"a reply of another size than {size}")

    ask()
    return lambda seconds: repeat(ask, seconds)


def _start(target: Callable[..., None], *args: Any) -> None:
    """Start a server process, which ends with the group of this one; returns when it listens."""
    context = get_context("spawn")
    here, there = context.Pipe()
    context.Process(target=target, args=(there, *args), daemon=True).start()
    if not here.poll(READY_S):
        raise RuntimeError("the other process does not start")
    here.recv()


def _free_tcp() -> str:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return f"tcp://127.0.0.1:{s.getsockname()[1]}"


ROLES = {"gather": gather, "push": push, "reply": reply, "straw": straw}

if __name__ == "__main__":
    chosen = json.loads(sys.argv[1])
    answer_windows(ROLES[chosen["role"]](chosen))
    sys.stdout.flush()
    os._exit(0)  # sockets with unsent megabytes would linger
