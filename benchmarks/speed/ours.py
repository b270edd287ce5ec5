"""One of headrace's processes for the speed table; ``children.py`` says how it is asked.

Roles: ``buffer`` (a whole buffer process), ``actor`` (raw uplinks with synthetic blocks), ``learner`` (a feed that takes
batches), ``pool`` (the class in one process, by ``work``).
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np

from headrace.actor.outbox import Outbox
from headrace.actor.store import Memory
from headrace.actor.uplink import Uplink
from headrace.buffer.config import PoolConfig, SamplingConfig
from headrace.buffer.pacing import PacingConfig
from headrace.buffer.pool import SACReplayPool
from headrace.buffer.server import serve
from headrace.buffer.settings import BufferSettings
from headrace.buffer.view import PoolView
from headrace.common.clock import MonotonicClock
from headrace.common.errors import DeadlineExceeded
from headrace.common.wire.link import Link, new_hello
from headrace.common.wire.messages import Goodbye
from headrace.common.wire.network import NetworkConfig
from headrace.learner.feed import Feed
from headrace.learner.gatherer import Gatherer
from speed import data
from speed.children import answer_windows, repeat

OUTBOX_BYTES = 8 << 20  # of one process
WELCOME_S, STALL_S = 60.0, 30.0
FULL_S = 0.002
DISTINCT_BYTES = 8 << 20
FILL_ROWS = 1000
Options = dict[str, Any]


def buffer(options: Options) -> None:
    """A buffer that neither holds actors nor the learner; a window answers its CPU seconds and anonymous memory."""
    pool = PoolConfig(
        capacity=options["capacity"],
        min_block_rows=min(options["block"], options["capacity"]),
        max_actors=max(64, options.get("links", 0)),
    )
    pacing = PacingConfig(env_steps=0, hold_actors=False, hold_learner=False, ratio=1000.0, min_fill=data.BATCH)
    with tempfile.TemporaryDirectory(dir=options["place"]) as place:
        serve(BufferSettings(_network(options), pool, Path(place), pacing, "speed", 0, _answer))


def _network(options: Options) -> NetworkConfig:
    """With the keys in the directory ``keys``, if there is one."""
    return NetworkConfig(keys=options.get("keys", ""))


def _answer(endpoint: str) -> None:
    """Answer on a thread of its own; the end of the questions ends the buffer in order."""

    def answer() -> None:
        answer_windows(_process, {"endpoint": endpoint})
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=answer, daemon=True).start()


def _process(seconds: float) -> Mapping[str, float]:
    start = time.process_time()
    time.sleep(seconds)
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    anonymous = int(status.split("RssAnon:")[1].split()[0]) / 1024
    return {"rate": (time.process_time() - start) / seconds, "anonymous_mb": anonymous}


def actor(options: Options) -> None:
    """Offers blocks as fast as the outboxes take them; counts what was acknowledged after the commit."""
    rng = np.random.default_rng(options["seed"])
    spec, n = data.SPECS[options["kind"]], options["block"]
    distinct = max(2, min(64, DISTINCT_BYTES // (n * spec.frame_nbytes)))
    blocks = cycle([data.block(spec, n, rng) for _ in range(distinct)])
    links = [_dial(options, f"{options['seed']}-{i}") for i in range(options.get("links", 1))]
    for _, link in links:
        link.wait_welcome(WELCOME_S)

    def acknowledged() -> int:
        return sum(executed - pending for executed, pending in (uplink.position() for uplink, _ in links))

    def offer() -> None:
        full = 0
        for uplink, link in links:
            if uplink.offer(next(blocks), 0.0):
                uplink.executed(n)
                link.wake()
            else:
                full += 1
            link.check()
        if full == len(links):
            links[0][0].wait(FULL_S)  # the links' threads need the interpreter now

    def window(seconds: float) -> Mapping[str, Any]:
        before, start, cpu = acknowledged(), time.perf_counter(), time.process_time()
        while (elapsed := time.perf_counter() - start) < seconds:
            offer()
        return {"rate": (acknowledged() - before) / elapsed, "cpu": (time.process_time() - cpu) / elapsed}

    while acknowledged() < options.get("fill", 0):
        offer()
    try:
        answer_windows(window)
    finally:
        for _, link in links:
            link.close(Goodbye(False, "measured"))


def _dial(options: Options, name: str) -> tuple[Uplink, Link]:
    spec = data.SPECS[options["kind"]]
    network = _network(options)
    uplink = Uplink(spec, Outbox(Memory(OUTBOX_BYTES // options.get("links", 1))), network.fragment_bytes)
    hello = new_hello("actor", name, spec=spec.to_dict())
    link = Link(hello, uplink, options["endpoint"], network, MonotonicClock())
    link.start()
    return uplink, link


def learner(options: Options) -> None:
    """Takes batches as they come, as a learner without arithmetic would."""
    way = {"statistics": False, "reading": options["reading"], "open_view": PoolView}
    feed = Feed(data.BATCH, options["prefetch"], **way)
    link = Link(new_hello("learner", "learner"), feed, options["endpoint"], _network(options), MonotonicClock())
    link.start()
    gatherer = Gatherer(feed, link.wake)
    link.wait_welcome(WELCOME_S)
    gatherer.start()
    feed.start_drawing()

    def take() -> None:
        if feed.must_draw:
            link.wake()
        if feed.get(STALL_S) is None:
            link.check()
            raise DeadlineExceeded(f"no batch within {STALL_S:g} s")

    def window(seconds: float) -> Mapping[str, float]:
        cpu = time.process_time()
        return {**repeat(take, seconds), "cpu": (time.process_time() - cpu) / seconds}

    try:
        take()
        answer_windows(window)
    finally:
        gatherer.close()
        link.close(Goodbye(False, "measured"))


def pool(options: Options) -> None:
    """``SACReplayPool`` in this process."""
    rng = np.random.default_rng(0)
    answer_windows(POOLS[options["work"]](options, rng))


def _filled(options: Options, rng: np.random.Generator) -> SACReplayPool:
    """A pool of ``rows`` rows in anonymous memory, full."""
    spec, rows = data.SPECS[options["kind"]], options["rows"]
    config = PoolConfig(capacity=rows, min_block_rows=min(rows, options["block"]))
    made = SACReplayPool(rows, spec=spec, config=config, sampling=_sampling(options), rng=rng)
    block = data.block(spec, min(options["block"], rows), rng)
    for seq in range(1, rows + 1, block.n_rows):
        made.insert(block, "filler", 1, seq)
    return made


def _sampling(options: Options) -> SamplingConfig:
    return SamplingConfig(method="prioritised" if options.get("prioritised") else "uniform")


Window = Callable[[float], Mapping[str, float]]


def _gather(options: Options, rng: np.random.Generator) -> Window:
    """The pool's own gather of given ids into arrays that are used again."""
    made = _filled(options, rng)
    ids = cycle([rng.integers(made.tail, made.head, data.BATCH) for _ in range(64)])
    out = made.gather(next(ids))
    return lambda seconds: repeat(lambda: made.gather(next(ids), out), seconds)


