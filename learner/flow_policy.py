"""The built-in vision-language-action model: a flow-matching policy over chunks of actions, and critics over its prefix."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from headrace.common.config import dump, option, replace
from headrace.common.errors import ConfigError, SpecError
from headrace.common.specs import TransitionSpec
from headrace.learner import flow
from headrace.learner.contract import ONLINE, TARGET, TASK, SupportSACTraining
from headrace.learner.expert import ActionExpert
from headrace.learner.losses import require_shape
from headrace.learner.low_rank import add_low_rank, is_low_rank
from headrace.learner.prefix import Prefix, PrefixEncoder, Sight
from headrace.learner.prefix_critics import Pool, critic_tasks, judge, make_critics
from headrace.learner.pretrained import load_frozen, require_stored, take

NONE, FIXED, LEARNED = NOISES = ("none", "fixed", "learned")
SHARED, OWN = ("shared", "own")
ALL, EXPERT, HEADS, LORA = TRAINED = ("all", "expert", "heads", "lora")
HEAD_NAMES = ("velocity.", "level.")  # of the expert's last layers


@dataclass(frozen=True)
class FlowOptions:
    """What is seen, the shape of the networks, and how a path from noise to an action is drawn."""

    words: str = option("", help="observation key of the instruction's token ids; empty: there is none")
    vocabulary: int = option(256, help="token ids are below this", low=1, high=1 << 20)
    masks: dict[str, Any] = option(factory=dict, help="camera or words -> observation key that is 0 where it is absent")

    channels: tuple[int, ...] = option((32, 64, 64), help="output channels of each camera's convolutions", low=1, high=4096)
    strides: tuple[int, ...] = option((4, 2, 2), help="their strides", low=1, high=16)
    width: int = option(128, help="width of the tokens", low=8, high=8192)
    heads: int = option(4, help="heads of the attention", low=1, high=64)
    prefix_layers: int = option(1, help="layers of attention over the prefix", low=0, high=64)
    expert_layers: int = option(2, help="layers of the action expert", low=1, high=64)
    horizon: int = option(0, help="actions denoised at once; 0: those that are executed (window.chunk)", low=0, high=4096)
    dims: int = option(0, help="numbers of an action that are denoised, with padding; 0: the env's", low=0, high=4096)
    pretrained: str = option(
        "", help="directory of an exported flow policy (headrace export) that this one begins with; empty: random numbers"
    )
    stored: bool = option(False, help="rows hold the prefix (window.prefix), and it is not run in training; trains is not all")
    trains: str = option(
        ALL,
        help="what the actor's loss trains: all, the expert without the prefix, the expert's last layers (heads), or these and"
        " thin matrices beside its other linear layers (lora)",
        choices=TRAINED,
    )
    lora_rank: int = option(8, help="rank of those matrices", low=1, high=1024)
    lora_scale: float = option(1.0, help="multiplies their product", low=1e-6, high=1e3)

    steps: int = option(5, help="steps from noise to the action", low=1, high=1000)
    noise: str = option(
        "learned",
        help="none: only the first (ODE); fixed: a schedule, no entropy (temperature fixed, alpha 0); learned: SAC proper",
        choices=NOISES,
    )
    level: float = option(0.5, help="noise level of the fixed schedule, and the most of a learned one", low=0, high=10)
    level_low: float = option(0.05, help="the least of a learned one", low=1e-6, high=10)
    level_end: float = option(
        -1.0, help="where the fixed level has come down to in the end; below 0: it stays", low=-1, high=10
    )
    level_updates: int = option(0, help="updates in which it comes down, by a cosine", unit="updates", low=0, high=1 << 40)
    rollout_scale: float = option(1.0, help="multiplies the level where the policy acts", low=0, high=10)
    train_scale: float = option(1.0, help="multiplies the level where it is trained", low=0, high=10)

    critics: int = option(2, help="critics, behind one pool", low=1, high=64)
    critic_hidden: tuple[int, ...] = option((256, 256), help="widths of their hidden layers", low=1, high=65536)
    critic_tasks: int = critic_tasks()
    critic_prefix: str = option(
        SHARED, help="shared: they see the actor's prefix and do not train it; own: one of their own", choices=(SHARED, OWN)
    )

    def check(self, path: str = "model.options") -> None:
        """Refuse shapes that do not fit, and levels out of order."""
        if not self.channels or len(self.channels) != len(self.strides):
            raise ConfigError(
                f"{path}.strides: {len(self.strides)} entries for {len(self.channels)} of {path}.channels; one for each, and at"
                " least one"
            )
        if self.stored and (self.trains == ALL or not self.pretrained):
            raise ConfigError(
                f"{path}.stored: true with {path}.trains {self.trains} and {path}.pretrained {self.pretrained!r}, but a prefix"
                " that is trained is another in each update; nearest valid: trains expert, and a directory"
            )
        if self.width % self.heads:
            raise ConfigError(f"{path}.heads: {self.heads} do not divide {path}.width {self.width}; nearest valid: 1")
        if self.noise == LEARNED and not self.train_scale > 0:
            raise ConfigError(f"{path}.train_scale: 0, but paths without noise have no density; nearest valid: 1")
        if self.noise == LEARNED and not self.level_low < self.level:
            raise ConfigError(
                f"{path}.level_low: {self.level_low:g} is not below {path}.level {self.level:g};"
                f" nearest valid: {self.level / 10:g}"
            )


# Options that mean nothing to acting: policies that differ in nothing else are the same.
_ACTING: dict[str, Any] = {
    "critics": 1,
    "critic_hidden": (),
    "critic_prefix": SHARED,
    "critic_tasks": 0,
    "stored": False,
    "train_scale": 1.0,
}


class FlowPolicy(SupportSACTraining):
    """A policy that draws a chunk of actions out of noise in a few steps, and N critics (Flow-SDE SAC).

    A path x_1 -> ... -> x_0 begins at standard normal noise. Each step is a Gaussian around where the velocity leads
    (:func:`headrace.learner.flow.sde_step`), so a path has a density, the product over its steps; log pi is its logarithm,
    over the executed actions. Its entropy can only be changed where the noise level is learned; with a fixed schedule the
    policy says that it has no density. Deterministic acting follows the ODE, from noise 0 or that of the caller's generator.

    Attributes:
        noise_shape: (k, A) of the noise that an action is made of, and of the actions that are denoised at once.
        numbers: S, plain numbers that the actor sees.
        sight: what it sees.

    Raises:
        ConfigError: an option is unknown or out of range.
        SpecError: what the options name is not there, ``horizon`` is less than what is executed, or ``pretrained`` is of other
            observations or actions.
    """

    Options: ClassVar[type[Any]] = FlowOptions

    def __init__(self, spec: TransitionSpec, **options: Any) -> None:
        super().__init__(spec, **options)
        own = self.options
        shape = spec.action.shape
        self._executed = (shape[0], shape[1]) if len(shape) == 2 else (1, shape[0])
        self.noise_shape = own.horizon or self._executed[0], own.dims or self._executed[1]
        of = ("horizon", "actions", "are executed (window.chunk)"), ("dims", "numbers of an action", "are the env's")
        for (name, what, which), whole, part in zip(of, self.noise_shape, self._executed, strict=True):
            if whole < part:
                raise SpecError(f"model.options.{name}: {whole} {what}, but {part} {which}")
        sights = {role: Sight(spec, role, own.words, own.masks) for role in ("actor", "critic")}
        self.prefix = self.make_prefix(sights["actor"])
        self.critic_prefix = self.make_prefix(sights["critic"]) if own.critic_prefix == OWN else None
        self.target_prefix = _frozen(self.critic_prefix)
        self.sight, self._critic_sight, self.numbers = sights["actor"], sights["critic"], sights["actor"].numbers
        self.expert = self.make_expert(*self.noise_shape)
        self.pool = Pool(own.width, own.heads)
        inputs = own.width + self._critic_sight.numbers + self.action_dim
        self.critics = make_critics(own.critics, inputs, own.critic_hidden, own.critic_tasks)
        self.target_pool, self.target_critics = _frozen(self.pool), _frozen(self.critics)
        self.updates: Tensor
        self.register_buffer("updates", torch.zeros(()))
        self._generator: torch.Generator | None = None
        self._pretrained = self.begin()
        self._stored = require_stored(self._pretrained, spec, "model.options.pretrained") if own.stored else ""
        if own.trains == LORA:
            add_low_rank(self.expert, own.lora_rank, own.lora_scale)

    # --- what a vision-language-action model of one's own replaces ------------------------------------------------------

    def make_prefix(self, sight: Sight) -> nn.Module:
        """The encoder of what is seen: observations, key -> ``(B, *shape)`` or ``(B, h, *shape)``, to a :class:`Prefix`.

        Args:
            sight: which keys are cameras, words, masks and plain numbers.
        """
        own = self.options
        return PrefixEncoder(
            sight,
            self.spec.stack,
            width=own.width,
            heads=own.heads,
            layers=own.prefix_layers,
            vocabulary=own.vocabulary,
            channels=own.channels,
            strides=own.strides,
        )

    def make_expert(self, actions: int, dims: int) -> nn.Module:
        """The action expert: noisy chunks ``(B, k, A)``, times ``(B,)`` and the prefix, to a pair of ``(B, k, A)``.

        That is the velocity and, where ``noise`` is learned, the numbers of a noise level, else None. Its last layers are
        called ``velocity`` and ``level``.

        Args:
            actions: k.
            dims: A.
        """
        own = self.options
        levels = own.noise == LEARNED
        return ActionExpert(actions, dims, width=own.width, heads=own.heads, layers=own.expert_layers, levels=levels)

    def begin(self) -> str:
        """Take the tensors that it begins with, once it is made; a digest of them, empty where these are random numbers."""
        return self._begin_with(self.options.pretrained) if self.options.pretrained else ""

    def to_box(self, actions: Tensor) -> Tensor:
        """Executed actions ``(B, h, A)`` as paths end in them, to where [-1, 1] is the env's box; here they are that."""
        return actions

    def from_box(self, actions: Tensor) -> Tensor:
        """The other way."""
        return actions

    # --- the contract -----------------------------------------------------------------------------------------------

    @property
    def sac_tasks(self) -> int:
        """As the option says."""
        return int(self.options.critic_tasks)

    @property
    def sac_entropy_dim(self) -> int:
        """log pi sums over the executed numbers of each step of a path."""
        return int(self.options.steps) * self.action_dim

    def sac_state_features(self, obs: Mapping[str, Tensor], role: str) -> Prefix:
        """The prefix; no gradient leads from the critics' to the actor's."""
        if role == "critic":
            return self._critic_features(self.critic_prefix, obs)
        if self._stored:
            return self.sight.stored(self._stored, obs)
        with torch.set_grad_enabled(torch.is_grad_enabled() and self.options.trains == ALL):
            prefix: Prefix = self.prefix(obs)
        return prefix

    def sac_target_features(self, obs: Mapping[str, Tensor]) -> Prefix:
        """The prefix that the target critics see."""
        return self._critic_features(self.target_prefix, obs)

    def sac_next_features(self, obs: Mapping[str, Tensor]) -> tuple[Prefix, Prefix]:
        """As the contract says; one prefix for both, unless the critics have one of their own."""
        return self._both(self.target_prefix, obs)

    def sac_actor_step_features(self, obs: Mapping[str, Tensor]) -> tuple[Prefix, Prefix]:
        """Likewise."""
        return self._both(self.critic_prefix, obs)

    def sac_forward_actor(
        self, features: Prefix, generator: torch.Generator | None, deterministic: bool
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Action ``(B, D)`` at the end of a path, log of the path's density ``(B,)`` where the noise is learned, no latent."""
        shape = (len(features.tokens), *self.noise_shape)
        device = features.tokens.device
        still = deterministic and generator is None
        x = torch.zeros(shape, device=device) if still else self.draw(shape, generator, features)
        if deterministic or self.options.noise == NONE:
            return self.denoise(features, x), None, None
        log_prob: Tensor | None = None
        for time, until in pairwise(flow.times(self.options.steps)):
            velocity, raw = self._expert(x, x.new_full((len(x),), time), features)
            mean, std = flow.sde_step(x, velocity, time, until, self._level(raw))
            noise = self.draw(shape, generator, features)
            x = mean + std * noise
            if isinstance(std, Tensor) and raw is not None:
                step = flow.log_density(self._real(noise), self._real(std))
                log_prob = step if log_prob is None else log_prob + step
        return self._execute(x), log_prob, None

    def draw(self, shape: tuple[int, ...], generator: torch.Generator | None, features: Prefix) -> Tensor:
        """Standard normal numbers ``shape`` of paths for these observations; of all noise, only times of cloning are not."""
        return torch.randn(shape, generator=generator, device=features.tokens.device)

    @property
    def prefix_width(self) -> int:
        """E of the prefix's tokens."""
        return int(self.options.width)

    def denoise(self, features: Prefix, noise: Tensor) -> Tensor:
        """Where the ODE leads from ``noise`` ``(B, k, A)``: an action ``(B, D)`` in [-1, 1], always the same for the same."""
        for time, until in pairwise(flow.times(self.options.steps)):
            velocity, _ = self._expert(noise, noise.new_full((len(noise),), time), features)
            noise = flow.ode_step(noise, velocity, time, until)
        return self._execute(noise)

    def sac_forward_critic(self, features: Prefix, action: Tensor, twin: str = ONLINE) -> Tensor:
        """Values of the N critics, ``(B, N)``, of what the pool answers, the plain numbers and the executed chunk."""
        if twin not in (ONLINE, TARGET):
            raise SpecError(f"twin: {twin!r} is not one of {ONLINE}, {TARGET}")
        pool, heads = (self.pool, self.critics) if twin == ONLINE else (self.target_pool, self.target_critics)
        return judge(pool, heads, features, action)

    def bc_loss(self, features: Prefix, action: Tensor, counts: Tensor) -> Tensor:
        """Flow matching on replayed actions ``(B, D)``: which way the noise leads to what was executed."""
        require_shape("action", action, (None, self.action_dim))
        rows, (actions, dims), (steps, real) = len(action), self.noise_shape, self._executed
        around = (0, dims - real, 0, actions - steps)  # what is behind the executed numbers is nobody's, and counts nothing
        target = nn.functional.pad(self.from_box(action.reshape(rows, steps, real)), around)
        counted = nn.functional.pad(counts.reshape(rows, steps, real), around)
        noise = self.draw(tuple(target.shape), self._generator, features)
        time = torch.rand(rows, generator=self._generator, device=action.device)
        velocity, _ = self._expert(flow.noisy(target, noise, time), time, features)
        return flow.matching_loss(velocity, target, noise, counted) * (actions * dims / (steps * real))

    def use_generator(self, generator: torch.Generator) -> None:
        """Draw noise and times of :meth:`bc_loss` from ``generator``."""
        self._generator = generator

    def actor_params(self) -> Iterator[tuple[str, nn.Parameter]]:
        """What ``trains`` names."""
        trains = self.options.trains
        if trains == ALL:
            yield from self.prefix.named_parameters(prefix="prefix")
        for name, parameter in self.expert.named_parameters():
            if trains in (ALL, EXPERT) or name.startswith(HEAD_NAMES) or is_low_rank(name):
                yield f"expert.{name}", parameter

    def critic_params(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Pool and critics, and their own prefix where they have one."""
        if self.critic_prefix is not None:
            yield from self.critic_prefix.named_parameters(prefix="critic_prefix")
        yield from self.pool.named_parameters(prefix="pool")
        yield from self.critics.named_parameters(prefix="critics")

    @property
    def critic_network_heads(self) -> Sequence[nn.Module]:
        """Their own prefix, if any, the pool, the critics."""
        return [*([] if self.critic_prefix is None else [self.critic_prefix]), self.pool, *self.critics]

    @property
    def target_network_heads(self) -> Sequence[nn.Module]:
        """Their slow copies."""
        return [*([] if self.target_prefix is None else [self.target_prefix]), self.target_pool, *self.target_critics]

    @torch.no_grad()
    def sac_update_target_network(self, tau: float) -> None:
        """As any model's; each update brings a falling noise level one step down."""
        super().sac_update_target_network(tau)
        self.updates += 1.0

    def policy_description(self) -> dict[str, Any]:
        """This class with the options that acting depends on, and the digest of what it began with."""
        acting = {"options": dump(replace(self.options, **_ACTING))}
        return {**super().policy_description(), **acting, **({"pretrained": self._pretrained} if self._pretrained else {})}

    def frozen_tensors(self) -> set[str]:
        """What came from ``pretrained`` and is not trained."""
        if not self._pretrained:
            return set()
        trained = {name for name, _ in self.actor_params()}
        return {name for name in self.state_dict() if name.startswith(("prefix.", "expert.")) and name not in trained}

    def policy_tensors(self) -> dict[str, Tensor]:
        """Prefix, expert, and how far the noise level has come down; without what every host has."""
        seen = ("prefix.", "expert.", "updates")
        return {name: tensor for name, tensor in self.learned_tensors().items() if name.startswith(seen)}

    def _begin_with(self, directory: str) -> str:
        """Take the tensors of an exported flow policy; a digest of it.

        One that has no noise level of its own leaves that one as it is here.
        """
        what = "model.options.pretrained"
        policy, digest = load_frozen(directory, self.spec, what)
        theirs = {name: t for name, t in policy.state_dict().items() if name.startswith(("prefix.", "expert."))}
        own = {name: t for name, t in self.state_dict().items() if name.startswith(("prefix.", "expert."))}
        if policy.options.noise != LEARNED:
            own = {name: t for name, t in own.items() if not name.startswith("expert.level.")}
        take(own, theirs, f"{what}: {directory}")
        return digest

    def _execute(self, x: Tensor) -> Tensor:
        """Of a chunk ``(B, k, A)`` what is executed, ``(B, D)`` inside the box."""
        return self.to_box(self._real(x)).clamp(-1.0, 1.0).flatten(1)

    def _real(self, x: Tensor) -> Tensor:
        steps, dims = self._executed
        return x[:, :steps, :dims]

    def _expert(self, x: Tensor, time: Tensor, prefix: Prefix) -> tuple[Tensor, Tensor | None]:
        velocity, raw = self.expert(x, time, prefix)
        return velocity.float(), None if raw is None else raw.float()

    def _level(self, raw: Tensor | None) -> Tensor | float:
        """Noise level of a step: learned, between the bounds and in equal ratios; or that of the schedule by now."""
        own = self.options
        scale = own.train_scale if self.training else own.rollout_scale
        if raw is not None:
            level: Tensor = scale * own.level_low * (own.level / own.level_low) ** torch.sigmoid(raw)
            return level
        if own.level_end < 0 or not own.level_updates:
            return float(own.level * scale)
        done = (self.updates / own.level_updates).clamp(max=1.0)
        falling: Tensor = scale * (own.level_end + 0.5 * (own.level - own.level_end) * (1.0 + torch.cos(math.pi * done)))
        return falling

    def _critic_features(self, encoder: nn.Module | None, obs: Mapping[str, Tensor], seen: Prefix | None = None) -> Prefix:
        """What critics see by an encoder of their own, or else of ``seen``, which the actor has seen; None: not yet."""
        if encoder is not None:
            own: Prefix = encoder(obs)
            return own._replace(task=self._task(obs))
        if seen is None:
            with torch.no_grad():
                seen = self.sac_state_features(obs, "actor")
        return seen.detach()._replace(state=self._critic_sight.state(obs), task=self._task(obs))

    def _both(self, encoder: nn.Module | None, obs: Mapping[str, Tensor]) -> tuple[Prefix, Prefix]:
        """The actor's features, and those of critics with such an encoder, into which no gradient flows."""
        seen = self.sac_state_features(obs, "actor")
        with torch.no_grad():
            return seen, self._critic_features(encoder, obs, seen)

    def _task(self, obs: Mapping[str, Tensor]) -> Tensor | None:
        return obs[TASK] if self.sac_tasks else None


def _frozen(module: Any) -> Any:
    """A copy that no gradient reaches; None of None."""
    return None if module is None else copy.deepcopy(module).requires_grad_(False).eval()
