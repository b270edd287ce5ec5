"""Rewards: what the losses see of the raw ones that the pool holds, for all rows alike, whoever acted."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from headrace.common.errors import SpecError
from headrace.common.statistics import VAR_FLOOR, ObsStatistics
from headrace.learner.adam import copy_tensors
from headrace.learner.losses import discounted_return


class Rewards:
    """R of each window: its raw rewards, less the penalty of each executed step, discounted, added up, and scaled.

    R = (sum_{i<m} gamma^i (r_i - penalty)) / spread over the m steps that were executed, in windows of overlapping rows as in
    chunks. The pool keeps raw rewards; here, for rows of actors and demonstrations alike, they become what is learned from.

    The spread is the standard deviation of the discounted return so far, counted by the pool once per committed row. An
    update changes nothing here, and old rows are scaled by what is known now. Rewards are divided and not centred, since
    a shift would pay for longer episodes.

    Attributes:
        powers: ``(K + 1,)``, gamma^0 .. gamma^K.

    Args:
        powers: ``(K + 1,)`` from :func:`discounts`.
        normalise: whether to divide by the spread; else it is 1.
        penalty: taken off the reward of each executed env step.
    """

    def __init__(self, powers: Tensor, *, normalise: bool, penalty: float = 0.0) -> None:
        self.powers, self._penalty = powers, penalty
        self._sums = torch.cat((powers.new_zeros(1), powers[:-1].cumsum(0)))  # sum_{i<m} gamma^i, m = 0 .. K
        self._spread = torch.ones((), device=powers.device) if normalise else None

    def __call__(self, rewards: Tensor, steps: Tensor) -> Tensor:
        """R, ``(B,)`` float32, of raw ``rewards``, ``(B, K)``, zeros beyond the executed ``steps``, ``(B,)`` int64."""
        total = discounted_return(rewards, self.powers)
        if self._penalty:
            total = total - self._penalty * self._sums[steps]
        return total if self._spread is None else total / self._spread

    def load(self, statistics: ObsStatistics) -> None:
        """Divide by the spread in these statistics from now on; while there is none, by what was before.

        Raises:
            SpecError: the pool does not follow returns.
        """
        if self._spread is None:
            return
        if statistics.returns is None:
            raise SpecError("learner.normalise_rewards: true, but the buffer follows no returns; start it with this config")
        if statistics.returns.count and statistics.returns.var > 0:
            self._spread.fill_((statistics.returns.var + VAR_FLOOR) ** 0.5)

    def metrics(self) -> dict[str, Tensor]:
        """What rewards are divided by, where they are."""
        return {} if self._spread is None else {"data/return_std": self._spread.clone()}

    def get_state(self) -> dict[str, Tensor]:
        """A copy of ``spread``, where there is one."""
        return {name: tensor.clone() for name, tensor in self._named().items()}

    def set_state(self, state: Mapping[str, Tensor]) -> None:
        """Take what :meth:`get_state` gave; raises :class:`CheckpointError` when it does not fit."""
        copy_tensors(self._named(), state, "rewards")

    def check_valid(self) -> tuple[bool, str]:
        """Whether the spread is finite and positive."""
        for name, tensor in self._named().items():
            if not bool(torch.isfinite(tensor) & (tensor > 0)):
                return False, f"rewards: {name} is {float(tensor):g}"
        return True, ""

    def _named(self) -> dict[str, Tensor]:
        return {} if self._spread is None else {"spread": self._spread}
