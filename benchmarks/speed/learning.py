"""One of headrace's learners for the learner's speed table; ``children.py`` says how it is asked.

Roles: ``learner`` (updates on batches of a buffer's process), ``publisher`` (the same, with and without publishes in turn),
``ranks`` (a group over gloo, or one process, on the same made-up batches), ``products`` (the machine's own rate of products).
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from itertools import cycle
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch

from headrace.buffer.view import PoolView
from headrace.common.batch import Batch
from headrace.common.clock import MonotonicClock
from headrace.common.errors import DeadlineExceeded
from headrace.common.weights import Version
from headrace.common.wire.link import Link, new_hello
from headrace.common.wire.messages import Goodbye
from headrace.common.wire.network import NetworkConfig
from headrace.learner.config import FP32, LearnerConfig
from headrace.learner.feed import Feed
from headrace.learner.gatherer import Gatherer
from headrace.learner.group import Group, Order
from headrace.learner.mlp import MLP
from headrace.learner.precision import DTYPES
from headrace.learner.sac import SAC
from speed import data
from speed.children import answer_windows, repeat
from speed.parts import Stopwatch, products_of

HIDDEN = 256
NAME = "learner"
WARM_UPDATES = 30
WELCOME_S, STALL_S, CREW_S, RANK_S = 60.0, 30.0, 60.0, 600.0
PUBLISH_EVERY = 50
COMPARED_UPDATES, BATCHES = 20, 64
Options = dict[str, Any]


class Fed:
    """A learner beside a buffer, as ``headrace.learner.loop`` has it, without publishes, checkpoints and reports."""

    def __init__(self, options: Options) -> None:
        way = {"statistics": False, "reading": "mapped", "open_view": PoolView}
        self.feed = Feed(data.BATCH, LearnerConfig().prefetch_batches, **way)
        self.link = Link(new_hello(NAME, NAME), self.feed, options["endpoint"], NetworkConfig(), MonotonicClock())
        self.sac = make_sac(options)
        self._gatherer = Gatherer(self.feed, self.link.wake)

    def __enter__(self) -> Fed:
        self.link.start()
        self.link.wait_welcome(WELCOME_S)
        self._gatherer.start()
        self.feed.start_drawing()
        for _ in range(WARM_UPDATES):
            self.update()
        if not self.sac.model._crew.wait_ready(CREW_S):
            raise DeadlineExceeded("the learner's crew did not come up")
        return self

    def __exit__(self, *_: object) -> None:
        self._gatherer.close()
        self.link.close(Goodbye(False, "measured"))
        self.sac.model.close()

    def update(self) -> None:
        """Take a batch, and learn from it."""
        if self.feed.must_draw:
            self.link.wake()
        batches = self.feed.get(STALL_S)
        if batches is None:
            self.link.check()
            raise DeadlineExceeded(f"no batch within {STALL_S:g} s")
        self.sac.update(batches[0])


def make_sac(options: Options, group: Group | None = None) -> SAC:
    """HalfCheetah's sizes; ``by_hand`` false leaves the model's steps to autograd, as those of any other model."""
    torch.manual_seed(0)
    model = MLP(data.FLAT)
    model.use_threads(options["threads"])
    if not options.get("by_hand", True):
        model._by_hand = lambda x: None
    config = LearnerConfig(batch_size=data.BATCH, threads=options["threads"], precision=options["precision"])
    return SAC(model, data.FLAT, config, 0, group)


def learner(options: Options) -> None:
    """Updates a second; ``waiting``: share of the window without a batch; ``parts``: milliseconds of an update, so far."""
    with Fed(options) as fed:
        products, watch = products_of(fed.update), Stopwatch()
        watch.time("data", fed.feed, "get")
        watch.time_parts(fed.sac)
        watch.time("update", fed, "update")

        def window(seconds: float) -> Mapping[str, Any]:
            waited, start = watch.seconds["data"], time.perf_counter()
            found = repeat(lambda: fed.update(), seconds)
            waiting = (watch.seconds["data"] - waited) / (time.perf_counter() - start)
            return {**found, "waiting": waiting, "parts": watch.milliseconds(products)}

        answer_windows(window)


def publisher(options: Options) -> None:
    """What one publish in ``PUBLISH_EVERY`` updates takes of their time, in percent: blocks with and without take turns."""
    with Fed(options) as fed:

        def publish() -> float:
            start = time.perf_counter()
            fed.feed.publish(fed.sac.weights(Version(NAME, fed.feed.epoch, fed.sac.step)))
            fed.link.wake()
            return time.perf_counter() - start

        def block() -> float:
            start = time.perf_counter()
            for _ in range(PUBLISH_EVERY):
                fed.update()
            return time.perf_counter() - start

        def window(seconds: float) -> Mapping[str, Any]:
            calls, busy, idle, end = [], [], [], time.perf_counter() + seconds
            while time.perf_counter() < end or not idle:
                calls.append(publish())
                busy.append(calls[-1] + block())
                idle.append(block())
            lost = 100 * (median(busy) / median(idle) - 1)
            parts = {"update": 1000 * median(idle) / PUBLISH_EVERY, "call of publish": 1000 * median(calls)}
            return {"rate": lost, "parts": {name: round(value, 4) for name, value in parts.items()}}

        answer_windows(window)


def ranks(options: Options) -> None:
    """Updates a second of ``size`` ranks with equal parts of each batch; ``losses``: those of the first updates.

    The process that is asked is rank 0, and starts the others.
    """
    size, rank = options["size"], int(os.environ.get("RANK", "0"))
    with contextlib.ExitStack() as stack:
        if rank == 0:
            os.environ.update(RANK="0", WORLD_SIZE=str(size), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(_free_port()))
            os.environ["GLOO_SOCKET_IFNAME"] = "lo"
            for other in range(1, size):
                stack.enter_context(_other_rank(other))
        group = stack.enter_context(Group.join(RANK_S))
        update = _shared_update(group)
        losses = [update() for _ in range(COMPARED_UPDATES)]
        if rank > 0:
            while group.order() is Order.UPDATE:
                update()
            return

        def ordered() -> None:
            group.order(Order.UPDATE)
            update()

        answer_windows(lambda seconds: {**repeat(ordered, seconds), "losses": losses})
        group.order(Order.STOP)


def products(options: Options) -> None:
    """Updates a second if they were their arithmetic alone, at the rate of products of ``(batch, hidden, hidden)``."""
    torch.set_num_threads(options["threads"])
    dtype = DTYPES[options["precision"]]
    a, b, out = (torch.ones(rows, HIDDEN, dtype=dtype) for rows in (data.BATCH, HIDDEN, data.BATCH))
    share = 2 * data.BATCH * HIDDEN * HIDDEN / flop(data.OBS, data.ACTION, data.BATCH)
    answer_windows(lambda seconds: repeat(lambda: torch.mm(a, b, out=out), seconds, share))


def flop(obs: int, action: int, batch: int) -> int:
    """Arithmetic of one update, without critic weight gradients in the actor's step."""
    square = HIDDEN * HIDDEN
    critic, actor = (obs + action) * HIDDEN + square + HIDDEN, obs * HIDDEN + square + 2 * action * HIDDEN
    target = actor + 2 * critic
    critic_step = 2 * (2 * critic + square + HIDDEN)  # forward, weight gradients, input gradients of two layers
    actor_step = actor + 2 * critic + 2 * critic + actor + square + 2 * action * HIDDEN
    return 2 * batch * (target + critic_step + actor_step)


