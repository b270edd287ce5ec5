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

STEP = 32  # rows


class Head(nn.Linear):
    """A network's last layer, in float32 under autocast too: a value of 100 in bfloat16 may be off by a quarter."""

    def forward(self, x: Tensor) -> Tensor:
        """``(B, inputs) -> (B, outputs)``."""
        if not torch.is_autocast_enabled(x.device.type):
            return super().forward(x)
        with torch.autocast(x.device.type, enabled=False):
            return super().forward(x.float())


class Dense(nn.Module):
    """Linear layers with ReLU in between: ``(B, inputs) -> (B, outputs)``."""

    def __init__(self, inputs: int, hidden: Sequence[int], outputs: int) -> None:
        super().__init__()
        self.hidden = tuple(hidden)
        sizes = [inputs, *hidden]
        self.trunk = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(sizes))
        self.head = Head(sizes[-1], outputs)

    def forward(self, x: Tensor) -> Tensor:
        """The network's output."""
        for layer in self.trunk:
            x = torch.relu(layer(x))
        output: Tensor = self.head(x)
        return output


class DensePass:
    """One network's passes by hand, in tensors that the next pass writes over.

    In bfloat16 the hidden layers multiply rounded parameters, and their activations and gradients are kept so; the last layer,
    inputs, outputs and the gradients of parameters are float32. Each forward pass rounds the parameters anew: they change
    between any two steps, and each is multiplied once in each direction, so nothing would be gained by packing them.

    Args:
        net: whose passes; its parameters are read at every call.
        batch: B.
        deltas: one ``(B, width)`` buffer a hidden layer, for gradients; networks that take turns may share them.
        activations: likewise, for the forward pass up to the backward pass that belongs to it.
        gradients: one float32 tensor a parameter, in ``net.parameters()`` order; none where no backward pass follows.
        dtype: of what hidden layers multiply, and of both kinds of buffers.

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
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self._dtype, self._rounds = dtype, dtype != torch.float32 and len(net.trunk) > 0
        self._parameters: list[Tensor] = list(net.trunk.parameters())
        rounded = [torch.empty_like(p, dtype=dtype) for p in self._parameters] if self._rounds else self._parameters
        self._rounded, self._weights, self._biases = rounded, rounded[::2], rounded[1::2]
        self._head = net.head
        self._first: Tensor = net.trunk[0].weight if len(net.trunk) else net.head.weight  # type: ignore[assignment]  # of a linear layer
        self._deltas = deltas
        self._activations = hidden_buffers(net, batch, dtype) if activations is None else activations
        self._inputs: list[Tensor] = []
        self.gradients = list(gradients)

    @property
    def activations(self) -> Sequence[Tensor]:
        """The buffers of the forward pass."""
        return self._activations

    def forward(self, x: Tensor) -> Tensor:
        """``(B, outputs)``, a tensor of its own."""
        if self._rounds:
            torch._foreach_copy_(self._rounded, self._parameters)
        self._inputs = [x.to(self._dtype) if self._weights else x, *self._activations]
        for x, weight, bias, output in zip(self._inputs, self._weights, self._biases, self._activations, strict=False):
            _relu(torch.addmm(bias, x, weight.t(), out=output))
        self._last = self._inputs[-1].float()
        return torch.addmm(self._head.bias, self._last, self._head.weight.t())

    def backward(self, delta: Tensor) -> None:
        """Write the gradients of all parameters.

        Args:
            delta: ``(B, outputs)``, the gradient at the output of the last :meth:`forward`.
        """
        torch.mm(delta.t(), self._last, out=self.gradients[-2])
        torch.sum(delta, 0, out=self.gradients[-1])
        if self._weights:
            delta = self._behind_head(delta, self._last)
        for i in reversed(range(len(self._weights))):
            weight_gradient, bias_gradient = self.gradients[2 * i : 2 * i + 2]
            if i == 0:
                # The few rows of the transposed product cost half of what its few columns would.
                weight_gradient.copy_((self._inputs[0].t() @ delta).t())
            elif self._rounds:
                weight_gradient.copy_(delta.t() @ self._inputs[i])
            else:
                torch.mm(delta.t(), self._inputs[i], out=weight_gradient)
            if self._rounds:
                bias_gradient.copy_(torch.sum(delta, 0))
            else:
                torch.sum(delta, 0, out=bias_gradient)
            if i > 0:
                delta = torch.mm(delta, self._weights[i], out=self._deltas[i - 1])
                _relu_backward(delta, self._inputs[i])

    def add_input_gradient(self, delta: Tensor, first: int, into: Tensor) -> None:
        """Add the gradient at the inputs from column ``first`` on to ``into``, transposed.

        Rows whose ``delta`` is zero are left out of every product: of N critics under a minimum, each sees B / N rows.

        Args:
            delta: ``(B,)``, the gradient at the only output of the last :meth:`forward`.
            first: first input column that is wanted.
            into: ``(inputs - first, B)``.
        """
        rows = delta.nonzero().squeeze(1)
        n, whole = len(rows), self._shape(len(rows))
        part = delta.index_select(0, rows).unsqueeze(1)
        if self._weights:
            part = self._behind_head(part, self._last.index_select(0, rows))
        for i in reversed(range(1, len(self._weights))):
            part = torch.mm(self._deltas[i][:whole], self._weights[i], out=self._deltas[i - 1][:whole])[:n]
            _relu_backward(part, self._inputs[i].index_select(0, rows))
        into.index_add_(1, rows, self._first[:, first:].t() @ part.float().t())

    def _shape(self, rows: int) -> int:
        """With how many rows a product of some is made; those of bfloat16 are compiled for each number of rows that comes."""
        return min(len(self._deltas[0]), -(-rows // STEP) * STEP) if self._rounds else rows

    def _behind_head(self, delta: Tensor, last: Tensor) -> Tensor:
        """The gradient ``(b, width)`` behind the last hidden layer's ReLU, of that at the outputs of some rows."""
        kept = self._deltas[-1][: len(delta)]
        if not self._rounds:
            return _relu_backward(torch.mm(delta, self._head.weight, out=kept), last)
        return kept.copy_(_relu_backward(torch.mm(delta, self._head.weight), last))


def hidden_buffers(net: Dense, batch: int, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    """One ``(batch, width)`` tensor for each hidden layer of ``net``."""
    return [torch.zeros(batch, width, dtype=dtype) for width in net.hidden]


def _relu(x: Tensor) -> None:
    """``x``, in place, with zeros in place of what is below zero.

    A bfloat16 is below zero where its bits are as an integer, which takes a quarter of the time of rounding all back. NaN with
    a sign becomes 0 as well; gradients, which multiply inputs and parameters again, still show that there was one.
    """
    x.view(torch.int16).clamp_min_(0) if x.dtype == torch.bfloat16 else x.relu_()


def _relu_backward(delta: Tensor, activation: Tensor) -> Tensor:
    """``delta``, in place, with zeros where ``activation``, which is never below zero, is zero; bfloat16 by its bits."""
    if delta.dtype == torch.bfloat16:
        return _relu_backward(delta.view(torch.int16), activation.view(torch.int16)).view(torch.bfloat16)
    return torch.ops.aten.threshold_backward.grad_input(delta, activation, 0, grad_input=delta)  # type: ignore[no-any-return]
