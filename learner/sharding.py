"""The sharding of a model: each rank of a group holds some rows of every parameter, and all of one only while it is needed.

By FSDP2 (``fully_shard``), Zhao et al., PyTorch FSDP, arXiv:2304.11277.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method

from headrace.common.errors import ConfigError
from headrace.learner.shards import held


class Sharding:
    """Divides a model, and gets its gradients.

    Attributes:
        rows: of this rank, over which the next loss is a mean; 0 where they do not count.

    Args:
        model: divided in place; its optimisers and whatever else holds parameters have to be made anew.
        units: its modules whose parameters are gathered together, inner ones first; what is in none is gathered as one more.
        passes: methods of the model, beside ``forward``, that run networks.
        size: ranks of the group.

    Raises:
        ConfigError: a parameter has no rows to divide.
    """

    def __init__(self, model: nn.Module, units: Sequence[nn.Module], passes: Sequence[str], size: int) -> None:
        self._model, self._inside, self.rows = model, False, 0
        parameters = dict(model.named_parameters())
        single = next((name for name, p in parameters.items() if p.dim() == 0), None)
        if single is not None:
            raise ConfigError(
                f"learner.strategy: sharded, but {single} of the model is a single number and has no rows to divide; give it"
                " shape (1,), or take strategy replicated"
            )
        mesh = init_device_mesh(next(iter(parameters.values())).device.type, (size,))
        for module in (*units, model):
            # By default the outermost module keeps what it gathered, which without a backward pass would outlive the next step.
            unit = fully_shard(module, mesh=mesh, reshard_after_forward=True)
            unit.set_gradient_divide_factor(1.0)  # sums: rows are counted here, and not alike for all ranks
            unit.set_force_sum_reduction_for_comms(True)  # gloo has no premultiplied sum
        for name in passes:
            self._hook(name)

    def gradients(self, loss: Tensor, parameters: Sequence[nn.Parameter]) -> list[Tensor | None]:
        """For each parameter this rank's rows of the sum over ranks of ``rows`` times d ``loss`` / d parameter.

        None where the loss does not reach. FSDP2 knows plain ``backward()`` alone: with ``inputs=`` it leaves the gradients of
        units inside units None without a word, and ``autograd.grad`` raises. Other parts thus get gradients too, and lose them.
        """
        (loss * self.rows).backward()  # type: ignore[no-untyped-call]  # torch has no types there
        found = [None if p.grad is None else held(p.grad) for p in parameters]
        for p in self._model.parameters():
            p.grad = None
        return found

    def _hook(self, name: str) -> None:
        """Gather around a method too; a method that another one calls finds all gathered already."""
        plain = getattr(self._model, name)
        register_fsdp_forward_method(self._model, name)
        gathering = getattr(self._model, name)

        @functools.wraps(plain)
        def call(*args: Any, **options: Any) -> Any:
            if self._inside:
                return plain(*args, **options)
            self._inside = True
            try:
                return gathering(*args, **options)
            finally:
                self._inside = False

        setattr(self._model, name, call)


def units_of(model: nn.Module) -> list[nn.Module]:
    """The largest modules inside a model that are called as they are, those of lists and dictionaries of modules one by one."""
    found: list[nn.Module] = []
    for child in model.children():
        found += units_of(child) if isinstance(child, (nn.ModuleList, nn.ModuleDict)) else [child]
    return found
