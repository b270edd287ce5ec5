"""The mind of an actor whose decisions a policy server makes."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from headrace.actor.asking import Asking
from headrace.actor.deciding import Obs
from headrace.actor.minds import Choice
from headrace.actor.uplink import Uplink
from headrace.common.clock import Clock
from headrace.common.specs import TransitionSpec
from headrace.common.weights import NO_VERSION
from headrace.common.wire.link import Link
from headrace.common.wire.messages import POLICY_SERVER, Goodbye, Hello
from headrace.common.wire.network import NetworkConfig


class RemoteMind:
    """Asks a policy server, over a connection of its own.

    Args:
        endpoint: where it listens.
        hello: of the actor.
        network: limits and keys of the connection.
        within_s: how long an answer is of use.
        spec: of the rows.
        uplink: is told which weights decide.
        clock: of the connection and of deadlines.

    Raises:
        ConfigError: ``network.keys`` holds no key for this id, or nothing of the policy server's.
    """

    def __init__(
        self,
        endpoint: str,
        hello: Hello,
        network: NetworkConfig,
        within_s: float,
        spec: TransitionSpec,
        uplink: Uplink,
        clock: Clock,
    ) -> None:
        self._within_s, self._uplink, self._version = within_s, uplink, NO_VERSION
        self._asking = Asking(spec, clock)
        network = replace(network, connect_s=math.inf, compression="none")  # who asks counts how long it is held
        robot = hello.robot  # sends without ZeroMQ's own thread, which would outlive the connection
        self._link = Link(hello, self._asking, endpoint, network, clock, listener=POLICY_SERVER, zero_copy=not robot)
        self._link.start()

    @property
    def heard_at(self) -> float:
        """When the server said anything last; never, while there is no session."""
        return -math.inf if self._waiting else self._asking.heard_at

    def look(self) -> str:
        """Why the server cannot be asked; raises what ended the connection for good."""
        self._link.check()
        self._uplink.about["policy_server"] = dict(self._asking.counts)
        return f"no policy server: {self._waiting}" if self._waiting else ""

    def decide(self, obs: Obs, rng: np.random.Generator | None) -> Choice | None:
        """The server's decision, if it comes in time; without ``rng`` the mode."""
        if self._waiting:
            return None
        answer = self._asking.ask(obs, rng, self._within_s, self._link.wake)
        if answer is None:
            return None
        if answer.version != self._version:
            self._version = answer.version
            self._uplink.applied(answer.version)
        return Choice(answer.found, answer.version)

    def close(self) -> None:
        """Leave."""
        self._link.close(Goodbye(False))

    @property
    def _waiting(self) -> str:
        return self._asking.stopped or self._link.session.waiting
