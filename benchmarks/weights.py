#!/usr/bin/env python
"""Weights of a large policy on their way to actors, beside the same bytes through bare ZeroMQ, and what acks and stops wait.

    .venv/bin/python benchmarks/weights.py                  # 200 MB to 4 actors, 5 trials, recorded
    .venv/bin/python benchmarks/weights.py --mb 50 --trials 1 --quick

What it measures, in each trial, over TCP on one host, every side a process of its own:

- ``raw``: a DEALER sends the bytes, in messages of ``network.fragment_bytes``, to a ROUTER, which keeps them and then sends
  all of them to 4 DEALERs, which count them: the time from the first send to the last one's last byte.
- ``product``: a learner gives ``Feed.publish`` a policy of so many bytes, a buffer puts it on its shelf, and 4 actors fetch it:
  the time from that call until the last actor holds a verified set.
- ``share`` is raw / product, the throughput in parts of bare ZeroMQ's, of the way to the actors: from when the relay, or the
  shelf, has all of it. ``share_whole`` is that of the whole way. Both go three times and the last one counts: the first
  sets are written to memory and files that are fresh from the system.
- Meanwhile each actor offers a block of one row 50 times a second; ``ack_ms`` is how long it waits for the acknowledgement.
  ``delay_ms`` is the longest wait while weights travel less the median one while nothing does.
- A second set is published, and when the actors hold half of it the buffer is told to stop: ``stop_ms`` is the longest time
  until an actor has the command.

How long: about 15 s a trial. Each adds a line to docs/results/weights.jsonl, and is not repeated on the same commit.

The last line on stdout is one JSON object: medians over the trials, the worst of each, the bars, and whether the medians keep
them.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import os
import signal
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import numpy as np
import zmq
from campaign import provenance, records
from campaign.process import guarded

from headrace.actor.assembler import Assembler
from headrace.actor.outbox import Outbox
from headrace.actor.store import Memory
from headrace.actor.uplink import Uplink
from headrace.buffer.config import PoolConfig
from headrace.buffer.pacing import PacingConfig
from headrace.buffer.server import serve
from headrace.buffer.settings import BufferSettings
from headrace.common.block import Block
from headrace.common.clock import MonotonicClock
from headrace.common.specs import ActionSpec, ObsSpec, TransitionSpec
from headrace.common.weights import NO_VERSION, Version, WeightSet
from headrace.common.wire.link import Link, new_hello
from headrace.common.wire.messages import Goodbye
from headrace.common.wire.network import NetworkConfig
from headrace.learner.feed import Feed

FILE = records.RESULTS / "weights.jsonl"
SHARE, DELAY_MS, STOP_MS = 0.6, 50.0, 50.0  # the bars
FIGURES = ("share", "share_whole", "delay_ms", "stop_ms")
MB, ACTORS, TRIALS = 200, 4, 5
TENSORS = 16
TIMES = 3  # of which the last one counts: both files of a shelf have been written then
GREETING = 8  # bytes at most
EVERY_S, PAUSE_S, QUIET_S, WAIT_S = 0.02, 0.2, 2.0, 60.0
SPEC = TransitionSpec((ObsSpec("state", (8,), "<f4"),), ActionSpec((2,), (-1.0, -1.0), (1.0, 1.0)))
Figures = dict[str, Any]
SPAWN = multiprocessing.get_context("spawn")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mb", type=int, default=MB, help="bytes of the policy, in millions")
    parser.add_argument("--actors", type=int, default=ACTORS)
    parser.add_argument("--trials", type=int, default=TRIALS)
    parser.add_argument("--quick", action="store_true", help="record nothing: a smoke run")
    args = parser.parse_args()
    origin, own = provenance.commit(), []
    known = [] if args.quick or origin["dirty"] else records.read(FILE)
    size = {"mb": args.mb, "actors": args.actors}
    for trial in range(args.trials):
        same = {**size, "trial": trial, "commit": origin["commit"]}
        line = next((r for r in known if all(r[key] == value for key, value in same.items())), None)
        if line is None:
            found = measure(args.mb * 1_000_000, args.actors)
            line = {**size, "trial": trial, **found, "passed": met(found), **origin}
            line |= {"machine": provenance.machine(), "date": provenance.stamp()}
            if not args.quick:
                records.append(FILE, line)
            print(f"trial {trial}: {json.dumps(found)}", flush=True)
        own.append(line)
    medians = {key: round(statistics.median(r[key] for r in own), 3) for key in FIGURES}
    worst = {"share": min(r["share"] for r in own), **{key: max(r[key] for r in own) for key in ("delay_ms", "stop_ms")}}
    bars = {"share": SHARE, "delay_ms": DELAY_MS, "stop_ms": STOP_MS}
    print(json.dumps({**size, "trials": len(own), **medians, "worst": worst, "bars": bars, "passed": met(medians)}))
    return 0


def met(found: Figures) -> bool:
    """Whether figures keep the bars."""
    return bool(found["share"] >= SHARE and found["delay_ms"] < DELAY_MS and found["stop_ms"] < STOP_MS)


def measure(nbytes: int, actors: int) -> Figures:
    """One trial: bare ZeroMQ, then the product."""
    raw_s, raw_out_s = bare(nbytes, actors)
    found = product(nbytes, actors)
    shares = {"share": round(raw_out_s / found["product_out_s"], 3), "share_whole": round(raw_s / found["product_s"], 3)}
    return {**shares, "raw_s": round(raw_s, 3), "raw_out_s": round(raw_out_s, 3), **found}


class Crew:
    """Processes of one measurement, each with a pipe; what they say is ``(what, when, ...)`` by the host's monotonic clock."""

    def __init__(self) -> None:
        self.pipes: dict[str, Connection] = {}
        self.children: dict[str, Any] = {}

    def start(self, name: str, work: Callable[..., None], *args: Any) -> None:
        """Begin a process that runs ``work(pipe, *args)``."""
        ours, theirs = SPAWN.Pipe()
        self.children[name] = child = SPAWN.Process(target=work, args=(theirs, *args), daemon=True)
        self.pipes[name] = ours
        child.start()
        theirs.close()

    def gather(self, what: str, names: list[str]) -> dict[str, tuple[Any, ...]]:
        """The next ``what`` of each of ``names``; anything else that they say is passed over."""
        out: dict[str, tuple[Any, ...]] = {}
        end = time.monotonic() + WAIT_S
        while missing := [name for name in names if name not in out]:
            ready = wait([self.pipes[name] for name in missing], max(0.0, end - time.monotonic()))
            if not ready:
                raise TimeoutError(f"no {what!r} of {', '.join(missing)} in {WAIT_S:g} s")
            for name in missing:
                if self.pipes[name] in ready:
                    said = self.pipes[name].recv()
                    if said[0] == what:
                        out[name] = said
        return out

    def tell(self, names: list[str], word: str) -> None:
        """Send a word."""
        for name in names:
            self.pipes[name].send(word)

    def end(self) -> None:
        """End all that have not ended."""
        for child in self.children.values():
            child.join(WAIT_S / 10)
            if child.is_alive():
                child.kill()
                child.join()


