"""The train state: everything that learning changes, saved and restored whole, and the policy as it travels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from headrace.common.errors import CheckpointError, ConfigError, SpecError
from headrace.common.seeds import derive_seed
from headrace.common.specs import TransitionSpec
from headrace.common.weights import AVERAGE, Version, WeightSet, require_policy
from headrace.learner.adam import Adam, copy_tensors
from headrace.learner.average import PolicyAverage
from headrace.learner.config import BF16, SHARDED, LearnerConfig
from headrace.learner.contract import SupportSACTraining
from headrace.learner.group import Group
from headrace.learner.losses import discounts
from headrace.learner.normalise import ObsNormaliser
from headrace.learner.rewards import Rewards
from headrace.learner.shards import gathered, held
from headrace.learner.temperature import Temperature


class TrainState:
    """The parts of one learner.

    Attributes:
        step: updates so far.
        model, actor_optimizer, critic_optimizer, temperature, rewards, normaliser, average: the parts; the last two where they
            are wanted, else None.
        generator: source of all noise.
        target_entropy: H of the temperature's loss.
        device: where all of it is.

    Args:
        model: the networks, on the device where training happens.
        spec: columns of the batches.
        config: the algorithm's options.
        seed: of all noise.
        group: ranks that make each update together; None is this process alone.

    Raises:
        ConfigError: options that contradict each other.
    """

    def __init__(
        self, model: SupportSACTraining, spec: TransitionSpec, config: LearnerConfig, seed: int, group: Group | None = None
    ) -> None:
        config.check("learner")
        self.model, self.config, self.step = model.train(), config, 0
        self._group, self._seed = group or Group(), seed
        if config.normalise_obs and model.policy_description()["type"] != "mlp":
            raise ConfigError(
                "learner.normalise_obs: true, but actors normalise for the mlp only; a model of your own normalises in"
                " sac_state_features(), with buffers of its own; nearest valid: false"
            )
        if config.strategy == SHARDED and self._group.size == 1:
            raise ConfigError(
                "learner.strategy: sharded, but this learner is a single rank and has nobody to share with; nearest valid:"
                " replicated, or start several ranks"
            )
        self._actor_keys = {o.key for o in spec.obs if o.role != "critic"}
        model.sac_update_target_network(1.0)  # the target starts as a copy, whatever the model drew for it
        self.device = next(iter(model.actor_params()))[1].device
        if self.device.type != config.device:
            raise ConfigError(
                f"learner.device: {config.device}, but the model is on {self.device.type} here, the nearest valid"
            )
        self._make_followers()
        self.target_entropy = config.target_entropy_per_dim * model.sac_entropy_dim
        self.temperature = Temperature(config, self.target_entropy, self.device)
        self.normaliser = ObsNormaliser(spec, self.device) if config.normalise_obs else None
        powers = discounts(config.gamma, spec.window).to(self.device)
        self.rewards = Rewards(powers, normalise=config.normalise_rewards, penalty=config.step_penalty)
        self._fed: list[ObsNormaliser | Rewards] = [self.rewards]  # by the pool's statistics
        self._fed += [] if self.normaliser is None else [self.normaliser]
        self.generator = torch.Generator(self.device)
        self._seed_noise()
        model.use_generator(self.generator)
        self._skipped = torch.zeros((), dtype=torch.float64, device=self.device)
        self._outside = torch.zeros((), dtype=torch.int64, device=self.device)

    @property
    def log_alpha(self) -> Tensor:
        """The trained number of the temperature, ()."""
        return self.temperature.raw

    # --- the policy as it travels -----------------------------------------------------------------------------------

    def weights(self, version: Version) -> WeightSet:
        """A copy of the policy as it is now and of its average, with the observation statistics that belong to both.

        Where ranks share the model, all have to call this together, as well as :meth:`get_state`.
        """
        policy = {**self.model.policy_description(), "normalise": self.normaliser is not None}
        tensors = {name: _to_numpy(gathered(t)) for name, t in self.model.policy_tensors().items()}
        if self.average is not None:
            tensors.update({AVERAGE + name: _to_numpy(gathered(t)) for name, t in self.average.tensors.items()})
        if self.normaliser is not None:
            for name, tensor in self.normaliser.get_state().items():
                if name.partition(".")[2] in self._actor_keys:
                    tensors[name] = _to_numpy(tensor)
        return WeightSet(version, policy, tensors)

    @property
    def halved(self) -> list[str]:
        """Names of tensors that travel in bfloat16: the trained ones, and their averages, if that is asked for."""
        if self.config.published != BF16:
            return []
        policy = self.model.policy_tensors()
        names = [name for name, _ in self.model.actor_params() if name in policy and policy[name].dtype == torch.float32]
        return names if self.average is None else [*names, *(AVERAGE + name for name in names)]

    def load_policy(self, weights: WeightSet) -> None:
        """Start the actor, and its average, from a published policy of the same description; all else stays as it is.

        Raises:
            SpecError: another description, or a tensor that does not fit.
        """
        own = self.weights(weights.version).chosen()
        fix = "begin with another one, or set env, model and learner.normalise_obs as in the run that it comes from"
        require_policy(_without_code(weights), _without_code(own).policy, fix)  # the file may have been edited since
        tensors = {name: torch.tensor(array) for name, array in weights.chosen().tensors.items()}
        statistics = {} if self.normaliser is None else self.normaliser.get_state()
        try:
            copy_tensors(
                {**self.model.policy_tensors(), **{name: statistics[name] for name in statistics if name in own.tensors}},
                tensors,
                "policy",
            )
        except CheckpointError as error:
            raise SpecError(str(error)) from error
        if self.average is not None:
            self.average.restart(self.model.policy_tensors())
        if self.normaliser is not None:
            self.normaliser.set_state(statistics)

    # --- state ------------------------------------------------------------------------------------------------------

    def get_state(self) -> dict[str, Any]:
        """``tensors``: name -> copy of every tensor that learning changes; ``scalars``: plain values."""
        tensors = {name: gathered(tensor).detach().clone() for name, tensor in self._tensors().items()}
        tensors["generator"] = self.generator.get_state()
        for name, part in self._stateful().items():
            tensors.update({f"{name}.{key}": tensor for key, tensor in part.get_state().items()})
        return {"tensors": tensors, "scalars": {"step": self.step}}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Take what :meth:`get_state` gave.

        Raises:
            CheckpointError: a part is missing, unknown or of another shape.
        """
        tensors: dict[str, dict[str, Tensor]] = {"": {}}
        parts = self._stateful()
        for name, tensor in state["tensors"].items():
            part, _, rest = name.partition(".")
            group, key = (part, rest) if part in parts else ("", name)
            tensors.setdefault(group, {})[key] = tensor
        generator = tensors[""].pop("generator", None)
        if generator is None or "step" not in state["scalars"]:
            raise CheckpointError(f"learner state: {'generator' if generator is None else 'step'} is missing")
        copy_tensors(self._tensors(), tensors[""], "learner")
        for name, own in parts.items():
            try:
                own.set_state(tensors.get(name, {}))
            except CheckpointError as error:
                raise CheckpointError(f"{name}: {error}") from error
        self._restore_noise(generator.cpu(), int(state["scalars"]["step"]))
        self.step = int(state["scalars"]["step"])

    def check_valid(self) -> tuple[bool, str]:
        """Whether every number is finite and the counters make sense."""
        for name, tensor in self._tensors().items():
            if tensor.is_floating_point() and not bool(torch.isfinite(held(tensor)).all()):
                return False, f"{name} is not finite"
        for name, part in self._stateful().items():
            ok, reason = part.check_valid()
            if not ok:
                return False, f"{name}: {reason}"
        return self.step >= 0, f"step is {self.step}" if self.step < 0 else ""

    @property
    def is_sharded(self) -> bool:
        """Whether the ranks share one model."""
        return self.model.sharding is not None

    def begin(self) -> None:
        """Begin as rank 0 of the group is, with noise of this rank's own, and with its share of the model if it is shared.

        Until then every rank holds all of it, so a checkpoint is restored before.
        """
        if self._group.size == 1:
            return
        state, step = self.get_state(), torch.tensor(self.step)
        self._group.copy_first([step, *(t for name, t in sorted(state["tensors"].items()) if name != "generator")])
        state["scalars"]["step"] = int(step)
        if self.config.strategy == SHARDED:
            self.model.shard(self._group.size)
            self._make_followers()
        elif self._group.leads:
            return
        self.set_state(state)
        if not self._group.leads:
            self._seed_noise()

    def _make_followers(self) -> None:
        """What holds on to the model's parameters: optimisers and average."""
        model, config = self.model, self.config
        betas = (config.adam_beta1, config.adam_beta2)
        self.actor_optimizer = Adam(list(model.actor_params()), config.actor_lr, betas)
        self.critic_optimizer = Adam(list(model.critic_params()), config.critic_lr, betas)
        decay = config.ema_decay
        self.average = None if decay is None else PolicyAverage(model.policy_tensors(), decay)

    def _tensors(self) -> dict[str, Tensor]:
        own = {"log_alpha": self.temperature.raw, "skipped": self._skipped, "outside": self._outside}
        return {**own, **{f"model.{name}": tensor for name, tensor in self.model.learned_tensors().items()}}

    def _stateful(self) -> dict[str, Adam | ObsNormaliser | Rewards | PolicyAverage]:
        """Parts with a state of their own, by the name that their tensors' names begin with."""
        named: dict[str, Adam | ObsNormaliser | Rewards | PolicyAverage | None] = {
            "actor_optimizer": self.actor_optimizer,
            "critic_optimizer": self.critic_optimizer,
            "alpha_optimizer": self.temperature.optimizer,
            "normaliser": self.normaliser,
            "rewards": self.rewards,
            "average": self.average,
        }
        return {name: part for name, part in named.items() if part is not None}

    def _restore_noise(self, state: Tensor, step: int) -> None:
        if state.shape == self.generator.get_state().shape:
            self.generator.set_state(state)
        else:  # of another kind of device, whose noise cannot be gone on with here
            self.generator.manual_seed(derive_seed(self._seed, "sac", self.device.type, step))

    def _seed_noise(self) -> None:
        further = () if self._group.leads else (self._group.rank, self.step)  # a group that begins again draws other noise
        self.generator.manual_seed(derive_seed(self._seed, "sac", *further))


def _to_numpy(tensor: Tensor) -> np.ndarray[Any, Any]:
    array = tensor.detach().cpu().numpy()
    return array.astype(array.dtype.newbyteorder("<"), copy=True)


def _without_code(weights: WeightSet) -> WeightSet:
    return replace(weights, policy={name: value for name, value in weights.policy.items() if name != "code"})
