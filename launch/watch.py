"""``headrace status``: ask a running buffer and show what it says, once, live, or as JSON."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from headrace.buffer.query import Observer
from headrace.common.clock import MonotonicClock
from headrace.common.errors import ConfigError, DeadlineExceeded
from headrace.common.wire.network import NetworkConfig
from headrace.launch.config import read_config
from headrace.launch.progress import LINE_EVERY_S, Progress, text
from headrace.launch.rundir import RunDir, read_lines

REFRESH_S = 1.0
TOLD = ("env_steps", "updates", "offline_updates", "achieved_ratio", "episodes", "return_mean")
OVER = ("finishing", "done", "stopping")  # phases after which a buffer leaves


def endpoint_of(target: str) -> str:
    """The endpoint that TARGET names: itself, or that of a run which is going on.

    Raises:
        ConfigError: the run does not run now, or TARGET is neither.
    """
    if "://" in target:
        return target
    run = RunDir.open(Path(target))
    if not run.endpoint.exists():
        holder = run.holder
        state = f"its result is in {run.result}" if run.result.exists() else "it is not running now"
        state = f"pid {holder} supervises it" if holder else state
        why = "a synchronous run has no buffer" if _is_synchronous(run) else "no buffer listens for this run"
        raise ConfigError(f"{target}: {why}; {state}")
    return run.endpoint.read_text().strip()


def synchronous_status(target: str) -> dict[str, Any] | None:
    """The status of a synchronous run that is going on, as far as its metrics tell it; none for any other TARGET.

    Raises:
        ConfigError: TARGET is no run.
    """
    if "://" in target:
        return None
    run = RunDir.open(Path(target))
    holder = run.holder
    if not holder or not _is_synchronous(run):
        return None
    lines = [line for line in read_lines(run.metrics) if "run/env_steps" in line]
    told = {key.removeprefix("run/"): value for key, value in lines[-1].items()} if lines else {}
    pacing = read_config(run.config).get("pacing") or {}
    return {
        "run": run.run_id,
        "phase": "training" if lines else "starting",
        "mode": "sync",
        "pid": int(holder),
        **{name: told[name] for name in TOLD if name in told},
        "env_steps_goal": pacing.get("env_steps", 0),
        "offline_updates_goal": pacing.get("offline_updates", 0),
        "target_ratio": pacing.get("ratio", 0.0),
        "rates": {name: told.get(name, 0.0) for name in ("env_steps_s", "updates_s")},
        "pool": {"rows": told.get("pool_rows", 0)},
        "evaluations": [told["evaluation"]] if told.get("evaluation") else [],
    }


def _is_synchronous(run: RunDir) -> bool:
    return (read_config(run.config).get("run") or {}).get("mode") == "sync"


def show_synchronous(status: dict[str, Any], *, as_json: bool) -> int:
    """Print a :func:`synchronous_status`, once: it is as new as the last line of the metrics."""
    if as_json:
        print(json.dumps(status, indent=2))
        return 0
    print(f"a synchronous run, of pid {status['pid']}; this is what its metrics told last")
    print(text(status))
    return 0


def newest_run(parent: Path) -> str:
    """The run in ``parent``, or in a directory of runs there as ``train --seeds`` makes it, that was begun last.

    Raises:
        ConfigError: there is none.
    """
    found = [*parent.glob("*/config.yaml"), *parent.glob("*/*/config.yaml")]
    runs = sorted(found, key=lambda p: p.stat().st_mtime)
    if not runs:
        raise ConfigError(f"no run in {parent}/; say which: headrace status RUN or headrace status tcp://HOST:PORT")
    return str(runs[-1].parent)


def show(endpoint: str, network: NetworkConfig, *, as_json: bool, once: bool, deadline_s: float) -> int:
    """Print the status of the buffer at ``endpoint``.

    Raises:
        ConfigError: ``network`` holds no key for it.
        DeadlineExceeded: it does not answer within ``deadline_s``.
    """
    from rich.console import Console

    console = Console()
    observer = Observer(endpoint, network)
    progress = Progress(console, endpoint, MonotonicClock())
    try:
        status = observer.status(deadline_s)
        if as_json:
            print(json.dumps(status, indent=2))
            return 0
        if once:
            print(text(status))
            return 0
        while True:
            progress.update(status)
            time.sleep(REFRESH_S if console.is_terminal else LINE_EVERY_S)
            try:
                status = observer.status(deadline_s)
            except DeadlineExceeded:
                if status["phase"] not in OVER:
                    raise
                print("the run is over")
                return 0
    finally:
        progress.close()
        observer.close()
