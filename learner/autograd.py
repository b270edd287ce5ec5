"""Gradients of one part of a model by autograd, and what else the contract's own steps do with tensors and modules."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from headrace.common.errors import SpecError
from headrace.learner.gradients import Branch
from headrace.learner.losses import require_shape
from headrace.learner.shards import held

if TYPE_CHECKING:
    from headrace.learner.sharding import Sharding


def detached(tensor: Tensor | None) -> Tensor | None:
    """``tensor`` without its graph."""
    return None if tensor is None else tensor.detach()


def or_executed(action: Tensor, executed: Tensor | None) -> Tensor:
    """The policy's own next actions ``(B, D)``, or the executed ones, where they are wanted and are no NaN."""
    if executed is None:
        return action
    require_shape("executed", executed, tuple(action.shape))
    return torch.where(executed.isnan(), action, executed)


def expected(found: Sequence[Tensor | None], branches: Sequence[Branch]) -> Tensor | None:
    """The mean over ``branches`` by their chances of what was ``found`` for each, ``(B, ...)``; None where nothing was."""
    first, chance = found[0], branches[0].chance
    if first is None or chance is None:
        return first
    shape = (-1, *[1] * (first.dim() - 1))
    parts = [
        each * b.chance.view(shape)
        for each, b in zip(found, branches, strict=True)
        if each is not None and b.chance is not None
    ]
    return torch.stack(parts).sum(dim=0)


def gradients_of(
    loss: Tensor,
    parameters: Iterable[tuple[str, nn.Parameter]],
    part: str,
    sharding: Sharding | None,
    *,
    all_reached: bool = True,
) -> list[Tensor]:
    """Gradients of ``loss`` in named parameters, and of nothing else.

    Args:
        loss: ().
        parameters: of ``part``.
        part: ``actor`` or ``critic``.
        sharding: of the model, if ranks share it.
        all_reached: refuse parameters that the loss does not depend on, whose gradient is 0 otherwise.

    Raises:
        SpecError: naming such parameters.
    """
    named = list(parameters)
    own, found = [p for _, p in named], list[Tensor | None]()
    if sharding is None:
        found += torch.autograd.grad(loss, own, allow_unused=True)
    else:
        found += sharding.gradients(loss, own)
    unused = [name for (name, _), g in zip(named, found, strict=True) if g is None]
    if unused and all_reached:
        raise SpecError(f"{part}_params(): the loss does not depend on {', '.join(unused[:4])}; leave out what it cannot train")
    return [torch.zeros_like(held(p)) if g is None else g for p, g in zip(own, found, strict=True)]


@contextlib.contextmanager
def in_eval_mode(heads: Sequence[nn.Module], training: bool) -> Iterator[None]:
    """``heads`` in eval mode, and in that of ``training`` afterwards."""
    for head in heads:
        head.eval()
    try:
        yield
    finally:
        for head in heads:
            head.train(training)
