#!/usr/bin/env python
"""A slow link: what an actor and a learner get through a rate of so many Mbit/s, with and without network.compression.

    .venv/bin/python benchmarks/slow_link.py [--mbit 20 100] [--seconds 3] [--kinds floats pictures]

What it measures: in a network namespace of its own (unshare, so that nothing else on the machine is touched) a token bucket
filter holds loopback to the rate. One actor sends blocks of 32 rows as fast as they are acknowledged, then a learner takes
batches of 64 rows through the socket. The rows are HalfCheetah-v5 under random actions, and Pendulum-v1 with the rendered
picture, 50 x 50 x 3 bytes, beside its state.

How long: about 15 s for each rate, kind of rows and way. It needs the right to make network namespaces, and iproute2.

The last line on stdout is one JSON object: for each rate and kind rows and batches a second and their ratios, and what share of
their bytes rows and batches keep.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from itertools import cycle, pairwise
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from headrace.actor.assembler import Assembler
from headrace.actor.config import EnvConfig, WindowConfig
from headrace.actor.gym_make import make_env, probe_spec
from headrace.actor.outbox import Outbox
from headrace.actor.store import Memory
from headrace.actor.uplink import Uplink
from headrace.buffer.config import PoolConfig
from headrace.buffer.pacing import PacingConfig
from headrace.buffer.query import status
from headrace.buffer.server import serve
from headrace.buffer.settings import BufferSettings
from headrace.common.block import Block
from headrace.common.clock import MonotonicClock
from headrace.common.specs import TransitionSpec
from headrace.common.weights import NO_VERSION
from headrace.common.wire.link import Link, new_hello
from headrace.common.wire.messages import Goodbye
from headrace.common.wire.network import NetworkConfig
from headrace.learner.feed import Feed

INSIDE = "HEADRACE_SLOW_LINK"
ENVS = {"floats": "HalfCheetah-v5", "pictures": "slow_link:drawn_pendulum"}
WAYS = ("none", "zlib")
ROWS, BATCH, STEPS = 32, 64, 1024
CREDIT_BYTES = 1 << 20  # what waits in the link is a second or so, not ten
WAIT_S = 60.0


class Drawn(gym.Wrapper):  # type: ignore[type-arg]  # its parameters say nothing here
    """An env whose observation has the rendered picture beside its state."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        picture = gym.spaces.Box(0, 255, (50, 50, 3), np.uint8)
        self.observation_space = gym.spaces.Dict({"picture": picture, "state": env.observation_space})

    def _see(self, state: Any) -> dict[str, Any]:
        return {"picture": np.ascontiguousarray(self.env.render()[5::10, 5::10]), "state": state}

    def reset(self, **options: Any) -> Any:
        """First observation and info."""
        state, info = self.env.reset(**options)
        return self._see(state), info

    def step(self, action: Any) -> Any:
        """As the env's own."""
        state, *rest = self.env.step(action)
        return self._see(state), *rest


def drawn_pendulum() -> Drawn:
    return Drawn(gym.make("Pendulum-v1", render_mode="rgb_array"))


def record(config: EnvConfig, spec: TransitionSpec) -> list[Block]:
    """Blocks of ``STEPS`` steps of random actions."""
    env, lane, out = make_env(config), Assembler(spec), []
    env.action_space.seed(0)

    def seen(obs: Any) -> dict[str, Any]:
        return {o.key: np.asarray(obs[o.key] if isinstance(obs, dict) else obs, o.dtype) for o in spec.obs}

    ended = True
    for t in range(STEPS):
        if ended:
            lane.begin(t, seen(env.reset(seed=t)[0]))
        action = env.action_space.sample()
        obs, reward, terminated, truncated, _ = env.step(action)
        lane.step(action, float(reward), bool(terminated), bool(truncated), seen(obs), version=NO_VERSION)
        ended = terminated or truncated
    while (block := lane.take(ROWS)) is not None:
        out.append(block)
    env.close()
    return out


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mbit", type=float, nargs="+", default=[20.0, 100.0], help="rates of the link")
    parser.add_argument("--seconds", type=float, default=3.0, help="length of one window, behind one of warming up")
    parser.add_argument("--kinds", nargs="+", choices=tuple(ENVS), default=list(ENVS))
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        pacing = PacingConfig(env_steps=0, hold_actors=False, hold_learner=False, min_fill=BATCH)
        return serve(BufferSettings(NetworkConfig(), PoolConfig(capacity=4096), args.serve, pacing, "slow", 0, _say))
    if INSIDE not in os.environ:
        words = ["unshare", "--net", sys.executable, *sys.argv]
        return subprocess.run(words, env={**os.environ, INSIDE: "1"}, check=False).returncode
    for words in ("ip link set lo up", "ip link set lo mtu 1500"):
        subprocess.run(words.split(), check=True)
    found: dict[str, dict[str, float]] = {}
    for kind in args.kinds:
        config = EnvConfig(ENVS[kind])
        spec = probe_spec(config, WindowConfig())
        blocks = record(config, spec)
        for mbit in args.mbit:
            found[f"{kind} {mbit:g} Mbit/s"] = figures = compare(spec, blocks, mbit, args.seconds)
            print(f"{kind} {mbit:g} Mbit/s: " + ", ".join(f"{what} {value:.3g}" for what, value in figures.items()), flush=True)
    print(json.dumps(found))
    return 0


