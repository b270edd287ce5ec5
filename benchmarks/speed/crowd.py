"""Many actors of the wire in one process and one thread, without env and policy; ``children.py`` says how it is asked.

Each has a session, an uplink and a connection of its own, as in a process of its own; only the waiting is shared.
"""

from __future__ import annotations

import heapq
import json
import select
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import zmq

from headrace.actor.outbox import Outbox
from headrace.actor.store import Memory
from headrace.actor.uplink import Uplink
from headrace.common.block import Block
from headrace.common.clock import MonotonicClock
from headrace.common.limits import raise_open_files
from headrace.common.wire.conversation import Conversation
from headrace.common.wire.dialled import Dialled
from headrace.common.wire.link import new_hello
from headrace.common.wire.messages import BUFFER
from headrace.common.wire.network import NetworkConfig
from headrace.common.wire.session import Phase
from speed import data
from speed.children import answer_windows

OUTBOX_BYTES = 64 << 10
MOST_WAIT_S = 0.2
LEAST_WAIT_S = 0.1  # while nobody listens a client tries again each 20 ms, which a thousand on one host must not
Options = dict[str, Any]


@dataclass
class Seen:
    """What the sessions of one process met in a window; times are those of the host's monotonic clock.

    Attributes:
        blocks, rows: acknowledged.
        heard: sessions of which something was.
        waits: seconds from each offer to its acknowledgement.
        lost: sessions that ended by themselves, each time.
        back: when the last of them had a new one.
        acked: name -> when the first acknowledgement came since its session was lost.
        weights: version -> how many have it, and when the last one got it.
    """

    blocks: int = 0
    rows: int = 0
    heard: set[str] = field(default_factory=set)
    waits: list[float] = field(default_factory=list)
    lost: int = 0
    back: float = 0.0
    acked: dict[str, float] = field(default_factory=dict)
    weights: dict[int, tuple[int, float]] = field(default_factory=dict)


class Player:
    """One actor: it offers a block, waits until that is acknowledged, and for the rest of its period, and offers the next.

    Args:
        name: its id.
        options: ``endpoint``, ``network``, ``period_s`` between two blocks (negative: none are offered).
        block: that it offers.
        offset_s: by which its first block is late.
        context: of all.
    """

    def __init__(
        self, name: str, options: Options, block: Block, offset_s: float, context: zmq.Context[zmq.Socket[bytes]]
    ) -> None:
        network = NetworkConfig(**options["network"])
        self.name, self._block, self._period_s = name, block, options["period_s"]
        self._uplink = Uplink(data.FLAT, Outbox(Memory(OUTBOX_BYTES)), network.fragment_bytes)
        hello = new_hello("actor", name, spec=data.FLAT.to_dict())
        self._talk = Conversation(hello, self._uplink, options["endpoint"], network, MonotonicClock(), BUFFER, zero_copy=True)
        self._connection = Dialled(options["endpoint"], network, None, context)
        self._offered_at = self._offer_at = time.monotonic() + offset_s
        self._waits = self._was_live = self._was_lost = False
        self.acknowledged = 0  # rows, of all times

    @property
    def fd(self) -> int:
        """Becomes readable once when something happens, and not again until all of it was taken."""
        return int(self._connection.socket.getsockopt(zmq.FD))

    @property
    def live(self) -> bool:
        """Whether it has a session."""
        return self._talk.session.phase is Phase.LIVE

    def turn(self, seen: Seen) -> float:
        """Do what is to be done; when to come again if nothing happens."""
        while True:
            self._talk.hear(self._connection.socket)
            now = time.monotonic()
            self._look(now, seen)
            due = self._talk.speak(self._connection)
            if failure := self._talk.session.failure:
                raise failure
            if not self._talk.hear(self._connection.socket):
                break
            self._look(time.monotonic(), seen)
        if not self._waits and self._period_s >= 0:
            due = min(due, self._offer_at - now)
        return now + max(LEAST_WAIT_S, due)

    def _look(self, now: float, seen: Seen) -> None:
        if self._was_live != self.live:
            self._was_live = self.live
            if self.live:
                seen.back = now
            else:
                seen.lost += 1
                self._was_lost = True
        if (taken := self._uplink.take_weights()) is not None:
            count, _ = seen.weights.get(taken.version.step, (0, 0.0))
            seen.weights[taken.version.step] = count + 1, now
            self._uplink.applied(taken.version)
        if self._waits and not self._uplink.unacknowledged:
            self._waits = False
            seen.blocks, seen.rows = seen.blocks + 1, seen.rows + self._block.n_rows
            seen.waits.append(now - self._offered_at)
            seen.heard.add(self.name)
            self.acknowledged += self._block.n_rows
            if self._was_lost and self.live:
                self._was_lost = False
                seen.acked[self.name] = now
        if not self._waits and self._period_s >= 0 and now >= self._offer_at:
            self._uplink.offer(self._block, 0.0)
            self._uplink.executed(self._block.n_rows)
            self._waits, self._offered_at, self._offer_at = True, now, max(self._offer_at + self._period_s, now)


