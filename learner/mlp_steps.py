"""The three steps of an update of dense networks by hand, in shares of the batch's rows, on tensors that all shares see.

The same sums as the contract's defaults, which the tests hold them to. What a share reads is on the board before its step, and
it writes only its own rows and its own gradients, so shares may be done at once, anywhere, in any order, and again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from headrace.learner.config import FP32, MEAN, MIN
from headrace.learner.dense import Dense, DensePass, hidden_buffers
from headrace.learner.distribution import TanhGaussian
from headrace.learner.losses import actor_loss_gradient, critic_loss_gradient
from headrace.learner.precision import DTYPES

NEXT_VALUES, CRITIC_GRADIENTS, ACTOR_GRADIENTS, MEAN_ACTOR_GRADIENTS = range(4)
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Networks:
    """What the steps run through: N critics and their targets of one shape."""

    actor: Dense
    critics: Sequence[Dense]
    targets: Sequence[Dense]

    @classmethod
    def of_sizes(cls, actor: Sequence[int], critic: Sequence[int], critics: int) -> Networks:
        """Networks whose parameters mean nothing yet.

        Args:
            actor: inputs, hidden widths, outputs.
            critic: likewise.
            critics: N.
        """
        both = [[_dense(critic) for _ in range(critics)] for _ in range(2)]
        return cls(_dense(actor), *both)

    def sizes(self) -> dict[str, Any]:
        """The arguments of :meth:`of_sizes`."""
        return {"actor": _sizes(self.actor), "critic": _sizes(self.critics[0]), "critics": len(self.critics)}

    def parameters(self) -> list[nn.Parameter]:
        """All parameters, in the order of :meth:`shapes`."""
        return [p for net in (self.actor, *self.critics, *self.targets) for p in net.parameters()]

    def shapes(self) -> list[Shape]:
        """Shapes of all parameters."""
        return [tuple(p.shape) for p in self.parameters()]

    def move(self, tensors: Sequence[Tensor]) -> None:
        """Let the parameters live in ``tensors``, with the values that are there."""
        for parameter, tensor in zip(self.parameters(), tensors, strict=True):
            parameter.data = tensor

    def step_shapes(self, batch: int, shares: int) -> list[Shape]:
        """Shapes of the tensors that :class:`Steps` needs: the board, then the gradients of each share."""
        actor, critic = _sizes(self.actor), _sizes(self.critics[0])
        action, n = actor[-1] // 2, len(self.critics)
        board: list[Shape] = [(batch, actor[0]), (batch, critic[0] - action), (batch, action), (batch, action)]
        board += [(batch,), (batch,), (), (batch, n), (batch,)]
        own: list[Shape] = [tuple(p.shape) for net in (self.actor, *self.critics) for p in net.parameters()]
        return board + shares * own


class Steps:
    """The board and the passes of all shares, for one batch size.

    Attributes:
        batch: B rows.
        shares: among how many they are divided.
        actor_features, critic_features: ``(B, F)``, of the next observation for ``next_values``, else of the observation.
        action: ``(B, D)``, the executed one.
        noise: ``(B, D)``, standard normal.
        target: ``(B,)``.
        importance: ``(B,)``.
        alpha: ().
        q: ``(B, N)``, written by each step.
        log_prob: ``(B,)``, written by ``next_values`` and ``actor_gradients``.

    Args:
        networks: whose parameters are read at every step.
        tensors: of ``networks.step_shapes(batch, shares)``.
        precision: of the products, a key of ``DTYPES``; what is on the board is float32.
    """

    def __init__(self, networks: Networks, batch: int, shares: int, tensors: Sequence[Tensor], precision: str = FP32) -> None:
        self.batch, self.shares = batch, shares
        self.actor_features, self.critic_features, self.action, self.noise, *rest = tensors
        self.target, self.importance, self.alpha, self.q, self.log_prob, *gradients = rest
        edges = [i * batch // shares for i in range(shares + 1)]
        each = len(gradients) // shares
        self._parts = [
            _Part(networks, slice(low, high), gradients[i * each : (i + 1) * each], DTYPES[precision])
            for i, (low, high) in enumerate(pairwise(edges))
        ]

    @torch.inference_mode()
    def do(self, step: int, share: int) -> None:
        """One share of ``NEXT_VALUES``, ``CRITIC_GRADIENTS``, or ``ACTOR_GRADIENTS`` under the critics' minimum or mean."""
        part = self._parts[share]
        if step == NEXT_VALUES:
            self._next_values(part)
        elif step == CRITIC_GRADIENTS:
            self._critic_gradients(part)
        else:
            self._actor_gradients(part, MEAN if step == MEAN_ACTOR_GRADIENTS else MIN)

    def _next_values(self, part: _Part) -> None:
        """Target values, and log pi, of the policy's own next action."""
        rows = part.rows
        action, log_prob = TanhGaussian(part.actor.forward(self.actor_features[rows])).sample_with(self.noise[rows])
        x = torch.cat((self.critic_features[rows], action), dim=1)
        for n, net in enumerate(part.targets):
            self.q[rows, n : n + 1] = net.forward(x)
        self.log_prob[rows] = log_prob

    def _critic_gradients(self, part: _Part) -> None:
        """Values of executed actions, and gradients of the critics."""
        rows = part.rows
        x = torch.cat((self.critic_features[rows], self.action[rows]), dim=1)
        for n, net in enumerate(part.critics):  # one after the other, backward while the forward pass is still in the cache
            self.q[rows, n : n + 1] = q = net.forward(x)
            net.backward(critic_loss_gradient(q, self.target[rows], self.batch, self.importance[rows]))

    def _actor_gradients(self, part: _Part, reduction: str) -> None:
        """Values, and log pi, of the policy's own action, and gradients of the actor."""
        rows, features = part.rows, self.critic_features[part.rows]
        policy = TanhGaussian(part.actor.forward(self.actor_features[rows]))
        action, log_prob = policy.sample_with(self.noise[rows])
        x = torch.cat((features, action), dim=1)
        q = torch.cat([net.forward(x) for net in part.critics], dim=1)
        d_q, d_log_prob = actor_loss_gradient(q, self.alpha, self.batch, reduction)
        d_action = torch.zeros_like(action.t(), memory_format=torch.contiguous_format)
        for n in reversed(range(len(part.critics))):
            part.critics[n].add_input_gradient(d_q[:, n], features.shape[1], d_action)
        part.actor.backward(policy.pull_back(d_action.t(), d_log_prob))
        self.q[rows], self.log_prob[rows] = q, log_prob

    def critic_sum(self) -> list[Tensor]:
        """Gradients of the critics over all rows, valid until the next step."""
        return _sum([[g for net in part.critics for g in net.gradients] for part in self._parts])

    def actor_sum(self) -> list[Tensor]:
        """Gradients of the actor over all rows, valid until the next step."""
        return _sum([part.actor.gradients for part in self._parts])


