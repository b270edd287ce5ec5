"""Killing one role of a run at a chosen time, and seeing when its work goes on; roles are found in the process table."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from campaign.timeline import ANSWER_S, Timeline

ROLES = ("buffer", "learner", "actor", "evaluator")
Status = Mapping[str, Any]


class Killer:
    """Watches one run, kills one process of ``role`` once, and keeps what statuses told.

    Args:
        run_dir: the run directory.
        role: one of :data:`ROLES`.
        delay_s: from the moment at which every role is in the process table to the kill.
        processes: how many role processes the run has.
        rng: chooses among several processes of the role.

    Attributes:
        victim: pid that was killed; none before.
        killed_at: (seconds since the roles were there, env steps told last), once it was.
        recovered_s: from the kill to the first work of the role's next process that a status tells; none if never seen.
        acked: (actor, stream) -> highest acknowledged seq that a status told.
    """

    def __init__(self, run_dir: Path, role: str, delay_s: float, processes: int, rng: np.random.Generator) -> None:
        self._role, self._delay_s, self._processes, self._rng = role, delay_s, processes, rng
        self._timeline = Timeline(run_dir)
        self._there: float | None = None
        self._kill_time = 0.0
        self._name = ""
        self._before: Status = {}
        self.victim: int | None = None
        self.killed_at: tuple[float, int] | None = None
        self.recovered_s: float | None = None
        self.acked: dict[tuple[str, int], int] = {}

    def watch(self, pid: int) -> None:
        """Look once; called again and again with the pid of `headrace train`."""
        now = time.monotonic()
        if self._there is None:
            self._there = now if len(find_roles(pid)) >= self._processes else None
        elif self.victim is None and now - self._there >= self._delay_s:
            self._kill(pid, now)
        looks = len(self._timeline.points)
        self._timeline.watch(pid)
        if len(self._timeline.points) > looks:
            self._learn(self._timeline.status)

    def close(self) -> None:
        """Leave the buffer."""
        self._timeline.close()

    def _kill(self, pid: int, now: float) -> None:
        living = [child for kind, child in find_roles(pid) if kind == self._role]
        if not living or self._there is None:
            return  # between death and restart: try again at the next look
        child = living[int(self._rng.integers(len(living)))]
        self._before = self._timeline.status
        self._kill_time = time.monotonic()
        with contextlib.suppress(psutil.NoSuchProcess):
            words = child.cmdline()
            self._name = words[words.index("--id") + 1] if "--id" in words else ""
            child.kill()
            self.victim = child.pid
            self.killed_at = (round(now - self._there, 3), int(self._before.get("env_steps", 0)))

    def _learn(self, status: Status) -> None:
        for actor in status["actors"]:
            for stream, seq in actor["acked"].items():
                key = (actor["id"], int(stream))
                self.acked[key] = max(seq, self.acked.get(key, 0))
        if self.victim is not None and self.recovered_s is None:
            since_s = self._timeline.asked - self._kill_time
            if since_s > 0 and works_again(self._role, self._name, self._before, status, self.victim, since_s):
                self.recovered_s = round(time.monotonic() - self._kill_time, 3)


def works_again(role: str, name: str, before: Status, now: Status, victim: int, since_s: float) -> bool:
    """Whether ``now`` tells of work that the successor of ``victim`` did.

    Args:
        role: what was killed.
        name: its id in the run, for an actor.
        before: the last status before the kill; empty when there was none.
        now: a status.
        victim: the killed pid.
        since_s: seconds from the kill to the moment at which ``now`` was asked for.
    """
    if role == "buffer":
        return bool(now["uptime_s"] <= since_s + ANSWER_S and now["env_steps"] > before.get("env_steps", 0))
    if role == "learner":
        learner = now["learner"]
        return bool(learner) and learner["pid"] != victim and now["updates"] > before.get("updates", 0)
    if role == "evaluator":
        return any(e["pid"] != victim for e in now["evaluators"])
    known = {stream for a in before.get("actors", []) if a["id"] == name for stream in a["acked"]}
    successors = [a for a in now["actors"] if a["id"] == name and a["pid"] != victim]
    return any(seq > 0 and stream not in known for a in successors for stream, seq in a["acked"].items())


def find_roles(pid: int) -> list[tuple[str, psutil.Process]]:
    """(kind, process) of each role that the `headrace train` with this pid has started."""
    found = []
    with contextlib.suppress(psutil.NoSuchProcess):
        for child in psutil.Process(pid).children():
            with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                kind = role_of(child.cmdline())
                if kind:
                    found.append((kind, child))
    return found


def role_of(words: list[str]) -> str:
    """Which role a command line is; empty for none."""
    if "headrace" not in words[:-1]:
        return ""
    word = words[words.index("headrace") + 1]
    if word == "actor" and "--evaluate" in words:
        return "evaluator"
    return word if word in ROLES else ""
