"""Connecting: a program with a control loop of its own joins a run."""

from __future__ import annotations

import numpy as np

from headrace.actor.config import ActorConfig
from headrace.actor.server_config import PolicyServerConfig
from headrace.actor.session import Session
from headrace.common.specs import TransitionSpec
from headrace.common.wire.network import NetworkConfig


def connect(
    endpoint: str,
    identity: str,
    spec: TransitionSpec,
    *,
    actor: ActorConfig | None = None,
    network: NetworkConfig | None = None,
    rng: np.random.Generator | None = None,
    wait_s: float | None = None,
    server: PolicyServerConfig | None = None,
) -> Session:
    """Join a run: dial its buffer, say hello, and wait to be welcomed.

    Args:
        endpoint: where the buffer listens, ``tcp://HOST:PORT``.
        identity: the actor's name; at most one living process has it.
        spec: of observations and actions, see :meth:`TransitionSpec.like`.
        actor: how rows leave; a session always counts as a robot, so pacing never holds it.
        network: limits and times of the wire.
        rng: source of the policy's noise.
        wait_s: longest wait for the welcome, ``network.connect_s`` by default (s). With 0 nobody waits: steps are kept until
            the buffer is there.
        server: with ``actor.policy`` server, the policy server that :meth:`Session.act` asks, and how long it waits for each
            decision (``within_s``).

    Raises:
        SessionRefused: the id is held by a living process, or the buffer's spec is another one.
        DeadlineExceeded: no welcome in that time; the text says what was waited for.
    """
    network = network or NetworkConfig()
    session = Session(endpoint, identity, spec, actor=actor, network=network, rng=rng, server=server)
    wait_s = network.connect_s if wait_s is None else wait_s
    try:
        if wait_s > 0:
            session.wait_welcome(wait_s)
    except BaseException:
        session.close(0.0)
        raise
    return session
