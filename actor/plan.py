"""The plan: the chunk of actions that a loop of one's own executes, aligned by the steps that it has executed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from headrace.common.errors import EnvError, SpecError
from headrace.common.specs import SOURCE_HUMAN, TransitionSpec

Array = np.ndarray[Any, Any]


class Plan:
    """Which action of which decision is next, and with which step a row begins.

    A chunk is executed to its end without looking, unless the episode ends or a human acts. A human's step goes on with the row
    that runs; behind it the policy decides anew.

    Args:
        spec: of rows that are chunks.

    Raises:
        SpecError: its actions are none.
    """

    def __init__(self, spec: TransitionSpec) -> None:
        shape = spec.action.shape
        if len(shape) != 2 or shape[0] != spec.window:
            raise SpecError(f"spec.action.shape: {shape}, expected ({spec.window}, A) where a row is a chunk of {spec.window}")
        self._window = spec.window
        self._chunk: Array | None = None
        self._done = 0  # steps of it that were executed
        self._row = 0  # steps of the row that runs

    def restart(self) -> None:
        """An episode begins: nothing that was planned before is executed in it."""
        self._chunk, self._done, self._row = None, 0, 0

    def next(self, decide: Callable[[], Array]) -> Array:
        """The next action, ``(A,)``; the same one until a step is recorded.

        Args:
            decide: gives a chunk, ``(window, A)``, where one is due.
        """
        if self._chunk is None:
            self._chunk, self._done = decide(), 0
        action: Array = self._chunk[self._done]
        return action

    def beginning(self, source: int, planned: Any) -> Any:
        """The decision, ``(window, A)``, that begins with the next step; none where that goes on with the one that runs.

        Args:
            source: who acts in it.
            planned: a decision of the loop's own; none: that of :meth:`next`.

        Raises:
            EnvError: there is none, and none runs that it could go on with.
        """
        goes_on = 0 < self._row < self._window
        if source == SOURCE_HUMAN and goes_on:
            return None
        found = planned if planned is not None else self._chunk if self._done == 0 else None
        if found is None and not goes_on:
            raise EnvError(
                f"record(): {self._row} steps of a chunk of {self._window} were recorded, so that this one needs a decision;"
                " call act(obs) before each step, also while a human acts, or give planned= with the first step of each chunk"
            )
        return found

    def executed(self, source: int, *, began: bool, own: bool) -> None:
        """A step was recorded; with it a decision ``began``, or not, and that was the loop's ``own``, or not."""
        self._row = 1 if began else self._row + 1
        self._done += 1
        if own or source == SOURCE_HUMAN or self._done == self._window:
            self._chunk = None
