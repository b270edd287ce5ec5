"""What people see of a synchronous run: the same status and metrics that a buffer gives of an asynchronous one."""

from __future__ import annotations

import os
import socket
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from headrace.buffer.pacing import Pacing
from headrace.buffer.pool import SACReplayPool
from headrace.buffer.status import EVALUATIONS_KEPT, RETURNS_KEPT, set_metrics
from headrace.common.clock import Clock
from headrace.common.metrics import RateWindow, process_memory
from headrace.launch.sync_actor import Episode, SyncActor


class SyncWatch:
    """Collects what happens; decides nothing.

    Args:
        run_id: identity of the run.
        clock: for rates and ages.
    """

    def __init__(self, run_id: str, clock: Clock) -> None:
        self._run_id, self._clock, self._since = run_id, clock, clock.now()
        self._env_rate, self._update_rate = RateWindow(), RateWindow()
        self._returns: deque[float] = deque(maxlen=RETURNS_KEPT)
        self._evaluations: deque[dict[str, Any]] = deque(maxlen=EVALUATIONS_KEPT)
        self._episodes = 0

    def episodes(self, ended: Sequence[Episode]) -> None:
        """Training episodes ended."""
        self._episodes += len(ended)
        self._returns.extend(total for total, _ in ended if np.isfinite(total))

    def evaluation(self, verdict: Mapping[str, Any]) -> None:
        """A finished evaluation, see :meth:`headrace.actor.evaluate.EvalResult.verdict`."""
        self._evaluations.append(dict(verdict))

    def observe(self, pacing: Pacing) -> None:
        """Note the counters for the rates."""
        now = self._clock.now()
        self._env_rate.add(pacing.env_steps, now)
        self._update_rate.add(pacing.updates + pacing.offline_updates, now)

    def summary(self, pacing: Pacing, pool: SACReplayPool) -> dict[str, Any]:
        """The part that goes into the run's metrics."""
        return {
            "env_steps": pacing.env_steps,
            "updates": pacing.updates + pacing.offline_updates,
            "offline_updates": pacing.offline_updates,
            "env_steps_s": round(self._env_rate.per_second(), 2),
            "updates_s": round(self._update_rate.per_second(), 2),
            "achieved_ratio": round(pacing.achieved_ratio, 5),
            "ratio_alarm": int(bool(pacing.alarm)),
            "rows_accepted": pool.counters()["rows_accepted"],
            "pool_rows": pool.size,
            **set_metrics(pool.sampling_info()),
            "episodes": self._episodes,
            "return_mean": float(np.mean(self._returns)) if self._returns else None,
            "policy_lag_updates": 0,
            "policy_age_s": 0.0,
            "evaluations": len(self._evaluations),
            "evaluation": self._evaluations[-1] if self._evaluations else None,
        }

    def status(self, pacing: Pacing, pool: SACReplayPool, actors: Sequence[SyncActor], done: bool) -> dict[str, Any]:
        """The whole status; every value is plain JSON."""
        summary, config = self.summary(pacing, pool), pacing.config
        kept: tuple[str, ...] = ("env_steps", "updates", "offline_updates", "achieved_ratio")
        kept += (
            "episodes",
            "return_mean",
            "policy_lag_updates",
            "policy_age_s",
        )
        phase = "done" if done else "offline" if pacing.offline else "training" if pacing.owed else "filling"
        filling = f"filling: {pacing.env_steps} of {config.min_fill} env steps before the first update"
        here = {"host": socket.gethostname(), "pid": os.getpid(), "lag_updates": 0, "age_s": 0.0, "silent_s": 0.0}
        return {
            "run": self._run_id,
            "phase": phase,
            "uptime_s": round(self._clock.now() - self._since, 3),
            **{name: summary[name] for name in kept},
            "env_steps_goal": config.env_steps,
            "updates_owed": config.offline_updates + pacing.owed,
            "offline_updates_goal": config.offline_updates,
            "rates": {name: summary[name] for name in ("env_steps_s", "updates_s")},
            "target_ratio": config.ratio,
            "pool": {"rows": pool.size, **pool.info()},
            "actors": [_told(actor) | here for actor in actors],
            "evaluations": list(self._evaluations)[-50:],
            "counters": pool.counters(),
            "memory": process_memory(),
            "sampling": pool.sampling_info(),
            "waiting": ([filling] if phase == "filling" else []) + ([pool.waiting] if pool.waiting and not done else []),
            "warnings": [pacing.alarm] if pacing.alarm else [],
        }

    def get_state(self) -> dict[str, Any]:
        """Returns and evaluations so far."""
        return {"episodes": self._episodes, "returns": list(self._returns), "evaluations": list(self._evaluations)}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Continue from :meth:`get_state`."""
        self._episodes = int(state["episodes"])
        self._returns.extend(state["returns"])
        self._evaluations.extend(state["evaluations"])

    def check_valid(self) -> tuple[bool, str]:
        """Whether every return kept belongs to an episode counted."""
        few = self._episodes < len(self._returns)
        return not few, f"{len(self._returns)} returns of {self._episodes} episodes" if few else ""


def _told(actor: SyncActor) -> dict[str, Any]:
    return {"id": actor.name, "executed": actor.executed, "epsilon": round(actor.epsilon, 6)}
