"""Policies: what the loop asks for actions; a uniform one, and the MLP as a forward pass in numpy alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from headrace.actor.config import ActorConfig
from headrace.actor.deciding import Decided
from headrace.common.errors import SpecError
from headrace.common.rounding import inwards
from headrace.common.specs import ActionSpec, ObsSpec, TransitionSpec
from headrace.common.statistics import NORMAL_LIMIT, VAR_FLOOR
from headrace.common.switches import switch_places
from headrace.common.weights import WeightSet, require_policy

Array = np.ndarray[Any, Any]
RENEW = "start this process again: it builds the policy of the first weights that it gets"


class Policy(Protocol):
    """Chooses actions for L lanes."""

    def act(self, obs: Mapping[str, Array], rng: np.random.Generator, deterministic: bool) -> Array:
        """Actions for a batch of observations.

        Args:
            obs: key -> ``(L, *shape)``, or ``(L, h, *shape)`` when the spec stacks h > 1 frames, oldest first.
            rng: source of the exploration noise.
            deterministic: the mode of the distribution in place of a sample.

        Returns:
            ``(L, *action.shape)`` float32 in env units, never outside the box.
        """
        ...

    def load(self, weights: WeightSet) -> None:
        """Take other weights of the same policy, all of them or, raising, none.

        Raises:
            SpecError: naming the tensor or the option that does not fit; the old weights stay.
        """
        ...


class LatentPolicy(Policy, Protocol):
    """Decides on latents, of which it makes actions; rows then hold both (``window.latent``)."""

    def decide(self, obs: Mapping[str, Array], rng: np.random.Generator) -> Decided:
        """Actions of :meth:`act`, not deterministic, with their latents."""
        ...


def sampled(policy: Policy, spec: TransitionSpec, obs: Mapping[str, Array], rng: np.random.Generator) -> Array | Decided:
    """What ``policy`` decides, not deterministic, with latents where rows of ``spec`` hold them."""
    if spec.latent:
        latent: LatentPolicy = policy  # type: ignore[assignment]  # what a learner of such rows publishes
        return latent.decide(obs, rng)
    return policy.act(obs, rng, False)


class Box:
    """The action box in float32, rounded inwards, so that no rounding leaves the declared bounds.

    Raises:
        SpecError: two bounds with no float32 number between them.
    """

    def __init__(self, action: ActionSpec) -> None:
        low, high = np.asarray(action.low, np.float64), np.asarray(action.high, np.float64)
        self.low, self.high = inwards(low, high)
        for i in np.flatnonzero(self.low > self.high)[:1]:
            raise SpecError(f"spec.action: no float32 number lies in the bounds [{low[i]}, {high[i]}] of dimension {i}")
        self._half = self.high * np.float32(0.5) - self.low * np.float32(0.5)  # halved first, or wide boxes overflow

    def place(self, unit: Array) -> Array:
        """``unit``, ``(..., A)`` in [-1, 1], as actions in env units."""
        return _clip(self.low + (unit + np.float32(1)) * self._half, self.low, self.high)


class RandomPolicy:
    """Uniform over the action box: what acts until there are weights.

    Args:
        spec: whose action box.
    """

    def __init__(self, spec: TransitionSpec) -> None:
        self._shape = spec.action.shape
        self._box = Box(spec.action)

    def act(self, obs: Mapping[str, Array], rng: np.random.Generator, deterministic: bool) -> Array:
        """Uniform actions; the centre of the box when ``deterministic``."""
        lanes = len(next(iter(obs.values())))
        return self._box.place(np.zeros((lanes, *self._shape), np.float32)) if deterministic else self.draw(lanes, rng)

    def draw(self, lanes: int, rng: np.random.Generator) -> Array:
        """Uniform actions, ``(lanes, *action.shape)``, whatever is seen."""
        return self._box.place(rng.random((lanes, *self._shape), np.float32) * np.float32(2) - np.float32(1))

    def load(self, weights: WeightSet) -> None:
        """Refused: there is nothing to load."""
        raise SpecError("the random policy holds no weights; make_policy() makes the one that they are for")


@dataclass(frozen=True)
class MlpLayout:
    """The description of an MLP policy, checked against the spec: what its tensors and its input look like.

    Attributes:
        keys: observation keys that it reads, in input order.
        stack: h, frames a key.
        hidden: widths of the trunk's layers.
        activation: name of the trunk's activation.
        log_std: smallest and largest log standard deviation.
        normalise: whether float keys are normalised by ``mean.{key}`` and ``var.{key}``.
        action: bounds.
        switches: places among the numbers of a decision that are -1 or 1 alone.
    """

    keys: tuple[ObsSpec, ...]
    stack: int
    hidden: tuple[int, ...]
    activation: str
    log_std: tuple[float, float]
    normalise: bool
    action: ActionSpec
    switches: tuple[int, ...] = ()

    @classmethod
    def of(cls, policy: Mapping[str, Any], spec: TransitionSpec) -> MlpLayout:
        """Read a policy description.

        Raises:
            SpecError: naming the option that is missing, unknown or at odds with the spec.
        """
        try:
            low, high = policy["log_std"]
            keys, hidden = [str(key) for key in policy["keys"]], tuple(int(n) for n in policy["hidden"])
            bounds = tuple(float(x) for x in policy["low"]), tuple(float(x) for x in policy["high"])
            plain = int(policy["stack"]), str(policy["activation"]), (float(low), float(high)), bool(policy["normalise"])
            switches = tuple(int(dim) for dim in policy.get("switches", ()))
        except (KeyError, TypeError, ValueError) as error:
            raise SpecError(f"policy: not the description of an MLP: {type(error).__name__}: {error}") from error
        stack, activation, log_std, normalise = plain
        seen = {o.key: o for o in spec.obs if o.role != "critic"}
        if not keys or any(key not in seen for key in keys):
            raise SpecError(f"policy.keys: {keys}, the spec lets the actor see {sorted(seen)}")
        for name, theirs, ours in (
            ("stack", stack, spec.stack),
            ("low", bounds[0], spec.action.low),
            ("high", bounds[1], spec.action.high),
        ):
            if theirs != ours:
                raise SpecError(f"policy.{name}: {theirs}, the spec says {ours}")
        if activation not in ACTIVATIONS:
            raise SpecError(f"policy.activation: {activation!r} is not one of {', '.join(ACTIVATIONS)}")
        if any(n < 1 for n in hidden) or not log_std[0] < log_std[1]:
            raise SpecError(f"policy: hidden widths {hidden} must be positive and log_std {log_std} ordered")
        places = switch_places(spec.action, switches, "policy.switches")
        return cls(tuple(seen[key] for key in keys), stack, hidden, activation, log_std, normalise, spec.action, places)

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Name -> shape of every tensor that a weight set must hold."""
        out: dict[str, tuple[int, ...]] = {}
        width = sum(self.widths)
        for i, n in enumerate(self.hidden):
            out[f"trunk.{i}.weight"], out[f"trunk.{i}.bias"] = (n, width), (n,)
            width = n
        outputs = 2 * math.prod(self.action.shape)
        out["head.weight"], out["head.bias"] = (outputs, width), (outputs,)
        for key in self.normalised:
            out[f"mean.{key.key}"] = out[f"var.{key.key}"] = key.shape
        return out

    @property
    def widths(self) -> tuple[int, ...]:
        """Inputs of each key."""
        return tuple(self.stack * math.prod(o.shape) for o in self.keys)

    @property
    def normalised(self) -> tuple[ObsSpec, ...]:
        """Keys that are normalised: the float ones, if any are."""
        return tuple(o for o in self.keys if self.normalise and o.dtype == "<f4")

    def check(self, weights: WeightSet) -> None:
        """Refuse weights that are not whole.

        Raises:
            SpecError: naming the tensor, and what it should be.
        """
        require_tensors(weights, self.shapes)
        for name, tensor in weights.tensors.items():
            if name.startswith("var.") and (tensor < 0).any():
                raise SpecError(f"weights: tensor {name!r} holds a negative variance")

    def scaling(self, tensors: Mapping[str, Array]) -> tuple[Array, Array, Array] | None:
        """Per input: x becomes ``clip((x - shift) / scale, -limit, limit)``; None when nothing changes."""
        if not self.normalise and all(o.dtype != "|u1" for o in self.keys):
            return None
        parts: list[tuple[Array, Array, float]] = []
        for o, width in zip(self.keys, self.widths, strict=True):
            shift, scale, limit = np.zeros(width, np.float32), np.ones(width, np.float32), np.inf
            if o in self.normalised:
                shift[:] = np.tile(tensors[f"mean.{o.key}"].ravel(), self.stack)
                scale[:] = np.tile(np.sqrt(tensors[f"var.{o.key}"].ravel() + np.float32(VAR_FLOOR)), self.stack)
                limit = NORMAL_LIMIT
            elif o.dtype == "|u1":
                scale[:] = 255
            parts.append((shift, scale, limit))
        limits = [np.full(len(shift), limit, np.float32) for shift, _, limit in parts]
        return np.concatenate([p[0] for p in parts]), np.concatenate([p[1] for p in parts]), np.concatenate(limits)


