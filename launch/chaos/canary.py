"""The canary: a learner without torch. It learns nothing, has each sampled row prove itself, and publishes its own number.

Every tensor of update n is filled with n, so whoever acts with a mixture of two versions shows it.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from headrace.actor.policy import MlpLayout
from headrace.buffer.view import PoolView
from headrace.common.batch import PINNED, Batch
from headrace.common.clock import MonotonicClock
from headrace.common.errors import HeadraceError
from headrace.common.process import stop_on_signal, wait_welcome
from headrace.common.specs import SOURCE_DEMO, TransitionSpec
from headrace.common.weights import Version, WeightSet
from headrace.common.wire.codec import Frame, Parts, decode
from headrace.common.wire.messages import Goodbye, Message, Publish, Published, Welcome
from headrace.common.wire.network import NetworkConfig
from headrace.launch.chaos.history import History, own_path
from headrace.launch.exits import FAILED
from headrace.launch.leash import follow_parent
from headrace.launch.rundir import write_whole
from headrace.learner.feed import Feed
from headrace.learner.reach import Asks, Reach

LEARNED = "canary"  # kind of its histories
WAIT_S = 0.1
PUBLISH_S = 2.0


@dataclass(frozen=True)
class CanarySettings:
    """What a canary needs to know.

    Attributes:
        endpoint: where its buffer listens.
        network: leases and what travels compressed.
        batch_size: rows of a batch.
        identity: its id.
        publish_every: updates between two versions.
        publish_s: least time between two versions (s).
        period_s: least time between two updates (s).
        seconds: how long it learns at most.
        reading: ``mapped``, ``socket`` or ``auto``.
        history: directory for its history.
        memory: file that keeps the number of updates, so that the next process goes on from there.
        remember_s: how often it is written (s).
    """

    endpoint: str
    network: NetworkConfig
    batch_size: int
    identity: str = "canary"
    publish_every: int = 1
    publish_s: float = 0.0
    period_s: float = 0.0
    seconds: float = float("inf")
    reading: str = "auto"
    history: Path | None = None
    memory: Path | None = None
    remember_s: float = 1.0
    shards: tuple[str, ...] = ()


class WitnessFeed(Feed):
    """A feed that tells a history what it publishes, before it is sent, and what the shelf says of it."""

    def __init__(self, *args: Any, history: History, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._history = history

    def welcomed(self, welcome: Welcome) -> None:
        """Tell the epoch."""
        self._history.write("welcomed", welcome.epoch)
        super().welcomed(welcome)

    def received(self, message: Message, frames: list[Frame]) -> None:
        """Tell what became of a version."""
        if isinstance(message, Published):
            self._history.write("shelved", message.epoch, message.step, message.reason)
        super().received(message, frames)

    def outgoing(self, room: int) -> Iterable[Parts]:
        """Tell each version that leaves."""
        out = list(super().outgoing(room))
        for parts in out:
            head = decode(parts[0])
            if isinstance(head, Publish):
                self._history.write("published", head.epoch, head.step)
        return out


def mlp_description(spec: TransitionSpec, hidden: Sequence[int] = (8,)) -> dict[str, Any]:
    """The description that a learner publishes of an MLP over all keys of ``spec`` that an actor sees."""
    return {
        "type": "mlp",
        "keys": [o.key for o in spec.obs if o.role != "critic"],
        "hidden": list(hidden),
        "activation": "relu",
        "stack": spec.stack,
        "low": list(spec.action.low),
        "high": list(spec.action.high),
        "log_std": [-20, 2],
        "normalise": False,
    }


def canary_weights(spec: TransitionSpec, learner: str, epoch: int, step: int, hidden: Sequence[int] = (8,)) -> WeightSet:
    """An MLP policy whose every tensor is filled with ``step``."""
    policy = mlp_description(spec, hidden)
    tensors = {name: np.full(shape, step, np.float32) for name, shape in MlpLayout.of(policy, spec).shapes.items()}
    return WeightSet(Version(learner, epoch, step), policy, tensors)


def prove(batch: Batch, stack: int = 1) -> None:
    """Raise unless each row's observations are (actor, episode, t) of one episode, ``steps`` apart."""
    rows, obs, following = batch.rows, batch.obs["obs"], batch.next_obs["obs"]
    obs, following = (obs[:, -1], following[:, -1]) if stack > 1 else (obs, following)
    same = np.array_equal(obs[:, :2], following[:, :2]) and np.array_equal(obs[:, 1], rows["episode"])
    if not (same and np.array_equal(obs[:, 2], rows["t"]) and np.array_equal(following[:, 2], rows["t"] + rows["steps"])):
        raise AssertionError(f"a row does not prove itself: {obs[:4]} {following[:4]} {rows[:4]}")
    if not np.array_equal(batch.ids & PINNED != 0, rows["source"][:, 0] == SOURCE_DEMO):  # actors demonstrate nothing
        raise AssertionError(f"a demonstration is not a pinned row, or the other way round: {batch.ids[:4]} {rows[:4]}")


