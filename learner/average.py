"""The average: a slow copy of the policy, apart from what is trained and from target networks."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from headrace.learner.adam import copy_tensors
from headrace.learner.shards import gathered, held


class PolicyAverage:
    """Exponential moving average of a policy's tensors: e <- d e + (1 - d) p after each step of the actor.

    Training never sees it. What is no floating point number, such as a counter, is copied.

    Args:
        tensors: name -> tensor, the policy as it begins.
        decay: d.

    Attributes:
        tensors: name -> tensor of the average.
    """

    def __init__(self, tensors: Mapping[str, Tensor], decay: float) -> None:
        self._share = 1.0 - decay
        self.tensors = {name: tensor.detach().clone() for name, tensor in tensors.items()}

    @torch.no_grad()
    def restart(self, tensors: Mapping[str, Tensor]) -> None:
        """Be equal to the policy again."""
        for name, own in self.tensors.items():
            held(own).copy_(held(tensors[name]))

    @torch.no_grad()
    def follow(self, tensors: Mapping[str, Tensor], skip: Tensor) -> None:
        """One step towards the policy, or none at all where ``skip``, a () float tensor, is 1 and not 0."""
        share = (1.0 - skip) * self._share
        for name, average in self.tensors.items():
            own, now = held(average), held(tensors[name])
            if own.is_floating_point():
                own.lerp_(now, share.to(own.dtype))
            else:
                own.copy_(torch.where(skip > 0, own, now))

    def get_state(self) -> dict[str, Tensor]:
        """Copies of all tensors; of shards all ranks have to ask together."""
        return {name: gathered(tensor).clone() for name, tensor in self.tensors.items()}

    def set_state(self, state: Mapping[str, Tensor]) -> None:
        """Take what :meth:`get_state` gave; raises :class:`CheckpointError` when it does not fit."""
        copy_tensors(self.tensors, state, "average")

    def check_valid(self) -> tuple[bool, str]:
        """Whether every number is finite."""
        for name, tensor in self.tensors.items():
            if tensor.is_floating_point() and not bool(torch.isfinite(held(tensor)).all()):
                return False, f"{name} is not finite"
        return True, ""
