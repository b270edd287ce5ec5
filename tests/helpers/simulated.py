"""A whole run without sockets, processes or time: service, pool, actors and a learner, moved by a virtual clock."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from headrace.actor.assembler import Assembler
from headrace.actor.outbox import Outbox
from headrace.actor.store import Memory
from headrace.actor.uplink import Uplink
from headrace.buffer.epochs import Epochs
from headrace.buffer.live import Live
from headrace.buffer.pacing import Pacing
from headrace.buffer.pool import SACReplayPool
from headrace.buffer.satellites import Satellites
from headrace.buffer.service import Service
from headrace.buffer.shelf import Shelf
from headrace.buffer.status import Watch
from headrace.buffer.worker import PoolWorker
from headrace.common.specs import ActionSpec, ObsSpec, TransitionSpec
from headrace.common.weights import NO_VERSION
from headrace.common.wire import messages as m
from headrace.common.wire.codec import decode, encode
from headrace.common.wire.fleet import Fleet
from headrace.common.wire.link import new_hello
from headrace.common.wire.network import NetworkConfig
from headrace.launch.config import RunConfig
from headrace.learner.feed import Feed

NETWORK = NetworkConfig(lease_s=2.0, heartbeat_s=0.2)
ROUND_S = 0.05
LENGTHS = (5, 1, 9)


def run_spec(config: RunConfig) -> TransitionSpec:
    """Frames that say (actor, episode, t), in the windows of the config."""
    window = config.window
    return TransitionSpec(
        (ObsSpec("obs", (3,), "<f4"),), ActionSpec((1,), (-1.0,), (1.0,)), window.n_step, "steps", window.stack
    )


@dataclass
class Actor:
    """One actor process: scripted lanes behind the real assembler and uplink, gated as ``ActorLoop`` is.

    Attributes:
        speed: vector steps a round, at most; below 1 every so many rounds.
        executed: env steps.
        heard: whether it answers; a deaf one is what a killed process looks like to the buffer.
    """

    name: str
    number: int
    config: RunConfig
    speed: float = 8.0
    robot: bool = False
    heard: bool = True
    executed: int = 0
    _energy: float = 0.0
    _cut: bool = False
    _resetting: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        spec, lanes = run_spec(self.config), self.config.env.lanes
        self.peer = self.name.encode()
        self.hello = new_hello("actor", self.name, spec=spec.to_dict(), lanes=lanes, robot=self.robot)
        self.role = Uplink(spec, Outbox(Memory(1 << 20)), 1 << 16)
        self._lanes = [Assembler(spec) for _ in range(lanes)]
        self._episode = list(range(lanes))
        self._t = [0] * lanes
        for lane in range(lanes):
            self._begin(lane)

    def _obs(self, lane: int) -> dict[str, np.ndarray]:
        return {"obs": np.array([self.number, self._episode[lane], self._t[lane]], np.float32)}

    def _begin(self, lane: int) -> None:
        self._t[lane] = 0
        self._lanes[lane].begin(self._episode[lane], self._obs(lane))

    def act(self) -> None:
        """Step as far as speed and allowance go; what is ready leaves."""
        self._energy = min(self.speed, self._energy + self.speed) if self.speed >= 1 else self._energy + self.speed
        while self._energy >= 1 and self.role.stop is None and self.role.steps < self.role.allowance.granted:
            if self._cut:
                for lane in range(len(self._lanes)):
                    self._next(lane)
                self._cut = False
            self._energy -= 1
            for lane in range(len(self._lanes)):
                self._step(lane)
            self._flush(self.config.actor.block_rows)
        ends = self.role.stop is not None or (self.role.steps >= self.role.allowance.granted and self.role.allowance.final)
        if ends and not self._cut:
            for assembler in self._lanes:
                assembler.abort()
            self._cut = True
        self._flush(1)

    def _step(self, lane: int) -> None:
        if lane in self._resetting:  # as next_step autoreset does: this step is the reset
            self._resetting.discard(lane)
            return
        length = LENGTHS[self._episode[lane] % len(LENGTHS)]
        reward = float(self._t[lane])
        self._t[lane] += 1
        ends = self._t[lane] == length
        self._lanes[lane].step(np.zeros(1, np.float32), reward, ends, False, self._obs(lane), version=NO_VERSION)
        self.role.executed(1)
        self.executed += 1
        if ends:
            self._next(lane)
            self._resetting.add(lane)

    def _next(self, lane: int) -> None:
        self._episode[lane] += len(self._lanes)
        self._begin(lane)

    def _flush(self, least: int) -> None:
        for assembler in self._lanes:
            while assembler.ready >= least:
                block = assembler.take(self.config.actor.block_rows)
                if block is None:
                    break
                self.role.offer(block, 0.0)


@dataclass
class Learner:
    """A learner that takes batches and learns nothing."""

    config: RunConfig
    speed: float = 8.0
    heard: bool = True
    made: int = 0
    _energy: float = 0.0
    left: bool = False

    def __post_init__(self) -> None:
        self.peer, self.hello = b"learner", new_hello("learner", "learner")
        self.role = Feed(self.config.learner.batch_size, 4, statistics=False)
        self.role.start_drawing()

    def act(self) -> None:
        """Make updates as far as speed and batches go."""
        self._energy = min(max(1.0, self.speed), self._energy + self.speed)
        while self._energy >= 1 and (batches := self.role.get(0.0)) is not None:
            assert all(len(set(b.ids.tolist())) == self.config.learner.batch_size for b in batches)
            self._energy -= 1
            self.made += 1


class Run:
    """One run: :meth:`round` moves everything on by 50 ms."""

    def __init__(self, config: RunConfig, directory: Path, past_rows: int = 0) -> None:
        self.config, self.now, spec = config, 100.0, run_spec(config)
        rng = np.random.default_rng(0)

        def make(spec: TransitionSpec) -> SACReplayPool:
            return SACReplayPool(config.pool.capacity, spec=spec, config=config.pool, rng=rng)

        pool = None
        if past_rows:
            pool = make(spec)
            pool.adopt(past_pool(config, past_rows))
        self.worker = PoolWorker(pool, make, Shelf(directory))
        fleet = Fleet(Epochs(directory), lease_s=NETWORK.lease_s, heartbeat_s=NETWORK.heartbeat_s, most=256)
        self.pacing = self.make_pacing(config)
        watch, totals = Watch("run", self.now), self.worker.totals()
        live, satellites = Live(self.pacing), Satellites(self.pacing, directory)
        parts = fleet, self.pacing, NETWORK, watch, totals, self.worker.shelf, config.pool.max_actors, live, satellites
        self.service = self.make_service(*parts)
        self.clients: dict[bytes, Any] = {}  # actors, learners, further shards
        self._live: set[bytes] = set()
        self._rounds = 0

    def make_pacing(self, config: RunConfig) -> Pacing:
        """Of this buffer."""
        return Pacing(config.pacing)

    def make_service(self, *parts: Any) -> Service:
        """Of this buffer."""
        return Service(*parts)

    def add(self, client: Any) -> Any:
        """Let a process join; one under the same name replaces it."""
        self.clients[client.peer] = client
        self._live.discard(client.peer)
        return client

    def round(self) -> None:
        """Everybody acts once, and says what there is to say."""
        self.now += ROUND_S
        self._rounds += 1
        for peer, client in list(self.clients.items()):
            if not client.heard:
                continue
            if peer not in self._live:
                executed, pending = client.role.position()
                hello = {**vars(client.hello), "executed": executed, "pending": pending}
                self._say(peer, [encode(m.Hello(**hello))])
                continue
            client.act()
            for parts in client.role.outgoing(1 << 30):
                self._say(peer, parts)
            if self._rounds % 4 == 0:
                self._say(peer, [encode(client.role.pulse())])
            if isinstance(client, Learner) and client.role.stop is not None and not client.left:
                client.left = True
                self._say(peer, [encode(m.Goodbye(client.role.stop.done))])
                del self.clients[peer]
        self._deliver(self.service.tick(self.now))
        self._work()

    def finish(self, rounds: int) -> str:
        """Go on until the run is done, at most so many rounds; the last phase."""
        for _ in range(rounds):
            if self.service.phase == "done":
                break
            self.round()
        return self.service.phase

    def _say(self, peer: bytes, parts: list) -> None:
        self._deliver(self.service.receive(peer, parts, self.now) + self.service.reception.admit())
        self._work()

    def _work(self) -> None:
        while work := self.service.take_work():
            self._deliver(self.service.finish(*self.worker.run(work), self.now))

    def _deliver(self, out: list) -> None:
        for peer, parts in out:
            client = self.clients.get(peer)
            if client is None or not client.heard:
                continue
            message, frames = decode(parts[0]), [memoryview(bytes(f)) for f in parts[1:]]
            if isinstance(message, m.Welcome):
                self._live.add(peer)
                client.role.welcomed(message)
            elif isinstance(message, m.Refused):
                self._live.discard(peer)
                assert message.retry_s > 0, message
            else:
                client.role.received(message, frames)


def past_pool(config: RunConfig, rows: int) -> SACReplayPool:
    """An older pool of so many rows."""
    spec = run_spec(config)
    lane, pool = Assembler(spec), SACReplayPool(rows, spec=spec)
    lane.begin(0, {"obs": np.array([9, 0, 0], np.float32)})
    for t in range(rows):
        obs = {"obs": np.array([9, 0, t + 1], np.float32)}
        lane.step(np.zeros(1, np.float32), float(t), t == rows - 1, False, obs, version=NO_VERSION)
    while (block := lane.take(64)) is not None:
        pool.insert(block, "actor-0", 1, pool.last_seq("actor-0", 1) + 1)
    return pool
