"""Critics over a prefix: a learned question to its tokens, and N networks that judge the answer, for all tasks or for each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from headrace.common.config import option
from headrace.learner.dense import Dense
from headrace.learner.prefix import Prefix


def critic_tasks() -> Any:
    """The option of models that have such critics."""
    return option(
        0,
        help="tasks that have critics of their own, behind one pool: the row's task chooses; 0: all tasks have the same ones",
        low=0,
        high=4096,
    )


class Pool(nn.Module):
    """A learned question that attends to the prefix: ``(B, T, E) -> (B, E)``; padding is not attended to."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.query = nn.Parameter(0.02 * torch.randn(1, 1, width))
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.norm = nn.LayerNorm(width)

    def forward(self, prefix: Prefix) -> Tensor:
        """What the prefix answers."""
        query = self.query.expand(len(prefix.tokens), -1, -1)
        answer, _ = self.attention(query, prefix.tokens, prefix.tokens, key_padding_mask=prefix.absent, need_weights=False)
        pooled: Tensor = self.norm(answer.squeeze(1))
        return pooled


class Routed(nn.Module):
    """One network a task. All judge all rows, so that each has a gradient in every batch and on every rank, most of it 0."""

    def __init__(self, inputs: int, hidden: Sequence[int], tasks: int) -> None:
        super().__init__()
        self.tasks = nn.ModuleList(Dense(inputs, hidden, 1) for _ in range(tasks))

    def forward(self, x: Tensor, task: Tensor) -> Tensor:
        """``(B, inputs)`` and tasks ``(B,)`` to ``(B, 1)``."""
        every = torch.cat([network(x) for network in self.tasks], dim=1)
        return every.gather(1, task.unsqueeze(1))


def make_critics(count: int, inputs: int, hidden: Sequence[int], tasks: int) -> nn.ModuleList:
    """N critics of ``inputs`` numbers, each of which is ``tasks`` networks, or one where there are no tasks."""
    return nn.ModuleList(Routed(inputs, hidden, tasks) if tasks else Dense(inputs, hidden, 1) for _ in range(count))


def judge(pool: nn.Module, critics: nn.ModuleList, prefix: Prefix, action: Tensor) -> Tensor:
    """Values ``(B, N)`` of actions ``(B, D)``: of what the pool answers, the plain numbers and the action."""
    x = torch.cat((pool(prefix), prefix.state, action), dim=1)
    if prefix.task is None:
        return torch.cat([critic(x) for critic in critics], dim=1)
    return torch.cat([critic(x, prefix.task) for critic in critics], dim=1)
