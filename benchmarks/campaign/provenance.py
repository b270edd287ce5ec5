"""What a result depends on beside its settings: commit, date, processor and versions; no host name and no path."""

from __future__ import annotations

import platform
import subprocess
import time
from typing import Any

from campaign.records import ROOT
from headrace.common.cores import usable_cores
from headrace.launch.machine import cpu_model, version_of

VERSIONS = ("torch", "numpy", "gymnasium", "mujoco")
GIT_S = 30.0


def machine() -> dict[str, Any]:
    """Processor, cores that this process may use, and the versions that decide numbers."""
    versions = {name: version_of(name) for name in VERSIONS}
    return {"cpu": cpu_model(), "cores": usable_cores(), "python": platform.python_version(), **versions}


def commit() -> dict[str, Any]:
    """``commit`` and whether files other than results differ from it (``dirty``); ``-`` outside of a checkout."""
    try:
        head = _git("rev-parse", "--short=12", "HEAD").strip()
        changed = _git("status", "--porcelain", "--", ".", ":(exclude)docs/results").strip()
    except (OSError, subprocess.SubprocessError):
        return {"commit": "-", "dirty": True}
    return {"commit": head, "dirty": bool(changed)}


def stamp(seconds: float | None = None) -> str:
    """``seconds`` since the epoch (none: now) as UTC, to the second."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def _git(*words: str) -> str:
    command = ["git", "-C", str(ROOT), *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=GIT_S, check=True).stdout
