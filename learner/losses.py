"""The losses of Soft Actor-Critic as pure functions; B rows, N critics, K steps a window, scalars in float32.

Equation numbers are those of Haarnoja et al., Soft Actor-Critic Algorithms and Applications, arXiv:1812.05905.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import softplus

from headrace.common.errors import SpecError
from headrace.learner.config import MEAN, MIN


def discounts(gamma: float, window: int) -> Tensor:
    """``(K + 1,)`` float32: gamma^0 .. gamma^K, each rounded once from double precision."""
    return torch.tensor([gamma**i for i in range(window + 1)], dtype=torch.float32)


def discounted_return(rewards: Tensor, powers: Tensor) -> Tensor:
    """R = sum_{i<m} gamma^i r_i of each window, ``(B,)``.

    Args:
        rewards: ``(B, K)``, zeros beyond the executed steps.
        powers: ``(K + 1,)`` from :func:`discounts`.
    """
    return rewards.float() @ powers[:-1]


def bootstrap(steps: Tensor, terminated: Tensor, powers: Tensor) -> Tensor:
    """gamma^m (1 - terminated), ``(B,)``: the weight of what follows a window of m executed steps.

    A step that is both terminated and truncated is terminated; truncation alone changes nothing, since the next
    observation of a truncated window is the true last one.

    Args:
        steps: ``(B,)`` integers, m.
        terminated: ``(B,)`` of 0 and 1.
        powers: ``(K + 1,)`` from :func:`discounts`.
    """
    return powers[steps.long()] * (1 - terminated.float())


def td_target(reward: Tensor, weight: Tensor, next_q: Tensor, next_log_prob: Tensor | None, alpha: Tensor | float) -> Tensor:
    """y = R + gamma^m (1 - d) (min_n Q'_n(s', a') - alpha log pi(a'|s')), ``(B,)``: equations 2, 3 and 6, clipped double Q.

    Args:
        reward: ``(B,)``, R.
        weight: ``(B,)`` from :func:`bootstrap`.
        next_q: ``(B, N)``, the target critics at the current policy's action.
        next_log_prob: ``(B,)``; None leaves the entropy out of the backup.
        alpha: temperature.

    Raises:
        SpecError: shapes that would broadcast into something else.
    """
    require_shape("next_q", next_q, (len(reward), None))
    require_shape("weight", weight, (len(reward),))
    value = over_critics(next_q)
    if next_log_prob is not None:
        require_shape("next_log_prob", next_log_prob, (len(reward),))
        value = value - alpha * next_log_prob.float()
    return reward.float() + weight.float() * value


def critic_loss(q: Tensor, target: Tensor, importance: Tensor | None = None) -> Tensor:
    """sum_n mean_b w (Q_n - y)^2: equation 5 times two, summed over critics so that each learns at the declared rate.

    Args:
        q: ``(B, N)``.
        target: ``(B,)``, a constant.
        importance: ``(B,)``, w, the weights of rows that were not drawn equally likely; None is 1.
    """
    require_shape("q", q, (len(target), None))
    require_shape("target", target, (len(q),))
    error = (q.float() - target.float().unsqueeze(1)).square()
    if importance is not None:
        require_shape("importance", importance, (len(q),))
        error = error * importance.unsqueeze(1)
    return error.mean(dim=0).sum()


def td_error(q: Tensor, target: Tensor) -> Tensor:
    """mean_n |Q_n - y| of each row, ``(B,)``: what a row's priority is made of."""
    require_shape("q", q, (len(target), None))
    require_shape("target", target, (len(q),))
    return (q.float() - target.float().unsqueeze(1)).abs().mean(dim=1)


def critic_loss_gradient(q: Tensor, target: Tensor, batch: int, importance: Tensor | None = None) -> Tensor:
    """d :func:`critic_loss` / dq of some rows, ``(b, N)``, for models that differentiate by hand.

    Args:
        q: ``(b, N)``.
        target: ``(b,)``.
        batch: B, all rows of the loss, over which it is a mean.
        importance: ``(b,)``, w; None is 1.
    """
    gradient = (q - target.unsqueeze(1)).mul_(2.0 / batch)
    return gradient if importance is None else gradient.mul_(importance.unsqueeze(1))


def actor_loss(q: Tensor, log_prob: Tensor | None, alpha: Tensor | float, reduction: str = MIN) -> Tensor:
    """mean_b (alpha log pi(a|s) - min_n Q_n(s, a)): equation 7, or with the critics' mean in place of their minimum.

    Args:
        q: ``(B, N)``, the online critics at the policy's own action.
        log_prob: ``(B,)``; None for a policy without a density, which leaves ``-min Q``.
        alpha: temperature, a constant.
        reduction: of the critics, ``min`` or ``mean``.
    """
    require_shape("q", q, (len(q), None))
    value = over_critics(q, reduction)
    if log_prob is None:
        return -value.mean()
    require_shape("log_prob", log_prob, (len(q),))
    return (alpha * log_prob.float() - value).mean()


def actor_loss_gradient(q: Tensor, alpha: Tensor, batch: int, reduction: str = MIN) -> tuple[Tensor, Tensor]:
    """d :func:`actor_loss` / dq of some rows, ``(b, N)``, and / d log pi, (), the same for all rows.

    Args:
        q: ``(b, N)``.
        alpha: temperature.
        batch: B, all rows of the loss, over which it is a mean.
        reduction: of the critics, ``min``, under which one critic a row has a gradient, or ``mean``.
    """
    share = 1.0 / batch
    if reduction == MEAN:
        return torch.full_like(q, -share / q.shape[1]), alpha * share
    return torch.zeros_like(q).scatter_(1, q.argmin(dim=1, keepdim=True), -share), alpha * share


def over_critics(q: Tensor, reduction: str = MIN) -> Tensor:
    """The value of each row by all its critics ``(B, N)``, ``(B,)`` float32: their ``min`` or ``mean``."""
    return q.float().mean(dim=1) if reduction == MEAN else q.float().min(dim=1).values


def temperature(raw: Tensor, form: str) -> Tensor:
    """alpha of its trained number: ``exp(raw)`` for ``auto_exp`` and ``auto_log``, ``softplus(raw)`` for ``auto_softplus``."""
    return softplus(raw) if form == "auto_softplus" else raw.exp()


def temperature_loss(raw: Tensor, form: str, log_prob: Tensor, target_entropy: float) -> Tensor:
    """-alpha mean(log pi + H): equation 18; ``auto_log`` takes -log alpha, whose gradient does not shrink with alpha.

    Args:
        raw: (), the trained number.
        form: ``auto_exp``, ``auto_log`` or ``auto_softplus``.
        log_prob: ``(B,)``; no gradient flows into it.
        target_entropy: H, negative for a policy that should stay sharp.
    """
    require_shape("log_prob", log_prob, (None,))
    excess = log_prob.detach().float().mean() + target_entropy
    return -(raw if form == "auto_log" else temperature(raw, form)) * excess


def temperature_gradient(raw: Tensor, form: str, excess: Tensor) -> Tensor:
    """d :func:`temperature_loss` / d raw, (), at ``excess`` = mean(log pi) + H."""
    if form == "auto_log":
        return -excess
    return -(raw.exp() if form == "auto_exp" else raw.sigmoid()) * excess


def require_shape(name: str, tensor: Tensor, shape: tuple[int | None, ...]) -> None:
    """Refuse a tensor of another shape; None in ``shape`` fits any length.

    ``(B,)`` against ``(B, 1)`` would broadcast to ``(B, B)`` without a word.

    Raises:
        SpecError: naming the tensor and both shapes.
    """
    found = tensor.shape
    if len(found) != len(shape) or any(n is not None and n != m for n, m in zip(shape, found, strict=True)):
        wanted = ", ".join("any" if n is None else str(n) for n in shape)
        raise SpecError(f"{name}: shape {tuple(found)}, expected ({wanted}{',' if len(shape) == 1 else ''})")
