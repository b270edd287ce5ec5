"""How rows are drawn: uniformly, without replacement inside one batch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from headrace.common.errors import ConfigError, PoolTooSmall

Array = np.ndarray[Any, Any]


class UniformSampler:
    """Draws ids; owns the generator that draws when the caller brings none."""

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng

    def draw(self, tail: int, head: int, batch_size: int, rng: np.random.Generator | None = None) -> Array:
        """``(batch_size,)`` distinct int64 ids of ``[tail, head)``, in random order.

        The generator's own choice is Floyd's algorithm for small shares of the rows, and a tail shuffle above one in
        fifty, so the cost follows the batch and not the pool.

        Raises:
            PoolTooSmall: fewer rows than ``batch_size`` are live.
        """
        if not 1 <= batch_size <= head - tail:
            raise PoolTooSmall(
                f"a batch of {batch_size} rows was asked of {head - tail} stored rows; fill the pool or ask for less"
            )
        ids = (self._rng if rng is None else rng).choice(head - tail, batch_size, replace=False)
        ids += tail
        return ids

    def get_state(self) -> dict[str, Any]:
        """The generator's state, as plain values that JSON can hold."""
        state: dict[str, Any] = _plain(self._rng.bit_generator.state)
        return state

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Take a state of :meth:`get_state`.

        Raises:
            ConfigError: it belongs to another kind of generator.
        """
        self.check_state(state)
        self._rng.bit_generator.state = state

    def check_state(self, state: Mapping[str, Any]) -> None:
        """Refuse what :meth:`set_state` would refuse."""
        ours = self._rng.bit_generator.state["bit_generator"]
        if state["bit_generator"] != ours:
            raise ConfigError(f"random state of a {state['bit_generator']} generator, the pool was given a {ours} one")

    def check_valid(self) -> tuple[bool, str]:
        """Always valid: any generator state draws."""
        return True, ""


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(v) for key, v in value.items()}
    return value.tolist() if isinstance(value, (np.ndarray, np.generic)) else value
