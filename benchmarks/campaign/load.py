"""Clients that offer a buffer more than it takes, or take less than it offers, and say what that cost them.

python -m campaign.load '{"role": "writer", ...}'
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

from helpers.lane_rows import Lane, lane_spec

from campaign.footprint import counted
from headrace.actor.bound import bound as bound_of_actor
from headrace.actor.config import ActorConfig
from headrace.actor.outbox import Outbox
from headrace.actor.store import Memory
from headrace.actor.uplink import Uplink
from headrace.common.block import Block
from headrace.common.clock import MonotonicClock
from headrace.common.specs import TransitionSpec
from headrace.common.wire.conversation import Role
from headrace.common.wire.link import Link, new_hello
from headrace.common.wire.messages import Goodbye
from headrace.common.wire.network import NetworkConfig
from headrace.learner.bound import bound as bound_of_learner
from headrace.learner.config import LearnerConfig
from headrace.learner.feed import Feed

WELCOME_S = 60.0
TIMES = 12  # rows offered for each that is taken
TAKE_EVERY_S = 0.2


def copied(block: Block) -> Block:
    """In memory of its own, as a new one would be."""
    return Block(block.rows.copy(), {key: frames.copy() for key, frames in block.frames.items()})


def write(link: Link, uplink: Uplink, spec: TransitionSpec, options: dict[str, Any], stop: threading.Event) -> dict[str, float]:
    """Offer blocks until told to end: ten times as many as are taken, or ``rate`` rows a second."""
    n = options["rows"]
    made = Lane(spec, 1, lengths=(7, 12)).block(n)
    base, offered, taken, rate = counted(os.getpid(), "VmRSS"), 0, 0, options["rate"]
    block, begun = copied(made), time.monotonic()
    while not stop.is_set():
        link.check()
        if rate and offered > rate * (time.monotonic() - begun):
            time.sleep(0.001)
            continue
        offered += n
        if uplink.offer(block, 0.0):
            taken += n
            uplink.executed(n)
            link.wake()
            block = copied(made)
        elif offered > TIMES * taken and not rate:
            time.sleep(0.001)
    actor = ActorConfig(outbox_bytes=options["outbox_bytes"], block_rows=n)
    bound = bound_of_actor(actor, options["network"], spec, lanes=1, weights=0)
    return {"offered": offered, "taken": taken, "base": base, "bound": bound.total}


def read(link: Link, feed: Feed, spec: TransitionSpec, options: dict[str, Any], stop: threading.Event) -> dict[str, float]:
    """Ask for as many batches as may be ahead, and take one now and then."""
    base, taken = counted(os.getpid(), "VmRSS"), 0
    feed.start_drawing()
    link.wake()
    while not stop.wait(TAKE_EVERY_S):
        link.check()
        taken += feed.get(0.0) is not None
        link.wake()
    learner = LearnerConfig(batch_size=options["rows"], prefetch_batches=options["prefetch"])
    bound = bound_of_learner(learner, options["network"], spec, rows=options["rows"], weights=0)
    return {"taken": taken, "base": base, "bound": bound.total}


def main(options: dict[str, Any]) -> dict[str, float]:
    """One client, until SIGTERM; what it met, with the most memory that it had at any time."""
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    options = {**options, "network": NetworkConfig(**options["network"])}
    spec, writes = lane_spec(image=options["image"]), options["role"] == "writer"
    uplink = Uplink(spec, Outbox(Memory(options.get("outbox_bytes", 0))), options["network"].fragment_bytes)
    feed = Feed(options["rows"], options.get("prefetch", 1), statistics=False)
    role: Role = uplink if writes else feed
    about = {"spec": spec.to_dict()} if writes else {}
    hello = new_hello("actor" if writes else "learner", options["name"], **about)
    link = Link(hello, role, options["endpoint"], options["network"], MonotonicClock())
    link.start()
    link.wait_welcome(WELCOME_S)
    Path(options["ready"]).touch()
    found = write(link, uplink, spec, options, stop) if writes else read(link, feed, spec, options, stop)
    hoard = bytearray(b"x") * options.get("hoard", 0)  # a planted fault: memory that no bound declares
    link.close(Goodbye(False, "measured"))
    del hoard
    return {**found, "peak": counted(os.getpid(), "VmHWM")}


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))))
