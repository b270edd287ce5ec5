"""Models that steer a flow policy which stays as it is: a small actor and critics of their own, on its frozen prefix."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from headrace.common.config import dump, option, replace
from headrace.common.errors import SpecError
from headrace.common.specs import TransitionSpec
from headrace.learner.contract import ONLINE, TARGET, TASK, SupportSACTraining
from headrace.learner.dense import Dense
from headrace.learner.distribution import TanhGaussian
from headrace.learner.prefix import Prefix
from headrace.learner.prefix_critics import Pool, critic_tasks, judge, make_critics
from headrace.learner.pretrained import load_frozen, require_stored
from headrace.learner.sharding import units_of


@dataclass(frozen=True)
class SteeredOptions:
    """Which policy is steered, and by how large a network."""

    base: str = option("", help="directory of an exported flow policy (headrace export), which stays as it is")
    hidden: tuple[int, ...] = option((256, 256), help="widths of the actor's hidden layers", low=1, high=65536)
    log_std: float = option(
        -1.0, help="log of the standard deviation, before tanh, that the actor begins with", low=-10, high=1
    )
    critics: int = option(2, help="critics, behind one pool", low=1, high=64)
    critic_hidden: tuple[int, ...] = option((256, 256), help="widths of their hidden layers", low=1, high=65536)
    critic_tasks: int = critic_tasks()
    stored: bool = option(False, help="rows hold the base's prefix (window.prefix), and it is not run in training")


class Seen(NamedTuple):
    """What actor and critics see.

    Attributes:
        prefix: of the frozen policy.
        base: ``(B, N)`` numbers beside it that the actor sees; none for the critics.
    """

    prefix: Prefix
    base: Tensor


class Steered(SupportSACTraining):
    """A tanh-Gaussian actor over ``action_dim`` numbers, and N critics; each with a learned question to the frozen prefix.

    Args:
        spec: observations and actions.
        beside: N, numbers that the actor sees beside prefix and state.
        options: of the class.

    Raises:
        ConfigError: an option is unknown or out of range, or ``base`` holds no flow policy.
        SpecError: that policy sees or does something else.
    """

    Options: ClassVar[type[Any]] = SteeredOptions

    def __init__(self, spec: TransitionSpec, beside: int, **options: Any) -> None:
        super().__init__(spec, **options)
        own = self.options
        self.base, self._base_digest = load_frozen(own.base, spec, "model.options.base")
        self._stored = require_stored(self._base_digest, spec, "model.options.base") if own.stored else ""
        self._sight = self.base.sight
        width, heads, known = self.base.prefix_width, int(self.base.options.heads), self.base.prefix_width + self.base.numbers
        self.actor_pool = Pool(width, heads)
        self.actor = Dense(known + beside, own.hidden, 2 * self.action_dim)
        nn.init.zeros_(self.actor.head.weight)
        nn.init.zeros_(self.actor.head.bias)
        with torch.no_grad():
            self.actor.head.bias[self.action_dim :] = own.log_std
        self.pool = Pool(width, heads)
        self.critics = make_critics(own.critics, known + self.action_dim, own.critic_hidden, own.critic_tasks)
        self.target_pool = copy.deepcopy(self.pool).requires_grad_(False).eval()
        self.target_critics = copy.deepcopy(self.critics).requires_grad_(False).eval()

    def beside(self, prefix: Prefix) -> Tensor:
        """The ``(B, N)`` numbers that the actor sees beside a prefix."""
        raise NotImplementedError

    @property
    def sac_tasks(self) -> int:
        """As the option says."""
        return int(self.options.critic_tasks)

    @torch.no_grad()
    def sac_state_features(self, obs: Mapping[str, Tensor], role: str) -> Seen:
        """The frozen prefix, and for the actor what is beside it."""
        prefix = self._sight.stored(self._stored, obs) if self._stored else self.base.sac_state_features(obs, "actor")
        return Seen(prefix, self.beside(prefix)) if role == "actor" else self._judged(prefix, obs)

    def sac_next_features(self, obs: Mapping[str, Tensor]) -> tuple[Seen, Seen]:
        """As the contract says; the frozen policy looks once for both."""
        seen = self.sac_state_features(obs, "actor")
        return seen, self._judged(seen.prefix, obs)

    def sac_actor_step_features(self, obs: Mapping[str, Tensor]) -> tuple[Seen, Seen]:
        """Likewise: they are the same."""
        return self.sac_next_features(obs)

    def sac_distribution(self, features: Seen) -> TanhGaussian:
        """What the actor draws from."""
        known = self.actor_pool(features.prefix), features.prefix.state, features.base
        return TanhGaussian(self.actor(torch.cat(known, dim=1)).float())

    def sac_forward_critic(self, features: Seen, action: Tensor, twin: str = ONLINE) -> Tensor:
        """Values of the N critics, ``(B, N)``, of what the pool answers, the plain numbers and what the actor decides on."""
        if twin not in (ONLINE, TARGET):
            raise SpecError(f"twin: {twin!r} is not one of {ONLINE}, {TARGET}")
        pool, heads = (self.pool, self.critics) if twin == ONLINE else (self.target_pool, self.target_critics)
        return judge(pool, heads, features.prefix, action)

    def actor_params(self) -> Iterator[tuple[str, nn.Parameter]]:
        """The actor and its question."""
        yield from self.actor_pool.named_parameters(prefix="actor_pool")
        yield from self.actor.named_parameters(prefix="actor")

    def critic_params(self) -> Iterator[tuple[str, nn.Parameter]]:
        """The critics and theirs."""
        yield from self.pool.named_parameters(prefix="pool")
        yield from self.critics.named_parameters(prefix="critics")

    @property
    def critic_network_heads(self) -> Sequence[nn.Module]:
        """The pool, the critics."""
        return [self.pool, *self.critics]

    @property
    def target_network_heads(self) -> Sequence[nn.Module]:
        """Their slow copies."""
        return [self.target_pool, *self.target_critics]

    def train(self, mode: bool = True) -> Steered:
        """Training mode for what is trained."""
        super().train(mode)
        self.base.eval()
        return self

    def shard_units(self) -> Sequence[nn.Module]:
        """The parts of the frozen policy, and those that are trained."""
        return [*units_of(self.base), *(unit for unit in units_of(self) if unit is not self.base)]

    def frozen_tensors(self) -> set[str]:
        """All of the base: it comes from a directory that every host has."""
        return {f"base.{name}" for name in self.base.state_dict()}

    def policy_description(self) -> dict[str, Any]:
        """This class, with the options that acting depends on and the digest of the policy that it steers."""
        acting = replace(self.options, critics=1, critic_hidden=(), critic_tasks=0, stored=False)
        return {**super().policy_description(), "options": dump(acting), "base": self._base_digest}

    def _judged(self, prefix: Prefix, obs: Mapping[str, Tensor]) -> Seen:
        """What critics see of it."""
        return Seen(prefix._replace(task=obs[TASK] if self.sac_tasks else None), prefix.state[:, :0])
