"""The policy of ``model.type: pixels`` as a forward pass in numpy alone, for robots that see cameras and have no torch."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from headrace.actor.freshness import cameras_of
from headrace.actor.policy import RENEW, Box, require_tensors, squashed
from headrace.common.convolutions import encode, encoder_shapes, projected, projected_shapes
from headrace.common.errors import SpecError
from headrace.common.shrinking import seen_at, shrunk
from headrace.common.specs import ObsSpec, TransitionSpec
from headrace.common.switches import switch_places
from headrace.common.weights import WeightSet, require_policy

Array = np.ndarray[Any, Any]
CLASS = "headrace.learner.pixels:Pixels"
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
        size: at which their images are seen; 0: as they are.
        strides: of each convolution.
        hidden: layers of the dense network.
        shapes: name -> shape of every tensor.
        switches: places among the numbers of a decision that are -1 or 1 alone.
    """

    cameras: Mapping[int, ObsSpec]
    rest: tuple[ObsSpec, ...]
    size: int
    strides: tuple[int, ...]
    hidden: int
    shapes: Mapping[str, tuple[int, ...]]
    switches: tuple[int, ...]

    @classmethod
    def of(cls, policy: Mapping[str, Any], spec: TransitionSpec) -> PixelLayout:
        """Read a description.

        Raises:
            SpecError: it is not one of this model.
        """
        try:
            options = policy["options"]
            channels, strides, hidden = (tuple(int(n) for n in options[name]) for name in ("channels", "strides", "hidden"))
            kept, size = int(options["projection"]), int(options.get("size", 0))  # a policy of before there was a size
            switches = tuple(int(dim) for dim in options.get("switches", ()))
        except (KeyError, TypeError, ValueError) as error:
            raise SpecError(f"policy.options: not those of pixels: {type(error).__name__}: {error}") from error
        if len(channels) != len(strides) or min((*channels, *strides, *hidden, kept, size + 1)) < 1:
            shape = f"channels {channels}, strides {strides}, hidden {hidden}, projection {kept}, size {size}"
            raise SpecError(f"policy.options: {shape}")
        pictures = cameras_of(spec.obs)
        cameras = {pictures.index(o.key): o for o in spec.obs if o.key in pictures and o.role != "critic"}
        rest = tuple(o for o in spec.obs if o.key not in pictures and o.role != "critic")
        if not cameras:
            raise SpecError("spec.obs: no uint8 images (H, W, C) that the actor may see, and this policy needs a camera")
        shapes: dict[str, tuple[int, ...]] = {}
        images = 0
        for number, o in cameras.items():
            own, features = encoder_shapes(f"encoders.{number}", seen_at(o, size), spec.stack, channels, strides)
            shapes |= own
            images += features
        plain = spec.stack * sum(math.prod(o.shape) for o in rest)
        shapes |= projected_shapes("actor", images, plain, kept, hidden, 2 * math.prod(spec.action.shape))
        return cls(cameras, rest, size, strides, len(hidden), shapes, switch_places(spec.action, switches))


class PixelPolicy:
    """The actor of :class:`headrace.learner.pixels.Pixels`, forward only, in float32.

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
        size, strides = self._layout.size, self._layout.strides
        with np.errstate(all="ignore"):
            seen = {n: shrunk(obs[o.key], size) if size else obs[o.key] for n, o in self._layout.cameras.items()}
            images = [encode(tensors, f"encoders.{n}", pictures, strides) for n, pictures in seen.items()]
            rest = [_flat(obs[o.key], o) for o in self._layout.rest]
            head = projected(tensors, "actor", images, rest, self._layout.hidden)
            unit = squashed(head, LOG_STD, rng, deterministic, self._layout.switches)
            return self._box.place(unit.reshape(len(head), *self._shape))


def _flat(x: Array, spec: ObsSpec) -> Array:
    numbers = x.reshape(len(x), -1).astype(np.float32)
    return numbers / np.float32(255) if spec.dtype == "|u1" else numbers
