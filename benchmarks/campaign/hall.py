"""A hall: one buffer and a crowd of actors, measured in windows."""

from __future__ import annotations

import contextlib
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from speed.children import Child

from campaign import records
from campaign.footprint import counted

sys.path.append(str(records.ROOT / "tests"))
from helpers.roles import Roles, roles, scripted  # a script has not the path that pytest has

PROCESSES, ROWS = 2, 8
NETWORK = {"heartbeat_s": 0.5, "lease_s": 5.0, "connect_s": 600.0}  # the defaults
Figures = dict[str, Any]


@dataclass(frozen=True)
class Scale:
    """How much is measured.

    Attributes:
        sessions: actors at a time.
        seconds: of a window.
        settle_s: until memory is looked at last.
    """

    sessions: int
    seconds: float
    settle_s: float


class Hall:
    """One buffer and who is there.

    Args:
        run: its processes.
        scale: of the trial.
    """

    def __init__(self, run: Roles, scale: Scale) -> None:
        self.run, self.scale = run, scale
        self.children: list[Child] = []

    def start(self) -> psutil.Process:
        """Start the buffer, and wait until it answers."""
        process = psutil.Process(self.run.buffer().pid)
        self.run.wait(lambda status: True, 60)
        return process

    def admit(self, sessions: int, period_s: float) -> float:
        """Let so many more actors in; seconds until all had a session."""
        begun, first = time.monotonic(), sum(child.ready["sessions"] for child in self.children)
        processes = min(PROCESSES, sessions)
        for n in range(processes):
            count = sessions // processes + (n < sessions % processes)
            self.children.append(Child("crowd.py", {**self._options(period_s), "first": first, "sessions": count}, wait=False))
            first += count
        for child in self.children:
            child.wait_ready()
        return time.monotonic() - begun

    def _options(self, period_s: float) -> Figures:
        return {"role": "crowd", "endpoint": self.run.endpoint, "network": NETWORK, "period_s": period_s, "rows": ROWS}

    def ask(self, seconds: float) -> None:
        """Begin a window in all processes."""
        for child in self.children:
            child.ask(seconds)

    def answers(self) -> list[Figures]:
        """What each process met in it."""
        return [child.answer() for child in self.children]

    def window(self, seconds: float) -> list[Figures]:
        """A window from begin to end."""
        self.ask(seconds)
        return self.answers()

    def close(self) -> None:
        """End the actors."""
        for child in self.children:
            child.close()


@contextlib.contextmanager
def hall(scale: Scale) -> Iterator[Hall]:
    """A buffer for so many actors, on a disk; nothing of it is left."""
    records.RUNS.mkdir(exist_ok=True)
    pacing = {"env_steps": 0, "hold_actors": False, "hold_learner": False, "random_steps": 0}
    pool = {"capacity": 200_000, "max_actors": scale.sessions + 64}
    config = scripted(network=NETWORK, pool=pool, pacing=pacing)
    with (
        tempfile.TemporaryDirectory(dir=records.RUNS, prefix="sessions-") as directory,
        roles(Path(directory), config) as run,
        contextlib.closing(Hall(run, scale)) as made,
    ):
        yield made


def anonymous(process: psutil.Process) -> int:
    """Its private memory (bytes)."""
    return counted(process.pid, "RssAnon")


@contextlib.contextmanager
def busy(process: psutil.Process) -> Iterator[Callable[[], float]]:
    """The share of a core that it takes in this block, to be asked for afterwards."""

    def used() -> float:
        times = process.cpu_times()
        return float(times.user + times.system)

    share = [0.0]
    before, begun = used(), time.monotonic()
    yield lambda: share[0]
    share[0] = (used() - before) / (time.monotonic() - begun)
