"""One buffer's service with its pool worker, run in one thread without sockets; time stands still unless moved."""

from __future__ import annotations

import numpy as np

from headrace.buffer.config import PoolConfig
from headrace.buffer.epochs import Epochs
from headrace.buffer.pacing import Pacing, PacingConfig
from headrace.buffer.pool import SACReplayPool
from headrace.buffer.service import Service
from headrace.buffer.shelf import Shelf
from headrace.buffer.status import Watch
from headrace.buffer.worker import PoolWorker
from headrace.common.block import Block
from headrace.common.specs import ActionSpec, ObsSpec, TransitionSpec
from headrace.common.wire import messages as m
from headrace.common.wire.codec import block_parts, decode, encode
from headrace.common.wire.fleet import Fleet
from headrace.common.wire.network import NetworkConfig

SPEC = TransitionSpec((ObsSpec("obs", (3,), "<f4"),), ActionSpec((1,), (-1.0,), (1.0,)))
NETWORK = NetworkConfig(lease_s=5.0, heartbeat_s=0.5)


class Buffer:
    """A service with its pool worker, run in one thread; time stands still unless moved."""

    def __init__(self, directory, sampling=None, network=NETWORK, **pacing):
        self.now = 100.0
        self.users = {}  # peer -> its public key
        config = PoolConfig(capacity=64, max_actors=2)
        rng = np.random.default_rng(0)

        def make(spec):
            return SACReplayPool(64, path=directory, spec=spec, config=config, sampling=sampling, rng=rng)

        pool = make(None) if (directory / "manifest.json").exists() else None
        self.worker = PoolWorker(pool, make, Shelf(directory))
        watch = Watch("run", self.now)
        for actor, streams in self.worker.streams().items():
            watch.record(actor).streams.update(streams)
        fleet = Fleet(Epochs(directory), lease_s=5.0, heartbeat_s=0.5, most=8)
        options = {"min_fill": 4, "env_steps": 1000, "random_steps": 0, "lead_steps": 16, **pacing}
        pacing_state = Pacing(PacingConfig(**options))
        self.service = Service(fleet, pacing_state, network, watch, self.worker.totals(), self.worker.shelf, most_actors=2)

    def say(self, peer, message, *frames):
        """Send one message; every answer to anybody, decoded, with its frames."""
        return self.raw(peer, [encode(message), *frames])

    def raw(self, peer, parts):
        out = self.service.receive(peer, parts, self.now, self.users.get(peer, "")) + self.service.reception.admit()
        while work := self.service.take_work():
            out += self.service.finish(*self.worker.run(work), self.now)
        return [(to, decode(parts[0]), list(parts[1:])) for to, parts in out]

    def tick(self, seconds):
        self.now += seconds
        return [(to, decode(parts[0])) for to, parts in self.service.tick(self.now)]

    def status(self):
        return self.service.watch.status(self.service, self.now)

    def actor(self, peer=b"A", identity="a", incarnation=b"1", spec=SPEC, pool=""):
        hello = m.Hello(1, "actor", identity, incarnation, "host", 7, spec.to_dict(), pool=pool)
        answers = self.say(peer, hello)
        if kinds(answers) == [m.Refused] and answers[0][1].reason == "opening":
            answers = self.say(peer, hello)
        return answers

    def learner(self, peer=b"L", incarnation=b"2"):
        return self.say(peer, m.Hello(1, "learner", "l", incarnation, "host", 8))

    def block(self, peer, seq, *times, stream=1, value=1.0, priorities=None, **labels):
        made = block(times, value, priorities)
        for name, label in labels.items():
            made.rows[name] = label
        head = m.BlockHead(stream, seq, made.n_rows, made.n_frames)
        return self.raw(peer, block_parts(head, made, SPEC))


class Busy:
    """A line on which bytes come all the time."""

    def quiet_s(self):
        return 0.0


def block(times, value=1.0, priorities=None):
    rows = np.zeros(len(times), SPEC.row_dtype)
    rows["t"], rows["steps"], rows["rewards"] = times, 1, value
    rows["obs"][:, 0], rows["next_obs"][:, 0] = np.arange(len(times)), np.arange(1, len(times) + 1)
    frames = np.zeros((len(times) + 1, 3), np.float32)
    frames[:, 2] = [*times, times[-1] + 1]
    return Block(rows, {"obs": frames}, None if priorities is None else np.array(priorities, np.float32))


def kinds(answers):
    return [type(a[1]) for a in answers]


def first(answers, kind):
    return next(a[1] for a in answers if isinstance(a[1], kind))