def compare(spec: TransitionSpec, blocks: list[Block], mbit: float, seconds: float) -> dict[str, float]:
    """Rates both ways at one rate of the link, and their ratios."""
    bucket = f"tc qdisc replace dev lo root tbf rate {mbit}mbit burst 32kb latency 100ms"
    subprocess.run(bucket.split(), check=True)
    out: dict[str, float] = {}
    for way in WAYS:
        with tempfile.TemporaryDirectory() as place:
            words = [sys.executable, __file__, "--serve", place]
            with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as buffer:
                try:
                    endpoint = str(buffer.stdout.readline().strip()) if buffer.stdout else ""
                    network = NetworkConfig(credit_bytes=CREDIT_BYTES, compression=way)
                    out[f"rows_{way}"] = rows_a_second(endpoint, network, spec, blocks, seconds)
                    out[f"batches_{way}"] = batches_a_second(endpoint, network, seconds)
                    for what, n in status(endpoint, WAIT_S)["compression"].items():
                        out[f"{what}_bytes_kept"] = n["wire_bytes"] / n["plain_bytes"]
                finally:
                    buffer.terminate()
    return out | {f"{what}_ratio": out[f"{what}_zlib"] / out[f"{what}_none"] for what in ("rows", "batches")}


def rows_a_second(endpoint: str, network: NetworkConfig, spec: TransitionSpec, blocks: list[Block], seconds: float) -> float:
    """Acknowledged rows of an actor that offers as many as it can, once the link is full."""
    uplink = Uplink(spec, Outbox(Memory(2 * CREDIT_BYTES)), network.fragment_bytes)
    link = Link(new_hello("actor", "a", spec=spec.to_dict()), uplink, endpoint, network, MonotonicClock())
    link.start()
    link.wait_welcome(WAIT_S)
    source, marks = cycle(blocks), []
    begun = time.monotonic()
    while (now := time.monotonic()) < begun + 2 * seconds:
        block = next(source)
        if uplink.offer(block, 0.05):
            uplink.executed(block.n_rows)
            link.wake()
        link.check()
        executed, pending = uplink.position()
        marks.append((now, executed - pending))
    link.close(Goodbye(False, "measured"))
    return _rate(marks, begun + seconds)


def batches_a_second(endpoint: str, network: NetworkConfig, seconds: float) -> float:
    """Batches that a learner without arithmetic takes."""
    feed = Feed(BATCH, 16, statistics=False)
    link = Link(new_hello("learner", "l"), feed, endpoint, network, MonotonicClock())
    link.start()
    link.wait_welcome(WAIT_S)
    feed.start_drawing()
    link.wake()
    marks, taken = [], 0
    begun = time.monotonic()
    while (now := time.monotonic()) < begun + 2 * seconds:
        link.check()
        taken += feed.get(0.05) is not None
        if feed.must_draw:
            link.wake()
        marks.append((now, taken))
    link.close(Goodbye(False, "measured"))
    return _rate(marks, begun + seconds)


def _rate(marks: list[tuple[float, int]], start: float) -> float:
    """Counts a second from the first change behind ``start`` to the last one, so that whole pieces are counted."""
    later = [mark for mark in marks if mark[0] >= start]
    changes = [b for a, b in pairwise(later) if b[1] > a[1]]
    if len(changes) < 2:
        return 0.0
    return (changes[-1][1] - changes[0][1]) / (changes[-1][0] - changes[0][0])


def _say(endpoint: str) -> None:
    print(endpoint, flush=True)


if __name__ == "__main__":
    sys.exit(main())
