"""The policy's distribution where some dimensions are switches: a tanh-Gaussian for the others, a choice of -1 or 1 for these.

A switch is 1 with the chance Phi(lean), where the lean is what the network gives as the mean of its dimension: so it is drawn
as the sign of lean + noise, from the same standard normal noise as everything else, and its spread is not used. The actor's
loss sums over all ways of setting the switches, each times its chance, since values of choices have no slope (Delalleau et
al., Discrete and Continuous Action Representation for Practical RL in Video Games, arXiv:1912.11077, section 3).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import torch
from torch import Tensor

from headrace.learner.distribution import TanhGaussian
from headrace.learner.gradients import Branch


class SwitchedGaussian:
    """Independent over D dimensions, in normalised actions.

    Args:
        parameters: ``(B, 2D)`` as of :class:`TanhGaussian`, the leans among the means.
        places: of the switches among the D dimensions, in order.
    """

    def __init__(self, parameters: Tensor, places: Sequence[int]) -> None:
        mean, log_std = parameters.float().chunk(2, dim=-1)
        device = mean.device
        free = [i for i in range(mean.shape[-1]) if i not in places]
        self._free, self._places = torch.tensor(free, device=device), torch.tensor(list(places), device=device)
        self._back = torch.tensor([*free, *places], device=device).argsort()
        self._rest = TanhGaussian(torch.cat((mean[:, self._free], log_std[:, self._free]), dim=-1))
        self._lean = mean[:, self._places]

    def mode(self) -> Tensor:
        """``(B, D)``: of each dimension by itself."""
        return self._joined(self._rest.mode(), ends(self._lean))

    def expected(self) -> Tensor:
        """``(B, D)``, differentiable: the mode, but of a switch its mean, 2 Phi(lean) - 1."""
        return self._joined(self._rest.mode(), torch.erf(self._lean / math.sqrt(2.0)))

    def act(self, generator: torch.Generator | None, deterministic: bool) -> tuple[Tensor, Tensor | None, None]:
        """What ``sac_forward_actor`` gives: a sample and its log-density times the choice's chance, or the mode."""
        if deterministic:
            return self.mode(), None, None
        rest, log_prob, noise = self._draw(generator)
        setting = ends(self._lean.detach() + noise)
        return self._joined(rest, setting), log_prob + self._log_chance(setting), None

    def branches(self, generator: torch.Generator | None) -> list[Branch]:
        """One draw of the other dimensions with each of the 2^G ways of setting the switches."""
        rest, log_prob, _ = self._draw(generator)
        found = []
        for signs in itertools.product((-1.0, 1.0), repeat=len(self._places)):
            setting = torch.tensor(signs, device=rest.device).expand_as(self._lean)
            log_chance = self._log_chance(setting)
            found.append(Branch(self._joined(rest, setting), log_prob + log_chance, log_chance.exp()))
        return found

    def log_prob(self, action: Tensor) -> Tensor:
        """Log-density ``(B,)`` of given actions ``(B, D)``, times the chance of the nearer end of each switch."""
        return self._rest.log_prob(action[:, self._free]) + self._log_chance(ends(action[:, self._places]))

    def _draw(self, generator: torch.Generator | None) -> tuple[Tensor, Tensor, Tensor]:
        noise = torch.randn((len(self._lean), len(self._back)), generator=generator, device=self._lean.device)
        return *self._rest.sample_with(noise[:, self._free]), noise[:, self._places]

    def _log_chance(self, setting: Tensor) -> Tensor:
        log_chance: Tensor = torch.special.log_ndtr(setting * self._lean)
        return log_chance.sum(dim=-1)

    def _joined(self, rest: Tensor, switches: Tensor) -> Tensor:
        return torch.cat((rest, switches), dim=-1)[:, self._back]


def ends(x: Tensor) -> Tensor:
    """1 where a number is 0 or more, else -1; what is no number stays so."""
    return torch.where(x.isnan(), x, torch.where(x >= 0, 1.0, -1.0))
