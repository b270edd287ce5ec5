"""``headrace status``: ask a running buffer and show what it says, once, live, or as JSON."""

from __future__ import annotations

import json
import time
from pathlib import Path

from headrace.buffer.query import Observer
from headrace.common.clock import MonotonicClock
from headrace.common.errors import ConfigError, DeadlineExceeded
from headrace.launch.progress import LINE_EVERY_S, Progress, text
from headrace.launch.rundir import RunDir

REFRESH_S = 1.0
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
        state = f"its result is in {run.result}" if run.result.exists() else "it is not running now"
        raise ConfigError(f"{target}: no buffer listens for this run; {state}")
    return run.endpoint.read_text().strip()


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


def show(endpoint: str, *, as_json: bool, once: bool, deadline_s: float) -> int:
    """Print the status of the buffer at ``endpoint``.

    Raises:
        DeadlineExceeded: it does not answer within ``deadline_s``.
    """
    from rich.console import Console

    console = Console()
    observer = Observer(endpoint)
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
