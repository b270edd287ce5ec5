#!/usr/bin/env python
"""A policy server against the least that could do its work: decisions a second and times of answers, for 1 to 16 robots.

    .venv/bin/python benchmarks/policy_server.py                       # both policies, three servers, 1, 4 and 16 robots
    .venv/bin/python benchmarks/policy_server.py --only pixels --device cuda
    .venv/bin/python benchmarks/policy_server.py --quick               # half a second each, not recorded: a smoke run

What it measures: robots of one process, each of which asks again as soon as it is answered, on one host over TCP. The same
bytes go to three processes: ``echo``, a ROUTER that sends a frame of the answer's size back at once; ``bare``, which makes one
forward pass for each request before it does; and ``server``, the policy server, which checks, gathers, batches and answers.
``state``: 24 numbers, an MLP of 256 x 256; ``pixels``: two cameras of 48 x 48 and 12 numbers, the default encoder. ``actor`` is
one robot that asks the server as an actor does, through its link's thread. ``forward_ms`` is the bare pass, for 1 and 16 rows.

How long: 5 seconds each, about two minutes in all. Each policy adds a line to docs/results/policy_server.jsonl, and is not
repeated on the same commit and device.

The last line on stdout is one JSON object: policy -> robots -> server -> decisions/s (``per_s``), p50 and p99 (ms).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import zmq
from campaign import provenance, records
from campaign.choosing import add_only
from campaign.process import ProcessFailed, guarded

from headrace.actor import noise
from headrace.actor.asking import Asking
from headrace.actor.config import ActorConfig
from headrace.actor.policy import MlpLayout, Policy, make_policy
from headrace.actor.policy_server import PolicyServer
from headrace.actor.server_config import PolicyServerConfig
from headrace.actor.serving import Serving
from headrace.common.clock import MonotonicClock
from headrace.common.specs import ActionSpec, ObsSpec, TransitionSpec
from headrace.common.weights import Version, WeightSet
from headrace.common.wire import messages as m
from headrace.common.wire import sockets
from headrace.common.wire.codec import decode, encode
from headrace.common.wire.link import Link, new_hello
from headrace.common.wire.network import NetworkConfig
from headrace.common.wire.port import Port

FILE = records.RESULTS / "policy_server.jsonl"
ROBOTS = (1, 4, 16)
SIDES = ("echo", "bare", "server")
SECONDS, QUICK_S, WARM_S = 5.0, 0.5, 30.0
EYE = (48, 48, 3)
ACTION = ActionSpec((6,), (-1.0,) * 6, (1.0,) * 6)
SPECS = {
    "state": TransitionSpec((ObsSpec("state", (24,), "<f4"),), ACTION),
    "pixels": TransitionSpec(
        (ObsSpec("front", EYE, "|u1"), ObsSpec("joints", (12,), "<f4"), ObsSpec("wrist", EYE, "|u1")), ACTION
    ),
}
VERSION = Version("bench", 1, 1)
Figures = dict[str, Any]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_only(parser, tuple(SPECS), "policy")
    parser.add_argument("--device", default="cpu", help="torch device of bare and server; cpu: as actors decide")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="length of each measurement")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_S:g} seconds each, not recorded")
    parser.add_argument("--serve", nargs=3, metavar=("SIDE", "POLICY", "ENDPOINT"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        return serve(*args.serve, args.device)
    origin = provenance.commit()
    known = {} if args.quick else records.latest(records.read(FILE), "policy", "device", "commit")
    out: dict[str, Figures] = {}
    for name in args.only:
        found = known.get((name, args.device, origin["commit"]))
        if found is None or origin["dirty"]:
            found = measure(name, args.device, QUICK_S if args.quick else args.seconds)
            found |= {
                "policy": name,
                "device": args.device,
                **origin,
                "machine": provenance.machine(),
                "date": provenance.stamp(),
            }
            if not args.quick:
                records.append(FILE, found)
        out[name] = {key: found[key] for key in ("robots", "actor", "forward_ms")}
    print(json.dumps(out))
    return 0


def measure(name: str, device: str, seconds: float) -> Figures:
    """All figures of one policy."""
    spec, found = SPECS[name], {}
    for robots in ROBOTS:
        found[str(robots)] = {side: _ask(side, name, device, robots, seconds) for side in SIDES}
        for side, figures in found[str(robots)].items():
            print(f"{name}, {robots} robots, {side}: {figures}", flush=True)
    policy, forward = policy_of(name, device), {}
    for rows in (1, ROBOTS[-1]):
        obs, rng = observe(spec, rows), np.random.default_rng(0)
        took = [_timed(lambda o=obs, r=rng: policy.act(o, r, False)) for _ in range(30 if seconds < 1 else 300)]
        forward[str(rows)] = round(float(np.quantile(took, 0.5)), 4)
    actor = ask_as_actor(name, device, seconds)
    print(f"{name}, as an actor: {actor}; forward (ms): {forward}", flush=True)
    return {"robots": found, "actor": actor, "forward_ms": forward}


def _ask(side: str, name: str, device: str, robots: int, seconds: float) -> Figures:
    with server_process(side, name, device) as endpoint:
        return ask(endpoint, side, SPECS[name], robots, seconds)


def ask(endpoint: str, side: str, spec: TransitionSpec, robots: int, seconds: float) -> Figures:
    """Robots that ask as fast as they are answered, over one plain socket each; nothing counts before each has had an answer.

    Raises:
        ProcessFailed: nobody answered.
    """
    context, poller, rng = zmq.Context(), zmq.Poller(), np.random.default_rng(0)
    obs = observe(spec, 1)
    state, frames = noise.pack(rng), [obs[o.key].tobytes() for o in spec.obs]
    dealers = [sockets.dealer(context, endpoint, NetworkConfig(), None) for _ in range(robots)]
    for i, dealer in enumerate(dealers):
        hello = encode(new_hello("actor", f"arm-{i}", spec=spec.to_dict(), robot=True))
        while not dealer.poll(100):
            with contextlib.suppress(zmq.Again):
                dealer.send(hello, zmq.NOBLOCK)
        while dealer.poll(100):
            dealer.recv_multipart()
        poller.register(dealer, zmq.POLLIN)
    number, sent, took = dict.fromkeys(dealers, 0), dict.fromkeys(dealers, 0.0), []

    def send(dealer: zmq.Socket[bytes]) -> None:
        number[dealer] += 1
        sent[dealer] = time.perf_counter()
        dealer.send_multipart([encode(m.Ask(number[dealer], 1, 1.0, state)), *frames])

    latest, cold = time.perf_counter() + WARM_S, set(dealers)
    begun = latest
    for dealer in dealers:
        send(dealer)
    while (now := time.perf_counter()) < begun + seconds:
        for dealer, _ in poller.poll(100):
            answer = dealer.recv_multipart()
            if side == "server":
                message = decode(answer[0])
                if not isinstance(message, m.Decision):
                    continue  # heartbeats
                assert message.number == number[dealer], f"{message} answers another request"
                assert not message.reason, message
            if not cold:
                took.append(time.perf_counter() - sent[dealer])
            cold.discard(dealer)
            if not cold:
                begun = min(begun, now)
            send(dealer)
        for dealer in dealers if side == "server" and number[dealers[0]] % 256 == 0 else ():
            dealer.send(encode(m.Pulse()))
    for dealer in dealers:
        dealer.close(0)
    context.term()
    if not took:
        raise ProcessFailed(f"{robots} robots had no answer of {side} within {WARM_S:.0f} s")
    return figures_of(np.array(took), seconds)


def ask_as_actor(name: str, device: str, seconds: float) -> Figures:
    """One robot that asks as an actor does: from its loop, through a link's thread."""
    spec, clock, took = SPECS[name], MonotonicClock(), []
    with server_process("server", name, device) as endpoint:
        asking = Asking(spec, clock)
        hello = new_hello("actor", "arm-0", spec=spec.to_dict(), robot=True)
        link = Link(hello, asking, endpoint, NetworkConfig(), clock, listener=m.POLICY_SERVER)
        link.start()
        link.wait_welcome(30)
        obs, rng, end = observe(spec, 1), np.random.default_rng(0), clock.now() + seconds
        while clock.now() < end:
            took.append(_timed(lambda: asking.ask(obs, rng, 1.0, link.wake)) / 1e3)
        link.close(m.Goodbye(False))
    return figures_of(np.array(took), seconds)


