"""An actor of the wire in this process, without env and policy: rows that prove themselves, labels aside."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from helpers.serving import SPEC, block

from headrace.actor.outbox import Outbox
from headrace.actor.store import Memory
from headrace.actor.uplink import Uplink
from headrace.common.clock import MonotonicClock
from headrace.common.errors import DeadlineExceeded
from headrace.common.weights import Version
from headrace.common.wire.link import Link, new_hello
from headrace.common.wire.messages import Goodbye
from headrace.common.wire.network import NetworkConfig

WAIT_S = 20.0
NETWORK = NetworkConfig(heartbeat_s=0.1, lease_s=1.0, fragment_bytes=4096)  # a message has at most some 30 rows


class WireActor:
    """Rows ``t = 0, 1, 2, ...`` of one endless episode; as a context it leaves at the end.

    Args:
        endpoint: of the buffer, or of a proxy before it.
        name: the actor's id.
        outbox_bytes: bound on what is not acknowledged.
        network: limits and times; as it comes, such that there are many messages.
    """

    def __init__(self, endpoint: str, name: str, outbox_bytes: int = 1 << 20, network: NetworkConfig | None = None) -> None:
        network = network or NETWORK
        self.uplink = Uplink(SPEC, Outbox(Memory(outbox_bytes)), network.fragment_bytes)
        self.link = Link(new_hello("actor", name, spec=SPEC.to_dict()), self.uplink, endpoint, network, MonotonicClock())
        self.link.start()
        self.offered = 0

    def __enter__(self) -> WireActor:
        self.welcomed()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def welcomed(self) -> None:
        """Wait for the session."""
        self.link.wait_welcome(WAIT_S)

    def offer(self, rows: int, timeout_s: float = WAIT_S) -> bool:
        """Hand over the next rows as one block; false when there was no room for them."""
        times = range(self.offered, self.offered + rows)
        if not self.uplink.offer(block(times), timeout_s):
            return False
        self.uplink.executed(rows)
        self.offered += rows
        self.link.wake()
        return True

    def drained(self) -> None:
        """Wait until everything is acknowledged."""
        self.until(lambda: not self.uplink.unacknowledged, "acknowledgement of everything")

    def weights(self) -> Version:
        """Wait for weights that were not taken yet; their version."""
        taken: list[Any] = []

        def took() -> bool:
            taken.append(self.uplink.take_weights())
            return taken[-1] is not None

        self.until(took, "weights")
        version: Version = taken[-1].version
        return version

    def until(self, holds: Callable[[], bool], what: str, deadline_s: float = WAIT_S) -> None:
        """Wait until something holds; what ended the link is raised."""
        end = time.monotonic() + deadline_s
        while not holds():
            self.link.check()
            if time.monotonic() > end:
                raise DeadlineExceeded(f"no {what} within {deadline_s:g} s: {self.link.session.waiting}")
            self.uplink.wait(0.01)

    def close(self) -> None:
        """Leave."""
        self.link.close(Goodbye(False, ""))
