"""Whether a run can be continued: nothing that its metrics say it has done may be missing, or be undone by a shorter goal."""

from __future__ import annotations

from headrace.buffer import manifest
from headrace.buffer.generations import is_pool
from headrace.buffer.snapshot import is_snapshot
from headrace.common.errors import ConfigError
from headrace.launch.config import RunConfig
from headrace.launch.rundir import RunDir, read_lines

ENV_STEPS, UPDATES = "run/env_steps", "learner/updates"


def require_resumable(run: RunDir, old: RunConfig, new: RunConfig) -> None:
    """Refuse to continue ``run`` where that would silently begin parts of it anew.

    A run that was stopped before its first checkpoint was due has none, and may be continued.

    Args:
        run: its directory.
        old: the config that it ran with.
        new: the config that it is to go on with.

    Raises:
        ConfigError: its checkpoints or its pool are gone, or it has done more env steps than ``new`` asks for.
    """
    records = read_lines(run.metrics)
    env_steps, updates = (max((_count(r.get(key)) for r in records), default=0) for key in (ENV_STEPS, UPDATES))
    goal = new.pacing.env_steps
    if 0 < goal < env_steps:
        raise ConfigError(
            f"pacing.env_steps: {goal} is below the {env_steps} that the run has done; nearest valid: {env_steps}"
        )
    saved = any(run.checkpoints.glob("step_*"))
    again = f"begin a new run: headrace train {run.config} --run.name NAME --init-from"
    due = old.learner.checkpoint_every_updates
    # Twice: a process may be killed while its first checkpoint is being written.
    if updates >= 2 * due and not saved:
        raise ConfigError(
            f"{run.checkpoints}: no checkpoint, but the run has made {updates} updates"
            f" (learner.checkpoint_every_updates {due}), so they were deleted or never written; put one back, or {again} POLICY"
        )
    places = dict.fromkeys([run.pool_dir(new.run.pool_dir), run.pool])
    # A synchronous run keeps its pool in its checkpoints, and says itself when one has none.
    gone = not any(map(is_pool, places)) and not is_snapshot(run.snapshots)
    if env_steps and old.run.mode == "async" and gone:
        raise ConfigError(
            f"the pool of this run is gone: no {manifest.NAME} in {' or '.join(map(str, places))}, and no snapshot of it in"
            f" {run.snapshots}, but the run has done"
            f" {env_steps} env steps; put it back, or {again} {run.path if saved else 'POLICY'}"
        )


def _count(value: object) -> int:
    return value if isinstance(value, int) else 0
