"""A learner stand-in without torch: draws batches whose rows must prove themselves and publishes its version."""

from __future__ import annotations

import sys
import time

import numpy as np
from helpers.weights import mlp_description

from headrace.actor.policy import MlpLayout
from headrace.buffer.handles import PINNED
from headrace.buffer.view import PoolView
from headrace.common.clock import MonotonicClock
from headrace.common.specs import SOURCE_DEMO, TransitionSpec
from headrace.common.weights import Version, WeightSet
from headrace.common.wire.link import Link, new_hello
from headrace.common.wire.messages import Goodbye
from headrace.common.wire.network import NetworkConfig
from headrace.learner.feed import Feed
from headrace.learner.gatherer import Gatherer


def canary_weights(spec: TransitionSpec, learner: str, epoch: int, step: int) -> WeightSet:
    """A one-layer MLP policy whose every tensor is filled with ``step``."""
    policy = mlp_description(spec, hidden=[8])
    tensors = {name: np.full(shape, step, np.float32) for name, shape in MlpLayout.of(policy, spec).shapes.items()}
    return WeightSet(Version(learner, epoch, step), policy, tensors)


def prove(batch: object, stack: int = 1) -> None:
    """Raise unless each row's observations are (actor, episode, t) of one episode, ``steps`` apart."""
    rows, obs, following = batch.rows, batch.obs["obs"], batch.next_obs["obs"]
    obs, following = (obs[:, -1], following[:, -1]) if stack > 1 else (obs, following)
    same = np.array_equal(obs[:, :2], following[:, :2]) and np.array_equal(obs[:, 1], rows["episode"])
    if not (same and np.array_equal(obs[:, 2], rows["t"]) and np.array_equal(following[:, 2], rows["t"] + rows["steps"])):
        raise AssertionError(f"a row does not prove itself: {obs[:4]} {following[:4]} {rows[:4]}")
    if not np.array_equal(batch.ids >= PINNED, rows["source"][:, 0] == SOURCE_DEMO):  # actors demonstrate nothing
        raise AssertionError(f"a demonstration is not a pinned row, or the other way round: {batch.ids[:4]} {rows[:4]}")


def run(
    endpoint: str, batch_size: int, publish_every: int, seconds: float, reading: str = "auto", compression: str = "none"
) -> int:
    """Learn nothing until the buffer says stop; the number of batches taken."""
    feed = Feed(batch_size, 8, statistics=False, reading=reading, open_view=PoolView)
    network = NetworkConfig(compression=compression)
    link = Link(new_hello("learner", "canary"), feed, endpoint, network, MonotonicClock())
    gatherer = Gatherer(feed, link.wake)
    gatherer.start()
    link.start()
    spec = TransitionSpec.from_dict(link.wait_welcome(60).spec)
    feed.publish(canary_weights(spec, "canary", feed.epoch, 0))
    link.wake()
    feed.start_drawing()
    step, end = 0, time.monotonic() + seconds
    while time.monotonic() < end:
        link.check()
        batches = feed.get(0.1)
        if feed.must_draw:
            link.wake()
        if batches is None:
            if feed.stop is not None:
                break
            continue
        for batch in batches:
            prove(batch, spec.stack)
        step += 1
        if step % publish_every == 0:
            feed.publish(canary_weights(spec, "canary", feed.epoch, step))
            link.wake()
    done = feed.stop is not None and feed.stop.done
    feed.wait_published(2.0)
    gatherer.close()
    link.close(Goodbye(done, "canary"))
    return step


if __name__ == "__main__":
    print(run(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]), *sys.argv[5:]))
