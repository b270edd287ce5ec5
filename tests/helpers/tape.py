"""A tape: stands in for a GPU that records kernels, on a processor. What it cannot tell is what a GPU's own kernels do."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

ATEN = torch.ops.aten
WAITS = {  # on a GPU the processor would wait for these, or they come from it, which a graph cannot hold
    *(ATEN._local_scalar_dense.default, ATEN.nonzero.default, ATEN.lift_fresh.default, ATEN.masked_select.default),
}


class Tape(TorchDispatchMode):
    """Notes every kernel with the memory that it reads and writes, and runs them again on that memory, without any Python.

    So a tensor that is bound anew where it should be written in place stays what it was, as in a CUDA graph.

    Attributes:
        kernels: what was noted, views left out.
    """

    def __init__(self):
        super().__init__()
        self.kernels = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func in WAITS:
            raise RuntimeError(f"operation not permitted when stream is capturing: {func}")
        out = func(*args, **(kwargs or {}))
        if not func.is_view:
            self.kernels.append((func, args, kwargs or {}, out))
        return out

    @torch.inference_mode()
    def replay(self):
        for func, args, kwargs, out in self.kernels:
            again = func(*args, **kwargs)
            for place, made in zip(tensors(out), tensors(again), strict=True):
                if place.data_ptr() != made.data_ptr():
                    place.copy_(made)


class TapeRecorder:
    """Records on tapes.

    Attributes:
        tapes: that were made.
        replayed: how often one of them ran.
    """

    def __init__(self):
        self.tapes, self.replayed = [], 0

    def record(self, make, generator):
        make()
        tape = Tape()
        with tape:
            made = make()
        self.tapes.append(tape)

        def replay():
            self.replayed += 1
            tape.replay()

        return replay, made

    def wait(self):
        """A processor has done what it was told."""


def tensors(tree):
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)]
