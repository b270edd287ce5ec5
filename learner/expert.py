"""The action expert of a flow policy: which way a noisy chunk of actions moves, seen what is known."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from headrace.learner.dense import Head
from headrace.learner.prefix import Prefix

_PERIODS = 1e-2, 4.0  # shortest and longest of the sines of time, in units of the whole path


class ActionExpert(nn.Module):
    """k noisy actions, one token each, that look at each other and at the prefix.

    Args:
        actions: k.
        dims: A.
        width: E of the tokens.
        heads: of the attention.
        layers: of the network.
        levels: whether it says a noise level too.
    """

    def __init__(self, actions: int, dims: int, *, width: int, heads: int, layers: int, levels: bool) -> None:
        super().__init__()
        self._width = width
        self.embed = nn.Linear(dims, width)
        self.places = nn.Parameter(0.02 * torch.randn(actions, width))
        self.time = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, width))
        self.layers = nn.ModuleList(
            nn.TransformerDecoderLayer(width, heads, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True)
            for _ in range(layers)
        )
        self.norm = nn.LayerNorm(width)
        self.velocity = Head(width, dims)
        self.level = Head(width, dims) if levels else None

    def forward(self, x: Tensor, time: Tensor, prefix: Prefix) -> tuple[Tensor, Tensor | None]:
        """Velocity ``(B, k, A)`` of ``x`` ``(B, k, A)`` at ``time`` ``(B,)``, and numbers for a noise level, if it has one."""
        tokens = self.embed(x) + self.places + self.time(self._waves(time)).unsqueeze(1)
        for layer in self.layers:
            tokens = layer(tokens, prefix.tokens, memory_key_padding_mask=prefix.absent)
        tokens = self.norm(tokens)
        return self.velocity(tokens), None if self.level is None else self.level(tokens)

    def _waves(self, time: Tensor) -> Tensor:
        half = self._width // 2
        shortest, longest = _PERIODS
        periods = shortest * (longest / shortest) ** torch.linspace(0.0, 1.0, half, device=time.device)
        angles = 2.0 * math.pi * time[:, None] / periods
        return torch.cat((angles.sin(), angles.cos(), angles.new_zeros(len(time), self._width - 2 * half)), dim=1)
