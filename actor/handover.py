"""The handover: steps on their way from a control loop to the session's thread, in memory that was there before."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from headrace.common.errors import SpecError
from headrace.common.specs import SOURCE_POLICY, TransitionSpec
from headrace.common.weights import NO_VERSION, Version

Array = np.ndarray[Any, Any]
MAX_BYTES = 32 << 20
FEWEST, MOST = 16, 1024  # steps
_REAL_KINDS = frozenset("fiub")


@dataclass(frozen=True)
class Step:
    """What was executed, beside its action and the observation after it; the values are those of :meth:`Session.record`.

    ``decided`` says whether it was told what the policy wanted; of chunks, whether a decision begins with it.
    """

    reward: float
    terminated: bool
    truncated: bool
    version: Version = NO_VERSION
    source: int = SOURCE_POLICY
    health: int = 0
    action_age: float = 0.0
    decided: bool = False


@dataclass(frozen=True)
class Entry:
    """One entry: the step (none: an episode begins), and what it brought, valid until :meth:`Handover.done`.

    Attributes:
        step: the step, or none.
        obs: key -> ``(*shape)``, the first observation of an episode, or the one after the step.
        action: ``action.shape``, or ``(A,)`` of chunks; means nothing where an episode begins.
        planned: ``action.shape``, what was decided; means nothing where ``step.decided`` is false.
    """

    step: Step | None
    obs: dict[str, Array]
    action: Array
    planned: Array


class Handover:
    """A ring of steps between exactly two threads, one that puts and one that takes. Neither ever waits for the other: there
    is no lock, and no memory is asked for.

    Attributes:
        slots: steps that fit.
        put_count: entries that were put so far.
        taken_count: entries that were done with so far.

    Args:
        spec: of observations and actions.
        max_bytes: bound of the ring, which holds at least 16 steps and at most 1,024.
    """

    def __init__(self, spec: TransitionSpec, max_bytes: int = MAX_BYTES) -> None:
        self.slots = max(FEWEST, min(MOST, max_bytes // spec.frame_nbytes))
        self.put_count = self.taken_count = 0
        self._names = {o.key: f"obs[{o.key!r}]" for o in spec.obs}
        self._obs = {o.key: np.empty((self.slots, *o.shape), o.dtype) for o in spec.obs}
        chunks = spec.kind == "chunk"
        self._actions = np.empty((self.slots, *(spec.action.shape[-1:] if chunks else spec.action.shape)), "<f4")
        self._planned = np.empty((self.slots, *(spec.action.shape if chunks or spec.planned else (0,))), "<f4")
        for array in (*self._obs.values(), self._actions, self._planned):
            array.fill(0)  # the system gives memory when it is touched, which is not to happen while a robot moves
        self._steps: list[Step | None] = [None] * self.slots

    @property
    def is_full(self) -> bool:
        """Whether nothing can be put now."""
        return self.put_count - self.taken_count >= self.slots

    def put(self, step: Step | None, obs: Mapping[str, Any], action: Any = None, planned: Any = None) -> bool:
        """Copy a step, or with none the first observation of an episode; False when the ring is full.

        Raises:
            SpecError: an array is missing, or is not of the declared shape or kind; nothing was put.
        """
        if self.is_full:
            return False
        slot = self.put_count % self.slots
        for key, name in self._names.items():
            _copy(self._obs[key][slot], obs.get(key), name)
        if step is not None:
            _copy(self._actions[slot], action, "action")
            if step.decided:
                _copy(self._planned[slot], planned, "planned")
        self._steps[slot] = step
        self.put_count += 1  # last of all: from here on the entry is the other thread's
        return True

    def next(self) -> Entry | None:
        """The oldest entry, in place; none when there is none."""
        if self.taken_count == self.put_count:
            return None
        slot = self.taken_count % self.slots
        obs = {key: array[slot] for key, array in self._obs.items()}
        return Entry(self._steps[slot], obs, self._actions[slot], self._planned[slot])

    def done(self) -> None:
        """The oldest entry was used."""
        self.taken_count += 1


def _copy(place: Array, value: Any, name: str) -> None:
    if value is None:
        raise SpecError(f"{name}: missing; the spec declares {place.shape} of {place.dtype}")
    given = np.asarray(value)
    if given.shape != place.shape:
        raise SpecError(f"{name}: shape {given.shape}, the spec declares {place.shape}")
    if given.dtype != place.dtype and (
        given.dtype.kind not in _REAL_KINDS or not np.can_cast(given.dtype, place.dtype, "same_kind")
    ):
        raise SpecError(f"{name}: {given.dtype}, the spec declares {place.dtype}; convert it")
    place[...] = given
