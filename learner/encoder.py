"""A light convolutional encoder of one camera, and the file that trained ones come from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn

from headrace.common.errors import CheckpointError, ConfigError, SpecError
from headrace.common.specs import ObsSpec
from headrace.learner.adam import copy_tensors

KERNEL = 3


class ConvEncoder(nn.Module):
    """Convolutions of 3 x 3 with ReLU, after Yarats et al., DrQ-v2, arXiv:2107.09645.

    Attributes:
        outputs: F, features of one observation.
        patches: rows and columns of places that are left of an image, each of ``channels[-1]`` features.

    Args:
        camera: uint8 images ``(H, W, C)``.
        stack: h, frames of one observation, seen as h * C colours.
        channels: output channels of each convolution.
        strides: of each convolution.

    Raises:
        SpecError: nothing is left of the images behind so many convolutions.
    """

    def __init__(self, camera: ObsSpec, stack: int, channels: Sequence[int], strides: Sequence[int]) -> None:
        super().__init__()
        height, width, colours = camera.shape
        inputs = stack * colours
        self.convolutions = nn.ModuleList()
        for outputs, stride in zip(channels, strides, strict=True):
            height, width = (height - KERNEL) // stride + 1, (width - KERNEL) // stride + 1
            if min(height, width) < 1:
                raise SpecError(
                    f"spec.obs.{camera.key}: images {camera.shape} are too small for convolutions of strides {list(strides)};"
                    " give model.options.channels and strides fewer entries"
                )
            layer = nn.Conv2d(inputs, outputs, KERNEL, stride)
            nn.init.orthogonal_(layer.weight, nn.init.calculate_gain("relu"))
            nn.init.zeros_(layer.get_parameter("bias"))
            self.convolutions.append(layer)
            inputs = outputs
        self.patches = height, width
        self.outputs = inputs * height * width

    def forward(self, images: Tensor) -> Tensor:
        """``(B, H, W, C)`` or ``(B, h, H, W, C)`` uint8, to the network x / 255 - 0.5, as ``(B, F)``."""
        frames = images.unsqueeze(1) if images.dim() == 4 else images
        x = frames.permute(0, 1, 4, 2, 3).flatten(1, 2).float().div_(255).sub_(0.5)
        for layer in self.convolutions:
            x = torch.relu_(layer(x))  # in place: what a convolution gives is large, and nobody else wants it
        return x.flatten(1)


def is_camera(obs: ObsSpec) -> bool:
    """Whether a key holds uint8 images ``(H, W, C)``."""
    return obs.dtype == "|u1" and len(obs.shape) == 3


def encoder_tensors(encoders: Mapping[str, nn.Module]) -> dict[str, Tensor]:
    """All tensors of encoders by the names that a file gives them: ``<observation key>.<name in state_dict()>``."""
    return {f"{key}.{name}": tensor for key, encoder in encoders.items() for name, tensor in encoder.state_dict().items()}


def load_encoders(encoders: Mapping[str, nn.Module], file: Path) -> None:
    """Take the tensors of a local safetensors file that holds exactly those of :func:`encoder_tensors`.

    Raises:
        ConfigError: it cannot be read, or naming the tensor that is missing, unknown, of another shape or dtype, or not
            finite; the encoders are as they were.
    """
    what = f"model.options.encoder_file: {file}"
    try:
        tensors = safetensors.torch.load_file(file)
    except (OSError, safetensors.SafetensorError) as error:
        raise ConfigError(f"{what} cannot be read: {error}") from error
    for name, tensor in tensors.items():
        if not bool(torch.isfinite(tensor).all()):
            raise ConfigError(f"{what}: tensor {name!r} holds NaN or infinity")
    try:
        copy_tensors(encoder_tensors(encoders), tensors, what)
    except CheckpointError as error:
        raise ConfigError(str(error)) from error
