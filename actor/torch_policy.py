"""Policies that act in torch: the MLP again, and any model named module:Class. Only device.py imports torch too."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from headrace.actor.deciding import Decided
from headrace.actor.device import require_device
from headrace.actor.policy import RENEW, Box, MlpLayout
from headrace.common.errors import SpecError
from headrace.common.specs import TransitionSpec, differences
from headrace.common.weights import MAX_NAMED, WeightSet, require_policy

Array = np.ndarray[Any, Any]
ACTIVATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "relu": torch.relu,
    "tanh": torch.tanh,
    "elu": torch.nn.functional.elu,
    "silu": torch.nn.functional.silu,
}


def make_torch_policy(weights: WeightSet, spec: TransitionSpec, device: str) -> TorchMlpPolicy | TorchPolicy:
    """The policy that a weight set describes: type ``mlp``, or ``torch`` with ``class`` and ``options``.

    Raises:
        SpecError: the description does not fit, or the tensors do not.
        ConfigError: the device is not there.
    """
    require_device(device)
    kind = weights.policy.get("type")
    if kind == "mlp":
        return TorchMlpPolicy(weights, spec, device)
    if kind == "torch":
        return TorchPolicy(weights, spec, device)
    raise SpecError(f"policy.type: {kind!r} is not one of mlp, torch")


class TorchMlpPolicy:
    """The MLP of :class:`headrace.actor.policy.MlpPolicy`, in torch, for a device that is worth it."""

    def __init__(self, weights: WeightSet, spec: TransitionSpec, device: str) -> None:
        self._layout = MlpLayout.of(weights.policy, spec)
        self._policy = dict(weights.policy)
        self._box = Box(spec.action)
        self._device = torch.device(device)
        self.load(weights)

    def load(self, weights: WeightSet) -> None:
        """Take other weights of the same description, whole or not at all."""
        require_policy(weights, self._policy, RENEW)
        self._layout.check(weights)
        tensors = {name: torch.tensor(tensor, device=self._device) for name, tensor in weights.tensors.items()}
        scaling = self._layout.scaling(weights.tensors)
        scale = None if scaling is None else [torch.tensor(part, device=self._device) for part in scaling]
        layers = [*(f"trunk.{i}" for i in range(len(self._layout.hidden))), "head"]
        self._weights = ([(tensors[f"{name}.weight"], tensors[f"{name}.bias"]) for name in layers], scale)

    @torch.inference_mode()
    def act(self, obs: Mapping[str, Array], rng: np.random.Generator, deterministic: bool) -> Array:
        """Actions for L lanes."""
        mean, log_std = self._head({o.key: torch.tensor(obs[o.key], device=self._device) for o in self._layout.keys})
        if not deterministic:
            noise = torch.randn(mean.shape, generator=_generator(rng, self._device), device=self._device)
            spread = log_std.clamp(*self._layout.log_std).exp()
            spread[:, list(self._layout.switches)] = 1.0
            mean = mean + spread * noise
        unit = self._squashed(mean).cpu().numpy()
        return self._box.place(unit.reshape(len(unit), *self._layout.action.shape))

    def mode(self, obs: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """The mode of the policy in [-1, 1], ``(L, D)``, at observations as in :meth:`act`; can be traced."""
        return self._squashed(self._head(obs)[0])

    def _squashed(self, u: torch.Tensor) -> torch.Tensor:
        """tanh, and the end on whose side a switch is."""
        unit, at = torch.tanh(u), list(self._layout.switches)
        if at:
            ends = torch.where(u[:, at] >= 0, 1.0, -1.0)
            unit[:, at] = torch.where(u[:, at].isnan(), u[:, at], ends)
        return unit

    def _head(self, obs: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor, ...]:
        """Means and log standard deviations, ``(L, D)`` each."""
        layers, scale = self._weights
        x = torch.cat([obs[o.key].reshape(obs[o.key].shape[0], -1).float() for o in self._layout.keys], dim=1)
        if scale is not None:
            shift, divisor, limit = scale
            x = torch.clamp((x - shift) / divisor, -limit, limit)
        for weight, bias in layers[:-1]:
            x = ACTIVATIONS[self._layout.activation](torch.nn.functional.linear(x, weight, bias))
        return torch.nn.functional.linear(x, *layers[-1]).chunk(2, dim=1)


class TorchPolicy:
    """A model by name, ``Class(spec, **options)``, that speaks the learner's contract.

    Of the model it calls ``sac_state_features(obs, "actor")`` and
    ``sac_forward_actor(features, generator, deterministic) -> (action in [-1, 1], ...)``, in eval mode; where rows hold latents
    that is one, and ``sac_execute(features, latent)`` gives the action. The weight set holds the part of its ``state_dict``
    that acting needs; which names these are, the first set decides.

    Raises:
        SpecError: the class cannot be imported or built, or a tensor does not fit it.
    """

    def __init__(self, weights: WeightSet, spec: TransitionSpec, device: str) -> None:
        self._policy = dict(weights.policy)
        self._shape, self._latent = spec.action.shape, spec.latent > 0
        self._box = Box(spec.action)
        self._device = torch.device(device)
        self.model = _build(self._policy, spec).to(self._device).eval()
        self._state = self.model.state_dict()
        self._names = sorted(weights.tensors)
        self.load(weights)

    def load(self, weights: WeightSet) -> None:
        """Take other weights of the same description, whole or not at all."""
        require_policy(weights, self._policy, RENEW)
        for name in sorted({*self._names, *weights.tensors}):
            if name not in weights.tensors or name not in self._names or name not in self._state:
                raise SpecError(
                    f"weights: tensor {name!r} is {'unknown to' if name in weights.tensors else 'missing for'} this policy"
                )
            new, own = weights.tensors[name], self._state[name]
            if tuple(new.shape) != tuple(own.shape) or torch.tensor(np.zeros((), new.dtype)).dtype != own.dtype:
                raise SpecError(f"weights: tensor {name!r} is {new.shape} {new.dtype}, expected {tuple(own.shape)} {own.dtype}")
            if new.dtype.kind == "f" and not np.isfinite(new).all():
                raise SpecError(f"weights: tensor {name!r} holds NaN or infinity")
        with torch.no_grad():  # in place: a compiled or captured model keeps the storage that it has seen
            for name in self._names:
                self._state[name].copy_(torch.tensor(weights.tensors[name]))

    @torch.inference_mode()
    def act(self, obs: Mapping[str, Array], rng: np.random.Generator, deterministic: bool) -> Array:
        """Actions for L lanes."""
        return self._place(self._decide(self._inputs(obs), _generator(rng, self._device), deterministic)[0])

    @torch.inference_mode()
    def decide(self, obs: Mapping[str, Array], rng: np.random.Generator) -> Decided:
        """Actions for L lanes, not deterministic, and the latents ``(L, spec.latent)`` that they are made of."""
        unit, latent = self._decide(self._inputs(obs), _generator(rng, self._device), False)
        return Decided(self._place(unit), latent.float().cpu().numpy())

    @torch.inference_mode()
    def prefix(self, obs: Mapping[str, Array]) -> tuple[Array, Array]:
        """What a policy with a prefix makes of n observations: tokens ``(n, T, E)``, float16 as <i2, and which are absent.

        Raises:
            SpecError: its features are no prefix.
        """
        features = self.model.sac_state_features(self._inputs(obs), "actor")
        if not all(hasattr(features, name) for name in ("tokens", "absent")):
            raise SpecError(f"the features of a {type(self.model).__name__} are no prefix")
        return features.tokens.half().view(torch.int16).cpu().numpy(), features.absent.to(torch.uint8).cpu().numpy()

    def mode(self, obs: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """The mode of the policy in [-1, 1], ``(L, D)``, at observations as in :meth:`act`; can be traced if the model can."""
        return self._decide(obs, None, True)[0].float()

    def _decide(
        self, obs: Mapping[str, torch.Tensor], generator: torch.Generator | None, deterministic: bool
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Actions in [-1, 1], ``(L, D)``, and what the policy decided on, which is the same where there are no latents."""
        features = self.model.sac_state_features(obs, "actor")
        decided: torch.Tensor = self.model.sac_forward_actor(features, generator, deterministic)[0]
        return self.model.sac_execute(features, decided) if self._latent else decided, decided

    def _inputs(self, obs: Mapping[str, Array]) -> dict[str, torch.Tensor]:
        return {key: torch.tensor(value, device=self._device) for key, value in obs.items()}

    def _place(self, unit: torch.Tensor) -> Array:
        return self._box.place(unit.float().cpu().numpy().reshape(-1, *self._shape))


