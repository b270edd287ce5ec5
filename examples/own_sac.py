"""A SAC model of one's own: `model.type: examples.own_sac:OwnSAC`, residual networks on any env with plain numbers."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from headrace.common.config import option
from headrace.common.specs import TransitionSpec
from headrace.learner.config import SWITCHES_HELP
from headrace.learner.contract import ONLINE
from headrace.learner.gaussian_actor import GaussianActor
from headrace.learner.inputs import flat, keys_of


@dataclass(frozen=True)
class OwnOptions:
    """What `model.options` may say."""

    width: int = option(128, help="units of each hidden layer", low=1, high=65536)
    blocks: int = option(2, help="residual blocks of actor and critics", low=0, high=64)
    critics: int = option(2, help="number of critics", low=1, high=64)
    switches: tuple[int, ...] = option((), help=SWITCHES_HELP, low=0)


class Block(nn.Module):
    """`x` and what two layers make of it, normalised first."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width))

    def forward(self, x: Tensor) -> Tensor:
        """`(B, width) -> (B, width)`."""
        return x + self.body(x)


class OwnSAC(GaussianActor):
    """Actor and critics of residual blocks; of `GaussianActor` come sampling, density and cloning, by its `actor`."""

    Options: ClassVar[type[Any]] = OwnOptions

    def __init__(self, spec: TransitionSpec, **options: Any) -> None:
        super().__init__(spec, **options)  # self.options, self.spec, and D as self.action_dim
        own = self.options
        self.actor = self._network("actor", 0, 2 * self.action_dim)  # features to means and log deviations
        self.critics = nn.ModuleList(self._network("critic", self.action_dim, 1) for _ in range(own.critics))
        self.target_critics = copy.deepcopy(self.critics).requires_grad_(False).eval()

    def sac_state_features(self, obs: Mapping[str, Tensor], role: str) -> Tensor:
        """What the role may see, as one row of numbers, `(B, F)`."""
        return torch.cat([flat(obs[o.key], o) for o in keys_of(self.spec, role)], dim=1)

    def sac_forward_critic(self, features: Tensor, action: Tensor, twin: str = ONLINE) -> Tensor:
        """Values of the N critics, `(B, N)`."""
        x = torch.cat((features, action), dim=1)
        return torch.cat([critic(x) for critic in (self.critics if twin == ONLINE else self.target_critics)], dim=1)

    def actor_params(self) -> Iterator[tuple[str, nn.Parameter]]:
        """What the actor's loss trains, and what travels to actors."""
        return self.actor.named_parameters(prefix="actor")

    def critic_params(self) -> Iterator[tuple[str, nn.Parameter]]:
        """What the critics' loss trains."""
        return self.critics.named_parameters(prefix="critics")

    @property
    def critic_network_heads(self) -> Sequence[nn.Module]:
        """The critics."""
        return list(self.critics)

    @property
    def target_network_heads(self) -> Sequence[nn.Module]:
        """Their slow copies, one for one."""
        return list(self.target_critics)

    def _network(self, role: str, further: int, outputs: int) -> nn.Module:
        own, seen = self.options, self.spec.stack * sum(math.prod(o.shape) for o in keys_of(self.spec, role))
        body = [*(Block(own.width) for _ in range(own.blocks)), nn.LayerNorm(own.width)]
        return nn.Sequential(nn.Linear(seen + further, own.width), *body, nn.Linear(own.width, outputs))
