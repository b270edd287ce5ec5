"""Soft Actor-Critic: one optimiser update.

Haarnoja et al., Soft Actor-Critic Algorithms and Applications, arXiv:1812.05905, with two or more critics under a
minimum, of all of them or of some drawn at random, and a trained temperature. The model behind the contract does the sums;
this file decides what is summed, when, and which steps count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from headrace.common.batch import Batch
from headrace.common.clock import Clock, MonotonicClock
from headrace.common.errors import ConfigError
from headrace.common.specs import TransitionSpec
from headrace.common.statistics import ObsStatistics
from headrace.learner.adam import Adam
from headrace.learner.config import LearnerConfig
from headrace.learner.contract import SupportSACTraining
from headrace.learner.gradients import ActorGradients, Cloning, Conservatism, CriticGradients
from headrace.learner.group import Group, Order
from headrace.learner.losses import over_critics, td_error, td_target, value_scale
from headrace.learner.micro import Found, blank, joined, parts_of, split
from headrace.learner.recorded import CudaGraphs, Recorded, Recorder
from headrace.learner.sample import Sample, Sampler, of_batch
from headrace.learner.subset import CriticSubset
from headrace.learner.temperature import ALARM
from headrace.learner.train_state import TrainState

Metrics = dict[str, Tensor]


@dataclass(frozen=True)
class Plan:
    """Which steps an update consists of, beside the critics' own: of the actor, of the target, or of a cloning alone."""

    clones: bool = False
    actor: bool = False
    target: bool = False

    def __str__(self) -> str:
        """In words."""
        steps = {"a cloning": self.clones, "critics": not self.clones, "actor": self.actor, "target": self.target}
        return ", ".join(name for name, due in steps.items() if due)