@contextlib.contextmanager
def crew() -> Iterator[Crew]:
    """A crew that has ended afterwards."""
    made = Crew()
    try:
        yield made
    finally:
        made.end()


# --- bare ZeroMQ ------------------------------------------------------------------------------------------------------


def bare(nbytes: int, actors: int) -> tuple[float, float]:
    """Seconds from the first send of the source, and from when the relay has all, to the last byte of the last sink."""
    with crew() as made:
        made.start("relay", relay, nbytes, actors)
        endpoint = made.gather("bound", ["relay"])["relay"][1]
        sinks = [f"sink-{i}" for i in range(actors)]
        for name in sinks:
            made.start(name, sink, endpoint, nbytes)
        made.start("source", source, endpoint, nbytes)
        made.gather("ready", [*sinks, "source", "relay"])
        for _ in range(TIMES):
            time.sleep(PAUSE_S)
            made.tell(["source", "relay"], "go")
            begun = made.gather("begun", ["source"])["source"][1]
            held = made.gather("held", ["relay"])["relay"][1]
            done = max(said[1] for said in made.gather("done", sinks).values())
        made.tell(["source", "relay"], "end")
        return done - begun, done - held


def relay(pipe: Connection, nbytes: int, actors: int) -> None:
    """Keep what the source sends, then send all of it to each sink, part by part in turn."""
    with zmq.Context() as context, context.socket(zmq.ROUTER) as socket:
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.SNDHWM, 0)
        port = socket.bind_to_random_port("tcp://127.0.0.1")
        pipe.send(("bound", f"tcp://127.0.0.1:{port}"))
        peers: list[bytes] = []
        while len(peers) < actors:
            peer, word = socket.recv_multipart()
            if word == b"sink":
                peers.append(peer)
        pipe.send(("ready", 0.0))
        while pipe.recv() == "go":
            parts, held = [], 0
            while held < nbytes:
                part = socket.recv_multipart(copy=False)[1]
                if len(part) > GREETING:
                    parts.append(part)
                    held += len(part)
            pipe.send(("held", time.monotonic()))
            for part in parts:
                for peer in peers:
                    socket.send_multipart([peer, part.buffer], copy=False)


