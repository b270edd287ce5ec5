"""The evaluator process: plays the newest weights deterministically, stores no rows, and keeps the best policy."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from headrace.actor.best import BestPolicy
from headrace.actor.evaluate import EvalResult, evaluate
from headrace.actor.joining import ActorSettings, Joined, joined
from headrace.actor.policy import MakePolicy, Policy, make_policy
from headrace.actor.uplink import Uplink
from headrace.common.clock import Clock, MonotonicClock
from headrace.common.ending import end_reason
from headrace.common.seeds import derive_seed
from headrace.common.specs import OUTCOME_FAILURE, OUTCOME_SUCCESS, OUTCOME_UNKNOWN
from headrace.common.weights import Version, WeightSet
from headrace.common.wire.messages import Evaluation

LOG = logging.getLogger(__name__)
WAIT_S = 0.1


@dataclass(frozen=True)
class EvaluatorSettings:
    """All that an evaluator process needs to know.

    Attributes:
        player: what an actor does; its ``actor.ema`` says which policy is judged.
        every_env_steps: how often it judges.
        episodes: over how many episodes.
        checkpoints: directory where the best policy is kept; None keeps none.
    """

    player: ActorSettings
    every_env_steps: int
    episodes: int
    checkpoints: Path | None = None


def run_evaluator(
    settings: EvaluatorSettings,
    clock: Clock | None = None,
    *,
    make_uplink: Callable[..., Uplink] = Uplink,
    make: MakePolicy = make_policy,
) -> int:
    """Evaluate the newest weights every ``every_env_steps`` env steps until told to stop; see :func:`headrace.actor.loop.run`.

    Raises:
        SessionRefused: the id is held, or the spec differs.
        EnvError: the env cannot be made, or crashes in an evaluation.
        DeadlineExceeded: no session in ``network.connect_s``.
    """
    with joined("evaluator", settings.player, clock or MonotonicClock(), make_uplink) as here:
        if here is not None:
            _follow(settings, here, make)
            LOG.info("leaving: %s", end_reason(here.uplink.stop))
            return here.code
    return 0


def _follow(settings: EvaluatorSettings, here: Joined, make: MakePolicy) -> None:
    weights: WeightSet | None = None
    policy: Policy | None = None
    uplink, due = here.uplink, 0
    while not here.must_leave:
        here.link.check()
        weights = uplink.take_weights(ema=settings.player.actor.ema) or weights
        if weights is not None and policy is None:  # of the first ones: torch takes seconds to load, while the pool fills
            policy = make(weights, here.spec, settings.player.actor)
        if policy is None or weights is None or weights.version.step == 0 or uplink.env_steps < due:
            uplink.wait(WAIT_S)
            continue
        env_steps = uplink.env_steps
        due = env_steps + settings.every_env_steps
        policy.load(weights)
        with contextlib.suppress(_LeavingError):
            result = _evaluate(settings, here, policy, weights.version, env_steps)
            if settings.checkpoints is not None:
                BestPolicy(settings.checkpoints).offer(weights, here.spec, result.verdict(weights.version, env_steps))
        here.link.wake()
        weights = None


class _LeavingError(Exception):
    """The process is to leave in the middle of an evaluation."""


def _evaluate(settings: EvaluatorSettings, here: Joined, policy: Policy, version: Version, env_steps: int) -> EvalResult:
    """Judge ``policy`` and report it.

    Raises:
        _LeavingError: the run has ended. Nobody would take what is left of it, as the learner leaves too, and the run's final
            evaluation is another one.
    """

    def go_on() -> None:
        if here.must_leave:
            raise _LeavingError

    player, uplink = settings.player, here.uplink
    seed = derive_seed(player.seed, player.actor_id)
    result = evaluate(policy, player.env, player.window, settings.episodes, seed, before_step=go_on)
    uplink.applied(version)
    returns = np.asarray(result.returns, "<f8")
    outcomes = np.full(len(returns), OUTCOME_UNKNOWN)
    if result.successes is not None:
        outcomes = np.where(result.successes, OUTCOME_SUCCESS, OUTCOME_FAILURE)
    head = Evaluation(version.epoch, version.step, env_steps, len(returns))
    frames = (returns, np.asarray(result.lengths, "<i8"), np.asarray(outcomes, "|u1"))
    uplink.event(head, *(f.tobytes() for f in frames))
    LOG.info("version %s at %d env steps: return %.2f", version.order, env_steps, result.mean)
    return result
