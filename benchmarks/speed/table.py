"""The speed table: which processes each row starts."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

from headrace.common.wire.batches import MOST_AHEAD
from headrace.launch.children import TUNABLES, copy_variables
from headrace.learner.heap import KEPT_BYTES, LARGEST_BYTES
from speed import data
from speed.children import Child
from speed.rows import Bar, Extra, Flat, Most, Row, Setup, Subject

ROWS, FILL = 1_000_000, 200_000
IMAGE_ROWS, IMAGE_PREFETCH = 20_000, 4
FLAT_FRAME, FLAT_ROW = data.FLAT.frame_nbytes, data.FLAT.row_dtype.itemsize
IMAGE_FRAME = data.IMAGES.frame_nbytes
SIZES = (10_000, 100_000, 1_000_000, 10_000_000)
ACTORS = (1, 4, 16, 64)
PACKED = 165  # bytes of a HalfCheetah transition with both observations in it
ACTOR_PROCESSES = 2
Subjects = dict[str, Subject]


class Actors:
    """Some actor processes of one buffer, measured together."""

    def __init__(self, stack: ExitStack, endpoint: str, options: dict[str, Any], processes: int = ACTOR_PROCESSES) -> None:
        made = ({"role": "actor", "endpoint": endpoint, "kind": "flat", **options, "seed": i} for i in range(processes))
        self._children = [stack.enter_context(Child("ours.py", o)) for o in made]

    def window(self, seconds: float) -> float:
        """Acknowledged rows a second."""
        for c in self._children:
            c.ask(seconds)
        return sum(float(c.answer()["rate"]) for c in self._children)


class PerCpu:
    """Rows a second of the buffer's own CPU time, under the load of ``actors``."""

    def __init__(self, buffer: Child, actors: Actors) -> None:
        self._buffer, self._actors = buffer, actors

    def window(self, seconds: float) -> float:
        """Acknowledged rows a CPU second."""
        self._buffer.ask(seconds)
        rate = self._actors.window(seconds)
        return rate / max(1e-9, float(self._buffer.answer()["rate"]))


def _peer(out: Subjects, setup: Setup, stack: ExitStack, name: str, peer: str, options: dict[str, Any]) -> None:
    """Let a peer take part where its environment is there."""
    if peer in setup.pythons:
        out[name] = stack.enter_context(Child("rivals.py", options, setup.pythons[peer]))


def _buffer(setup: Setup, stack: ExitStack, **options: Any) -> Child:
    made: Child = stack.enter_context(Child("ours.py", {"role": "buffer", "place": str(setup.place), **options}))
    return made


_INSERT_BOUND = {
    False: "Bound by the actors: loop and link share an interpreter; the buffer idles two thirds of the time.",
    True: "Bound by the buffer: one core does checks, commits, statistics and the socket, since threads share an interpreter.",
}


def _insert(block: int) -> Row:
    def start(setup: Setup, stack: ExitStack) -> Subjects:
        buffer = _buffer(setup, stack, capacity=ROWS, block=block)
        out: Subjects = {"headrace": Actors(stack, buffer.ready["endpoint"], {"block": block})}
        for keep in (1, 32):
            options = {"role": "reverb-insert", "rows": ROWS, "keep": keep}
            _peer(out, setup, stack, f"reverb keep-alive {keep}", "reverb", options)
        return out

    reverb = ("reverb keep-alive 1", "reverb keep-alive 32")
    bars = (Bar("headrace", reverb, {1: 2.0, 32: 25.0, 64: 50.0}[block], best=True),)
    title = f"insert, blocks of {block}, 2 actor processes, acknowledged after commit"
    return Row(f"insert-{block}", title, "rows/s", _INSERT_BOUND[block > 1], bars, start)


