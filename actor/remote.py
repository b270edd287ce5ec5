"""The mind of an actor whose decisions a policy server makes."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from headrace.actor.asking import Asking
from headrace.actor.deciding import Obs
from headrace.actor.joining import ActorSettings
from headrace.actor.minds import Choice
from headrace.actor.uplink import Uplink
from headrace.common.clock import Clock
from headrace.common.specs import TransitionSpec
from headrace.common.weights import NO_VERSION
from headrace.common.wire.link import Link, new_hello
from headrace.common.wire.messages import POLICY_SERVER, Goodbye


class RemoteMind:
    """Asks a policy server, over a connection of its own.

    Args:
        settings: of the actor.
        spec: of the rows.
        uplink: is told which weights decide.
        clock: of the connection and of deadlines.

    Raises:
        ConfigError: ``network.keys`` holds no key for this id, or nothing of the policy server's.
    """

    def __init__(self, settings: ActorSettings, spec: TransitionSpec, uplink: Uplink, clock: Clock) -> None:
        robot = settings.robot
        self._within_s = (
            (robot.ahead + robot.act_within) / robot.rate_hz if settings.actor.robot else settings.policy_server.within_s
        )
        self._uplink, self._version = uplink, NO_VERSION
        self._asking = Asking(spec, clock)
        hello = new_hello("actor", settings.actor_id, spec=spec.to_dict(), lanes=settings.env.lanes, robot=settings.actor.robot)
        network = replace(settings.network, connect_s=math.inf, compression="none")  # the loop counts how long it is held
        self._link = Link(hello, self._asking, settings.policy_server.endpoint, network, clock, listener=POLICY_SERVER)
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

    def decide(self, obs: Obs, rng: np.random.Generator) -> Choice | None:
        """The server's decision, if it comes in time."""
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
