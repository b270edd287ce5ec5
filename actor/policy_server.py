"""The policy server process: one port that actors ask, one thread that decides, and one that makes policies of new weights."""

from __future__ import annotations

import contextlib
import logging
import math
import socket as stdlib_socket
import threading
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np
import zmq

from headrace.actor.config import ActorConfig
from headrace.actor.deciding import Decided
from headrace.actor.following import Follower
from headrace.actor.policy import MakePolicy, Policy, make_policy, sampled
from headrace.actor.server_config import PolicyServerConfig
from headrace.actor.serving import Array, Request, Serving, joined
from headrace.common.clock import Clock, MonotonicClock
from headrace.common.ending import end_code, end_reason
from headrace.common.errors import ConfigError
from headrace.common.process import stop_on_signal, wait_welcome
from headrace.common.specs import TransitionSpec
from headrace.common.weights import Version
from headrace.common.wire.answers import Out
from headrace.common.wire.gate import listen
from headrace.common.wire.link import Link, new_hello
from headrace.common.wire.messages import POLICY_SERVER, Goodbye
from headrace.common.wire.network import NetworkConfig
from headrace.common.wire.port import Port

LOG = logging.getLogger(__name__)
TICK_S, LOOK_S, LEAVE_S = 0.05, 0.02, 0.1
MESSAGES_A_ROUND = 512
KEPT = 1024  # answers whose times are told
MOST_TRACEBACKS = 10


@dataclass(frozen=True)
class PolicyServerSettings:
    """All that a policy server needs to know: its buffer, who it is, where it listens itself, and how it decides."""

    endpoint: str
    identity: str
    config: PolicyServerConfig
    network: NetworkConfig
    ema: bool = False


def run(settings: PolicyServerSettings, clock: Clock | None = None, *, make: MakePolicy = make_policy) -> int:
    """Decide for actors until the buffer or a signal says stop; 0 when it ended in order.

    Raises:
        ConfigError: nothing says where to listen, the port is taken or open to strangers, or there is no key.
        SessionRefused: the id is held.
        SpecError: the weights make no policy here.
        DeadlineExceeded: no session in ``network.connect_s``.
    """
    if not settings.config.endpoint:
        raise ConfigError("policy_server.endpoint: empty; say where to listen, tcp://HOST:PORT")
    clock, stop = clock or MonotonicClock(), stop_on_signal()
    network = settings.network
    follower = Follower(network.fragment_bytes)
    hello = new_hello(POLICY_SERVER, settings.identity)
    patient = replace(
        network, connect_s=math.inf
    )  # robots are served on while the buffer is away: only the first wait has an end
    link = Link(hello, follower, settings.endpoint, patient, clock)
    link.start()
    context = zmq.Context()
    try:
        welcome = wait_welcome(link, stop, network.connect_s, clock)
        if welcome is not None:
            spec = TransitionSpec.from_dict(welcome.spec)
            with contextlib.ExitStack() as stack:
                own = replace(network, endpoint=settings.config.endpoint)
                socket, gate = listen(own, context, stack, POLICY_SERVER)
                serving = Serving(spec, own, settings.config, keyring=None if gate is None else gate.keyring)
                LOG.info("listening on %s", socket.getsockopt_string(zmq.LAST_ENDPOINT))
                tailor = Tailor(spec, settings, follower, make)
                stack.callback(tailor.close)
                PolicyServer(serving, Port(socket, gate), tailor, follower, link, clock).run(stop)
    finally:
        link.close(Goodbye(False))
        context.term()
    return end_code(follower.stop, stop)


