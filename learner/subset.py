"""The critics whose minimum is the target of one update."""

from __future__ import annotations

import torch
from torch import Tensor

from headrace.common.errors import ConfigError
from headrace.learner.group import Group


class CriticSubset:
    """Draws M of N critics for each update, the same for all its rows, critics and ranks: REDQ, arXiv:2101.05982.

    Args:
        wanted: M; None is all.
        generator: source of the draws; those of rank 0 hold for all ranks.
        group: the ranks.
    """

    def __init__(self, wanted: int | None, generator: torch.Generator, group: Group) -> None:
        self._wanted, self._generator, self._group = wanted, generator, group
        self._drawn: Tensor | None = None

    def require(self, critics: int) -> None:
        """Refuse a model of fewer critics.

        Raises:
            ConfigError: there are not so many.
        """
        if self._wanted is not None and self._wanted > critics:
            raise ConfigError(
                f"learner.target_critics: {self._wanted} of the model's {critics} critics; nearest valid: {critics}"
            )

    def renew(self) -> None:
        """Another update begins."""
        self._drawn = None

    def of(self, values: Tensor) -> Tensor:
        """The columns of ``(B, N)`` that count in this update, ``(B, M)``.

        Raises:
            ConfigError: there are not so many critics.
        """
        critics = values.shape[1]
        if self._wanted is None or self._wanted == critics:  # nothing is drawn, so that all other noise is that of SAC
            return values
        self.require(critics)
        if self._drawn is None:
            self._drawn = torch.randperm(critics, generator=self._generator, device=values.device)[: self._wanted]
            self._group.copy_first([self._drawn])
        return values[:, self._drawn]