class MlpPolicy:
    """Tanh-Gaussian MLP, forward only, in float32.

    Args:
        weights: description and tensors, as published.
        spec: what observations and actions look like.

    Raises:
        SpecError: the description does not fit the spec, or the tensors do not fit the description.
    """

    def __init__(self, weights: WeightSet, spec: TransitionSpec) -> None:
        self._layout = MlpLayout.of(weights.policy, spec)
        self._policy = dict(weights.policy)
        self._box = Box(spec.action)
        self._activation = ACTIVATIONS[self._layout.activation]
        self._input = np.zeros((0, sum(self._layout.widths)), np.float32)
        self.load(weights)

    def load(self, weights: WeightSet) -> None:
        """Take other weights of the same description, whole or not at all."""
        require_policy(weights, self._policy, RENEW)
        self._layout.check(weights)
        tensors = {name: np.array(tensor) for name, tensor in weights.tensors.items()}
        layers = [*(f"trunk.{i}" for i in range(len(self._layout.hidden))), "head"]
        pairs = [(tensors[f"{name}.weight"].T, tensors[f"{name}.bias"]) for name in layers]
        # One assignment, so that nothing ever acts on a mix of two versions.
        self._weights = (pairs[:-1], pairs[-1], self._layout.scaling(tensors))

    @property
    def arrays(self) -> list[Array]:
        """What it acts with now: weight and bias of each layer."""
        trunk, head, _ = self._weights
        return [array for layer in (*trunk, head) for array in layer]

    def act(self, obs: Mapping[str, Array], rng: np.random.Generator, deterministic: bool) -> Array:
        """Actions for L lanes; an observation that is not finite may give an action that is not."""
        trunk, (weight, bias), scaling = self._weights
        with np.errstate(all="ignore"):
            x = self._gather(obs)
            if scaling is not None:
                shift, scale, limit = scaling
                x = _clip((x - shift) / scale, -limit, limit)
            for w, b in trunk:
                x = self._activation(x @ w + b)
            unit = squashed(x @ weight + bias, self._layout.log_std, rng, deterministic, self._layout.switches)
            return self._box.place(unit.reshape(len(x), *self._layout.action.shape))

    def _gather(self, obs: Mapping[str, Array]) -> Array:
        lanes = len(obs[self._layout.keys[0].key])
        if len(self._input) != lanes:
            self._input = np.zeros((lanes, self._input.shape[1]), np.float32)
        start = 0
        for o, width in zip(self._layout.keys, self._layout.widths, strict=True):
            self._input[:, start : start + width] = obs[o.key].reshape(lanes, width)
            start += width
        return self._input


