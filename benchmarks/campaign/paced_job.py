"""A job in real time: robots that step by the clock, their buffer, maybe a learner by the clock, and what came of it all."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
from helpers.paced import read_ticks
from helpers.roles import Roles, roles

from campaign.process import ProcessFailed
from headrace.buffer.pool import SACReplayPool
from headrace.common.errors import DeadlineExceeded

Array = np.ndarray[Any, Any]
CAPACITY = 1 << 17
RATE = 50.0  # steps a second of each robot
EPISODE = 50
AHEAD = 1_000_000  # steps that nobody waits for the learner with
BATCHES_S, PUBLISHES_S = 100.0, 1.0  # of the learner
CHUNK = 4096
SETTLE_S, ANSWER_S = 60.0, 2.0


def paced(place: Path, *, learner: bool, **changes: Mapping[str, Any]) -> dict[str, Any]:
    """A config whose robots note their steps below ``place``; without a learner they act at random."""
    ticks = {"period_s": 1 / RATE, "ticks": str(place / "ticks"), "lengths": [EPISODE], "ends": ["truncated"]}
    config: dict[str, Any] = {
        "env": {"id": "helpers.paced:make", "kwargs": ticks},
        "network": {"insecure": True},
        "pool": {"capacity": CAPACITY},
        "pacing": {"env_steps": 0, "hold_actors": False, "hold_learner": False, "min_fill": 256, "lead_steps": AHEAD},
        "learner": {"batch_size": 32},
    }
    config["pacing"]["random_steps"] = 0 if learner else 1 << 40
    for key, values in changes.items():
        config[key] = {**config.get(key, {}), **values}
    return config


@dataclass(frozen=True)
class Window:
    """A stretch of ``time.monotonic``, in which rates are compared."""

    start: float
    end: float

    @property
    def seconds(self) -> float:
        """Its length."""
        return self.end - self.start


class PacedJob:
    """The processes of one job, and what can be read from outside while they run.

    Args:
        run: its processes; the buffer is ``buffer``, a learner ``learner``, robots have their ids as names.
        place: the directory of its tick files.
    """

    def __init__(self, run: Roles, place: Path) -> None:
        self.run, self._ticks = run, place / "ticks"

    def learner(self) -> None:
        """Start the learner."""
        words = ["--batch-size", "32", "--period-s", str(1 / BATCHES_S), "--publish-s", str(1 / PUBLISHES_S)]
        canary = [sys.executable, "-P", "-m", "headrace.launch.chaos.canary", self.run.endpoint]
        self.run.start_words("learner", [*canary, *words])

    def pid(self, name: str) -> int:
        """Of a process."""
        return self.run.processes[name].pid

    def steps(self, name: str, window: Window | None = None) -> Array:
        """When a robot's process began its steps, ``(n,)``, in a window."""
        ticks = read_ticks(self._ticks).get(self.pid(name), np.zeros(0))
        return ticks if window is None else ticks[(ticks >= window.start) & (ticks < window.end)]

    def slowest(self, names: Sequence[str], before: Window, during: Window) -> float:
        """The rate of the robot that fell behind the most: its steps a second ``during`` over those ``before``."""
        rates = [[len(self.steps(name, w)) / w.seconds for w in (before, during)] for name in names]
        return min(later / earlier if earlier else 0.0 for earlier, later in rates)

    def fastest(self, names: Sequence[str], before: Window, during: Window) -> float:
        """As :meth:`slowest`, of the one that gained the most."""
        rates = [[len(self.steps(name, w)) / w.seconds for w in (before, during)] for name in names]
        return max(later / earlier if earlier else 0.0 for earlier, later in rates)

    def period_p99_ms(self, names: Sequence[str], window: Window) -> float:
        """99th percentile of the time between two steps of the robots."""
        return float(1000 * np.percentile(np.concatenate([np.diff(self.steps(name, window)) for name in names]), 99))

    def memory_mb(self, names: Sequence[str]) -> Array:
        """``(n,)``: anonymous memory of processes, which files that they map are no part of."""
        return np.array([anonymous_bytes(self.pid(name)) / 1e6 for name in names])

    def status(self) -> dict[str, Any]:
        """The buffer's status; empty while it does not answer."""
        with contextlib.suppress(DeadlineExceeded):
            return self.run.status(ANSWER_S)
        return {}

    def actor(self, name: str) -> dict[str, Any]:
        """What the status says of a robot; empty while it has no session."""
        return next((a for a in self.status().get("actors", ()) if a["id"] == name), {})

    def wait(self, holds: Callable[[], bool], what: str, deadline_s: float = SETTLE_S) -> float:
        """Wait until something holds; how long that took (s).

        Raises:
            ProcessFailed: not within the deadline, or a process ended.
        """
        begun = time.monotonic()
        while not holds():
            for name, process in self.run.processes.items():
                if process.poll() not in (None, 0):
                    raise ProcessFailed(f"{name} ended with {process.returncode}: {self.run.log(name)[-500:]}")
            if time.monotonic() - begun > deadline_s:
                raise ProcessFailed(f"no {what} within {deadline_s:g} s")
            time.sleep(0.02)
        return time.monotonic() - begun

    def watch(self, seconds: float) -> Window:
        """Let so much time go by."""
        begun = time.monotonic()
        time.sleep(seconds)
        return Window(begun, time.monotonic())

    def finish(self, names: Sequence[str]) -> dict[str, float]:
        """End robots in order, then the rest, and account for every step that the robots say they made."""
        for name in names:
            self.run.processes[name].terminate()
        for name in names:
            if code := self.run.processes[name].wait(SETTLE_S):
                raise ProcessFailed(f"{name} ended with {code}: {self.run.log(name)[-500:]}")
        executed = {name: len(self.steps(name)) for name in names}
        self.run.stop()
        with SACReplayPool(CAPACITY, path=self.run.run / "pool") as pool:
            return account(list(pool.dump()), executed, wrong_rows(pool))