def filled_buffer(setup: Setup, stack: ExitStack, kind: str, rows: int, capacity: int) -> str:
    """A buffer with ``rows`` rows; its endpoint."""
    buffer = _buffer(setup, stack, capacity=capacity, block=32)
    endpoint: str = buffer.ready["endpoint"]
    with ExitStack() as filling:
        Actors(filling, endpoint, {"kind": kind, "block": 32, "fill": rows}, processes=1)
    return endpoint


def _learner(
    stack: ExitStack,
    endpoint: str,
    reading: str,
    prefetch: int = MOST_AHEAD,
    variables: Mapping[str, str] | None = None,
) -> Child:
    options = {"role": "learner", "endpoint": endpoint, "reading": reading, "prefetch": prefetch}
    return stack.enter_context(Child("ours.py", options, variables=variables))


def _sample(setup: Setup, stack: ExitStack) -> Subjects:
    endpoint = filled_buffer(setup, stack, "flat", FILL, ROWS)
    out: Subjects = {"headrace": _learner(stack, endpoint, "mapped")}
    gather = {"role": "pool", "work": "gather", "kind": "flat", "rows": FILL, "block": 32}
    out["gather in one process"] = stack.enter_context(Child("ours.py", gather))
    straw = {"role": "straw", "rows": FILL, "width": PACKED}
    out["pyzmq straw man"] = stack.enter_context(Child("limits.py", straw))
    options = {"role": "reverb-sample", "rows": ROWS, "fill": 20_000 if setup.quick else FILL}
    _peer(out, setup, stack, "reverb", "reverb", options)
    return out


def _sample_tcp(setup: Setup, stack: ExitStack) -> Subjects:
    endpoint = filled_buffer(setup, stack, "flat", FILL, ROWS)
    out: Subjects = {"headrace": _learner(stack, endpoint, "socket")}
    gather = {"role": "pool", "work": "gather", "kind": "flat", "rows": FILL, "block": 32}
    out["gather in one process"] = stack.enter_context(Child("ours.py", gather))
    size = 256 * (8 + FLAT_ROW + 2 * FLAT_FRAME)
    out["raw ZeroMQ"] = stack.enter_context(Child("limits.py", {"role": "push", "size": size}))
    return out


def _as_on_a_gpu() -> dict[str, str]:
    """Variables of who reads images as a learner on a GPU does, which says the half of them itself; the limits get them too."""
    kept = f"glibc.malloc.mmap_threshold={LARGEST_BYTES}:glibc.malloc.trim_threshold={KEPT_BYTES}"
    return {TUNABLES: f"{copy_variables()[TUNABLES]}:{kept}"}


def _images(setup: Setup, stack: ExitStack) -> Subjects:
    rows = 2_000 if setup.quick else IMAGE_ROWS
    endpoint = filled_buffer(setup, stack, "images", rows, rows)
    copies = _as_on_a_gpu()
    out: Subjects = {"headrace": _learner(stack, endpoint, "mapped", IMAGE_PREFETCH, copies)}
    gather = {"role": "gather", "rows": rows, "widths": [IMAGE_FRAME, IMAGE_FRAME, FLAT_ROW]}
    out["raw gather"] = stack.enter_context(Child("limits.py", gather, variables=copies))
    gather = {**gather, "place": str(setup.place), "batches": IMAGE_PREFETCH}
    out["raw gather, 4 places in turn"] = stack.enter_context(Child("limits.py", gather, variables=copies))
    _peer(out, setup, stack, "ray", "ray", {"role": "ray-sample", "rows": rows})
    return out


def _images_tcp(setup: Setup, stack: ExitStack) -> Subjects:
    rows = 2_000 if setup.quick else IMAGE_ROWS
    endpoint = filled_buffer(setup, stack, "images", rows, rows)
    copies = _as_on_a_gpu()
    out: Subjects = {"headrace": _learner(stack, endpoint, "socket", IMAGE_PREFETCH, copies)}
    size = 256 * 2 * IMAGE_FRAME
    pieces = {"role": "push", "size": size, "piece": 1 << 20}
    out["one REQ/REP of the same bytes"] = stack.enter_context(
        Child("limits.py", {"role": "reply", "size": size}, variables=copies)
    )
    out["pieces of 1 MB"] = stack.enter_context(Child("limits.py", pieces, variables=copies))
    return out


