"""What models have alike whose actor gives the parameters of a tanh-Gaussian: sampling, density, cloning, and switches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from headrace.common.specs import TransitionSpec
from headrace.common.switches import switch_places
from headrace.learner.contract import SupportSACTraining
from headrace.learner.distribution import TanhGaussian
from headrace.learner.gradients import Branch
from headrace.learner.losses import cloning_loss
from headrace.learner.switched import SwitchedGaussian


class GaussianActor(SupportSACTraining):
    """A model whose ``actor`` maps features to ``(B, 2D)``, and whose options may have ``switches``.

    Raises:
        ConfigError: an option is unknown or out of range.
        SpecError: a switch that is no dimension of the action, or too many.
    """

    actor: nn.Module

    def __init__(self, spec: TransitionSpec, **options: Any) -> None:
        super().__init__(spec, **options)
        self._switches = switch_places(spec.action, getattr(self.options, "switches", ()))

    @property
    def sac_switches(self) -> Sequence[int]:
        """As ``switches`` says, in each env step of a decision."""
        return self._switches

    def sac_forward_actor(
        self, features: Tensor, generator: torch.Generator | None, deterministic: bool
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Action ``(B, D)`` and log pi ``(B,)``; the mode has no density, and there is no latent."""
        return self._distribution(features).act(generator, deterministic)

    def sac_branches(self, features: Tensor, generator: torch.Generator | None) -> Sequence[Branch]:
        """A sample, with each way of setting the switches."""
        policy = self._distribution(features)
        return policy.branches(generator) if isinstance(policy, SwitchedGaussian) else super().sac_branches(features, generator)

    def bc_loss(self, features: Tensor, action: Tensor, counts: Tensor) -> Tensor:
        """As the contract says, but switches by the square from their mean, which is 0 only for the right chance."""
        policy = self._distribution(features)
        mode = policy.expected() if isinstance(policy, SwitchedGaussian) else policy.mode()
        return cloning_loss(mode, action, counts)

    def _get_logprobs(self, features: Tensor, action: Tensor) -> Tensor:
        """log pi(action), ``(B,)``."""
        return self._distribution(features).log_prob(action)

    def _distribution(self, features: Tensor) -> TanhGaussian | SwitchedGaussian:
        parameters = self.actor(features)
        return SwitchedGaussian(parameters, self._switches) if self._switches else TanhGaussian(parameters)
