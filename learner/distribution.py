"""The policy's distribution: a Gaussian squashed by tanh, and the box between [-1, 1] and env units."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import softplus

from headrace.common.specs import ActionSpec

LOG_STD_MIN, LOG_STD_MAX = -20.0, 2.0
_LOG_2 = math.log(2.0)
_HALF_LOG_2PI = 0.5 * math.log(2.0 * math.pi)
_ATANH_LIMIT = 1.0 - 1e-6
_ROUNDING = 1e-5


class TanhGaussian:
    """a = tanh(u), u ~ N(mean, exp(log_std)^2), independent over D dimensions, in normalised actions.

    Args:
        parameters: ``(B, 2D)``, the means first, then the log standard deviations, which are clamped to [-20, 2].
    """

    def __init__(self, parameters: Tensor) -> None:
        self._mean, self._raw_log_std = parameters.chunk(2, dim=-1)
        self._log_std = self._raw_log_std.clamp(LOG_STD_MIN, LOG_STD_MAX)

    def mode(self) -> Tensor:
        """tanh of the mean, ``(B, D)``."""
        return torch.tanh(self._mean)

    def sample(self, generator: torch.Generator | None) -> tuple[Tensor, Tensor]:
        """An action ``(B, D)`` and its log-density ``(B,)``, differentiable in the parameters."""
        return self.sample_with(
            torch.randn(self._mean.shape, generator=generator, dtype=self._mean.dtype, device=self._mean.device)
        )

    def act(self, generator: torch.Generator | None, deterministic: bool) -> tuple[Tensor, Tensor | None, None]:
        """What ``sac_forward_actor`` gives: a sample and its log-density, or the mode, which has none; there is no latent."""
        if deterministic:
            return self.mode(), None, None
        return *self.sample(generator), None

    def sample_with(self, noise: Tensor) -> tuple[Tensor, Tensor]:
        """The same with standard normal ``noise``, ``(B, D)``, that the caller has drawn."""
        self._shift = self._log_std.exp() * noise
        u = self._mean + self._shift
        self._action = torch.tanh(u)
        # (u - mean) / std is the noise itself; the constants of all D dimensions are taken off at once
        terms = torch.addcmul(2.0 * (u + softplus(-2.0 * u)) - self._log_std, noise, noise, value=-0.5)
        return self._action, terms.sum(dim=-1) - u.shape[-1] * (_HALF_LOG_2PI + 2.0 * _LOG_2)

    def log_prob(self, action: Tensor) -> Tensor:
        """Log-density ``(B,)`` of given actions ``(B, D)``; at the edge of the box, of the nearest inner point."""
        return log_prob(torch.atanh(action.clamp(-_ATANH_LIMIT, _ATANH_LIMIT)), self._mean, self._log_std)

    def pull_back(self, d_action: Tensor, d_log_prob: Tensor) -> Tensor:
        """Gradient at the parameters, ``(B, 2D)``, of what has these gradients at the last sample.

        d log pi / du = 2 tanh(u), because the noise is held fixed and only the squashing feels u.

        Args:
            d_action: ``(B, D)``.
            d_log_prob: (), the same for every row.
        """
        action = self._action
        d_mean = torch.addcmul(d_action, d_action, action * action, value=-1).add_(action * (2 * d_log_prob))
        d_log_std = (d_mean * self._shift).sub_(d_log_prob)
        d_log_std.mul_(self._raw_log_std == self._log_std)  # beyond its bounds the clamp is constant
        return torch.cat((d_mean, d_log_std), dim=-1)


def squash_correction(u: Tensor) -> Tensor:
    """log(1 - tanh(u)^2) = 2 (log 2 - u - softplus(-2u)) per dimension, exact for every u.

    The usual ``log(1 - tanh(u)^2 + 1e-6)`` (equation 26 of arXiv:1812.05905) stops at -13.8, 24.8 nats off at u = 20.
    """
    return 2.0 * (_LOG_2 - u - softplus(-2.0 * u))


def log_prob(u: Tensor, mean: Tensor, log_std: Tensor, scale: Tensor | None = None) -> Tensor:
    """log pi(a) of a = scale * tanh(u) + centre, summed over the last dimension.

    Args:
        u: ``(..., D)`` before squashing.
        mean: ``(..., D)``.
        log_std: ``(..., D)``.
        scale: ``(D,)`` half widths of a box in other units; None for normalised actions, where it is 1.
    """
    z = (u - mean) * torch.exp(-log_std)
    density = -0.5 * z * z - log_std - _HALF_LOG_2PI - squash_correction(u)
    return (density if scale is None else density - scale.log()).sum(dim=-1)


class ActionBox:
    """The executed action's box: env units on one side, [-1, 1] on the other.

    Attributes:
        centre: ``(D,)`` float32, D the product of the action's shape; a chunk repeats the bounds of its dimensions.
        half: ``(D,)`` float32, half widths.
    """

    def __init__(self, spec: ActionSpec, device: torch.device | None = None) -> None:
        low = torch.tensor(spec.low, dtype=torch.float64)
        high = torch.tensor(spec.high, dtype=torch.float64)
        repeat = math.prod(spec.shape) // spec.dim
        self.centre = (high / 2 + low / 2).float().repeat(repeat).to(device)
        self.half = (high / 2 - low / 2).float().repeat(repeat).to(device)

    def normalise(self, action: Tensor) -> tuple[Tensor, Tensor]:
        """Executed actions ``(B, D)`` in env units as [-1, 1], and how many rows lay outside the box and were clipped.

        A person or a guard may have executed what the policy could not.
        """
        unit = (action - self.centre) / self.half
        outside = (unit.abs() > 1.0 + _ROUNDING).any(dim=-1).sum()
        return unit.clamp(-1.0, 1.0), outside

    def to_env(self, action: Tensor) -> Tensor:
        """Normalised actions ``(B, D)`` in env units, inside the box up to one rounding."""
        return self.centre + action * self.half