def _class(setup: Setup, stack: ExitStack) -> Subjects:
    out: Subjects = {}
    for what, ours, theirs in _CLASS_WORK:
        out[f"headrace {what}"] = stack.enter_context(Child("ours.py", {"role": "pool", "rows": ROWS, "fill": FILL, **ours}))
        options = {"role": "cpprb", "rows": ROWS, "fill": FILL, "prioritised": False, **theirs}
        _peer(out, setup, stack, f"cpprb {what}", "cpprb", options)
    return out


_BY_PRIORITY = {"prioritised": True}
_CLASS_WORK: tuple[tuple[str, dict[str, Any], dict[str, Any]], ...] = (
    ("add 1", {"work": "add", "insert": 1}, {"work": "add", "insert": 1}),
    ("add 256", {"work": "add", "insert": 256}, {"work": "add", "insert": 256}),
    ("sample", {"work": "plain-sample"}, {"work": "sample"}),
    ("prioritised add 1", {"work": "add", "insert": 1, **_BY_PRIORITY}, {"work": "add", "insert": 1, **_BY_PRIORITY}),
    ("prioritised add 256", {"work": "add", "insert": 256, **_BY_PRIORITY}, {"work": "add", "insert": 256, **_BY_PRIORITY}),
    ("prioritised sample + update", {"work": "plain-sample", **_BY_PRIORITY}, {"work": "update", **_BY_PRIORITY}),
)


def _prioritised(setup: Setup, stack: ExitStack) -> Subjects:
    rows = 100_000 if setup.quick else ROWS
    options = {"role": "pool", "kind": "flat", "rows": rows, "block": 500}
    works = {"uniform sample": "sample", "prioritised sample + update": "update"}
    return {name: stack.enter_context(Child("ours.py", {**options, "work": work})) for name, work in works.items()}


def _growth(setup: Setup, stack: ExitStack) -> Subjects:
    out: Subjects = {}
    for rows in SIZES[: 3 if setup.quick else 4]:
        for work, blocks in (("sample", {"block": 500}), ("insert", {"block": 64, "insert": 64})):
            options = {"role": "pool", "kind": "flat", "rows": rows, "work": work, **blocks}
            out[f"{work} {rows}"] = stack.enter_context(Child("ours.py", options))
        limit = {"role": "gather", "rows": rows, "widths": [FLAT_ROW, FLAT_FRAME, FLAT_FRAME]}
        out[f"gather {rows}"] = stack.enter_context(Child("limits.py", limit))
    return out


