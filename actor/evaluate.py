"""Evaluation: a fixed list of seeded episodes played deterministically, and what their returns say."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from headrace.actor.config import EnvConfig, WindowConfig
from headrace.actor.deciding import Acts, Decider, Obs
from headrace.actor.envs import Lanes, LaneStep
from headrace.actor.policy import Policy
from headrace.actor.rewarding import rewarded
from headrace.actor.stacking import FrameStack
from headrace.common.errors import EnvError
from headrace.common.seeds import derive_seed
from headrace.common.specs import OUTCOME_SUCCESS, OUTCOME_UNKNOWN
from headrace.common.weights import Version

Array = np.ndarray[Any, Any]
MAX_EPISODE_STEPS = 1_000_000
BOOTSTRAP_DRAWS = 10_000
FEWEST = 3  # values of which an interval is given: 1 or 2, resampled, have 1 or 3 different means


@dataclass(frozen=True)
class EvalResult:
    """What n episodes gave, in the order of their seeds.

    Attributes:
        returns: ``(n,)`` float64, undiscounted sum of rewards.
        lengths: ``(n,)`` int64, env steps.
        successes: ``(n,)`` bool, or None when the environment never said.
        tasks: ``(n,)`` int64, the task of each; None where there is one task.
    """

    returns: Array
    lengths: Array
    successes: Array | None
    tasks: Array | None = None

    @property
    def mean(self) -> float:
        """Mean return."""
        return float(self.returns.mean())

    @property
    def std(self) -> float:
        """Standard deviation of the returns (over n)."""
        return float(self.returns.std())

    @property
    def success_rate(self) -> float | None:
        """Share of successful episodes, 0 to 1; None when the environment never said."""
        return None if self.successes is None else float(self.successes.mean())

    def verdict(self, version: Version, env_steps: int) -> dict[str, Any]:
        """What a status tells of it, as plain values: which version was judged at which env step, and how it did."""
        return {
            "epoch": version.epoch,
            "step": version.step,
            "env_steps": env_steps,
            "episodes": len(self.returns),
            "return_mean": self.mean,
            "return_std": self.std,
            "length_mean": float(self.lengths.mean()),
            "success_rate": self.success_rate,
        }


def evaluate(
    policy: Policy,
    env: EnvConfig,
    window: WindowConfig,
    episodes: int,
    seed: int,
    before_step: Callable[[], None] | None = None,
    watch: Callable[[int, Array], None] | None = None,
) -> EvalResult:
    """Play exactly ``episodes`` episodes, episode i reset with ``derive_seed(seed, "eval", i)``.

    Which lane plays which episode is settled before the first step, so short episodes are not favoured.

    Args:
        policy: acts deterministically.
        env: the environment; ``env.lanes`` of its episodes run at a time.
        window: its stack is what the policy sees.
        episodes: how many, at least 1.
        seed: of the whole evaluation.
        before_step: called before each step; what it raises ends the evaluation.
        watch: told after each step how many episodes have ended, and the ``(n,)`` env steps of each so far.

    Raises:
        EnvError: the environment crashed, or an episode does not end.
    """
    if episodes < 1:
        raise EnvError(f"an evaluation needs at least 1 episode, got {episodes}")
    lanes = _lanes(replace(env, lanes=min(env.lanes, episodes)), window, seed)
    with contextlib.closing(lanes):
        return play_lanes(policy, lanes, episodes, seed, before_step, watch=watch)


def bootstrap_interval(values: Array, rng: np.random.Generator, level: float = 0.95) -> tuple[float, float] | None:
    """Percentile bootstrap interval of the mean (Efron and Tibshirani 1993, section 13.3); none of fewer than ``FEWEST``.

    Args:
        values: ``(n,)`` numbers, n >= 1.
        rng: draws the resamples.
        level: probability inside the interval.
    """
    if len(values) < FEWEST:
        return None
    picks = rng.integers(0, len(values), (BOOTSTRAP_DRAWS, len(values)))
    low, high = np.quantile(np.asarray(values, np.float64)[picks].mean(axis=1), [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def _lanes(env: EnvConfig, window: WindowConfig, seed: int) -> Lanes:
    from headrace.actor.gym_lanes import GymLanes

    return rewarded(GymLanes(env, window, (seed, "eval")), env)


def play_lanes(
    policy: Policy,
    lanes: Lanes,
    episodes: int,
    seed: int,
    before_step: Callable[[], None] | None = None,
    after_step: Callable[[Obs, Acts, LaneStep], None] | None = None,
    watch: Callable[[int, Array], None] | None = None,
) -> EvalResult:
    """As :func:`evaluate`, in lanes that are there; ``after_step`` is told what was seen and done, and what came of it."""
    rng = np.random.default_rng(derive_seed(seed, "eval", "policy"))
    returns, lengths = np.zeros(episodes), np.zeros(episodes, np.int64)
    outcomes = np.full(episodes, OUTCOME_UNKNOWN, np.uint8)
    stack, decider, begun = FrameStack(lanes.spec, lanes.count), Decider(lanes.spec, lanes.count), lanes.reset()
    obs, playing, done = stack.push(begun.obs, begun.episode), begun.episode, 0
    task, tasks = begun.task, np.zeros(episodes, np.int64)
    while done < episodes:
        if before_step is not None:
            before_step()
        acts = decider.act(obs, lambda seen: policy.act(seen, rng, True))
        step = lanes.step(acts.actions)
        if after_step is not None:
            after_step(obs, acts, step)
        for lane in np.flatnonzero(playing < episodes):  # a lane that played its share goes on, unseen
            episode = playing[lane]
            if step.crashed[lane]:
                raise EnvError(f"evaluation: the env crashed in episode {episode}, which cannot be replaced without bias")
            if not step.live[lane]:
                continue
            tasks[episode] = 0 if task is None else task[lane]
            returns[episode] += step.rewards[lane]
            lengths[episode] += 1
            if step.terminated[lane] or step.truncated[lane]:
                outcomes[episode] = step.success[lane]
                done += 1
            elif lengths[episode] >= MAX_EPISODE_STEPS:
                raise EnvError(f"evaluation: episode {episode} runs for {MAX_EPISODE_STEPS} steps; set env.max_episode_steps")
        if watch is not None:
            watch(done, lengths)
        decider.restart(step.episode != playing)
        obs, playing, task = stack.push(step.obs, step.episode), step.episode, step.task
    known = bool((outcomes != OUTCOME_UNKNOWN).any())
    return EvalResult(
        returns, lengths, outcomes == OUTCOME_SUCCESS if known else None, tasks if len(np.unique(tasks)) > 1 else None
    )
