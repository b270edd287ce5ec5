"""The pool's generator: draws when a caller brings none of its own, and its state as plain values."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from headrace.common.errors import ConfigError


class RandomSource:
    """Shared by all samplers of one pool, so that one state says what they draw next."""

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng, self._pid = rng, os.getpid()

    def pick(self, rng: np.random.Generator | None) -> np.random.Generator:
        """The caller's generator if there is one, else the pool's.

        A forked process, such as a loader's worker, would draw what its parent and its siblings draw: it gets one of its own.
        """
        if rng is not None:
            return rng
        if self._pid != os.getpid():
            self._pid = os.getpid()
            seed = [self._pid, int(self._rng.integers(1 << 63))]
            self._rng = np.random.Generator(type(self._rng.bit_generator)(seed))
        return self._rng

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
