"""``RobDataParallelSACActor``: the original's actor, one process, over today's SAC, model contract and replay pool."""

from __future__ import annotations

import abc
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch
from torch import Tensor

from headrace.buffer.pool import SACReplayPool
from headrace.common.config import load, option
from headrace.common.errors import ConfigError, SpecError
from headrace.learner.adam import Adam
from headrace.learner.config import LearnerConfig
from headrace.learner.contract import SupportSACTraining
from headrace.learner.distribution import ActionBox
from headrace.learner.losses import bootstrap, discounted_return, discounts, require_shape
from headrace.learner.sac import SAC, Metrics
from headrace.learner.sample import Sample

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class SACActorConfig:
    """Options of :class:`RobDataParallelSACActor`; any object with these attributes will do as well."""

    action_dim: int = option(help="executed action dimensions, all steps of a chunk together", low=1)
    actor_lr: float = option(3e-4, help="Adam step size of the actor", low=0, high=1)
    critic_lr: float = option(3e-4, help="Adam step size of the critics", low=0, high=1)
    alpha_lr: float = option(3e-4, help="Adam step size of the temperature", low=0, high=1)
    replay_pool_size: int = option(100_000, help="newest rows kept", unit="rows", low=1)
    batch_size: int = option(256, help="rows of one update", unit="rows", low=1)
    gamma: float = option(0.99, help="discount of one env step", low=0, high=1)
    seed: int = option(0, help="of batches and noise", low=0)


class BaseSACActor(abc.ABC):
    """What a trainer asks of an actor.

    Attributes:
        replay_pool: where its rows are.
        batch_size: rows of one update.
    """

    replay_pool: SACReplayPool
    batch_size: int

    @abc.abstractmethod
    def update_critic(self, batch: Mapping[str, Any]) -> Metrics:
        """One step of the critics."""

    @abc.abstractmethod
    def update_actor(self, batch: Mapping[str, Any]) -> Metrics:
        """One step of the actor, then one of the temperature."""

    @abc.abstractmethod
    def update_target_network(self) -> None:
        """Move the target critics."""


