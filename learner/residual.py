"""Residual SAC: a small actor corrects the actions of a flow policy that stays as it is.

Johannink et al., Residual Reinforcement Learning for Robot Control, arXiv:1812.03201; on top of policies of demonstrations
Ankile et al., arXiv:2407.16677.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from headrace.common.config import option
from headrace.common.specs import TransitionSpec
from headrace.learner.prefix import Prefix
from headrace.learner.steered import Seen, Steered, SteeredOptions


@dataclass(frozen=True)
class ResidualOptions(SteeredOptions):
    """Which policy is corrected, and how far."""

    scale: float = option(0.2, help="most that a correction adds, in parts of the action's half width", low=1e-6, high=2)
    log_std: float = option(
        -3.0, help="log of the standard deviation, before tanh, that corrections begin with", low=-10, high=1
    )


class Residual(Steered):
    """a = clip(base + scale * res), res tanh-Gaussian, 0 in the beginning; log pi is that of res.

    The base is the flow policy's ODE from noise 0, so there is one base action for each observation: the actor sees it beside
    its own observation's prefix, at s and at s' alike. Critics judge what is executed, base and correction together, of people
    and demonstrations as of the policy.
    """

    Options: ClassVar[type[Any]] = ResidualOptions

    def __init__(self, spec: TransitionSpec, **options: Any) -> None:
        super().__init__(spec, math.prod(spec.action.shape), **options)

    @torch.no_grad()
    def beside(self, prefix: Prefix) -> Tensor:
        """The base action ``(B, D)``."""
        rows = len(prefix.tokens)
        return self.base.denoise(prefix, torch.zeros((rows, *self.base.noise_shape), device=prefix.tokens.device))

    def sac_forward_actor(
        self, features: Seen, generator: torch.Generator | None, deterministic: bool
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Base and correction ``(B, D)``, and the log-density of the correction alone."""
        res, log_prob, _ = self.sac_distribution(features).act(generator, deterministic)
        return (features.base + self.options.scale * res).clamp(-1.0, 1.0), log_prob, None