class SAC(TrainState):
    """The update of a train state.

    A loss or gradient that is not finite voids the optimiser steps of its update and what the forward passes wrote into
    buffers, on the device, without a wait; such updates are counted in the metric ``sac/updates_skipped``.

    Attributes:
        prepare: turns a batch into the sample that ``update_critic`` and ``update_actor`` take.
        q: ``(B, N)`` values of the last update's rows, before its step; NaN for rows that were left out.
        td_error: ``(B,)`` |td| of the same rows, the mean over the critics, when their batch had importance weights.

    Args:
        model, spec, config, seed, group: as of :class:`TrainState`.

    Raises:
        ConfigError: options that contradict each other.
    """

    def __init__(
        self, model: SupportSACTraining, spec: TransitionSpec, config: LearnerConfig, seed: int, group: Group | None = None
    ) -> None:
        super().__init__(model, spec, config, seed, group)
        if config.cql_weight and model.sac_is_joint:
            raise ConfigError(
                f"learner.cql_weight: {config.cql_weight:g}, but the model's critics have no targets and judge both ends of a"
                " transition at once; nearest valid: 0"
            )
        if not config.resample_target_action and not spec.next_action:
            raise ConfigError(
                "learner.resample_target_action: false, but the pool's rows hold no next action (window.next_action); nearest"
                " valid: true"
            )
        if config.bc_weight and spec.latent:
            raise ConfigError(
                f"learner.bc_weight: {config.bc_weight:g}, but this model decides on latents, which nobody else has; nearest"
                " valid: 0"
            )
        self.prepare = Sampler(spec, config, self.rewards, self.normaliser, self.device, model.sac_tasks)
        model.use_precision(config.precision)
        self.q: Tensor | None = None
        self.td_error: Tensor | None = None
        self._buffers = list(model.buffers())
        self._float_buffers = [b for b in self._buffers if b.is_floating_point()]
        self._counts = True
        self._statistics: ObsStatistics | None = None
        self._critic_clip = config.grad_clip if config.critic_grad_clip is None else config.critic_grad_clip
        self._parts = parts_of(config, model)
        self._subset = CriticSubset(config.target_critics, self.generator, self._group)
        if hasattr(model.options, "critics"):  # of another model the first update tells
            self._subset.require(model.options.critics)
        self._skip = torch.zeros((), device=self.device)
        self._mean_abs_q = torch.ones((), device=self.device)
        self._recorded: Recorded | None = None
        if config.cuda_graphs:
            self.record(CudaGraphs())

    def update(
        self,
        batch: Batch,
        statistics: ObsStatistics | None = None,
        actor_batch: Batch | None = None,
        *,
        counts: bool = True,
    ) -> Metrics:
        """One optimiser update, of all ranks of the group at once: losses are means over the rows of all.

        Args:
            batch: rows from the pool.
            statistics: the pool's; used from now on, and part of the weights from now on. Of a group,
                those of rank 0.
            actor_batch: rows for the steps of actor and temperature; None takes those of ``batch``.
            counts: false on a further rank that has no new rows, so that the others do not wait for it.

        Returns:
            Metrics as () tensors, none of which was waited for.

        Raises:
            SpecError: batch, statistics or model do not fit the spec.
        """
        self._take_statistics(statistics)
        self._counts = counts
        self.step += 1
        plan = self._plan()
        batches = [batch] if actor_batch is None else [batch, actor_batch]
        batches = batches[-1:] if plan.clones else batches if plan.actor else batches[:1]
        if self._recorded is not None:
            return self._recorded(plan, [self.prepare.columns(each) for each in batches])
        return self.make(plan, [self.prepare(each) for each in batches])

    def record(self, recorder: Recorder, clock: Clock | None = None) -> None:
        """Have updates recorded from now on, where that pays.

        Raises:
            ConfigError: the model's steps are not the same each time, or there are several ranks.
        """
        kind, size = type(self.model).__name__, self._group.size
        what = f"the steps of {kind}" if not self.model.CAPTURABLE else f"{size} ranks" if size > 1 else ""
        what = what or ("model.options.switches" if self.model.sac_switches else "")  # which copy numbers from the host
        if what:
            raise ConfigError(f"learner.cuda_graphs: true, but {what} cannot be recorded; nearest valid: false")
        self._recorded = Recorded(self, recorder, clock or MonotonicClock())

    def make(self, plan: Plan, samples: Sequence[Sample]) -> Metrics:
        """All that one update does on the device, always the same for one plan and samples of one shape.

        Args:
            plan: its steps.
            samples: of the critics, and behind it that of the actor where that has one of its own; of a cloning the actor's.
        """
        sample = self._seen(samples[0])
        if plan.clones:
            metrics = self.clone(sample)
        else:
            metrics = self.update_critic(sample) | self.rewards.metrics()
            if plan.actor:
                metrics |= self.update_actor(sample if len(samples) == 1 else self._seen(samples[1]))
            if plan.target:
                self.update_target_network()
        self._skipped.add_(self._skip)
        return {**metrics, "sac/updates_skipped": self._skipped.clone()}

    def clone(self, sample: Sample) -> Metrics:
        """One step of the actor by cloning alone; nothing else changes."""
        self.q = self.td_error = None
        self._skip = torch.zeros_like(self._skip)
        return self._step_actor(sample, self._cloning_gradients)

    def augment(self, sample: Sample) -> Sample:
        """The sample as the model learns from it: observations and next ones each with noise of their own."""
        obs, next_obs = (self.model.sac_augment(side, self.generator) for side in (sample.obs, sample.next_obs))
        return replace(sample, obs=obs, next_obs=next_obs)

    def update_critic(self, sample: Sample) -> Metrics:
        """One step of the critics towards the target of clipped double Q."""
        buffers = self._copy_buffers()
        self._subset.renew()
        judge = self._joint_critic_gradients if self.model.sac_is_joint else self._critic_gradients
        found, target = self._found(judge, sample)
        self.q = of_batch(sample, found.q)
        errors = td_error(found.q, target) if sample.importance is not None and self._counts else None
        self.td_error = None if errors is None else of_batch(sample, errors)
        self._skip = torch.zeros_like(self._skip)
        means = {"critic/qvalue_mean": found.q.mean(), "data/reward_mean": sample.reward.mean()}
        if found.penalty is not None:
            means["critic/penalty"] = found.penalty
        if self.config.td3_bc_alpha is not None:
            means["critic/qvalue_abs_mean"] = self._mean_abs_q = over_critics(found.q, self.config.actor_reduction).abs().mean()
        self._reduce(sample, found.gradients, found.loss, *means.values())
        norm = self._step(self.critic_optimizer, found.loss, found.gradients, buffers, self._critic_clip)
        self._outside.add_(sample.outside)
        return {"critic/loss": found.loss, "critic/grad_norm": norm, **means, "data/actions_clipped": self._outside.clone()}

    def update_actor(self, sample: Sample) -> Metrics:
        """One step of the actor and of the temperature; nothing else changes."""
        alpha = self.temperature.alpha()
        metrics = self._step_actor(sample, lambda rows: self._actor_gradients(rows, alpha))
        log_prob = metrics.get("actor/logprob_mean")
        if log_prob is not None:
            self.temperature.update(log_prob, self._skip)
        return {**metrics, "sac/alpha": alpha, "sac/alpha_alarm": (alpha > ALARM).float()}

    def update_target_network(self) -> None:
        """Move the target by ``tau``."""
        self.model.sac_update_target_network(self.config.tau)

    def set_state(self, state: Mapping[str, Any]) -> None:
        """As of :class:`TrainState`; the next statistics are taken anew."""
        super().set_state(state)
        self._statistics = None

    # --- one step ---------------------------------------------------------------------------------------------------

    def _plan(self) -> Plan:
        """The steps that this update consists of: cloning first, then the critics alone, then all."""
        config, step = self.config, self.step - self.config.cloning_updates
        if step <= 0:
            return Plan(clones=True)
        actor = step > config.critic_warmup_updates and step % config.actor_update_interval == 0
        return Plan(actor=actor, target=step % config.target_update_interval == 0)

    def _step_actor(self, sample: Sample, judge: Callable[[Sample], ActorGradients]) -> Metrics:
        """A step of the actor, and of its average, with the gradients that ``judge`` finds."""
        buffers = self._copy_buffers()
        found = self._found(judge, sample)
        numbers = {"qvalue_mean": found.q, "logprob_mean": found.log_prob, "cloning_loss": found.cloning}
        means = {f"actor/{name}": value.mean() for name, value in numbers.items() if value is not None}
        self._reduce(sample, found.gradients, found.loss, *means.values())
        norm = self._step(self.actor_optimizer, found.loss, found.gradients, buffers, self.config.grad_clip)
        if self.average is not None:
            self.average.follow(self.model.policy_tensors(), self._skip)
        return {"actor/loss": found.loss, "actor/grad_norm": norm, **means}

    def _seen(self, sample: Sample) -> Sample:
        sample = self.augment(sample)
        if self.model.sharding is None or (self._counts and sample.counts):
            return sample
        return blank(sample)  # 0 times the gradients of what may not be finite would be none

    def _found(self, judge: Callable[[Sample], Found], sample: Sample) -> Found:
        """What a step finds over all rows of a sample, in as many parts as are wanted."""
        sharding = self.model.sharding
        if self._parts == 1 and sharding is None:
            return judge(sample)

        def found() -> Iterator[tuple[Found, float]]:
            for part, share in split(sample, self._parts):
                if sharding is not None:
                    sharding.rows = self._rows(part)
                yield judge(part), share

        return joined(found(), sums=sharding is not None)

    def _critic_gradients(self, sample: Sample) -> tuple[CriticGradients, Tensor]:
        """Gradients of the critics towards what their targets say of the next step, and that target."""
        model = self.model
        with torch.no_grad():
            after = model.next_features(sample.next_obs)
            next_q, next_log_prob = model.sac_next_values(*after, self.generator, sample.next_action)
            target = self._target(sample, next_q, next_log_prob)
            conservatism = self._conservatism(sample, after[0])
        features = model.state_features(sample.obs, "critic")
        return model.sac_critic_gradients(features, sample.action, target, sample.importance, conservatism), target

    def _joint_critic_gradients(self, sample: Sample) -> tuple[CriticGradients, Tensor]:
        """The same where the critics say it themselves, in one pass: Bhatt et al., CrossQ, arXiv:1902.05605."""
        model = self.model
        with torch.no_grad():
            after = model.state_features(sample.next_obs, "actor")
        both = {key: torch.cat((values, sample.next_obs[key])) for key, values in sample.obs.items()}
        features = model.state_features(both, "critic")
        q, next_q, next_log_prob = model.sac_joint_values(after, features, sample.action, self.generator, sample.next_action)
        target = self._target(sample, next_q, next_log_prob)
        return model.sac_gradients_at(q, target, sample.importance), target

    def _actor_gradients(self, sample: Sample, alpha: Tensor) -> ActorGradients:
        """Gradients of the actor towards what the critics say of its own actions."""
        model, reduction = self.model, self.config.actor_reduction
        actor_features, critic_features = model.actor_step_features(sample.obs)
        cloning = self._cloning(sample)
        found = model.sac_actor_gradients(actor_features, critic_features, alpha, self.generator, reduction, cloning)
        if found.log_prob is None:
            self._require_no_entropy()
        return found

    def _cloning_gradients(self, sample: Sample) -> ActorGradients:
        """Gradients of the actor towards replayed actions, and nothing else."""
        model, cloning = self.model, self._cloning(sample)
        if cloning is None:
            raise ConfigError("learner.bc_weight: 0, so there is nothing to clone; nearest valid: 1")
        return model.sac_cloning_gradients(model.state_features(sample.obs, "actor"), cloning)

    def _target(self, sample: Sample, next_q: Tensor, next_log_prob: Tensor | None) -> Tensor:
        if next_log_prob is None:
            self._require_no_entropy()
        entropy = next_log_prob if self.config.entropy_backup and sample.next_action is None else None
        return td_target(sample.reward, sample.weight, self._subset.of(next_q), entropy, self.temperature.alpha())

    def _conservatism(self, sample: Sample, after: Any) -> Conservatism | None:
        """Actions whose values CQL holds down in the next step, if it does: random ones, and the policy's at both ends."""
        config = self.config
        if not config.cql_weight:
            return None
        here = self.model.state_features(sample.obs, "actor")
        actions, log_density = self.model.sac_other_actions((here, after), config.cql_actions, self.generator)
        return Conservatism(actions, log_density, config.cql_weight, config.cql_temperature)

    def _cloning(self, sample: Sample) -> Cloning | None:
        """What the actor clones in the next step, if it does; TD3+BC scales its values by those of the critics' last step."""
        if sample.cloned is None:
            return None
        alpha = self.config.td3_bc_alpha
        scale = torch.ones_like(self._mean_abs_q) if alpha is None else value_scale(self._mean_abs_q, alpha)
        return Cloning(sample.action, sample.cloned, self.config.bc_weight, scale)

    def _rows(self, sample: Sample) -> int:
        """Rows of a sample that count."""
        return len(sample.reward) if self._counts and sample.counts else 0

    def _reduce(self, sample: Sample, gradients: list[Tensor], *means: Tensor) -> None:
        """Means over this rank's rows, and buffers, become those of the group; so do gradients, which are sums if of shards."""
        own, sums = (gradients, []) if self.model.sharding is None else ([], gradients)
        self._group.mean([*means, *own, *self._float_buffers], self._rows(sample), sums)

    def _take_statistics(self, statistics: ObsStatistics | None) -> None:
        if not self.config.normalises:
            return
        fresh = self._group.leads and statistics is not None and statistics is not self._statistics
        if statistics is not None and fresh:
            for part in self._fed:
                part.load(statistics)
            self._statistics = statistics
        if self._group.size > 1 and self._group.order(Order.UPDATE if fresh else Order.WAIT) is Order.UPDATE:
            for part in self._fed:
                own = part.get_state()
                self._group.copy_first([own[name] for name in sorted(own)])
                part.set_state(own)

    def _copy_buffers(self) -> list[Tensor]:
        return [b.clone() for b in self._buffers]

    @torch.inference_mode()
    def _step(
        self, optimizer: Adam, loss: Tensor, gradients: list[Tensor], buffers: list[Tensor], clip: float | None
    ) -> Tensor:
        """Judge, clip, step, or put the buffers back; returns the norm of the gradient before clipping."""
        norm: Tensor = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))
        if self.model.sharding is not None:
            norm = self._group.norm(norm)
        # 0 times a number is 0, and 0 times what is none is NaN; three kernels where isfinite() and a cast take six
        self._skip = torch.maximum(self._skip, (norm + loss).mul_(0.0).nan_to_num_(nan=1.0))
        if clip is not None:
            torch._foreach_mul_(gradients, (clip / (norm + 1e-6)).clamp(max=1.0))
        optimizer.step(gradients, self._skip)
        for buffer, before in zip(self._buffers, buffers, strict=True):
            buffer.copy_(torch.where(self._skip > 0, before, buffer))
        return norm

    def _require_no_entropy(self) -> None:
        if self.config.temperature != "fixed" or self.config.alpha != 0:
            raise ConfigError(
                f"learner.temperature: {self.config.temperature} with alpha {self.config.alpha:g}, but the model's policy"
                " has no density; set temperature fixed and alpha 0"
            )
