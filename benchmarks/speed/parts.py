"""Where the time of an update goes: timed calls, added up by part, and its matrix products run again alone."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from statistics import median
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from headrace.learner.sac import SAC

REPLAYS = 60
_PRODUCTS = (torch.ops.aten.mm, torch.ops.aten.addmm)


class Stopwatch:
    """Adds up the wall time of methods by part.

    Attributes:
        seconds: of each part.
        calls: likewise.
    """

    def __init__(self) -> None:
        self.seconds: Counter[str] = Counter()
        self.calls: Counter[str] = Counter()

    def time(self, part: str, owner: Any, name: str) -> None:
        """Count the method ``name`` of ``owner`` as ``part`` from now on."""
        call = getattr(owner, name)

        def timed(*args: Any, **kwargs: Any) -> Any:
            start = time.perf_counter()
            try:
                return call(*args, **kwargs)
            finally:
                self.seconds[part] += time.perf_counter() - start
                self.calls[part] += 1

        setattr(owner, name, timed)

    def time_parts(self, sac: SAC) -> None:
        """Count what an update consists of; the three steps of the model are ``passes``."""
        for name in ("prepare", "augment"):
            self.time("sample", sac, name)
        for name in ("sac_next_values", "sac_critic_gradients", "sac_actor_gradients"):
            self.time("passes", sac.model, name)
        for owner, name in (
            (sac.critic_optimizer, "step"),
            (sac.actor_optimizer, "step"),
            (sac.temperature, "update"),
            (sac, "update_target_network"),
        ):
            self.time("optimisers", owner, name)

    def milliseconds(self, products: float) -> dict[str, float]:
        """Of one update, by part; ``products`` of them are matrix products, and the rest of the passes is told apart."""
        updates = max(1, self.calls["update"])
        each = {part: 1000 * seconds / updates for part, seconds in self.seconds.items()}
        whole, passes = each.pop("update"), each.pop("passes")
        out = {"update": whole, "products": products, "rest of the passes": passes - products, **each}
        out["all else"] = whole - passes - sum(each.values())
        return {part: round(value, 4) for part, value in out.items()}


class _Products(TorchDispatchMode):
    """Notes the matrix products of what runs under it."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Callable[[], Any]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func.overloadpacket in _PRODUCTS:
            self.calls.append(lambda: func(*args, **kwargs))
        return func(*args, **kwargs)


def products_of(update: Callable[[], object]) -> float:
    """Milliseconds of the matrix products that ``update`` makes in this process, one after the other and nothing in between."""
    with _Products() as found:
        update()
    times = []
    with torch.inference_mode():
        for _ in range(REPLAYS):
            start = time.perf_counter()
            for call in found.calls:
                call()
            times.append(time.perf_counter() - start)
    return 1000 * median(times)
