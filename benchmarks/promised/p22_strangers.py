"""P22: a buffer with keys, an honest actor, and whoever has no key, a revoked one, or one of another role or id.

Hostile bytes of peers that are known are in hostile.py beside this.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import zmq
from campaign.intruders import ACTOR, ATTACKS, OTHER, attack, make_keys, sabotaged, unaccounted
from campaign.promise import Outcome, Part, Promise, Trial, at_least, at_most, never, told
from speed import data
from speed.children import Child, ChildFailed

from headrace.actor.outbox import Outbox
from headrace.actor.store import Memory
from headrace.actor.uplink import Uplink
from headrace.buffer.query import Observer
from headrace.common.clock import MonotonicClock
from headrace.common.errors import SessionRefused
from headrace.common.wire.key_files import KeyFiles
from headrace.common.wire.link import Link, new_hello
from headrace.common.wire.messages import Goodbye
from headrace.common.wire.network import NetworkConfig
from promised.hostile import HOSTILE

RATE, BLOCK = 5000, 25  # rows a second of an honest actor, and rows of a block
PHASE_S, QUICK_S = 12.0, 2.0
WAIT_S, ANSWER_S, LOOK_S = 20.0, 5.0, 0.002


class Honest:
    """An actor that writes ``RATE`` rows a second on a thread of its own.

    Attributes:
        acked: rows acknowledged.
        last_ack: when the last of them was (monotonic).
        refused: when its link was turned away; 0 before.
    """

    def __init__(self, name: str, endpoint: str, network: NetworkConfig) -> None:
        self._uplink = Uplink(data.FLAT, Outbox(Memory(4 << 20)), network.fragment_bytes)
        self._link = Link(new_hello("actor", name, spec=data.FLAT.to_dict()), self._uplink, endpoint, network, MonotonicClock())
        self._block = data.block(data.FLAT, BLOCK, np.random.default_rng(0))
        self._stop = threading.Event()
        self.acked, self.last_ack, self.refused = 0, 0.0, 0.0
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._link.start()
        self._link.wait_welcome(WAIT_S)
        self._thread.start()

    def _run(self) -> None:
        due = time.monotonic()
        while not self._stop.wait(LOOK_S):
            now = time.monotonic()
            while due <= now and self._uplink.offer(self._block, 0.0):
                self._uplink.executed(BLOCK)
                due += BLOCK / RATE
            self._link.wake()
            executed, pending = self._uplink.position()
            if executed - pending > self.acked:
                self.acked, self.last_ack = executed - pending, time.monotonic()
            try:
                self._link.check()
            except SessionRefused:
                self.refused = time.monotonic()
                return

    def rate(self, during: Callable[[], object]) -> float:
        """Acknowledged rows a second while something is done."""
        begun, acked = time.monotonic(), self.acked
        during()
        return (self.acked - acked) / (time.monotonic() - begun)

    def close(self) -> None:
        """Leave."""
        self._stop.set()
        self._thread.join()
        self._link.close(Goodbye(False, "measured"))


class Guarded:
    """A buffer with keys, the honest actor, and an observer."""

    def __init__(self, place: Path, stack: ExitStack) -> None:
        self.files = KeyFiles(place / "keys")
        self.secrets = make_keys(self.files)
        options = {"role": "buffer", "place": str(place), "capacity": 100_000, "block": 1, "keys": str(self.files.path)}
        self.buffer: Child = stack.enter_context(Child("ours.py", options))
        self.endpoint: str = self.buffer.ready["endpoint"]
        self.network = NetworkConfig(keys=str(self.files.path))
        self._observer = Observer(self.endpoint, self.network)
        stack.callback(self._observer.close)
        self.honest = stack.enter_context(self.actor(ACTOR))

    @contextlib.contextmanager
    def actor(self, name: str) -> Iterator[Honest]:
        """An actor that writes."""
        made = Honest(name, self.endpoint, self.network)
        try:
            wait(lambda: made.acked > RATE // 10, f"acknowledged rows of {name}")
            yield made
        finally:
            made.close()

    def status(self) -> dict[str, Any]:
        """Of the buffer."""
        return self._observer.status(ANSWER_S)

    def died(self) -> bool:
        """Whether the buffer does not answer any more."""
        try:
            self.buffer.window(0.01)
        except (ChildFailed, OSError):
            return True
        return False


def wait(holds: Callable[[], bool], what: str) -> None:
    """Wait until something holds; raises :class:`AssertionError`."""
    end = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < end, f"no {what} within {WAIT_S:g} s"
        time.sleep(0.005)


def strangers(trial: Trial) -> Outcome:
    """Quiet, every attack again and again, quiet: what was accepted, and what the honest actor lost by it."""
    seconds = QUICK_S if trial.quick else PHASE_S
    with ExitStack() as stack:
        here = Guarded(trial.place, stack)
        context = stack.enter_context(zmq.Context())
        before, taken = here.status(), []

        def attacks() -> None:
            end = time.monotonic() + seconds
            while time.monotonic() < end or len(taken) < len(ATTACKS):
                for index in trial.rng.permutation(len(ATTACKS)):
                    what = ATTACKS[index]
                    taken.append(attack(context, here.endpoint, here.secrets[what.key], what))

        quiet = here.honest.rate(lambda: time.sleep(seconds / 2))
        attacked = here.honest.rate(attacks)
        quiet = (quiet + here.honest.rate(lambda: time.sleep(seconds / 2))) / 2
        problems = unaccounted(before, here.status())
        deaths = int(here.died())
    share = attacked / quiet
    figures = {"attacks": len(taken), "accepted": sum(taken), "deaths": deaths, "honest_share": share, "honest_rows_s": quiet}
    return Outcome(figures, tuple(problems))


def revocation(trial: Trial) -> Outcome:
    """The time from a revocation to the end of all that its key can do, while it writes."""
    with ExitStack() as stack:
        here = Guarded(trial.place, stack)
        with here.actor(OTHER) as victim:
            time.sleep(float(trial.rng.uniform(0, 0.5)))  # at any time between two looks at the directory
            here.files.revoke(OTHER)
            begun = time.monotonic()
            wait(lambda: victim.refused > 0, "end of the session")
            wait(lambda: OTHER not in [a["id"] for a in here.status()["actors"]], "end of the session in the status")
            ended_s = max(victim.refused, victim.last_ack) - begun
        honest = here.honest.acked
        wait(lambda: here.honest.acked > honest + RATE // 10, "rows of the other actor")
        with zmq.Context() as context:
            again = attack(context, here.endpoint, here.secrets[OTHER], ATTACKS[0])
    return Outcome({"revoked_s": ended_s, "let_in_again": again})


def control(place: Path) -> Mapping[str, bool]:
    """The same attacks on a buffer without keys: each that takes somebody's place must be seen to succeed."""
    with ExitStack() as stack:
        buffer = stack.enter_context(Child("ours.py", {"role": "buffer", "place": str(place), "capacity": 100_000, "block": 1}))
        context = stack.enter_context(zmq.Context())
        found = {a.name: attack(context, buffer.ready["endpoint"], None, a) > 0 for a in sabotaged(ATTACKS)}
    return found


PROMISE = Promise(
    "P22",
    "Only known keys get in, each as its own role and id alone; a revoked one is out at once; hostile input harms nobody.",
    (
        Part(
            "strangers",
            20,
            strangers,
            (*never("accepted", "deaths"), *at_least("honest_share", 0.9), *told("attacks", "honest_rows_s")),
            control=control,
        ),
        Part("revocation", 20, revocation, (*at_most("revoked_s", 2.0), *never("let_in_again"))),
        *HOSTILE,
    ),
)
