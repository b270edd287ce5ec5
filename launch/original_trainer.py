"""``RobRaySACTrainer``: the original's training loop, one process, over any env loop, actor and pool of its form."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from headrace.buffer.pacing import Pacing, PacingConfig
from headrace.buffer.pool import SACReplayPool
from headrace.common.errors import SpecError
from headrace.launch.original_actor import BaseSACActor
from headrace.launch.original_env_loop import Trajectories

LOG = logging.getLogger(__name__)
Array = np.ndarray[Any, Any]
COLUMNS = ("state", "action", "reward", "next_state", "terminated", "truncated", "steps")


class RollsOut(Protocol):
    """An env loop."""

    def reset(self) -> None:
        """Begin new episodes."""
        ...

    def rollout(self) -> Trajectories:
        """Play; see :meth:`RobRaySACTrainer.add_transition_prefixes` for what comes back."""
        ...


class RobRaySACTrainer:
    """Roll out, store, update: old data is kept and used again.

    ``gradient_steps_per_env_step`` means what it says: after a rollout of n executed env steps (all lanes together, padding
    not counted; each step of a chunk counts) n times as many updates are owed, exactly, fractions carried over to the next
    rollout. The first ``batch_size`` env steps fill the pool and owe nothing. The original made that many updates per
    rollout, however long the rollout was.

    Attributes:
        env_steps: executed so far.
        updates: made so far.

    Args:
        env_loop: plays.
        actor_wg: is updated.
        replay_pool: keeps the rows; by default the actor's own.
        total_steps: rollouts in :meth:`fit`.
        batch_size: rows of one update; by default the actor's.
        gradient_steps_per_env_step: updates per executed env step.
    """

    def __init__(
        self,
        env_loop: RollsOut,
        actor_wg: BaseSACActor,
        replay_pool: SACReplayPool | None = None,
        *,
        total_steps: int,
        batch_size: int | None = None,
        gradient_steps_per_env_step: float = 1,
    ) -> None:
        self.env_loop, self.actor_wg = env_loop, actor_wg
        self.replay_pool = actor_wg.replay_pool if replay_pool is None else replay_pool
        self.total_steps, self.gradient_steps_per_env_step = total_steps, gradient_steps_per_env_step
        self.batch_size = actor_wg.batch_size if batch_size is None else batch_size
        self.env_steps = self.updates = 0
        config = PacingConfig(ratio=gradient_steps_per_env_step, min_fill=self.batch_size, env_steps=0, random_steps=0)
        self._pacing = Pacing(config)

    def fit(self) -> None:
        """Train: ``total_steps`` times a rollout and the updates that it owes."""
        for step in range(self.total_steps):
            self._reset_envs(step)
            trajectories = self.env_loop.rollout()
            transitions = self.add_transition_prefixes(trajectories)
            self.replay_pool.add_batch(transitions)
            self.env_steps += int(transitions["response_mask"].sum())
            for _ in range(self._owed()):
                batch = self.replay_pool.sample_batch(self.batch_size)
                self.actor_wg.update_critic(batch)
                self.actor_wg.update_actor(batch)
                self.actor_wg.update_target_network()
                self.updates += 1
            reward = float(np.sum(transitions["reward"])) / max(1, int(transitions["response_mask"].sum()))
            LOG.info("rollout %d: %d env steps, %d updates, reward %.3f a step", step, self.env_steps, self.updates, reward)

    def add_transition_prefixes(self, trajectories: Mapping[str, Any]) -> dict[str, Any]:
        """Trajectories as rows ``(s, a, r, s', done)`` with their response mask.

        Every decision that executed a step becomes a row, in the order of lanes and time: nothing else is dropped, so the last
        step of an episode and episodes of one step are there.

        Args:
            trajectories: ``(L, T, ...)`` arrays: ``state`` and ``next_state`` (or mappings of such), ``action``, ``reward``
                (``(L, T)``, or step by step ``(L, T, K)``), ``terminated``, ``truncated``, and ``steps``: executed env steps,
                1 to K, or 0 for padding.

        Returns:
            N rows: ``state``, ``action``, ``reward``, ``next_state``, ``done`` (terminated: a truncated row bootstraps) and
            ``response_mask`` ``(N, K)``.

        Raises:
            SpecError: naming the array that is missing or has another number of lanes or steps.
        """
        _check(trajectories)
        executed = np.asarray(trajectories["steps"]) > 0
        mask = self.compute_response_mask(trajectories)
        reward = _rows(trajectories["reward"], executed)
        return {
            "state": _rows(trajectories["state"], executed),
            "action": _rows(trajectories["action"], executed),
            "reward": reward if reward.ndim == 1 else np.where(mask[executed], reward, 0),
            "next_state": _rows(trajectories["next_state"], executed),
            "done": _rows(trajectories["terminated"], executed),
            "response_mask": mask[executed],
        }

    def compute_response_mask(self, data: Mapping[str, Any]) -> Array:
        """Which of the K actions of each decision were executed: ``arange(K) < m``.

        Args:
            data: ``steps`` ``(L, T)``, m of each decision, and ``reward`` ``(L, T)`` for K = 1 or ``(L, T, K)``.

        Returns:
            ``(L, T, K)`` bool.

        Raises:
            SpecError: m is not in 0..K.
        """
        steps, reward = np.asarray(data["steps"]), np.asarray(data["reward"])
        window = reward.shape[-1] if reward.ndim > steps.ndim else 1
        if (steps < 0).any() or (steps > window).any():
            raise SpecError(f"steps: {steps.min()} to {steps.max()}, expected 0 to {window}")
        mask: Array = np.arange(window) < steps[..., None]
        return mask

    def _reset_envs(self, step: int) -> None:
        """Begin new episodes for training step ``step``; the env loop derives a new seed for each."""
        self.env_loop.reset()

    def _owed(self) -> int:
        self._pacing.observe(self.env_steps, self.updates)
        return self._pacing.updates_allowed() if self.replay_pool.size >= self.batch_size else 0


def _check(trajectories: Mapping[str, Any]) -> None:
    for name in COLUMNS:
        if name not in trajectories:
            raise SpecError(f"trajectories.{name}: missing; given are {sorted(trajectories)}")
    shape = np.shape(trajectories["steps"])
    for name in COLUMNS:
        value = trajectories[name]
        for key, array in value.items() if isinstance(value, Mapping) else [("", value)]:
            if len(shape) != 2 or np.shape(array)[:2] != shape:
                place = f"trajectories.{name}{'.' if key else ''}{key}"
                raise SpecError(f"{place}: shape {np.shape(array)}, expected (L, T, ...) with the (L, T) {shape} of steps")


def _rows(value: Any, executed: Array) -> Any:
    """``(L, T, ...)`` as the N rows that executed something, key by key."""
    if isinstance(value, Mapping):
        return {key: _rows(array, executed) for key, array in value.items()}
    return np.asarray(value)[executed]