def source(pipe: Connection, endpoint: str, nbytes: int) -> None:
    """Send so many bytes."""
    step, data = NetworkConfig().fragment_bytes, memoryview(os.urandom(nbytes))
    with zmq.Context() as context, context.socket(zmq.DEALER) as socket:
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.SNDHWM, 0)
        socket.connect(endpoint)
        socket.send(b"source")
        pipe.send(("ready", 0.0))
        while pipe.recv() == "go":
            pipe.send(("begun", time.monotonic()))
            for at in range(0, nbytes, step):
                socket.send(data[at : at + step], copy=False)


def sink(pipe: Connection, endpoint: str, nbytes: int) -> None:
    """Count so many bytes."""
    with zmq.Context() as context, context.socket(zmq.DEALER) as socket:
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.RCVHWM, 0)
        socket.connect(endpoint)
        socket.send(b"sink")
        pipe.send(("ready", 0.0))
        for _ in range(TIMES):
            held = 0
            while held < nbytes:
                held += len(socket.recv(copy=False))
            pipe.send(("done", time.monotonic()))


# --- headrace ---------------------------------------------------------------------------------------------------------


def product(nbytes: int, actors: int) -> Figures:
    """The same from a learner over a buffer to actors, which go on sending rows."""
    with tempfile.TemporaryDirectory() as place, crew() as made:
        made.start("buffer", buffer, place)
        endpoint = made.gather("bound", ["buffer"])["buffer"][1]
        names = [f"actor-{i}" for i in range(actors)]
        for name in names:
            made.start(name, actor, endpoint, name, nbytes)
        made.start("learner", learner, endpoint, nbytes)
        made.gather("ready", [*names, "learner"])
        for _ in range(TIMES):
            time.sleep(QUIET_S)
            made.tell(["learner"], "publish")
            begun = made.gather("begun", ["learner"])["learner"][1]
            shelved = made.gather("shelved", ["learner"])["learner"][1]
            done = max(said[1] for said in made.gather("weights", names).values())
        time.sleep(PAUSE_S)
        made.tell(["learner"], "publish")
        made.gather("half", names)
        told = time.monotonic()
        os.kill(made.children["buffer"].pid, signal.SIGTERM)
        stopped = max(said[1] for said in made.gather("stop", names).values())
        acks = [ack for said in made.gather("acks", names).values() for ack in said[1]]
        made.tell(["learner"], "end")
    quiet = [took for at, took in acks if begun - QUIET_S <= at < begun - PAUSE_S]
    meanwhile = [took for at, took in acks if begun <= at + took and at <= done]
    delay = max(meanwhile) - statistics.median(quiet)
    return {
        "product_s": round(done - begun, 3),
        "product_out_s": round(done - shelved, 3),
        "delay_ms": round(1e3 * delay, 1),
        "stop_ms": round(1e3 * (stopped - told), 1),
        "ack_ms": {"quiet": _quantiles(quiet), "meanwhile": _quantiles(meanwhile)},
    }