class RobDataParallelSACActor(BaseSACActor):
    """SAC over plain batches: ``state, action, reward, next_state, done`` and, for several steps a row, ``response_mask``.

    A batch has B rows, as arrays or tensors:

    - ``state``, ``next_state``: ``(B, *shape)`` where the model's spec has one observation key, else mappings by key;
    - ``action``: ``(B, *action.shape)`` in env units;
    - ``reward``: ``(B,)``, or step by step ``(B, K)`` where ``response_mask`` ``(B, K)`` marks the executed steps;
    - ``done``: 1 where the task ended. A state that was only cut off by a time limit is not done: it bootstraps.

    Attributes:
        model: the networks.
        log_alpha: (), starts at 0, so alpha starts at 1.
        target_entropy: minus ``config.action_dim``.
        actor_optimizer, critic_optimizer, alpha_optimizer: Adam.
        replay_pool: newest ``config.replay_pool_size`` rows.
        batch_size: rows of one update.

    Args:
        model: the networks; its target critics start as copies.
        config: a :class:`SACActorConfig` or any object with attributes of those names.

    Raises:
        ConfigError: an option is missing or out of range, or ``action_dim`` is not the model's.
    """

    TAU = 0.005

    def __init__(self, model: SupportSACTraining, config: Any) -> None:
        options = _options(config)
        if options.action_dim != model.action_dim:
            raise ConfigError(
                f"config.action_dim: {options.action_dim}, but actions {model.spec.action.shape} have"
                f" {model.action_dim} dimensions; nearest valid: {model.action_dim}"
            )
        learner = LearnerConfig(
            batch_size=options.batch_size,
            gamma=options.gamma,
            tau=self.TAU,
            actor_lr=options.actor_lr,
            critic_lr=options.critic_lr,
            alpha_lr=options.alpha_lr,
        )
        self.model, self.batch_size = model, options.batch_size
        self._sac = SAC(model, model.spec, learner, options.seed)
        self._device = next(iter(model.actor_params()))[1].device
        self._box = ActionBox(model.spec.action, self._device)
        self._powers = discounts(options.gamma, model.spec.window).to(self._device)
        self.replay_pool = SACReplayPool(options.replay_pool_size, rng=np.random.default_rng(options.seed))

    @property
    def actor_optimizer(self) -> Adam:
        """Of the actor's parameters."""
        return self._sac.actor_optimizer

    @property
    def critic_optimizer(self) -> Adam:
        """Of the online critics' parameters."""
        return self._sac.critic_optimizer

    @property
    def alpha_optimizer(self) -> Adam | None:
        """Of ``log_alpha``."""
        return self._sac.temperature.optimizer

    @property
    def log_alpha(self) -> Tensor:
        """The trained logarithm of the temperature, ()."""
        return self._sac.log_alpha

    @property
    def alpha(self) -> Tensor:
        """The temperature, ()."""
        return self._sac.temperature.alpha()

    @property
    def target_entropy(self) -> float:
        """The entropy that alpha steers to."""
        return self._sac.target_entropy

    def update_with_replay(self, new_data: Mapping[str, Any]) -> Metrics:
        """Add rows, sample a batch, and make one update: critics, actor and temperature, target (tau 0.005).

        Args:
            new_data: rows, see the class.

        Raises:
            PoolTooSmall: fewer than ``batch_size`` rows are stored; the new ones are.
        """
        self.replay_pool.add_batch(new_data)
        batch = self.replay_pool.sample_batch(self.batch_size)
        metrics = {**self._forward_critic(batch), **self._forward_actor(batch)}
        self.update_target_network()
        return metrics

    def _forward_critic(self, batch: Mapping[str, Any]) -> Metrics:
        """One step of the critics to ``R + gamma^m (1 - done) (min Q_target(s', a') - alpha log pi(a'|s'))``.

        a' is the current policy's own action: arXiv:1812.05905, equations 2, 3, 5 and 6, with the smallest target critic.
        """
        return self._sac.update_critic(self._sample(batch))

    def _forward_actor(self, batch: Mapping[str, Any]) -> Metrics:
        """One step of the actor on ``alpha log pi - min Q``, then one of alpha; no critic changes. Equations 7 and 18."""
        return self._sac.update_actor(self._sample(batch))

    def update_critic(self, batch: Mapping[str, Any]) -> Metrics:
        """:meth:`_forward_critic`, as the trainer calls it."""
        return self._forward_critic(batch)

    def update_actor(self, batch: Mapping[str, Any]) -> Metrics:
        """:meth:`_forward_actor`, as the trainer calls it."""
        return self._forward_actor(batch)

    def update_target_network(self) -> None:
        """target <- target + tau (online - target); ends an update."""
        self.model.sac_update_target_network(tau=self.TAU)
        self._sac.step += 1

    @torch.no_grad()
    def act(self, state: Any, deterministic: bool = False) -> Array:
        """Actions ``(B, *action.shape)`` float32 in env units, inside the box.

        Args:
            state: as in a batch.
            deterministic: the policy's mode in place of a sample.
        """
        features = self.model.sac_state_features(self._observe(state), "actor")
        action, _, _ = self.model.sac_forward_actor(features, self._sac.generator, deterministic)
        spec = self.model.spec.action
        executed: Array = self._box.to_env(action).cpu().numpy().reshape(-1, *spec.shape)
        return executed.clip(np.asarray(spec.low, np.float32), np.asarray(spec.high, np.float32))

    def get_state(self) -> dict[str, Any]:
        """Learner and pool; the pool has a state from its first row on."""
        pool = self.replay_pool
        return {"sac": self._sac.get_state(), "pool": None if pool.spec is None else pool.get_state()}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Continue from :meth:`get_state`."""
        self._sac.set_state(state["sac"])
        if state["pool"] is not None:
            self.replay_pool.set_state(state["pool"])

    def check_valid(self) -> tuple[bool, str]:
        """Whether learner and pool are valid."""
        ok, reason = self._sac.check_valid()
        return self.replay_pool.check_valid() if ok else (ok, reason)

    def _sample(self, batch: Mapping[str, Any]) -> Sample:
        missing = [name for name in ("state", "action", "reward", "next_state", "done") if name not in batch]
        if missing:
            raise SpecError(f"batch.{missing[0]}: missing; the batch holds {sorted(batch)}")
        reward = self._floats(batch["reward"])
        rows, window = len(reward), self.model.spec.window
        if reward.ndim == 1:
            reward = reward.unsqueeze(1)
        require_shape("batch.reward", reward, (rows, window))
        if window > 1 and "response_mask" not in batch:
            raise SpecError(f"batch.response_mask: missing; it says how many of the {window} steps were executed")
        mask = torch.ones_like(reward) if window == 1 else self._floats(batch["response_mask"])
        require_shape("batch.response_mask", mask, (rows, window))
        done = self._floats(batch["done"])
        require_shape("batch.done", done, (rows,))
        executed = self._floats(batch["action"]).reshape(rows, -1)
        require_shape("batch.action", executed, (rows, self.model.action_dim))
        action, outside = self._box.normalise(executed)
        sample = Sample(
            self._observe(batch["state"]),
            self._observe(batch["next_state"]),
            action,
            discounted_return(reward * mask, self._powers),
            bootstrap(mask.sum(dim=1), done, self._powers),
            outside,
        )
        return self._sac.augment(sample)

    def _observe(self, state: Any) -> dict[str, Tensor]:
        specs = self.model.spec.obs
        if not isinstance(state, Mapping):
            if len(specs) > 1:
                raise SpecError(f"state: one array, but the model's spec has the keys {[o.key for o in specs]}")
            state = {specs[0].key: state}
        out = {}
        for o in specs:
            if o.key not in state:
                raise SpecError(f"state.{o.key}: missing; the state holds {sorted(state)}")
            value = out[o.key] = torch.as_tensor(state[o.key]).to(self._device)
            shape = o.shape if self.model.spec.stack == 1 else (self.model.spec.stack, *o.shape)
            require_shape(f"state.{o.key}", value, (None, *shape))
        return out

    def _floats(self, value: Any) -> Tensor:
        return torch.as_tensor(value, dtype=torch.float32).to(self._device)


def _options(config: Any) -> SACActorConfig:
    """The options among the attributes of ``config``, checked."""
    names = [f.name for f in fields(SACActorConfig)]
    return load(SACActorConfig, {name: getattr(config, name) for name in names if hasattr(config, name)}, "config")
