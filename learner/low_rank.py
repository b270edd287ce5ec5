"""Low-rank training (LoRA): a linear layer that stays as it is, with the product of two thin matrices added.

Hu et al., LoRA: Low-Rank Adaptation of Large Language Models, arXiv:2106.09685.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

DOWN, UP = "low_rank_down", "low_rank_up"


class LowRank(nn.Linear):
    """y = W x + b + scale U (D x); U is 0 in the beginning, so that y is what it was before.

    The names of W and b stay those of the layer that this one takes the place of.

    Args:
        layer: whose parameters it takes over.
        rank: rows of D ``(rank, inputs)`` and columns of U ``(outputs, rank)``.
        scale: of the product.
    """

    def __init__(self, layer: nn.Linear, rank: int, scale: float) -> None:
        super().__init__(1, 1, bias=False)
        self.in_features, self.out_features, self._scale = layer.in_features, layer.out_features, scale
        self.weight, self.bias = layer.weight, layer.bias
        down = torch.empty(rank, layer.in_features, device=layer.weight.device)
        nn.init.kaiming_uniform_(down, a=math.sqrt(5))
        self.low_rank_down = nn.Parameter(down)
        self.low_rank_up = nn.Parameter(torch.zeros(layer.out_features, rank, device=layer.weight.device))

    def forward(self, x: Tensor) -> Tensor:
        """``(..., inputs) -> (..., outputs)``."""
        return super().forward(x) + self._scale * (x @ self.low_rank_down.T @ self.low_rank_up.T)


def add_low_rank(module: nn.Module, rank: int, scale: float) -> int:
    """Put a :class:`LowRank` in place of each plain linear layer inside ``module``; how many there were.

    Subclasses of ``nn.Linear`` stay, since whoever made them knows what they are for: the projection behind torch's
    attention, which is never called as a layer, and last layers.
    """
    count = 0
    for name, child in list(module.named_children()):
        if type(child) is nn.Linear:
            setattr(module, name, LowRank(child, rank, scale))
            count += 1
        else:
            count += add_low_rank(child, rank, scale)
    return count


def is_low_rank(name: str) -> bool:
    """Whether a parameter of this name is one of the thin matrices."""
    return name.rpartition(".")[2] in (DOWN, UP)
