"""The precision of products: which numbers networks multiply, and whether the device can."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from headrace.common.errors import ConfigError, SpecError
from headrace.learner.config import BF16, FP32

LOG = logging.getLogger(__name__)
DTYPES = {FP32: torch.float32, BF16: torch.bfloat16}
CPUINFO = Path("/proc/cpuinfo")
NATIVE = frozenset({"avx512_bf16", "amx_bf16", "bf16"})  # the last is what an ARM processor calls it
_SIDE, _TRIES = 256, 20  # of the products that are timed, a millisecond each on a slow core
_HALVES = (torch.bfloat16, torch.float16)


def multiplying(precision: str, device: torch.device) -> contextlib.AbstractContextManager[Any]:
    """Where networks of any torch code multiply so; nothing at all for float32."""
    return contextlib.nullcontext() if precision == FP32 else torch.autocast(device.type, DTYPES[precision])


def require_whole(name: str, tensor: Tensor) -> None:
    """Refuse a tensor of half precision where its digits count.

    Raises:
        SpecError: naming it and the mend.
    """
    if tensor.dtype in _HALVES:
        raise SpecError(
            f"{name} is {tensor.dtype}, which has three digits; make it of the .float() of what the network puts out"
        )


def require_native(precision: str, device: torch.device) -> None:
    """Refuse numbers that the device would only imitate, and so multiply more slowly than float32.

    Raises:
        ConfigError: naming the option and its nearest valid value.
    """
    if precision == BF16 and not is_native(device):
        where = "processor" if device.type == "cpu" else "device"
        raise ConfigError(
            f"learner.precision: {BF16}, but this {where} has no products of bfloat16 (on a CPU: {', '.join(sorted(NATIVE))}),"
            f" and would take longer than with float32; nearest valid: {FP32}"
        )


def warn_if_slower(precision: str, device: torch.device) -> None:
    """Say so where bfloat16 is the slower choice: a processor may multiply it itself, and at half of float32's rate."""
    if precision == BF16 and device.type == "cpu":
        times = slowdown()
        if times > 1:
            LOG.warning(
                "learner.precision: %s products take %.1f times as long as %s ones on this processor; %s is faster here",
                *(BF16, times, FP32, FP32),
            )


def slowdown(clock: Callable[[], float] = time.perf_counter) -> float:
    """How many times as long as one of float32 a product of bfloat16 takes here, the fastest of some of each."""
    best = {}
    for precision, dtype in DTYPES.items():
        factor, taken = torch.ones(_SIDE, _SIDE, dtype=dtype), []
        for _ in range(_TRIES):
            begun = clock()
            factor @ factor
            taken.append(clock() - begun)
        best[precision] = min(taken)
    return best[BF16] / best[FP32]


def is_native(device: torch.device) -> bool:
    """Whether the device multiplies bfloat16 itself."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    if device.type != "cpu":
        return True  # what else there is, torch knows better
    try:
        return not NATIVE.isdisjoint(CPUINFO.read_text(encoding="utf-8").split())
    except OSError:
        return False
