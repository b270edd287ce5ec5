"""The noise of decisions: the state of a generator as bytes, and one source for requests that are decided together.

A decision that is made elsewhere draws from the generator of whoever asks: its state travels with the request, and the one
behind the decision comes back. So nothing of it is kept elsewhere, and what is asked twice or lost draws nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import xor
from typing import Any

import numpy as np

from headrace.common.errors import WireError
from headrace.common.wire.messages import NOISE_BYTES

Array = np.ndarray[Any, Any]
WORD = 16  # bytes


def pack(rng: np.random.Generator) -> bytes:
    """The state of ``rng``, whose bits come from PCG64, as those of :func:`numpy.random.default_rng` do."""
    found = rng.bit_generator.state
    words = found["state"]["state"].to_bytes(WORD, "little") + found["state"]["inc"].to_bytes(WORD, "little")
    return bytes(words + found["has_uint32"].to_bytes(1, "little") + found["uinteger"].to_bytes(4, "little"))


def restore(rng: np.random.Generator, data: bytes) -> None:
    """Let ``rng`` go on from the state in ``data``.

    Raises:
        WireError: ``malformed``; it is as it was.
    """
    if len(data) != NOISE_BYTES or data[2 * WORD] > 1 or not data[WORD] & 1:
        raise WireError("malformed", "noise is not the state of a generator")
    state, inc = int.from_bytes(data[:WORD], "little"), int.from_bytes(data[WORD : 2 * WORD], "little")
    rng.bit_generator.state = {
        "bit_generator": "PCG64",
        "state": {"state": state, "inc": inc},
        "has_uint32": data[2 * WORD],
        "uinteger": int.from_bytes(data[2 * WORD + 1 :], "little"),
    }


def unpack(data: bytes) -> np.random.Generator:
    """A generator in the state in ``data``; raises as :func:`restore`."""
    rng = np.random.Generator(np.random.PCG64(0))
    restore(rng, data)
    return rng


class Joined(np.random.Generator):
    """What several requests draw from when one forward pass decides them all: each draws its own rows from its own generator.

    Only what policies call is here. A seed that is drawn for all of them is made of one seed of each.

    Args:
        parts: generator and rows of each request, in the order of the rows.
    """

    def __init__(self, parts: Sequence[tuple[np.random.Generator, int]]) -> None:
        super().__init__(parts[0][0].bit_generator)
        self._parts = parts

    def standard_normal(self, size: Any = None, dtype: Any = np.float64, out: Any = None) -> Any:
        """``size``, whose first axis is all rows."""
        return np.concatenate([rng.standard_normal((rows, *size[1:]), dtype) for rng, rows in self._parts])

    def integers(self, low: Any, *args: Any, **kwargs: Any) -> Any:
        """One number."""
        return reduce(xor, (int(rng.integers(low, *args, **kwargs)) for rng, _ in self._parts))
