"""Training of a success classifier: a light encoder a camera, and a small dense network behind, on single images."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from headrace.common.classifying import Classifying
from headrace.common.config import option
from headrace.common.errors import SpecError
from headrace.common.specs import ObsSpec
from headrace.common.weights import Array, Version, WeightSet
from headrace.learner.adam import Adam
from headrace.learner.augment import random_shift
from headrace.learner.encoder import ConvEncoder
from headrace.learner.pixels import ProjectedDense


@dataclass(frozen=True)
class ClassifierOptions:
    """Shape and training of a classifier, and when it says success."""

    channels: tuple[int, ...] = option((16, 32, 32, 32), help="output channels of the 3 x 3 convolutions", low=1, high=4096)
    strides: tuple[int, ...] = option((2, 2, 2, 1), help="their strides", low=1, high=16)
    projection: int = option(32, help="numbers that are kept of the encoded images", low=1, high=65536)
    hidden: tuple[int, ...] = option((64,), help="widths of the hidden layers behind", low=1, high=65536)
    threshold: float = option(0.5, help="probability from which an image shows success", low=1e-6, high=1 - 1e-6)
    hold: int = option(3, help="images in a row that must show it", unit="frames", low=1, high=1000)
    updates: int = option(500, help="training steps", low=1, high=10_000_000)
    batch_size: int = option(64, help="images of a training step, half of them of success", low=2, high=65536)
    lr: float = option(1e-3, help="Adam step size", low=0, high=1)
    shift: int = option(4, help="how far training moves images at random", unit="pixels", low=0, high=1024)
    seed: int = option(0, help="of weights, batches and shifts, and of which episodes are held out", low=0)

    def shape(self, cameras: tuple[ObsSpec, ...]) -> Classifying:
        """What becomes of these options for some cameras.

        Raises:
            SpecError: an impossible shape; names the field.
        """
        shape = self.channels, self.strides, self.projection, self.hidden
        made = Classifying(cameras, *shape, self.threshold, self.hold)
        made.check()
        return made


class ClassifierNet(nn.Module):
    """The network behind :class:`headrace.actor.success.SuccessClassifier`, by whose names its tensors go."""

    def __init__(self, what: Classifying) -> None:
        super().__init__()
        encoders = [ConvEncoder(o, 1, what.channels, what.strides) for o in what.cameras]
        self._keys = [o.key for o in what.cameras]
        self.encoders = nn.ModuleList(encoders)
        self.head = ProjectedDense(sum(e.outputs for e in encoders), 0, what.projection, what.hidden, 1)

    def forward(self, images: Mapping[str, Tensor]) -> Tensor:
        """Camera -> ``(B, H, W, C)`` uint8 to the logit of success, ``(B,)``."""
        encoded = [encoder(images[key]) for key, encoder in zip(self._keys, self.encoders, strict=True)]
        logit: Tensor = self.head(torch.cat(encoded, dim=1))
        return logit[:, 0]


def train_classifier(
    images: Mapping[str, Array],
    success: Array,
    options: ClassifierOptions,
    told: Callable[[int, int], None] = lambda done, total: None,
) -> WeightSet:
    """A classifier of single images; each training step sees as many of success as of everything else, moved at random.

    Args:
        images: camera -> ``(n, H, W, C)`` uint8.
        success: ``(n,)`` bool.
        options: how.
        told: steps done, and all.

    Raises:
        SpecError: images of one kind only, or too small.
    """
    kinds = [torch.from_numpy(np.flatnonzero(success == kind)) for kind in (True, False)]
    if min(len(kind) for kind in kinds) < 1:
        raise SpecError(f"{len(kinds[0])} images of success and {len(kinds[1])} without; a classifier learns from both")
    what = options.shape(tuple(ObsSpec(key, images[key].shape[1:], "|u1") for key in sorted(images)))
    generator = torch.Generator().manual_seed(options.seed)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(options.seed)
        net = ClassifierNet(what)
    tensors = {key: torch.from_numpy(np.ascontiguousarray(values)) for key, values in images.items()}
    parameters = list(net.named_parameters())
    optimizer, skip = Adam(parameters, options.lr), torch.zeros(())
    half = (options.batch_size + 1) // 2
    label = torch.cat((torch.ones(half), torch.zeros(half)))
    for step in range(1, options.updates + 1):
        drawn = [kind[torch.randint(len(kind), (half,), generator=generator)] for kind in kinds]
        batch = {key: random_shift(values[torch.cat(drawn)], options.shift, generator) for key, values in tensors.items()}
        loss = binary_cross_entropy_with_logits(net(batch), label)
        optimizer.step(torch.autograd.grad(loss, [p for _, p in parameters]), skip)
        told(step, options.updates)
    arrays = {name: p.detach().numpy().copy() for name, p in parameters}
    return WeightSet(Version("classifier", 1, options.updates), what.to_dict(), arrays)
