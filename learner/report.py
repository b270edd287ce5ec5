"""The report: what a learner tells of itself now and then. Nothing of it is computed, or waited for, in between."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from torch import Tensor

from headrace.common.batch import PINNED, Batch
from headrace.common.specs import OUTCOME_FAILURE, OUTCOME_SUCCESS
from headrace.common.weights import Version
from headrace.learner.row_clock import RowClock
from headrace.learner.sac import SAC

Array = np.ndarray[Any, Any]
MOST_TASKS = 16  # that are told apart, those with most rows in the batch
OUTCOMES = {"success": OUTCOME_SUCCESS, "failure": OUTCOME_FAILURE}


class Report:
    """Puts a learner's numbers together for the metrics.

    Args:
        learner_id: whose policies' rows have an age in updates.
        now: seconds.
        step: updates made before.
        roofline: updates a second of this machine's roofline; None where that is not known.
    """

    def __init__(self, learner_id: str, now: float, step: int, roofline: float | None = None) -> None:
        self._learner = np.uint64(Version(learner_id, 0, 0).learner_hash)
        self._since, self._step, self._roofline = now, step, roofline
        self._waited_s = 0.0
        self._committed = RowClock()

    def waited(self, seconds: float) -> None:
        """So long there was no batch to learn from."""
        self._waited_s += seconds

    def due(self, now: float, period_s: float) -> bool:
        """Whether ``period_s`` have passed since the last one."""
        return now - self._since >= period_s

    def values(
        self, now: float, sac: SAC, metrics: Mapping[str, Tensor], batch: Batch | None, rows_accepted: int | None = None
    ) -> dict[str, Any]:
        """The numbers of this moment; rates and shares are over the time since the last call.

        Args:
            now: seconds.
            sac: its step, and the values of its last update.
            metrics: of the last update, () tensors.
            batch: that of the last update.
            rows_accepted: rows that the pool had committed a moment ago, of all times; None while that is not known.
        """
        elapsed, updates = now - self._since, sac.step - self._step
        out: dict[str, Any] = {name: float(value) for name, value in metrics.items()}
        if "actor/logprob_mean" in out:
            out["actor/entropy"] = -out["actor/logprob_mean"]
        q = None if sac.q is None else sac.q.detach().float().cpu().numpy()
        known = np.zeros(0, np.bool_) if q is None else np.isfinite(q).all(axis=1)
        if q is not None and known.any():
            q = q[known]
        if q is not None:
            out = _spread("critic/qvalue", q) | out  # whose mean is that of all ranks
        if rows_accepted is not None:
            self._committed.note(rows_accepted, now)
        if batch is not None:
            out |= self._age_updates(batch.rows, sac.step)
            if rows_accepted is not None:
                out |= self._age(batch, now, rows_accepted, sac.model.spec.fresh_steps(batch.rows) / len(batch))
            if q is not None:
                rows = batch.rows[known] if known.any() else batch.rows
                out |= _by_outcome(rows, q) | _by_task(rows, q)
        out["learner/updates"] = sac.step
        out["learner/updates_s"] = round(updates / elapsed, 3) if elapsed > 0 else 0.0
        if self._roofline is not None:
            out["learner/roofline_share"] = round(out["learner/updates_s"] / self._roofline, 5)
        out["learner/waiting"] = round(min(1.0, self._waited_s / elapsed), 5) if elapsed > 0 else 0.0
        self._since, self._step, self._waited_s = now, sac.step, 0.0
        return out

    def _age_updates(self, rows: Array, step: int) -> dict[str, float]:
        """How many updates ago the weights were made that acted; rows of random actions, people and others have no age."""
        acted = (rows["learner"] == self._learner) & (rows["learner_epoch"] > 0)
        return _percentiles("data/age_updates", step - rows["learner_step"][acted].astype(np.int64))

    def _age(self, batch: Batch, now: float, rows_accepted: int, steps: float) -> dict[str, float]:
        """How long ago rows of the ring were committed, in seconds and in env steps, of which each row has ``steps``."""
        ids = batch.ids[batch.ids < PINNED]
        ages = np.maximum(0, rows_accepted - 1 - ids) * steps
        return _percentiles("data/age_s", self._committed.age(ids, now)) | _percentiles("data/age_env_steps", ages)


def _percentiles(name: str, values: Array) -> dict[str, float]:
    if not len(values):
        return {}
    p50, p99 = np.percentile(values, (50, 99))
    return {f"{name}_p50": float(p50), f"{name}_p99": float(p99)}


def _spread(name: str, q: Array) -> dict[str, float]:
    numbers = {"mean": q.mean(), "min": q.min(), "max": q.max(), "std": q.std()}
    return {f"{name}_{what}": float(number) for what, number in numbers.items()}


def _by_outcome(rows: Array, q: Array) -> dict[str, float]:
    """Values of the rows whose episode has ended in success, or in failure, and what part of the batch these are."""
    out: dict[str, float] = {}
    for name, outcome in OUTCOMES.items():
        of = rows["outcome"] == outcome
        if of.any():
            out |= {f"data/{name}_share": float(of.mean()), **_spread(f"critic/qvalue_{name}", q[of])}
    return out


def _by_task(rows: Array, q: Array) -> dict[str, float]:
    """The mean value of each task's rows; nothing where every row is of task 0, as where there are no tasks."""
    tasks, counts = np.unique(rows["task"], return_counts=True)
    if not tasks.any():
        return {}
    most = tasks[np.argsort(-counts, kind="stable")[:MOST_TASKS]]
    return {f"critic/qvalue_task_{task}_mean": float(q[rows["task"] == task].mean()) for task in most.tolist()}
