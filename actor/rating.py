"""Rating: what an actor says of its own rows before any learner has seen them (Horgan et al., arXiv:1803.00933, section 3)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from headrace.common.block import Block
from headrace.common.errors import ConfigError
from headrace.common.naming import resolve

Rate = Callable[[Block], Any]


def find_rate(name: str) -> Rate | None:
    """The function that ``actor.priorities`` names; none for an empty name.

    Raises:
        ConfigError: it cannot be imported, or is no function.
    """
    if not name:
        return None
    rate: Rate = resolve(name, "actor.priorities")
    return rate


def rated(block: Block, rate: Rate) -> Block:
    """The block with the priorities that ``rate`` gives its rows, ``(n,)``; as it is when that gives none.

    Raises:
        ConfigError: they are not one number for each row.
    """
    given = rate(block)
    if given is None:
        return block
    priorities = np.asarray(given)
    if priorities.shape != (block.n_rows,) or priorities.dtype.kind not in "fiu":
        raise ConfigError(
            f"actor.priorities: {priorities.shape} of {priorities.dtype} for a block of {block.n_rows} rows, expected"
            f" ({block.n_rows},) numbers"
        )
    return replace(block, priorities=priorities.astype("<f4"))
