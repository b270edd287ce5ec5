"""The losses of Soft Actor-Critic as pure functions; B rows, N critics, K steps a window, scalars in float32.

Equation numbers are those of Haarnoja et al., Soft Actor-Critic Algorithms and Applications, arXiv:1812.05905, where no
other paper is named.
"""

from __future__ import annotations

import math

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


def actor_loss(
    q: Tensor, log_prob: Tensor | None, alpha: Tensor | float, reduction: str = MIN, chance: Tensor | None = None
) -> Tensor:
    """mean_b c (alpha log pi(a|s) - min_n Q_n(s, a)): equation 7, or with the critics' mean in place of their minimum.

    Args:
        q: ``(B, N)``, the online critics at the policy's own action.
        log_prob: ``(B,)``; None for a policy without a density, which leaves ``-min Q``.
        alpha: temperature, a constant.
        reduction: of the critics, ``min`` or ``mean``.
        chance: ``(B,)``, c, of this action among those that the whole loss is a sum over; None is 1.
    """
    require_shape("q", q, (len(q), None))
    value = over_critics(q, reduction)
    if log_prob is not None:
        require_shape("log_prob", log_prob, (len(q),))
        value = value - alpha * log_prob.float()
    return -(value if chance is None else chance * value).mean()


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


def cloning_loss(action: Tensor, executed: Tensor, counts: Tensor) -> Tensor:
    """mean_bd c (pi(s) - a)^2 over rows and dimensions: the second half of equation 3 of TD3+BC, arXiv:2106.06860.

    What does not count is 0 in the mean and is not left out of it, so that means over parts of a batch add up.

    Args:
        action: ``(B, D)``, the policy's own.
        executed: ``(B, D)``, a, replayed.
        counts: ``(B, D)`` of 0 and 1, c.
    """
    require_shape("action", action, (None, None))
    require_shape("executed", executed, tuple(action.shape))
    require_shape("counts", counts, tuple(action.shape))
    return (counts * (action.float() - executed.float()).square()).mean()


def value_scale(mean_abs_q: Tensor, alpha: float) -> Tensor:
    """lambda = alpha / mean_b |Q(s, a)|, (), what the values are multiplied with: equation 5 of TD3+BC, arXiv:2106.06860.

    Args:
        mean_abs_q: (), of executed actions.
        alpha: weight of the values beside the cloning.
    """
    require_shape("mean_abs_q", mean_abs_q, ())
    return alpha / mean_abs_q.float()


def conservative_penalty(q: Tensor, other_q: Tensor, log_density: Tensor, temperature: float) -> Tensor:
    """sum_n mean_b [T log int exp(Q_n(s, a) / T) da - Q_n(s, a_b)]: CQL(H), equation 4 of arXiv:2006.04779.

    The integral over the box is the mean of exp(Q / T) / mu over M actions a row, each drawn from a density mu of its own
    (appendix F there).

    Args:
        q: ``(B, N)``, of the executed actions.
        other_q: ``(M, B, N)``, of the others.
        log_density: ``(M, B)``, log mu of these; a constant.
        temperature: T; as it falls, the first term becomes the maximum.
    """
    require_shape("q", q, (None, None))
    require_shape("other_q", other_q, (None, *q.shape))
    require_shape("log_density", log_density, tuple(other_q.shape[:2]))
    terms = other_q.float() / temperature - log_density.float().unsqueeze(2)
    soft_maximum = temperature * (terms.logsumexp(dim=0) - math.log(len(terms)))
    return (soft_maximum - q.float()).mean(dim=0).sum()


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