def figures_of(took: Any, seconds: float) -> Figures:
    """Answers a second, and the time that one takes (ms)."""
    p50, p99 = np.quantile(took * 1e3, [0.5, 0.99]).round(3).tolist()
    return {"per_s": round(len(took) / seconds, 1), "p50": p50, "p99": p99}


# --- the other process ------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def server_process(side: str, name: str, device: str) -> Iterator[str]:
    """A server of its own, listening."""
    probe = zmq.Context().socket(zmq.ROUTER)
    port = probe.bind_to_random_port("tcp://127.0.0.1")
    probe.close(0)
    endpoint = f"tcp://127.0.0.1:{port}"
    words = [sys.executable, __file__, "--serve", side, name, endpoint, "--device", device]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env={"OMP_NUM_THREADS": "1", **os.environ}) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline().strip() == "ready"
            yield endpoint
        finally:
            process.terminate()


def serve(side: str, name: str, endpoint: str, device: str) -> int:
    """Be one of the three servers, until SIGTERM."""
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    spec, network = SPECS[name], NetworkConfig(endpoint=endpoint)
    policy = policy_of(name, device)
    policy.act(observe(spec, 1), np.random.default_rng(0), False)
    with zmq.Context() as context, sockets.router(context, network) as socket:
        print("ready", flush=True)
        if side == "server":
            serving = Serving(spec, network, PolicyServerConfig(), VERSION)
            tailor, nobody = _Made(policy), _Nobody()
            PolicyServer(serving, Port(socket, None), tailor, nobody, nobody, MonotonicClock()).run(stop)  # type: ignore[arg-type]  # stand-ins
        else:
            _plainly(socket, spec, policy if side == "bare" else None, stop)
    return 0


