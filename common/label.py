"""A label: what is said about rows after they were sent, by their identity. An outcome, other rewards, or a discard."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np

from headrace.common.errors import LabelRefused
from headrace.common.specs import OUTCOME_FAILURE, OUTCOME_SUCCESS, OUTCOME_UNKNOWN, TransitionSpec

Array = np.ndarray[Any, Any]
MAX_REWARD_BYTES = 1 << 17  # of one label: it fits one message and the journal
MAX_SEQ = 1 << 48  # of any row: gaps add up in 63 bits
ANY_EPISODE = (1 << 64) - 1


class Kind(IntEnum):
    """What a label says."""

    OUTCOME = 1
    REWARDS = 2
    DISCARD = 3


# What people say of an episode, in a word: the kind of label, and the outcome where it is one.
VERDICTS = {
    "success": (Kind.OUTCOME, OUTCOME_SUCCESS),
    "failure": (Kind.OUTCOME, OUTCOME_FAILURE),
    "discard": (Kind.DISCARD, OUTCOME_UNKNOWN),
}


@dataclass(frozen=True)
class Label:
    """One statement about rows ``first .. last`` of one stream of an actor.

    Attributes:
        kind: what is said; the fields of other kinds are at their defaults.
        stream: the stream of the rows.
        first: seq of the first row.
        last: seq of the last row.
        outcome: ``OUTCOME_*``, of all the rows.
        rewards: ``(last - first + 1, K)`` float32 in place of the rows' own, zeros beyond each row's executed steps.
        episode: only rows of this episode are meant (lanes share a stream, so those of others lie between them).
    """

    kind: Kind
    stream: int
    first: int
    last: int
    outcome: int = 0
    rewards: Array | None = None
    episode: int = ANY_EPISODE

    @property
    def n_rows(self) -> int:
        """Rows that it names."""
        return self.last - self.first + 1

    @property
    def nbytes(self) -> int:
        """Bytes of the rewards."""
        return 0 if self.rewards is None else self.rewards.nbytes

    def check(self, spec: TransitionSpec) -> None:
        """Refuse what no row of ``spec`` could take.

        Raises:
            LabelRefused: with a countable reason: ``sequence``, ``outcome``, ``shape``, ``size`` or ``non-finite``.
        """
        if not 1 <= self.first <= self.last < MAX_SEQ:
            raise LabelRefused("sequence", f"rows {self.first} to {self.last}, expected 1 <= first <= last < 2**48")
        if not 0 <= self.outcome <= OUTCOME_FAILURE:
            raise LabelRefused("outcome", f"{self.outcome}, expected 0 (unknown), 1 (success) or 2 (failure)")
        if (self.rewards is not None) != (self.kind is Kind.REWARDS):
            raise LabelRefused(
                "shape", f"a label of kind {self.kind.name} {'with' if self.rewards is not None else 'without'} rewards"
            )
        if self.rewards is None:
            return
        if self.n_rows * spec.window * 4 > MAX_REWARD_BYTES:
            most = MAX_REWARD_BYTES // (4 * spec.window)
            raise LabelRefused("size", f"rewards of {self.n_rows} rows, at most {most} at once; amend them in parts")
        if self.rewards.shape != (self.n_rows, spec.window) or self.rewards.dtype != np.dtype("<f4"):
            found = f"{self.rewards.shape} {self.rewards.dtype}"
            raise LabelRefused("shape", f"rewards: {found}, expected ({self.n_rows}, {spec.window}) <f4")
        if not np.isfinite(self.rewards).all():
            raise LabelRefused("non-finite", "rewards hold NaN or infinity")
