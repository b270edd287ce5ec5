"""The built-in model: a tanh-Gaussian actor and N critics, each a dense network over the concatenated observation."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from headrace.common.cores import usable_cores
from headrace.common.errors import SpecError
from headrace.common.specs import TransitionSpec
from headrace.learner.config import MEAN, MIN, MLPOptions
from headrace.learner.contract import ONLINE, TARGET
from headrace.learner.crew import SHARES_MEMORY, Crew, nbytes, tensors_in
from headrace.learner.critic import Dropout, SteadyCritic
from headrace.learner.dense import Dense
from headrace.learner.distribution import LOG_STD_MAX, LOG_STD_MIN
from headrace.learner.gaussian_actor import GaussianActor
from headrace.learner.gradients import ActorGradients, Cloning, Conservatism, CriticGradients
from headrace.learner.inputs import flat, keys_of
from headrace.learner.losses import actor_loss, critic_loss
from headrace.learner.mlp_steps import (
    ACTOR_GRADIENTS,
    CRITIC_GRADIENTS,
    MEAN_ACTOR_GRADIENTS,
    NEXT_VALUES,
    Networks,
    Steps,
)


class MLP(GaussianActor):
    """Actor and critics share nothing; a key of role ``actor`` or ``critic`` is seen by that side only.

    Raises:
        ConfigError: an option is unknown or out of range.
        SpecError: no observation key for one of the two sides, or a switch that is no dimension of the action.
    """

    Options: ClassVar[type[Any]] = MLPOptions
    CAPTURABLE: ClassVar[bool] = True
    actor: Dense

    def __init__(self, spec: TransitionSpec, **options: Any) -> None:
        super().__init__(spec, **options)
        self._keys = {role: keys_of(spec, role) for role in ("actor", "critic")}
        sizes = {role: spec.stack * sum(math.prod(o.shape) for o in keys) for role, keys in self._keys.items()}
        self.actor = Dense(sizes["actor"], self.options.hidden, 2 * self.action_dim)
        inputs = sizes["critic"] + self.action_dim
        self.critics = nn.ModuleList(_critic(inputs, self.options) for _ in range(self.options.critics))
        targets = [] if self.options.critic_batch_norm else list(copy.deepcopy(self.critics))
        self.target_critics = nn.ModuleList(targets).requires_grad_(False).eval()
        self._crew = Crew(1)
        self._steps: Steps | None = None

    def sac_state_features(self, obs: Mapping[str, Tensor], role: str) -> Tensor:
        """Keys that the role sees, in order, flattened and concatenated, ``(B, F)`` float32; uint8 keys as x / 255."""
        keys = self._keys[role]
        parts = [flat(obs[o.key], o) for o in keys]
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)

    def sac_forward_critic(self, features: Tensor, action: Tensor, twin: str = ONLINE) -> Tensor:
        """Values of the N critics, ``(B, N)``."""
        x = torch.cat((features, action), dim=1)
        return torch.cat([head(x) for head in self._heads(twin)], dim=1)

    def actor_params(self) -> Iterator[tuple[str, nn.Parameter]]:
        """All of the actor; named as in the policy format."""
        return self.actor.named_parameters()

    def critic_params(self) -> Iterator[tuple[str, nn.Parameter]]:
        """All of the online critics."""
        return self.critics.named_parameters()

    @property
    def critic_network_heads(self) -> Sequence[nn.Module]:
        """The online critics, each ``(B, F + D) -> (B, 1)``."""
        return list(self.critics)

    @property
    def target_network_heads(self) -> Sequence[nn.Module]:
        """Their slow copies; none with batch norm."""
        return list(self.target_critics)

    def policy_description(self) -> dict[str, Any]:
        """The policy format ``mlp``, which actors run without torch."""
        switches = {"switches": sorted(self.options.switches)} if self.options.switches else {}
        return {
            "type": "mlp",
            "keys": [o.key for o in self._keys["actor"]],
            "hidden": list(self.options.hidden),
            "activation": "relu",
            "stack": self.spec.stack,
            "low": list(self.spec.action.low),
            "high": list(self.spec.action.high),
            "log_std": [LOG_STD_MIN, LOG_STD_MAX],
            **switches,
        }

    def policy_tensors(self) -> dict[str, Tensor]:
        """``trunk.{i}.weight``, ``trunk.{i}.bias``, ``head.weight``, ``head.bias``."""
        return {name: p.detach() for name, p in self.actor_params()}

    # --- the three steps by hand, see mlp_steps.py ------------------------------------------------------------------

    def sac_next_values(
        self,
        actor_features: Tensor,
        critic_features: Tensor,
        generator: torch.Generator | None,
        executed: Tensor | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """Target values and log pi, see the contract."""
        steps = self._by_hand(actor_features) if executed is None else None
        if steps is None:
            return super().sac_next_values(actor_features, critic_features, generator, executed)
        steps.actor_features.copy_(actor_features)
        steps.critic_features.copy_(critic_features)
        steps.noise.normal_(generator=generator)
        self._crew.run(NEXT_VALUES, steps.do, steps.shares)
        return steps.q.clone(), steps.log_prob.clone()

    def sac_critic_gradients(
        self,
        features: Tensor,
        action: Tensor,
        target: Tensor,
        importance: Tensor | None = None,
        conservatism: Conservatism | None = None,
    ) -> CriticGradients:
        """Critic loss and gradients, see the contract."""
        steps = self._by_hand(features) if conservatism is None else None
        if steps is None:
            return super().sac_critic_gradients(features, action, target, importance, conservatism)
        steps.critic_features.copy_(features)
        steps.action.copy_(action)
        steps.target.copy_(target)
        steps.importance.copy_(importance) if importance is not None else steps.importance.fill_(1.0)
        self._crew.run(CRITIC_GRADIENTS, steps.do, steps.shares)
        q = steps.q.clone()
        return CriticGradients(critic_loss(q, target, importance), q, steps.critic_sum())

    def sac_actor_gradients(
        self,
        actor_features: Tensor,
        critic_features: Tensor,
        alpha: Tensor,
        generator: torch.Generator | None,
        reduction: str = MIN,
        cloning: Cloning | None = None,
    ) -> ActorGradients:
        """Actor loss and gradients, see the contract."""
        steps = self._by_hand(actor_features) if cloning is None else None
        if steps is None:
            return super().sac_actor_gradients(actor_features, critic_features, alpha, generator, reduction, cloning)
        steps.actor_features.copy_(actor_features)
        steps.critic_features.copy_(critic_features)
        steps.noise.normal_(generator=generator)
        steps.alpha.copy_(alpha)
        self._crew.run(MEAN_ACTOR_GRADIENTS if reduction == MEAN else ACTOR_GRADIENTS, steps.do, steps.shares)
        q, log_prob = steps.q.clone(), steps.log_prob.clone()
        return ActorGradients(actor_loss(q, log_prob, alpha, reduction), q, log_prob, steps.actor_sum())

    def use_threads(self, threads: int) -> None:
        """A crew of processes that share out the rows of each batch, see :class:`Crew`; 0: two, or half the cores up to 4.

        Where autograd does the steps, torch's own threads do.

        To be called before an optimiser takes hold of the parameters: they move to where the crew sees them.
        """
        self.close()
        if self.options.steady or self.sac_switches:
            super().use_threads(threads)
            return
        cores = usable_cores()
        torch.set_num_threads(1)
        self._crew, self._steps = Crew((threads or min(cores, max(2, min(4, cores // 2)))) if SHARES_MEMORY else 1), None
        if self._crew.size > 1:
            networks = self._networks()
            values = [p.detach() for p in networks.parameters()]
            memory = self._crew.share({"networks": networks.sizes()}, nbytes(networks.shapes()))
            networks.move(tensors_in(memory, networks.shapes()))
            with torch.no_grad():
                torch._foreach_copy_([*networks.parameters()], values)

    def use_precision(self, precision: str) -> None:
        """As the contract says; the passes by hand know both."""
        super().use_precision(precision)
        self._steps = None

    @property
    def processes(self) -> int:
        """Processes that share out each step, this one included."""
        return self._crew.size

    def use_generator(self, generator: torch.Generator) -> None:
        """Dropout draws its masks from it."""
        for module in self.modules():
            if isinstance(module, Dropout):
                module.generator = generator

    def train(self, mode: bool = True) -> MLP:
        """As the contract says, but dropout is awake in targets too, as DroQ has it."""
        super().train(mode)
        for module in self.target_critics.modules():
            if isinstance(module, Dropout):
                module.train(mode)
        return self

    def close(self) -> None:
        """End the crew; harmless when called twice."""
        self._crew.close()

    def _networks(self) -> Networks:
        return Networks(self.actor, _dense(self.critics), _dense(self.target_critics))

    def _by_hand(self, x: Tensor) -> Steps | None:
        """The steps for this batch size, or None where autograd must: shards, switches, steady critics, other devices."""
        if self.sharding is not None or self.sac_switches:
            return None
        if self.options.steady or x.device.type != "cpu" or torch.is_autocast_enabled("cpu") or x.dtype != torch.float32:
            return None
        if self._steps is None or self._steps.batch != len(x):
            networks, batch, shares, precision = self._networks(), len(x), min(self._crew.size, len(x)), self.precision
            shapes = networks.step_shapes(batch, shares)
            if self._crew.size == 1:
                tensors = [torch.zeros(shape) for shape in shapes]
            else:
                about = {"batch": batch, "shares": shares, "precision": precision}
                tensors = tensors_in(self._crew.share(about, nbytes(shapes)), shapes)
            self._steps = Steps(networks, batch, shares, tensors, precision)
        return self._steps

    def _heads(self, twin: str) -> nn.ModuleList:
        heads = {ONLINE: self.critics} if self.sac_is_joint else {ONLINE: self.critics, TARGET: self.target_critics}
        if twin not in heads:
            raise SpecError(f"twin: {twin!r} is not one of {', '.join(heads)}")
        return heads[twin]


def _critic(inputs: int, options: MLPOptions) -> nn.Module:
    hidden = options.hidden if options.critic_hidden is None else options.critic_hidden
    if not options.steady:
        return Dense(inputs, hidden, 1)
    return SteadyCritic(
        inputs,
        hidden,
        layer_norm=options.critic_layer_norm,
        dropout=options.critic_dropout,
        batch_norm=options.critic_batch_norm,
    )


def _dense(nets: nn.ModuleList) -> list[Dense]:
    return [net for net in nets if isinstance(net, Dense)]