def _quantiles(seconds: list[float]) -> dict[str, float]:
    at = {"p50": 0.5, "p99": 0.99, "max": 1.0}
    return {"n": len(seconds), **{name: round(1e3 * float(np.quantile(seconds, q)), 2) for name, q in at.items()}}


def buffer(pipe: Connection, place: str) -> None:
    """Be the buffer, until SIGTERM."""
    pacing = PacingConfig(env_steps=0, hold_actors=False, hold_learner=False)
    settings = BufferSettings(
        NetworkConfig(), PoolConfig(capacity=4096), Path(place), pacing, "weights", 0, lambda where: pipe.send(("bound", where))
    )
    serve(settings)


def actor(pipe: Connection, endpoint: str, name: str, nbytes: int) -> None:
    """Send rows and fetch weights, until told to stop."""
    network, acks = NetworkConfig(), []
    uplink = Uplink(SPEC, Outbox(Memory(1 << 20)), network.fragment_bytes)
    link = Link(new_hello("actor", name, spec=SPEC.to_dict()), uplink, endpoint, network, MonotonicClock())
    link.start()
    link.wait_welcome(WAIT_S)
    pipe.send(("ready", 0.0))
    sets = 0
    halves = threading.Thread(target=_tell_half, args=(pipe, uplink, nbytes), daemon=True)
    for block in _blocks():
        begun = time.monotonic()
        uplink.offer(block, WAIT_S)
        uplink.executed(1)
        link.wake()
        while uplink.position()[1] and uplink.stop is None:
            link.check()
            uplink.wait(WAIT_S)
        if uplink.stop is not None:
            break
        acks.append((begun, time.monotonic() - begun))
        while uplink.stop is None and (left := begun + EVERY_S - time.monotonic()) > 0:
            uplink.wait(left)
        if uplink.take_weights() is not None:
            pipe.send(("weights", time.monotonic()))
            sets += 1
            if sets == TIMES:
                halves.start()
    pipe.send(("stop", time.monotonic()))
    pipe.send(("acks", acks))
    link.close(Goodbye(False, "measured"))


def _tell_half(pipe: Connection, uplink: Uplink, nbytes: int) -> None:
    """Say when half of the next set is here."""
    while uplink.inbox.fetch.held < nbytes // 2:
        time.sleep(0.002)
    pipe.send(("half", time.monotonic()))


def _blocks() -> Iterator[Block]:
    """One row at a time, for ever."""
    lane, obs = Assembler(SPEC), {"state": np.zeros(8, np.float32)}
    lane.begin(0, obs)
    while True:
        lane.step(np.zeros(2, np.float32), 0.0, False, False, obs, version=NO_VERSION)
        block = lane.take(1)
        if block is not None:
            yield block


def learner(pipe: Connection, endpoint: str, nbytes: int) -> None:
    """Publish a policy of so many bytes whenever told."""
    feed, rng = Feed(64, 2, statistics=False), np.random.default_rng(0)
    link = Link(new_hello("learner", "l"), feed, endpoint, NetworkConfig(), MonotonicClock())
    link.start()
    epoch = link.wait_welcome(WAIT_S).epoch
    tensors = {f"layer.{i}": rng.standard_normal(nbytes // (4 * TENSORS), np.float32) for i in range(TENSORS)}
    pipe.send(("ready", 0.0))
    step = 0
    while pipe.recv() == "publish":
        step += 1
        pipe.send(("begun", time.monotonic()))
        feed.publish(WeightSet(Version("l", epoch, step), {"type": "large"}, tensors))
        link.wake()
        if step <= TIMES and feed.wait_published(WAIT_S):
            pipe.send(("shelved", time.monotonic()))
    link.close(Goodbye(False, "measured"))


if __name__ == "__main__":
    sys.exit(guarded(main))
