"""Micro-batches: what one step finds, summed up over parts of its rows that are judged one after another.

Networks then need memory for the rows of a part, and the step is still that of the whole batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass, replace
from itertools import pairwise
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from headrace.common.errors import ConfigError, SpecError
from headrace.learner.config import LearnerConfig
from headrace.learner.sample import Sample

Found = TypeVar("Found")
_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)


def parts_of(config: LearnerConfig, model: nn.Module) -> int:
    """In how many parts each batch is judged; all ranks have the same.

    Raises:
        ConfigError: the model's batch norm would take its statistics of a part.
    """
    rows = config.micro_batch_size
    if rows is None:
        return 1
    parts = -(-config.batch_size // rows)
    norm = next((name for name, module in model.named_modules() if isinstance(module, _NORMS)), None)
    if parts > 1 and norm is not None:
        raise ConfigError(
            f"learner.micro_batch_size: {rows} of {config.batch_size} rows, but {norm} of the model is batch norm, whose"
            " statistics are of all rows that are judged at once; nearest valid: none"
        )
    return parts


def split(sample: Sample, parts: int) -> list[tuple[Sample, float]]:
    """Consecutive parts, as equal as can be, each with its share of the rows.

    Raises:
        SpecError: there are fewer rows than parts.
    """
    rows = len(sample.reward)
    if rows < parts:
        raise SpecError(f"batch: {rows} rows for {parts} micro-batches; learner.batch_size promises more")
    edges = [i * rows // parts for i in range(parts + 1)]
    return [
        (replace(sample, **{f.name: _rows(getattr(sample, f.name), low, high) for f in fields(sample)}), (high - low) / rows)
        for low, high in pairwise(edges)
    ]


def blank(sample: Sample) -> Sample:
    """As many rows of zeros."""

    def zeros(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {key: zeros(column) for key, column in value.items()}
        return torch.zeros_like(value) if isinstance(value, Tensor) else value

    return replace(sample, **{f.name: zeros(getattr(sample, f.name)) for f in fields(sample)})


def joined(found: Iterable[tuple[Found, float]], *, sums: bool = False) -> Found:
    """What a step finds over all rows, of what it finds in each part and the part's share of them.

    () tensors are means over rows and weighed by the shares, as are lists, which are gradients; other tensors have a number or
    more a row and are put one behind the other. Dataclasses and tuples hold any of these, or None.

    Args:
        found: parts in order.
        sums: gradients are no means but sums over rows, and simply added.
    """
    total: Any = None
    for part, share in found:
        total = _add(total, part, share, 1.0 if sums else share)
    return total  # type: ignore[no-any-return]  # of what went in


def _rows(value: Any, low: int, high: int) -> Any:
    if isinstance(value, Mapping):
        return {key: column[low:high] for key, column in value.items()}
    return value[low:high] if isinstance(value, Tensor) and value.dim() else value


def _add(before: Any, value: Any, share: float, of_gradients: float) -> Any:
    if value is None:
        return None
    if isinstance(value, tuple):
        return tuple(_add(None if before is None else before[i], each, share, of_gradients) for i, each in enumerate(value))
    if is_dataclass(value) and not isinstance(value, type):
        each = [(f.name, None if before is None else getattr(before, f.name), getattr(value, f.name)) for f in fields(value)]
        return replace(value, **{name: _add(old, new, share, of_gradients) for name, old, new in each})
    if isinstance(value, list):
        if before is None:
            return [each * of_gradients for each in value]  # of its own: passes by hand write over theirs
        torch._foreach_add_(before, value, alpha=of_gradients)
        return before
    if value.dim():
        return value if before is None else torch.cat((before, value))
    return value * share if before is None else before + value * share