class Canary:
    """Draws, proves, counts and publishes over one link.

    Args:
        settings: what it needs to know.
    """

    def __init__(self, settings: CanarySettings) -> None:
        self._settings = settings
        history = None
        if settings.history is not None:
            history = History(own_path(settings.history, LEARNED, settings.identity), {"id": settings.identity})
        shards = (settings.endpoint, *settings.shards)
        asks = Asks(
            shards, settings.identity, 0, settings.batch_size, 8, settings.network, reading=settings.reading, open_view=PoolView
        )
        make: Callable[..., Feed] = Feed if history is None else partial(WitnessFeed, history=history)
        self._reach = Reach(asks, MonotonicClock(), make)
        self._feed = self._reach.feed
        self._history = history
        self._due = time.monotonic()
        self.step = self._remembered()

    def run(self) -> int:
        """Learn until the buffer or a signal says stop; the number of updates."""
        stop = stop_on_signal()
        self._reach.start()
        done = False
        try:
            welcome = wait_welcome(self._reach.link, stop, self._settings.network.connect_s, MonotonicClock())
            if welcome is not None:
                spec = TransitionSpec.from_dict(welcome.spec)
                self._publish(spec)
                self._feed.start_drawing()
                while not stop.is_set() and self._learn(spec):
                    pass
                done = self._feed.stop is not None and self._feed.stop.done
                self._feed.wait_published(PUBLISH_S)
        finally:
            self._reach.close(Goodbye(done, ""))
        self._remember()
        return self.step

    def _learn(self, spec: TransitionSpec) -> bool:
        """Prove what has come within a short time; whether there is more to do."""
        settings, now = self._settings, time.monotonic()
        self._reach.check()
        batches = self._feed.get(WAIT_S)
        if self._feed.must_draw:
            self._reach.wake()
        for batch in batches or ():
            try:
                prove(batch, spec.stack)
            except AssertionError as error:
                if self._history is not None:
                    self._history.write("unproved", str(error))
                raise
        if batches is not None:
            self.step += 1
            self._due = max(self._due + settings.period_s, now)
            time.sleep(self._due - now)
        if batches is not None and self.step % settings.publish_every == 0 and now >= self._published_at + settings.publish_s:
            self._publish(spec)
        if now >= self._remembered_at + settings.remember_s:
            self._remember()
        return now < self._begun + settings.seconds and (batches is not None or self._feed.stop is None)

    def _publish(self, spec: TransitionSpec) -> None:
        self._published_at = time.monotonic()
        self._feed.publish(canary_weights(spec, self._settings.identity, self._feed.epoch, self.step))
        self._reach.wake()

    def _remembered(self) -> int:
        self._begun = self._remembered_at = self._published_at = time.monotonic()
        memory = self._settings.memory
        return int(json.loads(memory.read_text())) if memory is not None and memory.exists() else 0

    def _remember(self) -> None:
        self._remembered_at = time.monotonic()
        if self._settings.memory is not None:
            write_whole(self._settings.memory, json.dumps(self.step))


def main(words: Sequence[str] | None = None) -> int:
    """``python -m headrace.launch.chaos.canary ENDPOINT``: the last line printed is the number of updates."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("endpoint", help="where the buffer listens, tcp://HOST:PORT")
    parser.add_argument("--shard", action="append", default=[], help="where a further shard listens, once for each")
    parser.add_argument("--id", default="canary", help="its name (text)")
    parser.add_argument("--batch-size", type=int, default=64, help="rows of a batch (count)")
    parser.add_argument("--publish-every", type=int, default=1, help="updates between two versions (count)")
    parser.add_argument("--publish-s", type=float, default=0.0, help="least time between two versions (s)")
    parser.add_argument("--period-s", type=float, default=0.0, help="least time between two updates (s)")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="how long at most (s)")
    parser.add_argument("--reading", default="auto", help="mapped, socket or auto")
    parser.add_argument("--compression", default="none", help="none or zlib")
    parser.add_argument("--keys", default="", help="network.keys (path)")
    parser.add_argument("--heartbeat", type=float, default=0.5, help="network.heartbeat_s (s)")
    parser.add_argument("--lease", type=float, default=5.0, help="network.lease_s (s)")
    parser.add_argument("--history", type=Path, help="directory for its history (path)")
    parser.add_argument("--memory", type=Path, help="file that keeps the number of updates (path)")
    args = parser.parse_args(words)
    network = NetworkConfig(keys=args.keys, compression=args.compression, heartbeat_s=args.heartbeat, lease_s=args.lease)
    settings = CanarySettings(
        args.endpoint,
        network,
        args.batch_size,
        args.id,
        args.publish_every,
        args.publish_s,
        args.period_s,
        args.seconds,
        args.reading,
        args.history,
        args.memory,
        shards=tuple(args.shard),
    )
    follow_parent()
    try:
        print(Canary(settings).run())
    except HeadraceError as error:
        print(f"headrace canary: error: {' '.join(str(error).split())}", file=sys.stderr)
        return FAILED
    return 0


if __name__ == "__main__":
    sys.exit(main())