MakePolicy = Callable[[WeightSet, TransitionSpec, ActorConfig], Policy]  # what acts by the first weights of a process


def make_policy(weights: WeightSet, spec: TransitionSpec, config: ActorConfig | None = None) -> Policy:
    """The policy that a weight set describes, with its weights loaded.

    Args:
        weights: description and tensors.
        spec: what observations and actions look like.
        config: its ``policy`` and ``device``; by default the MLP runs in numpy and everything else in torch on the CPU.

    Raises:
        SpecError: the description or the tensors do not fit, or numpy cannot run this type.
    """
    config = config or ActorConfig()
    policy_type = weights.policy.get("type")
    if config.policy != "torch" and policy_type == "mlp":
        return MlpPolicy(weights, spec)
    from headrace.actor.pixel_policy import PixelPolicy, is_pixels

    pixels = is_pixels(weights.policy)
    if config.policy == "numpy":
        if pixels:
            return PixelPolicy(weights, spec)
        raise SpecError(
            f"actor.policy: numpy runs the models mlp and pixels, not a policy of type {policy_type!r}; choose auto or torch"
        )
    try:
        from headrace.actor.torch_policy import make_torch_policy
    except ImportError as error:
        if pixels:
            return PixelPolicy(weights, spec)
        raise SpecError(f"a policy of type {policy_type!r} runs in torch, which this machine lacks ({error})") from error
    return make_torch_policy(weights, spec, config.device)


