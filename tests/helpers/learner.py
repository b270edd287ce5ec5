"""Specs, batches and a user's own model for the learner's tests."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from headrace.common.batch import Batch
from headrace.common.config import option
from headrace.common.specs import ActionSpec, ObsSpec, TransitionSpec
from headrace.learner.config import LearnerConfig, ModelConfig
from headrace.learner.contract import SupportSACTraining
from headrace.learner.crew import Crew
from headrace.learner.models import make_model
from headrace.learner.sac import SAC

SMALL = {"hidden": [16, 16]}
SHAPES = [
    {"hidden": [16, 16], "critics": 2},
    {"hidden": [24], "critics": 1},
    {"hidden": [8, 32, 16], "critics": 3},
    {"hidden": [], "critics": 2},
    {"hidden": [16], "critic_hidden": [24, 8], "critics": 2},
]


def make_spec(
    *,
    action: tuple[int, ...] = (2,),
    low: Sequence[float] | None = None,
    high: Sequence[float] | None = None,
    window: int = 1,
    kind: str = "steps",
    stack: int = 1,
    obs: Sequence[ObsSpec] = (ObsSpec("obs", (3,), "<f4"),),
) -> TransitionSpec:
    """A small spec; the box is [-1, 1] unless given."""
    dims = action[-1]
    bounds = tuple(low or [-1.0] * dims), tuple(high or [1.0] * dims)
    return TransitionSpec(tuple(obs), ActionSpec(action, *bounds), window, kind, stack)


def make_batch(spec: TransitionSpec, size: int = 8, seed: int = 0, **columns: Any) -> Batch:
    """Random observations and actions inside the box, reward 0.5 in the first step, one executed step; columns overlaid."""
    rng = np.random.default_rng(seed)
    rows = np.zeros(size, spec.row_dtype)
    low, high = np.array(spec.action.low), np.array(spec.action.high)
    rows["action"] = low + rng.random((size, *spec.action.shape)) * (high - low)
    rows["rewards"][:, 0] = 0.5
    rows["steps"] = 1
    for name, values in columns.items():
        rows[name] = values

    def observe() -> dict[str, Any]:
        shapes = {o.key: (size, *([spec.stack] if spec.stack > 1 else []), *o.shape) for o in spec.obs}
        return {
            o.key: rng.standard_normal(shapes[o.key]).astype("<f4")
            if o.dtype == "<f4"
            else rng.integers(0, 255, shapes[o.key]).astype(o.dtype)
            for o in spec.obs
        }

    return Batch(np.arange(size), rows, observe(), observe())


def make_sac(spec: TransitionSpec, *, seed: int = 0, model: ModelConfig | None = None, **options: Any) -> SAC:
    """A learner with small networks."""
    config = LearnerConfig(**{"batch_size": 8, **options})
    made = make_model(spec, model or ModelConfig("mlp", dict(SMALL)), seed)
    if config.threads:
        made.use_threads(config.threads)
    return SAC(made, spec, config, seed)


class Alone(Crew):
    """A crew whose mates never come, so that this process does every share."""

    def __init__(self, size: int) -> None:
        super().__init__(1)
        self.size = size


@dataclass(frozen=True)
class OwnOptions:
    """Options of :class:`OwnModel`."""

    width: int = option(8, help="hidden units", low=1, high=64)
    density: bool = option(True, help="whether the policy has a density")


class OwnModel(SupportSACTraining):
    """A user's model: one encoder that the critics train and the actor reads, batch norm in the critics, no shortcut."""

    Options: ClassVar[type[Any]] = OwnOptions

    def __init__(self, spec: TransitionSpec, **options: Any) -> None:
        super().__init__(spec, **options)
        width, inputs = self.options.width, 3 * spec.stack
        self.encoder = nn.Linear(inputs, width)
        self.mean = nn.Linear(width, self.action_dim)
        self.log_std = nn.Parameter(torch.zeros(self.action_dim))
        self.q = nn.ModuleList(
            nn.Sequential(nn.Linear(width + self.action_dim, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Linear(width, 1))
            for _ in range(2)
        )
        self.q_target = copy.deepcopy(self.q).requires_grad_(False).eval()
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def sac_state_features(self, obs: Mapping[str, Tensor], role: str) -> Tensor:
        features = torch.tanh(self.encoder(obs["obs"].flatten(1)))
        return features if role == "critic" else features.detach()

    def sac_forward_actor(
        self, features: Tensor, generator: torch.Generator | None, deterministic: bool
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        mean = self.mean(features)
        if deterministic or not self.options.density:
            return torch.tanh(mean), None, None
        u = mean + self.log_std.exp() * torch.randn(mean.shape, generator=generator)
        action = torch.tanh(u)
        normal = torch.distributions.Normal(mean, self.log_std.exp(), validate_args=False)
        return action, (normal.log_prob(u) - torch.log(1 - action.square() + 1e-6)).sum(1), None

    def sac_forward_critic(self, features: Tensor, action: Tensor, twin: str = "online") -> Tensor:
        x = torch.cat((features, action), 1)
        return torch.cat([head(x) for head in (self.q if twin == "online" else self.q_target)], 1)

    def actor_params(self) -> Iterator[tuple[str, nn.Parameter]]:
        yield from self.mean.named_parameters(prefix="mean")
        if self.options.density:
            yield "log_std", self.log_std

    def critic_params(self) -> Iterator[tuple[str, nn.Parameter]]:
        yield from self.encoder.named_parameters(prefix="encoder")
        yield from self.q.named_parameters(prefix="q")

    @property
    def critic_network_heads(self) -> Sequence[nn.Module]:
        return list(self.q)

    @property
    def target_network_heads(self) -> Sequence[nn.Module]:
        return list(self.q_target)


class FlatModel(OwnModel):
    """A model whose critic forgets to keep the critics apart: (B,) in place of (B, N)."""

    def sac_forward_critic(self, features: Tensor, action: Tensor, twin: str = "online") -> Tensor:
        return super().sac_forward_critic(features, action, twin)[:, 0]


class ColumnModel(OwnModel):
    """A model that gives log pi as (B, 1)."""

    def sac_forward_actor(
        self, features: Tensor, generator: torch.Generator | None, deterministic: bool
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        action, log_prob, latent = super().sac_forward_actor(features, generator, deterministic)
        return action, None if log_prob is None else log_prob.unsqueeze(1), latent


class IdleModel(OwnModel):
    """A model that names an actor parameter which its loss does not reach."""

    def actor_params(self) -> Iterator[tuple[str, nn.Parameter]]:
        yield from super().actor_params()
        yield "q.0.0.bias", self.q_target[0][0].bias.requires_grad_()


class HalfModel(SupportSACTraining):
    """A class that leaves most of the contract open."""

    def sac_state_features(self, obs: Mapping[str, Tensor], role: str) -> Tensor:
        return obs["obs"]


class Unrelated:
    """A class that is no model at all."""