def _shared_update(group: Group) -> Callable[[], list[float]]:
    """An update on rows and noise that do not depend on how many ranks share them; gives the losses."""
    sac = make_sac({"threads": 1, "precision": FP32}, group)
    sac.generator.manual_seed(0)
    rows = data.BATCH // group.size

    def skip(parts: int) -> None:
        torch.empty(parts * rows * data.ACTION).normal_(generator=sac.generator)

    def with_own_noise(call: Callable[..., Any]) -> Callable[..., Any]:
        def drawn(*args: Any) -> Any:
            skip(group.rank)
            found = call(*args)
            skip(group.size - 1 - group.rank)
            return found

        return drawn

    for name in ("sac_next_values", "sac_actor_gradients"):
        setattr(sac.model, name, with_own_noise(getattr(sac.model, name)))
    batches = cycle(_batches(slice(group.rank * rows, (group.rank + 1) * rows)))

    def update() -> list[float]:
        metrics = sac.update(next(batches))
        return [float(metrics["critic/loss"]), float(metrics["actor/loss"])]

    return update


def _batches(mine: slice) -> list[Batch]:
    """Made-up batches, always the same, of which a rank has the rows ``mine``."""
    rng = np.random.default_rng(0)
    out = []
    for _ in range(BATCHES):
        rows = data.block(data.FLAT, data.BATCH, rng).rows
        seen = [data.frames(data.FLAT, data.BATCH, rng) for _ in range(2)]
        out.append(Batch(np.arange(data.BATCH)[mine], rows[mine], *({k: v[mine] for k, v in s.items()} for s in seen)))
    return out


@contextlib.contextmanager
def _other_rank(rank: int) -> Iterator[None]:
    """A further rank; it ends when rank 0 says so, and with this process's group at the latest."""
    process = subprocess.Popen(
        [sys.executable, str(Path(__file__)), *sys.argv[1:]],
        env={**os.environ, "RANK": str(rank)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )
    try:
        yield
    finally:
        process.wait(STALL_S)


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


ROLES = {"learner": learner, "publisher": publisher, "ranks": ranks, "products": products}

if __name__ == "__main__":
    chosen = json.loads(sys.argv[1])
    ROLES[chosen["role"]](chosen)
