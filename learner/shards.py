"""Shards: what a rank holds of a tensor whose rows are divided over the ranks of a group; of any other it holds all.

A shard is a ``DTensor`` of torch. Nothing here names the class, whose import takes as long as that of torch's optimisers: a
learner that divides nothing shall not wait for it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


@torch.no_grad()
def held(tensor: Any) -> Tensor:
    """The rows that this rank holds, maybe none, in their own memory."""
    found: Tensor = tensor.to_local() if _is_shard(tensor) else tensor
    return found


@torch.no_grad()
def gathered(tensor: Any) -> Tensor:
    """All rows; of a shard all ranks have to ask together."""
    found: Tensor = tensor.full_tensor() if _is_shard(tensor) else tensor
    return found


def cut(tensor: Tensor, like: Any) -> Tensor:
    """Of a tensor that is whole, the rows that this rank holds where they are divided as those of ``like``."""
    if not _is_shard(like):
        return tensor
    mesh = like.device_mesh
    each = -(-len(like) // mesh.size())  # the last ranks may hold fewer, or none
    first = mesh.get_local_rank() * each
    return tensor[first : first + each]


def _is_shard(tensor: Any) -> bool:
    return hasattr(tensor, "full_tensor")