def _plainly(socket: zmq.Socket[bytes], spec: TransitionSpec, policy: Policy | None, stop: threading.Event) -> None:
    answer, rng = np.zeros((1, *ACTION.shape), np.float32), np.random.default_rng(0)
    while not stop.is_set():
        if not socket.poll(100):
            continue
        peer, head, *frames = socket.recv_multipart()
        if policy is not None and frames:
            arrays = (np.frombuffer(f, o.dtype).reshape(1, *o.shape) for f, o in zip(frames, spec.obs, strict=True))
            answer = policy.act(dict(zip((o.key for o in spec.obs), arrays, strict=True)), rng, False)
        with contextlib.suppress(zmq.ZMQError):  # it has left
            socket.send_multipart([peer, head, answer.tobytes()])


class _Made:
    """A tailor with one policy."""

    def __init__(self, policy: Policy) -> None:
        self.made = policy, VERSION

    def check(self) -> None:
        """Nothing is made."""


class _Nobody:
    """No buffer."""

    def __init__(self) -> None:
        self.stop: Any = None
        self.about: dict[str, Any] = {}

    def check(self) -> None:
        """Nothing is wrong."""


def policy_of(name: str, device: str) -> Policy:
    """The policy, with random weights."""
    spec, rng = SPECS[name], np.random.default_rng(0)
    if name == "state":
        bounds = {"low": list(ACTION.low), "high": list(ACTION.high), "log_std": [-20.0, 2.0], "normalise": False}
        policy = {"type": "mlp", "keys": ["state"], "hidden": [256, 256], "activation": "relu", "stack": 1, **bounds}
        shapes = MlpLayout.of(policy, spec).shapes
    else:
        from headrace.learner.pixels import Pixels

        model = Pixels(spec)
        policy = model.policy_description()
        shapes = {key: tuple(tensor.shape) for key, tensor in model.policy_tensors().items()}
    tensors = {key: rng.standard_normal(shape, np.float32) * np.float32(0.05) for key, shape in shapes.items()}
    kind = "auto" if device == "cpu" else "torch"
    return make_policy(WeightSet(VERSION, policy, tensors), spec, ActorConfig(policy=kind, device=device))


def observe(spec: TransitionSpec, rows: int) -> dict[str, Any]:
    """Random observations."""
    rng = np.random.default_rng(1)
    return {
        o.key: rng.integers(0, 256, (rows, *o.shape), np.uint8)
        if o.dtype == "|u1"
        else rng.standard_normal((rows, *o.shape), np.float32)
        for o in spec.obs
    }


def _timed(call: Any) -> float:
    begun = time.perf_counter()
    call()
    return 1e3 * (time.perf_counter() - begun)


if __name__ == "__main__":
    sys.exit(guarded(main))
