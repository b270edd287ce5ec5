"""The policy of ``model.type: pixels`` as a forward pass in numpy alone, for robots that see cameras and have no torch."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from headrace.actor.freshness import cameras_of
from headrace.actor.policy import RENEW, Box, require_tensors, squashed
from headrace.common.errors import SpecError
from headrace.common.specs import ObsSpec, TransitionSpec
from headrace.common.weights import WeightSet, require_policy

Array = np.ndarray[Any, Any]
CLASS = "headrace.learner.pixels:Pixels"
KERNEL = 3
NORM_EPSILON = np.float32(1e-5)  # of torch's layer norm
LOG_STD = (-20.0, 2.0)  # where the model clamps


def is_pixels(policy: Mapping[str, Any]) -> bool:
    """Whether a description is that of the built-in model for cameras."""
    return policy.get("type") == "torch" and policy.get("class") == CLASS


@dataclass(frozen=True)
class PixelLayout:
    """What the tensors of such a policy look like for one spec.

    Attributes:
        cameras: number of its encoder -> key of a camera that the actor sees, in the order in which they are encoded.
        rest: the other keys that it sees.
        strides: of each convolution.
        hidden: layers of the dense network.
        shapes: name -> shape of every tensor.
    """

    cameras: Mapping[int, ObsSpec]
    rest: tuple[ObsSpec, ...]
    strides: tuple[int, ...]
    hidden: int
    shapes: Mapping[str, tuple[int, ...]]

    @classmethod
    def of(cls, policy: Mapping[str, Any], spec: TransitionSpec) -> PixelLayout:
        """Read a description.

        Raises:
            SpecError: it is not one of this model.
        """
        try:
            options = policy["options"]
            channels, strides, hidden = (tuple(int(n) for n in options[name]) for name in ("channels", "strides", "hidden"))
            kept = int(options["projection"])
        except (KeyError, TypeError, ValueError) as error:
            raise SpecError(f"policy.options: not those of pixels: {type(error).__name__}: {error}") from error
        if len(channels) != len(strides) or min((*channels, *strides, *hidden, kept)) < 1:
            raise SpecError(f"policy.options: channels {channels}, strides {strides}, hidden {hidden}, projection {kept}")
        pictures = cameras_of(spec.obs)
        cameras = {pictures.index(o.key): o for o in spec.obs if o.key in pictures and o.role != "critic"}
        rest = tuple(o for o in spec.obs if o.key not in pictures and o.role != "critic")
        if not cameras:
            raise SpecError("spec.obs: no uint8 images (H, W, C) that the actor may see, and this policy needs a camera")
        shapes: dict[str, tuple[int, ...]] = {}
        images = 0
        for number, o in cameras.items():
            height, width, inputs = o.shape[0], o.shape[1], spec.stack * o.shape[2]
            for i, (outputs, stride) in enumerate(zip(channels, strides, strict=True)):
                name = f"encoders.{number}.convolutions.{i}"
                shapes[f"{name}.weight"], shapes[f"{name}.bias"] = (outputs, inputs, KERNEL, KERNEL), (outputs,)
                height, width, inputs = (height - KERNEL) // stride + 1, (width - KERNEL) // stride + 1, outputs
            images += inputs * height * width
        shapes["actor.projection.weight"], shapes["actor.projection.bias"] = (kept, images), (kept,)
        shapes["actor.norm.weight"] = shapes["actor.norm.bias"] = (kept,)
        width = kept + spec.stack * sum(math.prod(o.shape) for o in rest)
        for name, outputs in [*((f"trunk.{i}", n) for i, n in enumerate(hidden)), ("head", 2 * math.prod(spec.action.shape))]:
            shapes[f"actor.dense.{name}.weight"], shapes[f"actor.dense.{name}.bias"] = (outputs, width), (outputs,)
            width = outputs
        return cls(cameras, rest, strides, len(hidden), shapes)


class PixelPolicy:
    """The actor of :class:`headrace.learner.pixels.Pixels`, forward only, in float32: convolutions as products of patches.

    Args:
        weights: description and tensors, as published.
        spec: what observations and actions look like.

    Raises:
        SpecError: the description does not fit the spec, or the tensors do not fit the description.
    """

    def __init__(self, weights: WeightSet, spec: TransitionSpec) -> None:
        self._layout = PixelLayout.of(weights.policy, spec)
        self._policy, self._shape, self._box = dict(weights.policy), spec.action.shape, Box(spec.action)
        self.load(weights)

    def load(self, weights: WeightSet) -> None:
        """Take other weights of the same description, whole or not at all."""
        require_policy(weights, self._policy, RENEW)
        require_tensors(weights, self._layout.shapes)
        self._tensors = {name: np.array(tensor) for name, tensor in weights.tensors.items()}  # one assignment: never a mix

    def act(self, obs: Mapping[str, Array], rng: np.random.Generator, deterministic: bool) -> Array:
        """Actions for L lanes; an observation that is not finite may give an action that is not."""
        tensors = self._tensors
        with np.errstate(all="ignore"):
            images = [self._encode(tensors, number, obs[o.key]) for number, o in self._layout.cameras.items()]
            kept = np.tanh(_norm(_linear(np.concatenate(images, 1), tensors, "actor.projection"), tensors, "actor.norm"))
            x = np.concatenate([kept, *(_flat(obs[o.key], o) for o in self._layout.rest)], 1)
            for i in range(self._layout.hidden):
                x = np.maximum(_linear(x, tensors, f"actor.dense.trunk.{i}"), np.float32(0))
            unit = squashed(_linear(x, tensors, "actor.dense.head"), LOG_STD, rng, deterministic)
            return self._box.place(unit.reshape(len(x), *self._shape))

    def _encode(self, tensors: Mapping[str, Array], number: int, images: Array) -> Array:
        """``(L, [h,] H, W, C)`` uint8 -> ``(L, F)``; stacked frames are further colours."""
        frames = images[:, None] if images.ndim == 4 else images
        x = np.moveaxis(frames, 1, 3).reshape(len(frames), *frames.shape[2:4], -1).astype(np.float32)
        x = x / np.float32(255) - np.float32(0.5)
        for i, stride in enumerate(self._layout.strides):
            name = f"encoders.{number}.convolutions.{i}"
            weight, bias = tensors[f"{name}.weight"], tensors[f"{name}.bias"]
            patches = np.lib.stride_tricks.sliding_window_view(x, (KERNEL, KERNEL), (1, 2))[:, ::stride, ::stride]
            places = patches.shape[:3]
            flat = patches.reshape(-1, weight[0].size) @ weight.reshape(len(weight), -1).T + bias
            x = np.maximum(flat, np.float32(0)).reshape(*places, len(weight))
        return np.moveaxis(x, 3, 1).reshape(len(x), -1)


def _linear(x: Array, tensors: Mapping[str, Array], name: str) -> Array:
    return np.asarray(x @ tensors[f"{name}.weight"].T + tensors[f"{name}.bias"])


def _norm(x: Array, tensors: Mapping[str, Array], name: str) -> Array:
    centred = x - x.mean(1, keepdims=True)
    scale = np.sqrt((centred * centred).mean(1, keepdims=True) + NORM_EPSILON)
    return np.asarray(centred / scale * tensors[f"{name}.weight"] + tensors[f"{name}.bias"])


def _flat(x: Array, spec: ObsSpec) -> Array:
    numbers = x.reshape(len(x), -1).astype(np.float32)
    return numbers / np.float32(255) if spec.dtype == "|u1" else numbers