class Tailor:
    """Makes a policy of each new set of weights in a thread of its own, beside the one that decides: no request waits for it.

    Attributes:
        made: the newest policy and its version; it never changes, and is replaced whole.
    """

    def __init__(self, spec: TransitionSpec, settings: PolicyServerSettings, follower: Follower, make: MakePolicy) -> None:
        device = settings.config.device
        self._config = ActorConfig(policy="auto" if device == "cpu" else "torch", device=device)
        self._spec, self._ema, self._follower, self._make = spec, settings.ema, follower, make
        self.made: tuple[Policy, Version] | None = None
        self._failure: Exception | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="headrace-tailor", daemon=True)
        self._thread.start()

    def check(self) -> None:
        """Raise what no policy could be made for."""
        if self._failure is not None:
            raise self._failure

    def close(self) -> None:
        """Make no more."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            while not self._stop.wait(LOOK_S):
                weights = self._follower.take(ema=self._ema)
                if weights is not None:
                    self.made = self._make(weights, self._spec, self._config), weights.version
                    self._follower.applied(weights.version)
        except Exception as error:  # raised where the process ends by it
            self._failure = error


class PolicyServer:
    """The loop between the port, the thread that decides, and :class:`Serving`."""

    def __init__(self, serving: Serving, port: Port, tailor: Tailor, follower: Follower, link: Link, clock: Clock) -> None:
        self._serving, self._port, self._tailor = serving, port, tailor
        self._follower, self._link, self._clock = follower, link, clock
        self._deciding: tuple[list[Request], Version, Future[Array | Decided]] | None = None
        self._took: deque[tuple[float, int]] = deque(maxlen=KEPT)
        self._tick_at = 0.0
        self._tracebacks = 0
        self._wake_read, self._wake_write = stdlib_socket.socketpair()
        self._wake_read.setblocking(False)

    def run(self, stop: threading.Event) -> None:
        """Serve until told to stop."""
        poller = zmq.Poller()
        for source in (*self._port.sockets, self._wake_read):
            poller.register(source, zmq.POLLIN)
        with contextlib.closing(self._wake_read), contextlib.closing(self._wake_write), ThreadPoolExecutor(1) as decider:
            while not stop.is_set() and self._follower.stop is None:
                self._link.check()
                self._tailor.check()
                self._round(decider)
                wait_s = min(TICK_S, math.inf if self._deciding else self._serving.wait_s(self._clock.now()))
                if any(source == self._wake_read.fileno() for source, _ in poller.poll(math.ceil(wait_s * 1000))):
                    self._wake_read.recv(4096)
        why = end_reason(self._follower.stop)
        LOG.info("leaving: %s", why)
        self._port.send(self._serving.stop(why))
        self._clock.sleep(LEAVE_S)  # in which it can leave

    def _round(self, decider: ThreadPoolExecutor) -> None:
        serving, port, now = self._serving, self._port, self._clock.now()
        if self._tailor.made is not None:
            serving.version = self._tailor.made[1]
        port.guard()
        out: list[Out] = serving.rekeyed() if port.look(now) else []
        for _ in range(MESSAGES_A_ROUND):
            came = port.take()
            if came is None:
                break
            out += serving.receive(came.peer, came.parts, now, came.user, came.line)
            port.heard(came, now)
        out += serving.late(now)
        out += self._answers(now)
        if self._deciding is None and self._tailor.made is not None and (batch := serving.batch(now)):
            policy, version = self._tailor.made
            future = decider.submit(_decide, policy, serving.spec, batch)
            self._deciding = batch, version, future
            future.add_done_callback(lambda _: self._wake_write.send(b"\0"))
        if now >= self._tick_at:
            self._tick_at = now + TICK_S
            out += serving.tick(now)
            self._follower.about = {**serving.report(), **self._times()}
        port.send(out)

    def _answers(self, now: float) -> list[Out]:
        """Those of the batch that was decided, once it is."""
        if self._deciding is None or not self._deciding[2].done():
            return []
        batch, version, future = self._deciding
        self._deciding = None
        error = future.exception()
        if error is not None:
            if self._tracebacks < MOST_TRACEBACKS:
                self._tracebacks += 1
                LOG.error("the policy raised at %d requests", len(batch), exc_info=error)
            return self._serving.failed(batch)
        self._took.append((now - batch[0].since, sum(request.lanes for request in batch)))
        return self._serving.decided(batch, future.result(), version)

    def _times(self) -> dict[str, float]:
        """How long the oldest request of a batch took here (ms), and lanes a batch."""
        if not self._took:
            return {}
        took = np.array(self._took)
        p50, p99 = np.percentile(took[:, 0] * 1e3, [50, 99]).round(3).tolist()
        return {"answer_ms_p50": p50, "answer_ms_p99": p99, "lanes_a_batch": round(float(took[:, 1].mean()), 2)}


def _decide(policy: Policy, spec: TransitionSpec, batch: Sequence[Request]) -> Array | Decided:
    """One forward pass for all lanes of a batch."""
    obs, rng = joined(batch)
    if rng is None:
        return policy.act(obs, np.random.default_rng(0), True)  # which draws nothing
    return sampled(policy, spec, obs, rng)