class Crowd:
    """Players, and the thread that lets each have its turn.

    Attributes:
        seen: since :meth:`begin`.
    """

    def __init__(self, options: Options) -> None:
        raise_open_files()
        rng = np.random.default_rng(options["first"])
        block, count = data.block(data.FLAT, options["rows"], rng), options["sessions"]
        spread = max(0.0, options["period_s"]) / count
        names = range(options["first"], options["first"] + count)
        context = zmq.Context()
        context.set(zmq.MAX_SOCKETS, 4 * count + 64)  # each has two that watch its connection
        self._players = [Player(f"actor-{n:05}", options, block, i * spread, context) for i, n in enumerate(names)]
        self._poll = select.epoll()
        self._by_fd = {player.fd: n for n, player in enumerate(self._players)}
        for fd in self._by_fd:
            self._poll.register(fd, select.EPOLLIN | select.EPOLLET)
        self.seen = Seen()
        self.failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def live(self) -> int:
        """Sessions."""
        return sum(player.live for player in self._players)

    @property
    def acknowledged(self) -> int:
        """Rows, of all times."""
        return sum(player.acknowledged for player in self._players)

    def begin(self) -> Seen:
        """Count anew; what was counted so far."""
        seen, self.seen = self.seen, Seen()
        return seen

    def _run(self) -> None:
        try:
            due = [0.0] * len(self._players)
            heap = [(0.0, n) for n in range(len(self._players))]
            while True:
                for n in {*self._ready(heap), *self._past(heap, due)}:
                    due[n] = self._players[n].turn(self.seen)
                    heapq.heappush(heap, (due[n], n))
        except BaseException as error:
            self.failure = error
            raise

    def _ready(self, heap: list[tuple[float, int]]) -> Iterator[int]:
        wait = min(MOST_WAIT_S, max(0.0, heap[0][0] - time.monotonic())) if heap else MOST_WAIT_S
        return (self._by_fd[fd] for fd, _ in self._poll.poll(wait))

    @staticmethod
    def _past(heap: list[tuple[float, int]], due: list[float]) -> Iterator[int]:
        now = time.monotonic()
        while heap and heap[0][0] <= now:
            at, n = heapq.heappop(heap)
            if at == due[n]:  # else it had its turn meanwhile, and has another time
                yield n


def main(options: Options) -> None:
    """A crowd, from when all have a session."""
    crowd = Crowd(options)
    while crowd.live < options["sessions"]:
        if crowd.failure is not None:
            raise crowd.failure
        time.sleep(0.01)

    def window(seconds: float) -> Options:
        crowd.begin()
        time.sleep(seconds)
        live, acknowledged, seen = crowd.live, crowd.acknowledged, crowd.begin()
        if crowd.failure is not None:
            raise crowd.failure
        p50, p99 = np.quantile(seen.waits, (0.5, 0.99)).tolist() if seen.waits else (0.0, 0.0)
        acks = {"blocks": seen.blocks, "ack_p50_s": p50, "ack_p99_s": p99, "heard": len(seen.heard)}
        lost = {"lost": seen.lost, "back_at": seen.back, "acked": len(seen.acked)}
        lost["acked_at"] = max(seen.acked.values(), default=0.0)
        rows = {"rate": seen.rows / seconds, "acknowledged": acknowledged}
        return {**rows, "live": live, **acks, **lost, "weights": seen.weights}

    with suppress(BrokenPipeError):
        answer_windows(window, {"sessions": options["sessions"]})


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
