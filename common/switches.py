"""Switches: dimensions of an action that are one of two ends and nothing between, such as a gripper that opens or closes."""

from __future__ import annotations

import math
from collections.abc import Sequence

from headrace.common.errors import SpecError
from headrace.common.specs import ActionSpec

MOST = 4  # of a decision: the actor's loss is a sum over all 2^4 ways of setting them


def switch_places(action: ActionSpec, switches: Sequence[int], name: str = "model.options.switches") -> tuple[int, ...]:
    """Where switches lie among the D numbers of a decision; in a chunk they are in each of its actions.

    Args:
        action: of a row.
        switches: dimensions of the action of one env step.
        name: what is blamed.

    Raises:
        SpecError: naming a dimension that is none, or one that is named twice, or how many are too many.
    """
    for dim in switches:
        if not 0 <= dim < action.dim:
            raise SpecError(f"{name}: {dim} is no dimension of an action of {action.dim}; nearest valid: {action.dim - 1}")
    if len(set(switches)) < len(switches):
        raise SpecError(f"{name}: {list(switches)} names a dimension twice; nearest valid: {sorted(set(switches))}")
    steps = math.prod(action.shape) // action.dim
    places = tuple(step * action.dim + dim for step in range(steps) for dim in sorted(switches))
    if len(places) > MOST:
        raise SpecError(
            f"{name}: {len(switches)} in each of {steps} env steps of a decision, {len(places)} in all, but the actor's loss is"
            f" a sum over all ways of setting them, of at most {MOST}; nearest valid: {MOST // steps} of them"
        )
    return places