def _growth_actors(setup: Setup, stack: ExitStack) -> Subjects:
    out: Subjects = {}
    for actors in ACTORS[: 3 if setup.quick else 4]:
        processes = min(ACTOR_PROCESSES, actors)
        buffer = _buffer(setup, stack, capacity=100_000, block=512, links=actors)
        load = Actors(stack, buffer.ready["endpoint"], {"block": 512, "links": actors // processes}, processes)
        out[f"insert {actors}"] = PerCpu(buffer, load)
    return out


class _Memory:
    """Anonymous memory of a buffer (MB) that inserts and serves batches at full rate."""

    def __init__(self, setup: Setup, stack: ExitStack) -> None:
        self._buffer = _buffer(setup, stack, capacity=FILL, block=32)
        endpoint = self._buffer.ready["endpoint"]
        self._actors = Actors(stack, endpoint, {"block": 32, "fill": 1000}, 1)
        self._learner = _learner(stack, endpoint, "mapped")
        self._seconds = setup.minutes * 60 / 6  # one window warms up

    def window(self, seconds: float) -> float:
        end = time.monotonic() + (seconds if self._seconds <= 0 else self._seconds)
        while True:
            part = min(10.0, max(0.1, end - time.monotonic()))
            self._learner.ask(part)
            self._buffer.ask(part)
            self._actors.window(part)
            self._learner.answer()
            held = float(self._buffer.answer()["anonymous_mb"])
            if time.monotonic() >= end:
                return held


def _memory(setup: Setup, stack: ExitStack) -> Subjects:
    return {"RssAnon, MB": _Memory(setup, stack)}


_MAPPED = "Mapped: the buffer sends ids, and the learner's own thread gathers."
_PAGES = (
    "Mapped: the copy itself. On an AMD machine walks over pages of 4 KiB, as any gather from mapped files. On an Intel one"
    " with 260 MB of cache where it goes: one place written over and over stays in the cache, those of a reader that works"
    " ahead go to memory and back."
)
_SOCKET = "Through the socket: bound by sampling, gathering and sending in the buffer's one interpreter, and by copies."
_TABLE = (
    _insert(1),
    _insert(32),
    _insert(64),
    Row(
        *("sample", "sample 256 rows of 200k, separate process, same host", "batches/s", _MAPPED),
        (
            Bar("headrace", ("reverb",), 100),
            Bar("headrace", ("pyzmq straw man",), 3),
            Bar("headrace", ("gather in one process",), 0.5),
        ),
        _sample,
    ),
    Row(
        *("sample-tcp", "the same over TCP loopback", "batches/s", _SOCKET),
        (Bar("headrace", ("gather in one process", "raw ZeroMQ"), 1 / 1.5),),
        _sample_tcp,
    ),
    Row(
        *("images", "2 x 128x128x3 bytes + 32 floats, batch 256, same host", "batches/s", _PAGES),
        (
            Bar("headrace", ("raw gather",), 0.8),
            Bar("headrace", ("raw gather, 4 places in turn",), 0.8),
            Bar("headrace", ("ray",), 2.5),
        ),
        _images,
    ),
    Row(
        *("images-tcp", "the same over TCP loopback", "batches/s", _SOCKET),
        (Bar("headrace", ("one REQ/REP of the same bytes",), 1.5),),
        _images_tcp,
    ),
    Row(
        *("class", "the class in one process, plain dictionaries", "rows/s, batches/s"),
        "Blocks: a third each copies into the rings, statistics, checks. Sum tree: a numpy call for each step of a level.",
        tuple(Bar(f"headrace {what}", (f"cpprb {what}",), 1.0) for what, _, _ in _CLASS_WORK),
        _class,
    ),
    Row(
        *("prioritised", "prioritised batch of 256 of 1M rows and new priorities, on top of a uniform one", "batches/s"),
        "Bound by the walk down the sum tree and the way back up, a numpy call a level each.",
        (Extra("prioritised sample + update", "uniform sample", 0.3),),
        _prioritised,
    ),
    Row(
        *("growth", "cost of a batch and of a row beside the raw gather, by rows stored", "batches/s, rows/s"),
        "A call costs the same beside the gather at any size; the raw gather itself is out of the cache beyond 1e5 rows.",
        (
            Flat("sample", "gather", SIZES),
            Flat("sample", "gather", SIZES, extra=True),
            Flat("insert", "gather", SIZES),
            Flat("insert", None, SIZES),
        ),
        _growth,
    ),
    Row(
        *("growth-actors", "buffer CPU a row, by connected actors", "rows per CPU second"),
        "Blocks of 512 rows, which nobody joins to longer ones; each round of the buffer looks at every actor's allowance.",
        (Flat("insert", None, ACTORS),),
        _growth_actors,
    ),
    Row(
        *("memory", "anonymous memory of the buffer at full rate", "MB", "Interpreter, libraries, and what is under way."),
        (Most("RssAnon, MB", 200.0),),
        _memory,
    ),
)
TABLE = {row.name: row for row in _TABLE}
