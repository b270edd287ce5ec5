"""A critic with what steadies it under many updates: dropout and layer norm (DroQ), or batch norm without a target (CrossQ)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from headrace.learner.dense import Head

BATCH_NORM_MOMENTUM = 0.01  # share of a batch in the running statistics; CrossQ keeps 0.99 of the old ones


class SteadyCritic(nn.Sequential):
    """``(B, inputs) -> (B, 1)``: linear layers, each with dropout, layer norm, ReLU and batch norm behind it, as asked for.

    Dropout and layer norm come before the ReLU: Hiraoka et al., Dropout Q-Functions for Doubly Efficient Reinforcement
    Learning, arXiv:2110.02034. Batch norm comes behind it and is there for the inputs too: Bhatt et al., CrossQ,
    arXiv:1902.05605; in training mode it takes the statistics of the batch, in eval mode the running ones.

    Args:
        inputs: size of observation and action.
        hidden: widths of the hidden layers.
        layer_norm: whether each hidden layer has one.
        dropout: share of each hidden layer's units that are left out, anew in each pass.
        batch_norm: whether inputs and hidden layers have one.
    """

    def __init__(self, inputs: int, hidden: Sequence[int], *, layer_norm: bool, dropout: float, batch_norm: bool) -> None:
        def normed(width: int) -> list[nn.Module]:
            return [nn.BatchNorm1d(width, momentum=BATCH_NORM_MOMENTUM)] if batch_norm else []

        layers, sizes = normed(inputs), [inputs, *hidden]
        for before, width in pairwise(sizes):
            layers.append(nn.Linear(before, width))
            layers += [Dropout(dropout)] if dropout else []
            layers += [nn.LayerNorm(width)] if layer_norm else []
            layers += [nn.ReLU(), *normed(width)]
        super().__init__(*layers, Head(sizes[-1], 1))


class Dropout(nn.Module):
    """Dropout in training mode, with masks of a generator whose state is saved; torch's own draws from the global one.

    Attributes:
        generator: source of the masks; None is torch's global one.

    Args:
        share: of the units, left out.
    """

    def __init__(self, share: float) -> None:
        super().__init__()
        self._keep = 1.0 - share
        self.generator: torch.Generator | None = None

    def forward(self, x: Tensor) -> Tensor:
        """``x`` with each unit zero or 1 / (1 - share) times as large, so that its mean is as before."""
        if not self.training:
            return x
        return x * torch.empty_like(x).bernoulli_(self._keep, generator=self.generator).div_(self._keep)
