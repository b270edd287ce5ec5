"""The evaluator process: an actor that plays the newest weights deterministically and stores nothing."""

from __future__ import annotations

import contextlib
import logging
from dataclasses import dataclass

import numpy as np

from headrace.actor.evaluate import evaluate
from headrace.actor.joining import ActorSettings, Joined, joined
from headrace.actor.policy import make_policy
from headrace.common.clock import Clock, MonotonicClock
from headrace.common.seeds import derive_seed
from headrace.common.specs import OUTCOME_FAILURE, OUTCOME_SUCCESS, OUTCOME_UNKNOWN
from headrace.common.weights import WeightSet
from headrace.common.wire.messages import Evaluation

LOG = logging.getLogger(__name__)
WAIT_S = 0.1


@dataclass(frozen=True)
class EvaluatorSettings:
    """All that an evaluator process needs to know: what an actor does, and how often it judges, over how many episodes."""

    player: ActorSettings
    every_env_steps: int
    episodes: int


def run_evaluator(settings: EvaluatorSettings, clock: Clock | None = None) -> int:
    """Evaluate the newest weights every ``every_env_steps`` env steps until told to stop.

    Raises:
        SessionRefused: the id is held, or the spec differs.
        EnvError: the env cannot be made, or crashes in an evaluation.
        DeadlineExceeded: no session in ``network.connect_s``.
    """
    with joined("evaluator", settings.player, clock or MonotonicClock()) as here:
        if here is not None:
            _follow(settings, here)
    return 0


def _follow(settings: EvaluatorSettings, here: Joined) -> None:
    weights: WeightSet | None = None
    uplink, due = here.uplink, 0
    while not here.stop.is_set() and uplink.stop is None:
        here.link.check()
        weights = uplink.take_weights() or weights
        if weights is None or weights.version.step == 0 or uplink.env_steps < due:
            uplink.wait(WAIT_S)
            continue
        env_steps = uplink.env_steps
        due = env_steps + settings.every_env_steps
        with contextlib.suppress(_StoppedError):
            _evaluate(settings, here, weights, env_steps)
        here.link.wake()
        weights = None


class _StoppedError(Exception):
    """The process was told to stop in the middle of an evaluation."""


def _evaluate(settings: EvaluatorSettings, here: Joined, weights: WeightSet, env_steps: int) -> None:
    def go_on(done: int, episodes: int) -> None:
        if here.stop.is_set():
            raise _StoppedError

    player, uplink = settings.player, here.uplink
    policy = make_policy(weights, here.spec, player.actor)
    seed = derive_seed(player.seed, player.actor_id)
    result = evaluate(policy, player.env, player.window, settings.episodes, seed, progress=go_on)
    uplink.applied(weights.version)
    returns = np.asarray(result.returns, "<f8")
    outcomes = np.full(len(returns), OUTCOME_UNKNOWN)
    if result.successes is not None:
        outcomes = np.where(result.successes, OUTCOME_SUCCESS, OUTCOME_FAILURE)
    head = Evaluation(weights.version.epoch, weights.version.step, env_steps, len(returns))
    frames = (returns, np.asarray(result.lengths, "<i8"), np.asarray(outcomes, "|u1"))
    uplink.event(head, *(f.tobytes() for f in frames))
    LOG.info("version %s at %d env steps: return %.2f", weights.version.order, env_steps, float(returns.mean()))
