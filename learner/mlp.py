"""The built-in model: a tanh-Gaussian actor and N critics, each a dense network over the concatenated observation."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from headrace.common.config import option
from headrace.common.errors import SpecError
from headrace.common.specs import ObsSpec, TransitionSpec
from headrace.learner.contract import ONLINE, TARGET, ActorGradients, CriticGradients, SupportSACTraining
from headrace.learner.crew import Crew, usable_cores
from headrace.learner.dense import Dense, DensePass, hidden_buffers
from headrace.learner.distribution import LOG_STD_MAX, LOG_STD_MIN, TanhGaussian
from headrace.learner.losses import actor_loss, actor_loss_gradient, critic_loss, critic_loss_gradient


@dataclass(frozen=True)
class MLPOptions:
    """Shape of the networks."""

    hidden: tuple[int, ...] = option((256, 256), help="widths of the hidden layers of actor and critics", low=1, high=65536)
    critics: int = option(2, help="critics whose minimum is taken", low=1, high=64)


class MLP(SupportSACTraining):
    """Actor and critics share nothing; a key of role ``actor`` or ``critic`` is seen by that side only.

    Raises:
        ConfigError: an option is unknown or out of range.
        SpecError: no observation key for one of the two sides.
    """

    Options: ClassVar[type[Any]] = MLPOptions

    def __init__(self, spec: TransitionSpec, **options: Any) -> None:
        super().__init__(spec, **options)
        hidden, critics = self.options.hidden, self.options.critics
        self._keys = {role: _keys(spec, role) for role in ("actor", "critic")}
        sizes = {role: spec.stack * sum(math.prod(o.shape) for o in keys) for role, keys in self._keys.items()}
        self.actor = Dense(sizes["actor"], hidden, 2 * self.action_dim)
        self.critics = nn.ModuleList(Dense(sizes["critic"] + self.action_dim, hidden, 1) for _ in range(critics))
        self.target_critics = copy.deepcopy(self.critics).requires_grad_(False).eval()
        self._crew = Crew(1)
        self._parts: list[_Part] | None = None

    def sac_state_features(self, obs: Mapping[str, Tensor], role: str) -> Tensor:
        """Keys that the role sees, in order, flattened and concatenated, ``(B, F)`` float32; uint8 keys as x / 255."""
        keys = self._keys[role]
        parts = [_flat(obs[o.key], o) for o in keys]
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)

    def sac_forward_actor(
        self, features: Tensor, generator: torch.Generator | None, deterministic: bool
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Action ``(B, D)`` and log pi ``(B,)``; the mode has no density, and there is no latent."""
        policy = TanhGaussian(self.actor(features))
        if deterministic:
            return policy.mode(), None, None
        action, log_prob = policy.sample(generator)
        return action, log_prob, None

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
        """Their slow copies."""
        return list(self.target_critics)

    def _get_logprobs(self, features: Tensor, action: Tensor) -> Tensor:
        """log pi(action), ``(B,)``."""
        return TanhGaussian(self.actor(features)).log_prob(action)

    def bc_loss(self, features: Tensor, action: Tensor) -> Tensor:
        """-mean log pi(action): maximum likelihood of what was executed."""
        return -self._get_logprobs(features, action).mean()

    def policy_description(self) -> dict[str, Any]:
        """The policy format ``mlp``, which actors run without torch."""
        return {
            "type": "mlp",
            "keys": [o.key for o in self._keys["actor"]],
            "hidden": list(self.options.hidden),
            "activation": "relu",
            "stack": self.spec.stack,
            "low": list(self.spec.action.low),
            "high": list(self.spec.action.high),
            "log_std": [LOG_STD_MIN, LOG_STD_MAX],
        }

    def policy_tensors(self) -> dict[str, Tensor]:
        """``trunk.{i}.weight``, ``trunk.{i}.bias``, ``head.weight``, ``head.bias``."""
        return {name: p.detach() for name, p in self.actor_params()}

    # --- the three steps by hand: the same sums as the contract's defaults, which the tests hold them to -----------------

    def sac_next_values(
        self, actor_features: Tensor, critic_features: Tensor, generator: torch.Generator | None
    ) -> tuple[Tensor, Tensor | None]:
        """Target values and log pi, see the contract."""
        parts = self._by_hand(actor_features)
        if parts is None:
            return super().sac_next_values(actor_features, critic_features, generator)
        noise = self._noise(len(actor_features), generator)

        @torch.inference_mode()
        def share(part: _Part) -> tuple[Tensor, Tensor]:
            rows = part.rows
            action, log_prob = TanhGaussian(part.actor.forward(actor_features[rows])).sample_with(noise[rows])
            x = torch.cat((critic_features[rows], action), dim=1)
            return torch.cat([net.forward(x) for net in part.target], dim=1), log_prob

        q, log_prob = zip(*self._crew.run(share, parts), strict=True)
        return torch.cat(q), torch.cat(log_prob)

    def sac_critic_gradients(
        self, features: Tensor, action: Tensor, target: Tensor, importance: Tensor | None = None
    ) -> CriticGradients:
        """Critic loss and gradients, see the contract."""
        parts = self._by_hand(features)
        if parts is None:
            return super().sac_critic_gradients(features, action, target, importance)

        @torch.inference_mode()
        def share(part: _Part) -> tuple[Tensor, list[Tensor]]:
            rows = part.rows
            x = torch.cat((features[rows], action[rows]), dim=1)
            q, gradients = [], []
            weights = None if importance is None else importance[rows]
            for critic in part.critics:  # one after the other, backward while the forward pass is still in the cache
                q.append(critic.forward(x))
                gradients += critic.backward(critic_loss_gradient(q[-1], target[rows], len(features), weights))
            return torch.cat(q, dim=1), gradients

        q, gradients = zip(*self._crew.run(share, parts), strict=True)
        with torch.inference_mode():
            values = torch.cat(q)
            return CriticGradients(critic_loss(values, target, importance), values, _sum(gradients))

    def sac_actor_gradients(
        self, actor_features: Tensor, critic_features: Tensor, alpha: Tensor, generator: torch.Generator | None
    ) -> ActorGradients:
        """Actor loss and gradients, see the contract."""
        parts = self._by_hand(actor_features)
        if parts is None:
            return super().sac_actor_gradients(actor_features, critic_features, alpha, generator)
        noise, batch = self._noise(len(actor_features), generator), len(actor_features)

        @torch.inference_mode()
        def share(part: _Part) -> tuple[Tensor, Tensor, list[Tensor]]:
            rows = part.rows
            policy = TanhGaussian(part.actor.forward(actor_features[rows]))
            action, log_prob = policy.sample_with(noise[rows])
            x = torch.cat((critic_features[rows], action), dim=1)
            q = torch.cat([net.forward(x) for net in part.critics], dim=1)
            d_q, d_log_prob = actor_loss_gradient(q, alpha, batch)
            d_action = torch.zeros_like(action.t(), memory_format=torch.contiguous_format)
            for i in reversed(range(len(part.critics))):
                part.critics[i].add_input_gradient(d_q[:, i], critic_features.shape[1], d_action)
            return q, log_prob, part.actor.backward(policy.pull_back(d_action.t(), d_log_prob))

        shares_q, shares_log_prob, gradients = zip(*self._crew.run(share, parts), strict=True)
        with torch.inference_mode():
            q, log_prob = torch.cat(shares_q), torch.cat(shares_log_prob)
            return ActorGradients(actor_loss(q, log_prob, alpha), q, log_prob, _sum(gradients))

    def use_threads(self, threads: int) -> None:
        """A crew that shares out the rows of each batch, see :class:`Crew`; 0: two, or half the cores up to 4."""
        cores = usable_cores()
        torch.set_num_threads(1)
        self._crew = Crew(threads or min(cores, max(2, min(4, cores // 2))))
        self._parts = None

    def _by_hand(self, x: Tensor) -> list[_Part] | None:
        """A part for each thread, or None where autograd does better or must: other devices, autocast."""
        if x.device.type != "cpu" or torch.is_autocast_enabled("cpu") or x.dtype != torch.float32:
            return None
        if self._parts is None or self._parts[-1].rows.stop != len(x):
            count = min(self._crew.size, len(x))
            edges = [i * len(x) // count for i in range(count + 1)]
            self._parts = [_Part(self, slice(low, high)) for low, high in pairwise(edges)]
        return self._parts

    def _noise(self, batch: int, generator: torch.Generator | None) -> Tensor:
        return torch.randn((batch, self.action_dim), generator=generator)

    def _heads(self, twin: str) -> nn.ModuleList:
        if twin not in (ONLINE, TARGET):
            raise SpecError(f"twin: {twin!r} is not one of {ONLINE}, {TARGET}")
        return self.critics if twin == ONLINE else self.target_critics


class _Part:
    """The passes by hand of all networks over one slice of the rows; they take turns in as few buffers as can be."""

    def __init__(self, model: MLP, rows: slice) -> None:
        self.rows = rows
        batch = rows.stop - rows.start
        deltas = hidden_buffers(model.actor, batch)
        self.actor = DensePass(model.actor, batch, deltas)
        self.critics = [DensePass(net, batch, deltas) for net in _dense(model.critics)]
        self.target = [
            DensePass(net, batch, deltas, online.activations)
            for net, online in zip(_dense(model.target_critics), self.critics, strict=True)
        ]


def _sum(parts: Sequence[list[Tensor]]) -> list[Tensor]:
    """The gradients of all rows, in the buffers of the first part, always added in the same order."""
    total, *rest = parts
    for gradients in rest:
        torch._foreach_add_(total, gradients)
    return total


def _dense(nets: nn.ModuleList) -> list[Dense]:
    return [net for net in nets if isinstance(net, Dense)]


def _keys(spec: TransitionSpec, role: str) -> tuple[ObsSpec, ...]:
    keys = tuple(o for o in spec.obs if o.role in ("both", role))
    if not keys:
        raise SpecError(f"spec.obs: no key that the {role} may see; roles are {[o.role for o in spec.obs]}")
    return keys


def _flat(x: Tensor, spec: ObsSpec) -> Tensor:
    flat = x.reshape(len(x), -1)
    return flat.float() / 255 if spec.dtype == "|u1" else flat.float()
