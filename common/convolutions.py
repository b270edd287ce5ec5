"""Networks over cameras as forward passes in numpy alone, in float32: convolutions as products of patches, and dense layers.

They are those of :mod:`headrace.learner.encoder`, and ``ProjectedDense`` of :mod:`headrace.learner.pixels`, by their names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from headrace.common.specs import ObsSpec

Array = np.ndarray[Any, Any]
Shapes = dict[str, tuple[int, ...]]
KERNEL = 3
NORM_EPSILON = np.float32(1e-5)  # of torch's layer norm


def encoder_shapes(
    name: str, camera: ObsSpec, stack: int, channels: Sequence[int], strides: Sequence[int]
) -> tuple[Shapes, int]:
    """Name -> shape of the tensors of one camera's encoder, and F, how many numbers it makes of an observation.

    Where the images are too small for so many convolutions F is not positive.
    """
    height, width, inputs = camera.shape[0], camera.shape[1], stack * camera.shape[2]
    shapes: Shapes = {}
    for i, (outputs, stride) in enumerate(zip(channels, strides, strict=True)):
        layer = f"{name}.convolutions.{i}"
        shapes[f"{layer}.weight"], shapes[f"{layer}.bias"] = (outputs, inputs, KERNEL, KERNEL), (outputs,)
        height, width, inputs = (height - KERNEL) // stride + 1, (width - KERNEL) // stride + 1, outputs
    return shapes, inputs * max(0, height) * max(0, width)


def encode(tensors: Mapping[str, Array], name: str, images: Array, strides: Sequence[int]) -> Array:
    """``(L, [h,] H, W, C)`` uint8 -> ``(L, F)``; stacked frames are further colours."""
    frames = images[:, None] if images.ndim == 4 else images
    x = np.moveaxis(frames, 1, 3).reshape(len(frames), *frames.shape[2:4], -1).astype(np.float32)
    x = x / np.float32(255) - np.float32(0.5)
    for i, stride in enumerate(strides):
        layer = f"{name}.convolutions.{i}"
        weight, bias = tensors[f"{layer}.weight"], tensors[f"{layer}.bias"]
        patches = np.lib.stride_tricks.sliding_window_view(x, (KERNEL, KERNEL), (1, 2))[:, ::stride, ::stride]
        places = patches.shape[:3]
        flat = patches.reshape(-1, weight[0].size) @ weight.reshape(len(weight), -1).T + bias
        x = np.maximum(flat, np.float32(0)).reshape(*places, len(weight))
    return np.moveaxis(x, 3, 1).reshape(len(x), -1)


def projected_shapes(name: str, images: int, rest: int, width: int, hidden: Sequence[int], outputs: int) -> Shapes:
    """Name -> shape of the tensors of a ``ProjectedDense``, whose arguments these are."""
    shapes: Shapes = {f"{name}.projection.weight": (width, images), f"{name}.projection.bias": (width,)}
    shapes[f"{name}.norm.weight"] = shapes[f"{name}.norm.bias"] = (width,)
    inputs = width + rest
    for layer, n in [*((f"trunk.{i}", n) for i, n in enumerate(hidden)), ("head", outputs)]:
        shapes[f"{name}.dense.{layer}.weight"], shapes[f"{name}.dense.{layer}.bias"] = (n, inputs), (n,)
        inputs = n
    return shapes


def projected(tensors: Mapping[str, Array], name: str, images: Sequence[Array], rest: Sequence[Array], hidden: int) -> Array:
    """Such a network's output ``(L, outputs)`` for encoded ``images`` and further inputs, each ``(L, n)``."""
    kept = np.tanh(_norm(_linear(np.concatenate(images, 1), tensors, f"{name}.projection"), tensors, f"{name}.norm"))
    x = np.concatenate([kept, *rest], 1)
    for i in range(hidden):
        x = np.maximum(_linear(x, tensors, f"{name}.dense.trunk.{i}"), np.float32(0))
    return _linear(x, tensors, f"{name}.dense.head")


def _linear(x: Array, tensors: Mapping[str, Array], name: str) -> Array:
    return np.asarray(x @ tensors[f"{name}.weight"].T + tensors[f"{name}.bias"])


def _norm(x: Array, tensors: Mapping[str, Array], name: str) -> Array:
    centred = x - x.mean(1, keepdims=True)
    scale = np.sqrt((centred * centred).mean(1, keepdims=True) + NORM_EPSILON)
    return np.asarray(centred / scale * tensors[f"{name}.weight"] + tensors[f"{name}.bias"])
