"""The temperature alpha: one trained number, or a constant."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from headrace.learner.adam import Adam
from headrace.learner.config import LearnerConfig
from headrace.learner.losses import temperature, temperature_gradient

ALARM = 1e3


class Temperature:
    """Weight of the entropy term.

    Attributes:
        raw: (), the trained number: log alpha, or softplus^-1(alpha) for ``auto_softplus``.
        optimizer: of ``raw``; None when alpha is fixed.

    Args:
        config: form, initial value and step size.
        target_entropy: what the policy's entropy is steered to.
        device: where ``raw`` lives.
    """

    def __init__(self, config: LearnerConfig, target_entropy: float, device: torch.device | None = None) -> None:
        self._form, self._target_entropy = config.temperature, target_entropy
        self._fixed = torch.tensor(config.alpha, dtype=torch.float32, device=device)
        self.optimizer: Adam | None = None
        self.raw = torch.tensor(_inverse(config), dtype=torch.float32, device=device)
        if self._form != "fixed":
            self.optimizer = Adam([("raw", self.raw)], config.alpha_lr, (config.adam_beta1, config.adam_beta2))

    def alpha(self) -> Tensor:
        """() float32, a constant for the losses."""
        return self._fixed if self.optimizer is None else temperature(self.raw, self._form)

    def update(self, mean_log_prob: Tensor, skip: Tensor) -> None:
        """One step towards the target entropy, unless ``skip`` is 1.

        Args:
            mean_log_prob: () mean over the batch of the actor's step.
            skip: () float.
        """
        if self.optimizer is not None:
            excess = mean_log_prob + self._target_entropy
            self.optimizer.step([temperature_gradient(self.raw, self._form, excess)], skip)


def _inverse(config: LearnerConfig) -> float:
    if config.temperature == "fixed":
        return 0.0
    if config.temperature == "auto_softplus":
        return config.alpha + math.log(-math.expm1(-config.alpha))
    return math.log(config.alpha)
