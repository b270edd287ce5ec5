"""Minds: where the decisions of an actor are made, in its process or by a policy server. The loop asks either alike."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from headrace.actor.deciding import Decided, Obs
from headrace.actor.joining import ActorSettings, Joined
from headrace.actor.policy import MakePolicy, Policy, sampled
from headrace.actor.uplink import Uplink
from headrace.common.clock import Clock
from headrace.common.specs import TransitionSpec
from headrace.common.weights import NO_VERSION, Version
from headrace.common.wire.link import new_hello

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Choice:
    """What was decided, ``(L, *action.shape)`` in env units, with latents where rows hold them, and by which weights."""

    found: Array | Decided
    version: Version


class Mind(Protocol):
    """Decides for L lanes.

    Attributes:
        heard_at: when whoever decides was heard of last, monotonic seconds; infinity where that is this process.
    """

    @property
    def heard_at(self) -> float:
        """See above."""
        ...

    def look(self) -> str:
        """Take what is new; why nothing can be decided now, empty when it can.

        Raises:
            HeadraceError: nothing ever will be.
        """
        ...

    def decide(self, obs: Obs, rng: np.random.Generator) -> Choice | None:
        """A decision in time, by weights that are whole; none when there is none.

        Args:
            obs: key -> ``(L, ...)``, what the lanes see.
            rng: source of the noise; it moves on with a decision, and stays where there is none.
        """
        ...


class OwnMind:
    """Decides in this process, by the newest weights that the buffer has.

    Args:
        settings: of the actor.
        spec: of the rows.
        uplink: has the weights, and is told which decide.
        make: makes the policy of the first ones.
    """

    heard_at = math.inf

    def __init__(self, settings: ActorSettings, spec: TransitionSpec, uplink: Uplink, make: MakePolicy) -> None:
        self._config, self._spec, self._uplink, self._make = settings.actor, spec, uplink, make
        self._policy: Policy | None = None
        self._version = NO_VERSION

    def look(self) -> str:
        """Swap weights, whole."""
        weights = self._uplink.take_weights(ema=self._config.ema)
        if weights is not None:
            if self._policy is None:
                self._policy = self._make(weights, self._spec, self._config)
            else:
                self._policy.load(weights)
            self._version = weights.version
            self._uplink.applied(weights.version)
        return "no weights have been published yet" if self._policy is None else ""

    def decide(self, obs: Obs, rng: np.random.Generator) -> Choice | None:
        """The policy's sample."""
        if self._policy is None:
            return None
        return Choice(sampled(self._policy, self._spec, obs, rng), self._version)


@contextlib.contextmanager
def make_mind(settings: ActorSettings, here: Joined, clock: Clock, make: MakePolicy) -> Iterator[Mind]:
    """The mind that ``actor.policy`` asks for; what it needs ends with the block.

    Raises:
        ConfigError: there is no key for a policy server.
    """
    if settings.actor.policy != "server":
        yield OwnMind(settings, here.spec, here.uplink, make)
        return
    from headrace.actor.remote import RemoteMind

    robot, is_robot, spec = settings.robot, settings.actor.robot, here.spec
    hello = new_hello("actor", settings.actor_id, spec=spec.to_dict(), lanes=settings.env.lanes, robot=is_robot)
    within_s = (robot.ahead + robot.act_within) / robot.rate_hz if is_robot else settings.policy_server.within_s
    asked = settings.policy_server.endpoint, hello, settings.network, within_s
    with contextlib.closing(RemoteMind(*asked, spec, here.uplink, clock)) as mind:
        yield mind