class _Part:
    """The passes of all networks over one slice of the rows; they take turns in as few buffers as can be."""

    def __init__(self, networks: Networks, rows: slice, gradients: Sequence[Tensor], dtype: torch.dtype) -> None:
        self.rows = rows
        batch, left = rows.stop - rows.start, iter(gradients)
        deltas = hidden_buffers(networks.actor, batch, dtype)
        as_wide = networks.critics[0].hidden == networks.actor.hidden
        critic_deltas = deltas if as_wide else hidden_buffers(networks.critics[0], batch, dtype)

        def passes(net: Dense, deltas: Sequence[Tensor]) -> DensePass:
            return DensePass(net, batch, deltas, gradients=[next(left) for _ in net.parameters()], dtype=dtype)

        self.actor = passes(networks.actor, deltas)
        self.critics = [passes(net, critic_deltas) for net in networks.critics]
        self.targets = [
            DensePass(net, batch, critic_deltas, online.activations, dtype=dtype)
            for net, online in zip(networks.targets, self.critics, strict=True)
        ]


@torch.inference_mode()
def _sum(parts: Sequence[list[Tensor]]) -> list[Tensor]:
    """The gradients of all rows, in the buffers of the first part, always added in the same order."""
    total, *rest = parts
    for gradients in rest:
        torch._foreach_add_(total, gradients)
    return total


def _dense(sizes: Sequence[int]) -> Dense:
    return Dense(sizes[0], sizes[1:-1], sizes[-1]).requires_grad_(False)


def _sizes(net: Dense) -> list[int]:
    inputs = net.trunk[0].in_features if len(net.trunk) else net.head.in_features
    return [int(inputs), *net.hidden, net.head.out_features]  # type: ignore[arg-type]  # a module list gives plain modules
