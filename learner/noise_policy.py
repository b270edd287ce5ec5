"""SAC in the noise of a flow policy that stays as it is (DSRL).

Wagenmaker et al., Steering Your Diffusion Policy with Latent Space Reinforcement Learning, arXiv:2506.15799, in the form
without noise aliasing: what SAC decides on, and what its critics judge, is the noise that the action is made of.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from headrace.common.config import option
from headrace.common.errors import SpecError
from headrace.common.specs import TransitionSpec
from headrace.learner.prefix import Prefix
from headrace.learner.steered import Seen, Steered, SteeredOptions


@dataclass(frozen=True)
class NoiseOptions(SteeredOptions):
    """Which policy's noise is chosen, and from where."""

    bound: float = option(1.5, help="largest number of the noise; SAC decides on noise / bound", low=1e-3, high=10)
    log_std: float = option(0.0, help="log of the standard deviation, before tanh, that u begins with", low=-10, high=1)
    shared: bool = option(False, help="whether all steps of a chunk have the same noise")


class NoisePolicy(Steered):
    """A tanh-Gaussian over u = w / bound in [-1, 1]^n; the action is where the base's ODE leads from the noise w.

    A row's ``latent`` is u, n = ``window.latent`` numbers: k * A, or A where the noise is shared. Rows without one, of people
    and demonstrations, are left out of every loss. log pi is that of u.

    Raises:
        SpecError: ``window.latent`` is of another length.
    """

    Options: ClassVar[type[Any]] = NoiseOptions
    LATENT: ClassVar[bool] = True

    def __init__(self, spec: TransitionSpec, **options: Any) -> None:
        super().__init__(spec, 0, **options)
        steps, dims = self.base.noise_shape
        needed = dims if self.options.shared else steps * dims
        if spec.latent != needed:
            raise SpecError(
                f"window.latent: {spec.latent}, but the noise of this policy is {needed} numbers; nearest valid: {needed}"
            )

    def beside(self, prefix: Prefix) -> Tensor:
        """Nothing."""
        return prefix.state[:, :0]

    def sac_forward_actor(
        self, features: Seen, generator: torch.Generator | None, deterministic: bool
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """u ``(B, n)`` and its log-density."""
        return self.sac_distribution(features).act(generator, deterministic)

    @torch.no_grad()
    def sac_execute(self, features: Seen, action: Tensor) -> Tensor:
        """The action ``(B, D)`` that the base makes of u ``(B, n)``."""
        steps, dims = self.base.noise_shape
        noise = self.options.bound * action.reshape(len(action), -1, dims)
        return self.base.denoise(features.prefix, noise.expand(-1, steps, -1))
