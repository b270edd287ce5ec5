"""The evaluator process: an actor that plays the newest weights deterministically and stores nothing."""

from __future__ import annotations

import contextlib
import logging
import threading
from dataclasses import dataclass

import numpy as np

from headrace.actor.config import ActorConfig, EnvConfig, WindowConfig
from headrace.actor.envs import make_spec
from headrace.actor.evaluate import evaluate
from headrace.actor.policy import make_policy
from headrace.actor.uplink import Uplink
from headrace.common.clock import Clock, MonotonicClock
from headrace.common.process import stop_on_signal, wait_welcome
from headrace.common.seeds import derive_seed
from headrace.common.specs import OUTCOME_FAILURE, OUTCOME_SUCCESS, OUTCOME_UNKNOWN
from headrace.common.weights import WeightSet
from headrace.common.wire.link import Link, new_hello
from headrace.common.wire.messages import Evaluation, Goodbye
from headrace.common.wire.network import NetworkConfig

LOG = logging.getLogger(__name__)
WAIT_S = 0.1


@dataclass(frozen=True)
class EvaluatorSettings:
    """All that an evaluator process needs to know."""

    endpoint: str
    evaluator_id: str
    env: EnvConfig
    window: WindowConfig
    actor: ActorConfig
    network: NetworkConfig
    every_env_steps: int
    episodes: int
    seed: int


def run_evaluator(settings: EvaluatorSettings, clock: Clock | None = None) -> int:
    """Evaluate the newest weights every ``every_env_steps`` env steps until told to stop.

    Raises:
        SessionRefused: the id is held, or the spec differs.
    """
    clock = clock or MonotonicClock()
    spec = make_spec(settings.env, settings.window)
    uplink = Uplink(spec, settings.actor.outbox_bytes, settings.network.fragment_bytes)
    hello = new_hello("evaluator", settings.evaluator_id, spec=spec.to_dict())
    link = Link(hello, uplink, settings.endpoint, settings.network, clock)
    stop = stop_on_signal()
    link.start()
    try:
        if wait_welcome(link, stop, settings.network.connect_s, clock) is not None:
            _follow(settings, uplink, link, stop)
    finally:
        link.close(Goodbye(False, "leaving"))
    return 0


def _follow(settings: EvaluatorSettings, uplink: Uplink, link: Link, stop: threading.Event) -> None:
    weights: WeightSet | None = None
    due = 0
    while not stop.is_set() and uplink.stop is None:
        link.check()
        weights = uplink.take_weights() or weights
        if weights is None or weights.version.step == 0 or uplink.env_steps < due:
            uplink.wait(WAIT_S)
            continue
        env_steps = uplink.env_steps
        due = env_steps + settings.every_env_steps
        with contextlib.suppress(_StoppedError):
            _evaluate(settings, uplink, weights, env_steps, stop)
        link.wake()
        weights = None


class _StoppedError(Exception):
    """The process was told to stop in the middle of an evaluation."""


def _evaluate(settings: EvaluatorSettings, uplink: Uplink, weights: WeightSet, env_steps: int, stop: threading.Event) -> None:
    def go_on(done: int, episodes: int) -> None:
        if stop.is_set():
            raise _StoppedError

    policy = make_policy(weights, make_spec(settings.env, settings.window), settings.actor)
    seed = derive_seed(settings.seed, settings.evaluator_id)
    result = evaluate(policy, settings.env, settings.window, settings.episodes, seed, progress=go_on)
    uplink.applied(weights.version)
    returns = np.asarray(result.returns, "<f8")
    outcomes = np.full(len(returns), OUTCOME_UNKNOWN)
    if result.successes is not None:
        outcomes = np.where(result.successes, OUTCOME_SUCCESS, OUTCOME_FAILURE)
    head = Evaluation(weights.version.epoch, weights.version.step, env_steps, len(returns))
    frames = (returns, np.asarray(result.lengths, "<i8"), np.asarray(outcomes, "|u1"))
    uplink.event(head, *(f.tobytes() for f in frames))
    LOG.info("version %s at %d env steps: return %.2f", weights.version.order, env_steps, float(returns.mean()))
