"""The built-in model for cameras: one encoder a camera that only the critics' loss trains, and dense networks behind it."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from headrace.common.config import dump, option, replace
from headrace.common.errors import ConfigError, SpecError
from headrace.common.shrinking import seen_at
from headrace.common.specs import ObsSpec, TransitionSpec
from headrace.learner.augment import random_shift
from headrace.learner.config import SWITCHES_HELP
from headrace.learner.contract import ONLINE, TARGET
from headrace.learner.dense import Dense
from headrace.learner.encoder import ConvEncoder, is_camera, load_encoders
from headrace.learner.gaussian_actor import GaussianActor
from headrace.learner.inputs import flat, keys_of
from headrace.learner.shrinking import shrunk


@dataclass(frozen=True)
class PixelOptions:
    """Shape of the networks, and how the encoder is trained."""

    channels: tuple[int, ...] = option(
        (32, 32, 32, 32), help="output channels of the encoder's 3 x 3 convolutions", low=1, high=4096
    )
    strides: tuple[int, ...] = option((2, 1, 1, 1), help="their strides", low=1, high=16)
    size: int = option(
        0,
        help="height and width at which networks see the images, as means of the larger ones that are recorded; 0: as they are",
        unit="pixels",
        low=0,
        high=4096,
    )
    projection: int = option(50, help="numbers that actor and critics each keep of the encoded images", low=1, high=65536)
    hidden: tuple[int, ...] = option((256, 256), help="widths of the hidden layers of actor and critics", low=1, high=65536)
    critics: int = option(2, help="critics, behind one encoder", low=1, high=64)
    switches: tuple[int, ...] = option((), help=SWITCHES_HELP, low=0)
    shift: int = option(
        4, help="how far training moves images at random, each on its own; 0: not at all", unit="pixels", low=0, high=1024
    )
    encoder_file: str = option("", help="safetensors file with the encoders to begin with; empty: random ones")
    encoder_frozen: bool = option(False, help="whether the encoders stay as the file has them")

    def check(self, path: str = "model.options") -> None:
        """Refuse layers that do not pair up, and an encoder that would stay random."""
        if not self.channels or len(self.channels) != len(self.strides):
            raise ConfigError(
                f"{path}.strides: {len(self.strides)} entries for {len(self.channels)} of {path}.channels; one for each, and at"
                " least one"
            )
        if self.encoder_frozen and not self.encoder_file:
            raise ConfigError(f"{path}.encoder_frozen: true, but {path}.encoder_file names no file; nearest valid: false")


# Options that mean nothing to acting: an actor needs no file, and policies that differ in nothing else are the same.
_ACTING: dict[str, Any] = {"critics": 1, "shift": 0, "encoder_file": "", "encoder_frozen": False}


class ProjectedDense(nn.Module):
    """A dense network that keeps a little of its first inputs, the encoded images: a linear layer, layer norm and tanh.

    Args:
        images: inputs that come from encoders.
        rest: further inputs, which pass.
        width: what is kept of the images.
        hidden: widths of the dense network behind.
        outputs: of the whole.
    """

    def __init__(self, images: int, rest: int, width: int, hidden: Sequence[int], outputs: int) -> None:
        super().__init__()
        self._images = images
        self.projection = nn.Linear(images, width)
        self.norm = nn.LayerNorm(width)
        self.dense = Dense(width + rest, hidden, outputs)

    def forward(self, x: Tensor) -> Tensor:
        """``(B, images + rest) -> (B, outputs)``."""
        kept = torch.tanh(self.norm(self.projection(x[:, : self._images])))
        output: Tensor = self.dense(torch.cat((kept, x[:, self._images :]), dim=1))
        return output


class Pixels(GaussianActor):
    """Actor and N critics over cameras, which are uint8 keys of shape (H, W, C), and whatever else there is beside them.

    The encoders belong to the critics, and the target critics have copies of their own. The actor takes their features as
    they are and has a projection of its own (Yarats et al., arXiv:1910.01741, section 5). Training sees each image
    moved at random (:func:`random_shift`); acting does not. With ``size`` both see them smaller than they are recorded.

    Raises:
        ConfigError: an option is unknown or out of range, or ``encoder_file`` does not hold these encoders.
        SpecError: one side sees no camera, the critics do not see one that the actor sees, or its images are too small.
    """

    Options: ClassVar[type[Any]] = PixelOptions
    CAPTURABLE: ClassVar[bool] = True

    def __init__(self, spec: TransitionSpec, **options: Any) -> None:
        super().__init__(spec, **options)
        cameras = [o for o in spec.obs if is_camera(o)]
        self._cameras = {o.key: i for i, o in enumerate(cameras)}
        self._keys = {role: _split(spec, role) for role in ("actor", "critic")}
        unseen = [o.key for o in cameras if o.role == "actor"]
        if unseen:
            raise SpecError(
                f"spec.obs.{unseen[0]}: role actor, but it is the critics' loss that trains a camera's encoder; set"
                f" env.roles.{unseen[0]} to both"
            )
        shape = (spec.stack, self.options.channels, self.options.strides)
        encoders = [ConvEncoder(seen_at(o, self.options.size), *shape) for o in cameras]
        self.encoders = nn.ModuleList(encoders)
        self._widths = [encoder.outputs for encoder in encoders]
        self.actor = self._network("actor", 0, 2 * self.action_dim)
        self.critics = nn.ModuleList(self._network("critic", self.action_dim, 1) for _ in range(self.options.critics))
        if self.options.encoder_file:
            load_encoders(self.named_encoders(), Path(self.options.encoder_file).expanduser())
        if self.options.encoder_frozen:
            self.encoders.requires_grad_(False)
        self.target_encoders = copy.deepcopy(self.encoders).requires_grad_(False).eval()
        self.target_critics = copy.deepcopy(self.critics).requires_grad_(False).eval()

    def named_encoders(self) -> dict[str, nn.Module]:
        """Observation key -> its encoder."""
        return {key: self.encoders[i] for key, i in self._cameras.items()}

    def sac_augment(self, obs: Mapping[str, Tensor], generator: torch.Generator | None) -> Mapping[str, Tensor]:
        """Each camera's images moved at random, each sample and each camera on its own."""
        pad = self.options.shift
        return {**obs, **{key: random_shift(self._seen(obs[key]), pad, generator) for key in self._cameras}} if pad else obs

    def sac_state_features(self, obs: Mapping[str, Tensor], role: str) -> Tensor:
        """Encoded images, then the role's other keys, ``(B, F)`` float32; no gradient leads from the actor's to an encoder."""
        with torch.set_grad_enabled(torch.is_grad_enabled() and role == "critic"):
            return self._features(role, obs, self._encoded(self.encoders, role, obs))

    def sac_target_features(self, obs: Mapping[str, Tensor]) -> Tensor:
        """The same for the target critics, by their own encoders."""
        return self._features("critic", obs, self._encoded(self.target_encoders, "critic", obs))

    @torch.no_grad()
    def sac_actor_step_features(self, obs: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """As the contract says; each image is encoded once, since the critics see whatever the actor sees."""
        encoded = self._encoded(self.encoders, "critic", obs)
        return self._features("actor", obs, encoded), self._features("critic", obs, encoded)

    def sac_forward_critic(self, features: Tensor, action: Tensor, twin: str = ONLINE) -> Tensor:
        """Values of the N critics, ``(B, N)``."""
        if twin not in (ONLINE, TARGET):
            raise SpecError(f"twin: {twin!r} is not one of {ONLINE}, {TARGET}")
        x = torch.cat((features, action), dim=1)
        return torch.cat([head(x) for head in (self.critics if twin == ONLINE else self.target_critics)], dim=1)

    def actor_params(self) -> Iterator[tuple[str, nn.Parameter]]:
        """The actor's projection and network."""
        return self.actor.named_parameters(prefix="actor")

    def critic_params(self) -> Iterator[tuple[str, nn.Parameter]]:
        """The online critics, and the encoders unless they are frozen."""
        if not self.options.encoder_frozen:
            yield from self.encoders.named_parameters(prefix="encoders")
        yield from self.critics.named_parameters(prefix="critics")

    @property
    def critic_network_heads(self) -> Sequence[nn.Module]:
        """The encoders, then the critics, each ``(B, F + D) -> (B, 1)``."""
        return [*self.encoders, *self.critics]

    @property
    def target_network_heads(self) -> Sequence[nn.Module]:
        """Their slow copies."""
        return [*self.target_encoders, *self.target_critics]

    def policy_description(self) -> dict[str, Any]:
        """This class with the options that acting depends on."""
        return {**super().policy_description(), "options": dump(replace(self.options, **_ACTING))}

    def policy_tensors(self) -> dict[str, Tensor]:
        """The actor, and the encoders of the cameras that it sees."""
        seen = ("actor.", *(f"encoders.{self._cameras[o.key]}." for o in self._keys["actor"][0]))
        return {name: p.detach() for name, p in self.named_parameters() if name.startswith(seen)}

    def _encoded(self, encoders: nn.ModuleList, role: str, obs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Camera -> its encoded images, of all that the role sees."""
        return {o.key: encoders[self._cameras[o.key]](self._seen(obs[o.key])) for o in self._keys[role][0]}

    def _features(self, role: str, obs: Mapping[str, Tensor], encoded: Mapping[str, Tensor]) -> Tensor:
        cameras, rest = self._keys[role]
        return torch.cat([*(encoded[o.key] for o in cameras), *(flat(obs[o.key], o) for o in rest)], dim=1)

    def _seen(self, images: Tensor) -> Tensor:
        """Images at the size at which networks see them; those that are so small already stay."""
        return shrunk(images, self.options.size) if self.options.size else images

    def _network(self, role: str, further: int, outputs: int) -> ProjectedDense:
        cameras, rest = self._keys[role]
        images = sum(self._widths[self._cameras[o.key]] for o in cameras)
        plain = self.spec.stack * sum(math.prod(o.shape) for o in rest) + further
        return ProjectedDense(images, plain, self.options.projection, self.options.hidden, outputs)


def _split(spec: TransitionSpec, role: str) -> tuple[tuple[ObsSpec, ...], tuple[ObsSpec, ...]]:
    """The keys that a role sees: cameras, and the others."""
    keys = keys_of(spec, role)
    cameras = tuple(o for o in keys if is_camera(o))
    if not cameras:
        raise SpecError(
            f"spec.obs: no uint8 images (H, W, C) that the {role} may see among"
            f" {', '.join(f'{o.key} {o.shape} {o.dtype}' for o in keys)}; model.type pixels needs a camera, mlp needs none"
        )
    return cameras, tuple(o for o in keys if not is_camera(o))
