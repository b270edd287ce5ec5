"""The report: what a learner tells of itself now and then. Nothing of it is computed, or waited for, in between."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from torch import Tensor

from headrace.common.weights import Version
from headrace.learner.sac import SAC

Array = np.ndarray[Any, Any]


class Report:
    """Puts a learner's numbers together for the metrics.

    Args:
        learner_id: whose policies' rows have an age.
        now: seconds.
        step: updates made before.
    """

    def __init__(self, learner_id: str, now: float, step: int) -> None:
        self._learner = np.uint64(Version(learner_id, 0, 0).learner_hash)
        self._since, self._step = now, step
        self._waited_s = 0.0

    def waited(self, seconds: float) -> None:
        """So long there was no batch to learn from."""
        self._waited_s += seconds

    def due(self, now: float, period_s: float) -> bool:
        """Whether ``period_s`` have passed since the last one."""
        return now - self._since >= period_s

    def values(self, now: float, sac: SAC, metrics: Mapping[str, Tensor], rows: Array | None) -> dict[str, Any]:
        """The numbers of this moment; rates and shares are over the time since the last call.

        Args:
            now: seconds.
            sac: its step, and the values of its last update.
            metrics: of the last update, () tensors.
            rows: ``(B,)`` of ``spec.row_dtype``, the batch of the last update.
        """
        elapsed, updates = now - self._since, sac.step - self._step
        out: dict[str, Any] = {name: float(value) for name, value in metrics.items()}
        if "actor/logprob_mean" in out:
            out["actor/entropy"] = -out["actor/logprob_mean"]
        if sac.q is not None:
            q = sac.q.detach().float().cpu().numpy()
            out |= {
                "critic/qvalue_min": float(q.min()),
                "critic/qvalue_max": float(q.max()),
                "critic/qvalue_std": float(q.std()),
            }
        if rows is not None:
            out |= self._age(rows, sac.step)
        out["learner/updates"] = sac.step
        out["learner/updates_s"] = round(updates / elapsed, 3) if elapsed > 0 else 0.0
        out["learner/waiting"] = round(min(1.0, self._waited_s / elapsed), 5) if elapsed > 0 else 0.0
        self._since, self._step, self._waited_s = now, sac.step, 0.0
        return out

    def _age(self, rows: Array, step: int) -> dict[str, float]:
        """How many updates ago the weights were made that acted; rows of random actions, people and others have no age."""
        acted = (rows["learner"] == self._learner) & (rows["learner_epoch"] > 0)
        if not acted.any():
            return {}
        ages = step - rows["learner_step"][acted].astype(np.int64)
        p50, p99 = np.percentile(ages, (50, 99))
        return {"data/age_updates_p50": float(p50), "data/age_updates_p99": float(p99)}
