"""What the steps of critics and actor take beside features and actions, and what they give."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class CriticGradients:
    """What one critic step needs.

    Attributes:
        loss: (), with the penalty in it.
        q: ``(B, N)``.
        gradients: in ``critic_params()`` order.
        penalty: (), before its weight; None without one.
    """

    loss: Tensor
    q: Tensor
    gradients: list[Tensor]
    penalty: Tensor | None = None


@dataclass(frozen=True)
class ActorGradients:
    """What one actor step needs.

    Attributes:
        loss: (), with the cloning in it.
        q: ``(B, N)``; None where nothing but cloning was asked for.
        log_prob: ``(B,)``; None likewise, and for a policy without a density.
        gradients: in ``actor_params()`` order.
        cloning: (), before its weight; None without any.
    """

    loss: Tensor
    q: Tensor | None
    log_prob: Tensor | None
    gradients: list[Tensor]
    cloning: Tensor | None = None


@dataclass(frozen=True)
class Branch:
    """One of the actions that the actor's loss is an expectation over.

    Attributes:
        action: ``(B, D)``.
        log_prob: ``(B,)``; None for a policy without a density.
        chance: ``(B,)``, how likely the policy takes this one of all branches, differentiable; None where it is the only one.
    """

    action: Tensor
    log_prob: Tensor | None
    chance: Tensor | None = None


@dataclass(frozen=True)
class Cloning:
    """Behaviour cloning beside the actor's own loss L, which becomes ``scale`` L + ``weight`` times the cloning loss.

    Attributes:
        action: ``(B, D)`` replayed actions.
        counts: ``(B, D)`` of 0 and 1, which of their numbers are cloned.
        weight: of the cloning loss.
        scale: () of the actor's own.
    """

    action: Tensor
    counts: Tensor
    weight: float
    scale: Tensor


@dataclass(frozen=True)
class Conservatism:
    """A penalty on the values of other actions than the executed ones, beside the critics' own loss.

    Attributes:
        actions: ``(M, B, D)``.
        log_density: ``(M, B)`` of what each was drawn from.
        weight: of the penalty.
        temperature: of its soft maximum, see :func:`headrace.learner.losses.conservative_penalty`.
    """

    actions: Tensor
    log_density: Tensor
    weight: float
    temperature: float