def _generator(rng: np.random.Generator, device: torch.device) -> torch.Generator:
    """A torch generator seeded from the caller's, so that the noise of a decision depends on nothing else."""
    return torch.Generator(device).manual_seed(int(rng.integers(1 << 63)))


def _build(policy: Mapping[str, Any], spec: TransitionSpec) -> Any:
    name = str(policy.get("class", ""))
    module, _, attribute = name.partition(":")
    try:
        model = getattr(importlib.import_module(module), attribute)(spec, **policy.get("options", {}))
    except Exception as error:  # a foreign constructor may raise anything
        raise SpecError(f"policy.class: {name!r} cannot be built: {type(error).__name__}: {error}") from error
    if not isinstance(model, torch.nn.Module) or not hasattr(model, "sac_forward_actor"):
        raise SpecError(f"policy.class: {name!r} is no torch module with sac_forward_actor()")
    describe: Callable[[], dict[str, Any]] | None = getattr(model, "policy_description", None)
    if describe is not None:
        _require_same(policy, describe(), name)
    return model


def _require_same(theirs: Mapping[str, Any], ours: Mapping[str, Any], name: str) -> None:
    """Refuse a policy that was built here from other files than where it is trained.

    Raises:
        SpecError: naming the file of its code, or what else differs, ours first.
    """
    keys = ours.keys() - {"type", "class", "options"}  # what it was built from
    different = differences({key: ours[key] for key in sorted(keys)}, {key: theirs.get(key) for key in keys}, "policy")
    if different:
        raise SpecError(
            f"policy.class: {name!r} is another one on this host than where it is trained (ours first):"
            f" {'; '.join(different[:MAX_NAMED])}; put the learner's files of its code and of what it begins with in place here"
        )
