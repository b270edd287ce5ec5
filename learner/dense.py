"""A dense ReLU network, and the same network's forward and backward pass by hand for one thread of a CPU.

By hand means: no autograd graph, every large tensor made once, and no product that nobody asks for. At 256 x 256 and
batch 256 a fresh update walks through more memory than the cache holds, and this way the learner does 1.5 times the
updates of plain autograd (``benchmarks/learner.py``).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

_relu_backward = torch.ops.aten.threshold_backward.grad_input


class Dense(nn.Module):
    """Linear layers with ReLU in between: ``(B, inputs) -> (B, outputs)``."""

    def __init__(self, inputs: int, hidden: Sequence[int], outputs: int) -> None:
        super().__init__()
        self.hidden = tuple(hidden)
        sizes = [inputs, *hidden]
        self.trunk = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(sizes))
        self.head = nn.Linear(sizes[-1], outputs)

    def forward(self, x: Tensor) -> Tensor:
        """The network's output."""
        for layer in self.trunk:
            x = torch.relu(layer(x))
        output: Tensor = self.head(x)
        return output


class DensePass:
    """One network's passes by hand, in tensors that the next pass writes over.

    Args:
        net: whose passes; its parameters are read at every call.
        batch: B.
        deltas: one ``(B, width)`` buffer a hidden layer, for gradients; networks that take turns may share them.
        activations: likewise, for the forward pass up to the backward pass that belongs to it.
        gradients: one tensor a parameter, in ``net.parameters()`` order; none where no backward pass follows.

    Attributes:
        gradients: those of the last backward pass.
    """

    def __init__(
        self,
        net: Dense,
        batch: int,
        deltas: Sequence[Tensor],
        activations: Sequence[Tensor] | None = None,
        gradients: Sequence[Tensor] = (),
    ) -> None:
        layers = [*net.trunk, net.head]
        self._weights: list[Tensor] = [layer.weight for layer in layers]
        self._biases: list[Tensor] = [layer.bias for layer in layers]
        self._deltas = deltas
        self._activations = hidden_buffers(net, batch) if activations is None else activations
        self._inputs: list[Tensor] = []
        self.gradients = list(gradients)

    @property
    def activations(self) -> Sequence[Tensor]:
        """The buffers of the forward pass."""
        return self._activations

    def forward(self, x: Tensor) -> Tensor:
        """``(B, outputs)``, a tensor of its own."""
        self._inputs = [x, *self._activations]
        for weight, bias, output in zip(self._weights[:-1], self._biases[:-1], self._activations, strict=True):
            x = torch.addmm(bias, x, weight.t(), out=output).relu_()
        return torch.addmm(self._biases[-1], x, self._weights[-1].t())

    def backward(self, delta: Tensor) -> None:
        """Write the gradients of all parameters.

        Args:
            delta: ``(B, outputs)``, the gradient at the output of the last :meth:`forward`.
        """
        for i in reversed(range(len(self._weights))):
            if i == 0:
                # The few rows of the transposed product cost half of what its few columns would.
                self.gradients[0].copy_((self._inputs[0].t() @ delta).t())
            else:
                torch.mm(delta.t(), self._inputs[i], out=self.gradients[2 * i])
            torch.sum(delta, 0, out=self.gradients[2 * i + 1])
            if i > 0:
                delta = torch.mm(delta, self._weights[i], out=self._deltas[i - 1])
                _relu_backward(delta, self._inputs[i], 0, grad_input=delta)

    def add_input_gradient(self, delta: Tensor, first: int, into: Tensor) -> None:
        """Add the gradient at the inputs from column ``first`` on to ``into``, transposed.

        Rows whose ``delta`` is zero are left out of every product: of N critics under a minimum, each sees B / N rows.

        Args:
            delta: ``(B,)``, the gradient at the only output of the last :meth:`forward`.
            first: first input column that is wanted.
            into: ``(inputs - first, B)``.
        """
        rows = delta.nonzero().squeeze(1)
        part = delta.index_select(0, rows).unsqueeze(1)
        for i in reversed(range(1, len(self._weights))):
            part = torch.mm(part, self._weights[i], out=self._deltas[i - 1][: len(rows)])
            _relu_backward(part, self._inputs[i].index_select(0, rows), 0, grad_input=part)
        into.index_add_(1, rows, self._weights[0][:, first:].t() @ part.t())


def hidden_buffers(net: Dense, batch: int) -> list[Tensor]:
    """One ``(batch, width)`` tensor for each hidden layer of ``net``."""
    return [torch.zeros(batch, width) for width in net.hidden]