def require_tensors(weights: WeightSet, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Refuse weights that are not whole: exactly these tensors, in float32 and finite.

    Raises:
        SpecError: naming the tensor, and what it should be.
    """
    tensors = weights.tensors
    for name in (*shapes, *tensors):
        if name not in tensors or name not in shapes:
            raise SpecError(f"weights: tensor {name!r} is {'missing' if name in shapes else 'unknown to this policy'}")
        tensor = tensors[name]
        if tensor.shape != shapes[name] or np.dtype(tensor.dtype).str != "<f4":
            raise SpecError(f"weights: tensor {name!r} is {tensor.shape} {tensor.dtype}, expected {shapes[name]} float32")
        if not np.isfinite(tensor).all():
            raise SpecError(f"weights: tensor {name!r} holds NaN or infinity")


def squashed(
    head: Array,
    log_std: tuple[float, float],
    rng: np.random.Generator,
    deterministic: bool,
    switches: Sequence[int] = (),
) -> Array:
    """Actions ``(L, D)`` in [-1, 1] of a tanh-Gaussian: a sample, or its mode. Switches are the sign of a spread of 1.

    Args:
        head: ``(L, 2D)``, means first, then log standard deviations.
        log_std: least and largest of these.
        rng: source of the noise.
        deterministic: the mode.
        switches: which of the D numbers are -1 or 1.
    """
    half = head.shape[1] // 2
    u, at = head[:, :half], list(switches)
    if not deterministic:
        spread = np.exp(_clip(head[:, half:], *log_std))
        spread[:, at] = 1
        u = u + spread * rng.standard_normal(u.shape, np.float32)
    unit = np.asarray(np.tanh(u))
    if at:
        unit[:, at] = np.sign(u[:, at]) + (u[:, at] == 0)  # what is no number stays so, and a guard sees it
    return unit


def _clip(x: Array, low: Any, high: Any) -> Array:
    return np.asarray(np.minimum(np.maximum(x, low), high))  # np.clip takes three times as long on a few numbers


def _relu(x: Array) -> Array:
    return np.maximum(x, np.float32(0))


def _elu(x: Array) -> Array:
    return np.where(x > 0, x, np.expm1(np.minimum(x, np.float32(0))))


def _silu(x: Array) -> Array:
    return np.asarray(x / (np.float32(1) + np.exp(-x)))


ACTIVATIONS: dict[str, Callable[[Array], Array]] = {"relu": _relu, "tanh": np.tanh, "elu": _elu, "silu": _silu}