def _sample(options: Options, rng: np.random.Generator) -> Window:
    made = _filled(options, rng)
    return lambda seconds: repeat(lambda: made.sample(data.BATCH), seconds)


def _update(options: Options, rng: np.random.Generator) -> Window:
    """A prioritised batch, and new priorities for its rows."""
    made = _filled({**options, "prioritised": True}, rng)
    priorities = cycle(list(rng.exponential(size=(64, data.BATCH))))
    return lambda seconds: repeat(lambda: made.update_priorities(made.sample(data.BATCH).ids, next(priorities)), seconds)


def _insert(options: Options, rng: np.random.Generator) -> Window:
    """Blocks of ``insert`` rows into a full pool."""
    made = _filled(options, rng)
    n = options["insert"]
    blocks = cycle([data.block(data.SPECS[options["kind"]], n, rng) for _ in range(16)])
    seq = 1

    def insert() -> None:
        nonlocal seq
        made.insert(next(blocks), "inserter", 1, seq)
        seq += n

    return lambda seconds: repeat(insert, seconds, n)


def _plain_add(options: Options, rng: np.random.Generator) -> Window:
    """Plain dictionaries of ``insert`` rows."""
    made = SACReplayPool(options["rows"], sampling=_sampling(options))
    n = options["insert"]
    batches = cycle([data.plain(n, rng) for _ in range(64)])
    return lambda seconds: repeat(lambda: made.add_batch(next(batches)), seconds, n)


def _plain_sample(options: Options, rng: np.random.Generator) -> Window:
    made = SACReplayPool(options["rows"], sampling=_sampling(options), rng=rng)
    for _ in range(options["fill"] // FILL_ROWS):
        made.add_batch(data.plain(FILL_ROWS, rng))
    if not options.get("prioritised"):
        return lambda seconds: repeat(lambda: made.sample_batch(data.BATCH), seconds)
    priorities = cycle(list(rng.exponential(size=(64, data.BATCH))))
    return lambda seconds: repeat(
        lambda: made.update_priorities(made.sample_batch(data.BATCH)["ids"], next(priorities)), seconds
    )


POOLS = {
    **{"gather": _gather, "sample": _sample, "update": _update, "insert": _insert},
    **{"add": _plain_add, "plain-sample": _plain_sample},
}
ROLES = {"buffer": buffer, "actor": actor, "learner": learner, "pool": pool}

if __name__ == "__main__":
    chosen = json.loads(sys.argv[1])
    ROLES[chosen["role"]](chosen)
