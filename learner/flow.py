"""Flow matching: how noise becomes an action, as an ODE or as an SDE, and what is learned from given actions. Pure functions.

Time runs from 1, noise w ~ N(0, 1), down to 0, the action a. Between them x_t = (1 - t) a + t w, so the velocity that a
network learns is v = dx/dt = w - a (Lipman et al., arXiv:2210.02747; in this direction Black et al., pi0, arXiv:2410.24164).
"""

from __future__ import annotations

import math

from torch import Tensor

from headrace.learner.losses import require_shape

_HALF_LOG_2PI = 0.5 * math.log(2.0 * math.pi)


def times(steps: int) -> list[float]:
    """Where a path of so many steps stops, from 1 down to 0: ``steps + 1`` numbers."""
    return [1.0 - i / steps for i in range(steps)] + [0.0]


def noisy(action: Tensor, noise: Tensor, time: Tensor) -> Tensor:
    """x_t = (1 - t) a + t w.

    Args:
        action: ``(B, k, A)`` in [-1, 1].
        noise: ``(B, k, A)`` standard normal.
        time: ``(B,)`` in [0, 1].
    """
    t = time[:, None, None]
    return (1.0 - t) * action + t * noise


def matching_loss(velocity: Tensor, action: Tensor, noise: Tensor, counts: Tensor) -> Tensor:
    """mean_bd c (v - (w - a))^2, (): conditional flow matching, equation 9 of arXiv:2210.02747 for this path.

    What does not count is 0 in the mean and is not left out of it, so that means over parts of a batch add up.

    Args:
        velocity: ``(B, k, A)``, the network's at :func:`noisy`.
        action: ``(B, k, A)`` replayed.
        noise: ``(B, k, A)``.
        counts: ``(B, k, A)`` of 0 and 1.
    """
    for name, tensor in (("action", action), ("noise", noise), ("counts", counts)):
        require_shape(name, tensor, tuple(velocity.shape))
    return (counts * (velocity.float() - (noise - action).float()).square()).mean()


def ode_step(x: Tensor, velocity: Tensor, time: float, until: float) -> Tensor:
    """x at ``until`` < ``time``: an Euler step along the velocity."""
    return x - (time - until) * velocity


def sde_step(x: Tensor, velocity: Tensor, time: float, until: float, level: Tensor | float) -> tuple[Tensor, Tensor | float]:
    """Mean and standard deviation of x at ``until``: a step with the ODE's marginals in the limit, and noise (Flow-SDE).

    With x0 = x - t v and x1 = x + (1 - t) v, what the velocity says of both ends, a step of D = t - t' has

        mean = (1 - t') x0 + (t' - sigma^2 D / (2 t)) x1,    std = sigma sqrt(D),    sigma = level sqrt(s / (1 - s)),

    as in Liu et al., Flow-GRPO, arXiv:2505.05470, in the form that keeps to predicted ends. sigma has no bound at t = 1,
    so s = min(t, 1 - D): the first step takes its own end. With level 0 it is :func:`ode_step`.

    Args:
        x: ``(B, k, A)``.
        velocity: of x at ``time``.
        time: t, in (0, 1].
        until: t', in [0, t).
        level: noise level, a number or ``(B, k, A)``.
    """
    step = time - until
    held = min(time, 1.0 - step)
    start, end = x - time * velocity, x + (1.0 - time) * velocity
    sigma = level * math.sqrt(held / (1.0 - held))
    mean = (1.0 - until) * start + (until - sigma * sigma * (step / (2.0 * time))) * end
    return mean, sigma * math.sqrt(step)


def log_density(noise: Tensor, std: Tensor) -> Tensor:
    """log N(x; mean, std^2) of x = mean + std * noise, summed over all but the first dimension, ``(B,)`` float32.

    Where std is a constant this has no gradient in the mean's parameters: what is drawn moves along with the mean. So a fixed
    noise schedule gives an entropy that nothing can change, and only a learned std makes a temperature meaningful.

    Args:
        noise: ``(B, ...)`` standard normal.
        std: the same shape, positive.
    """
    terms = -0.5 * noise.float().square() - std.float().log() - _HALF_LOG_2PI
    return terms.flatten(1).sum(dim=1)
