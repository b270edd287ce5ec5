"""P11: who joins has the current weights at once, though the learner is idle, also from a buffer that was restarted."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from campaign.process import ProcessFailed
from campaign.promise import Outcome, Part, Promise, Trial, at_most, never, told
from helpers.roles import Roles, roles, scripted

from headrace.actor.outbox import Outbox
from headrace.actor.store import Memory
from headrace.actor.uplink import Uplink
from headrace.common.clock import MonotonicClock
from headrace.common.specs import ActionSpec, ObsSpec, TransitionSpec
from headrace.common.weights import Version
from headrace.common.wire.link import Link, new_hello
from headrace.common.wire.messages import Goodbye
from headrace.common.wire.network import NetworkConfig
from headrace.launch.chaos.canary import canary_weights
from headrace.learner.feed import Feed

SPEC = TransitionSpec((ObsSpec("obs", (3,), "<f4"),), ActionSpec((1,), (-1.0,), (1.0,)))
HIDDEN = (512, 512, 512)  # about 2 MB, which travel in parts
JOINS, QUICK_JOINS = 100, 6
RESTART_EVERY = 10
LATE_S, GIVEN_UP_S = 2.0, 20.0
STEP = 7


def joins(trial: Trial) -> Outcome:
    """One client after the other, at random times, and a SIGKILL of the buffer before every tenth."""
    place, waits = Path(trial.place), []
    with roles(place, scripted(pacing={"env_steps": 0}, network={})) as run:
        run.buffer()
        publish(run)
        for number in range(QUICK_JOINS if trial.quick else JOINS):
            if number % RESTART_EVERY == RESTART_EVERY - 1:
                run.kill("buffer")
                run.buffer()
                run.wait(lambda s: True, GIVEN_UP_S)
            time.sleep(float(trial.rng.uniform(0, 0.1)))
            waits.append(join(run.endpoint, f"joiner-{number % 4}"))
    late = sum(wait > LATE_S for wait in waits)
    p50, p99 = np.percentile(waits, (50, 99)).tolist()
    return Outcome({"late": late, "p50_s": p50, "p99_s": p99, "max_s": max(waits)})


def publish(run: Roles) -> None:
    """A learner publishes once, and leaves."""
    feed = Feed(32, 2, statistics=False)
    opener = Client(run.endpoint, "opener")  # an actor declares the spec
    link = Link(new_hello("learner", "idle"), feed, run.endpoint, NetworkConfig(), MonotonicClock())
    link.start()
    link.wait_welcome(GIVEN_UP_S)
    feed.publish(canary_weights(SPEC, "idle", feed.epoch, STEP, HIDDEN))
    link.wake()
    wait(lambda: run.status()["weights"]["step"] == STEP, "weights on the shelf")
    link.close(Goodbye(False, ""))
    opener.close()


def join(endpoint: str, name: str) -> float:
    """How long from the first dial to complete, verified weights (s)."""
    begun = time.monotonic()
    client = Client(endpoint, name)
    try:
        version = client.weights()
    finally:
        client.close()
    if version.step != STEP:
        raise ProcessFailed(f"{name} got version {version}, published was step {STEP}")
    return time.monotonic() - begun


class Client:
    """An actor without an env."""

    def __init__(self, endpoint: str, name: str) -> None:
        network = NetworkConfig()
        self._uplink = Uplink(SPEC, Outbox(Memory(1 << 20)), network.fragment_bytes)
        self._link = Link(new_hello("actor", name, spec=SPEC.to_dict()), self._uplink, endpoint, network, MonotonicClock())
        self._link.start()
        self._link.wait_welcome(GIVEN_UP_S)

    def weights(self) -> Version:
        """The version of the first weights that come."""
        taken: list[Any] = []

        def took() -> bool:
            self._link.check()
            self._uplink.wait(0.01)
            taken.append(self._uplink.take_weights())
            return taken[-1] is not None

        wait(took, "weights")
        version: Version = taken[-1].version
        return version

    def close(self) -> None:
        """Leave."""
        self._link.close(Goodbye(False, ""))


def wait(holds: Callable[[], bool], what: str) -> None:
    """Wait until something holds."""
    end = time.monotonic() + GIVEN_UP_S
    while not holds():
        if time.monotonic() > end:
            raise ProcessFailed(f"no {what} within {GIVEN_UP_S:g} s")


PROMISE = Promise(
    "P11",
    "Who joins has the current weights within 2 s, though the learner is idle, also after a restart of the buffer.",
    (Part("joins", 3, joins, (*never("late"), *at_most("max_s", LATE_S), *told("p50_s", "p99_s"))),),
)