@contextlib.contextmanager
def job(place: Path, config: dict[str, Any], host: str = "127.0.0.1") -> Iterator[PacedJob]:
    """Processes that are killed at the end, whatever happens; the buffer listens at ``host``."""
    with roles(place, config) as run:
        run.endpoint = run.endpoint.replace("127.0.0.1", host)
        yield PacedJob(run, place)


def played(place: Path, ticks: Mapping[str, Array]) -> PacedJob:
    """A job that never was: robots that began their steps at these times (s), ``(n,)``."""
    for pid, times in enumerate(ticks.values()):
        (place / f"ticks-{pid}").write_bytes(np.asarray(times, "<f8").tobytes())
    processes = {name: SimpleNamespace(pid=pid) for pid, name in enumerate(ticks)}
    return PacedJob(cast("Roles", SimpleNamespace(processes=processes)), place)


def account(rows: Sequence[Mapping[str, Any]], executed: Mapping[str, int], corrupted: int) -> dict[str, float]:
    """Lost, duplicated, reordered and corrupted rows of a pool that nothing was evicted from.

    Args:
        rows: of :meth:`SACReplayPool.dump`, oldest first.
        executed: actor -> steps that it made, in one process.
        corrupted: rows that do not prove themselves.
    """
    lost = duplicated = reordered = 0
    for actor, steps in executed.items():
        own = [row for row in rows if row["actor"] == actor]
        names = {(row["stream"], row["seq"]) for row in own}
        duplicated += len(own) - len(names)
        lost += max(0, steps - len(names))
        reordered += sum(not _follows(a, b) for a, b in pairwise(own))
    phantom = len(rows) - sum(executed.values()) + lost - duplicated
    return {"lost": lost, "duplicated": duplicated, "reordered": reordered, "corrupted": corrupted, "phantom": max(0, phantom)}


def _follows(row: Mapping[str, Any], later: Mapping[str, Any]) -> bool:
    next_in_episode = (later["episode"], later["t"]) == (row["episode"], row["t"] + 1)
    return (later["stream"], later["seq"]) > (row["stream"], row["seq"]) and (
        next_in_episode or (later["episode"] > row["episode"] and later["t"] == 0)
    )


def wrong_rows(pool: SACReplayPool) -> int:
    """Rows whose observations are not (actor, episode, t) and (actor, episode, t + 1) of their own episode and t."""
    wrong = 0
    for start in range(pool.tail, pool.head, CHUNK):
        batch = pool.gather(np.arange(start, min(start + CHUNK, pool.head)))
        obs, following, rows = batch.obs["obs"], batch.next_obs["obs"], batch.rows
        good = (obs[:, 1] == rows["episode"]) & (obs[:, 2] == rows["t"]) & (following[:, 2] == rows["t"] + rows["steps"])
        wrong += int((~(good & (obs[:, :2] == following[:, :2]).all(axis=1))).sum())
    return wrong


def anonymous_bytes(pid: int) -> int:
    """Memory of a process that no file stands behind."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise ProcessFailed(f"process {pid} has no memory")
