"""A vision-language-action model of one's own: `model.type: examples.own_vla:OwnVLA`, on any env with cameras and words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from headrace.common.config import option
from headrace.learner.flow_policy import LEARNED, FlowOptions, FlowPolicy
from headrace.learner.prefix import Prefix, Sight


@dataclass(frozen=True)
class OwnOptions(FlowOptions):
    """All of a flow policy's options, and those of this model."""

    patch: int = option(16, help="pixels of a patch's side", low=1, high=256)


class Patches(nn.Module):
    """What is seen as tokens `(B, T, E)`: patches of each camera, words, and one token of the plain numbers."""

    def __init__(self, sight: Sight, width: int, vocabulary: int, patch: int) -> None:
        super().__init__()
        self.sight, self.patch = sight, patch
        self.cameras = nn.ModuleList(nn.Linear(patch * patch * camera.shape[2], width) for camera in sight.cameras)
        self.words = nn.Embedding(vocabulary, width)
        self.plain = nn.Linear(max(1, sight.numbers), width)

    def forward(self, obs: Mapping[str, Tensor]) -> Prefix:
        """Key -> `(B, *shape)` to the prefix."""
        sight, tokens, absent = self.sight, [], []
        for camera, layer in zip(sight.cameras, self.cameras, strict=True):
            pixels = obs[camera.key].float() / 255 - 0.5  # (B, H, W, C)
            pieces = pixels.unfold(1, self.patch, self.patch).unfold(2, self.patch, self.patch)
            tokens.append(layer(pieces.flatten(1, 2).flatten(2)))
            absent.append(sight.absent(obs, camera.key, tokens[-1].shape[1]))
        if sight.words is not None:
            tokens.append(self.words(obs[sight.words.key].long()))
            absent.append(sight.absent(obs, sight.words.key, tokens[-1].shape[1]))
        state = sight.state(obs)  # (B, S), the plain numbers; S may be 0
        tokens.append(self.plain(state if sight.numbers else state.new_zeros(len(state), 1)).unsqueeze(1))
        absent.append(torch.zeros(len(state), 1, dtype=torch.bool, device=state.device))
        return Prefix(torch.cat(tokens, 1), torch.cat(absent, 1), state)


class Expert(nn.Module):
    """Which way each of k noisy actions moves, from the mean of the tokens that are there."""

    def __init__(self, actions: int, dims: int, width: int, *, levels: bool) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(actions * dims + 1 + width, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU())
        self.velocity = nn.Linear(width, actions * dims)
        self.level = nn.Linear(width, actions * dims) if levels else None

    def forward(self, x: Tensor, time: Tensor, prefix: Prefix) -> tuple[Tensor, Tensor | None]:
        """Velocity, and numbers for a noise level, `(B, k, A)` each."""
        there = (~prefix.absent).unsqueeze(2).float()
        seen = (prefix.tokens * there).sum(1) / there.sum(1).clamp(min=1)
        hidden = self.body(torch.cat((x.flatten(1), time[:, None], seen), dim=1))
        return self.velocity(hidden).view_as(x), None if self.level is None else self.level(hidden).view_as(x)


class OwnVLA(FlowPolicy):
    """The adapter: a prefix and an expert. Paths, densities, critics, cloning and what travels are the flow policy's."""

    Options: ClassVar[type[Any]] = OwnOptions

    def make_prefix(self, sight: Sight) -> nn.Module:
        """What is seen, as tokens."""
        own = self.options
        return Patches(sight, own.width, own.vocabulary, own.patch)

    def make_expert(self, actions: int, dims: int) -> nn.Module:
        """Which way actions move."""
        own = self.options
        return Expert(actions, dims, own.width, levels=own.noise == LEARNED)
