"""A robot program with a loop of its own beside a buffer: how far it is, what it says of its rows, and what became of them."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from helpers.own_robot import LENGTH
from helpers.roles import Roles, scripted

from campaign.paced_job import account
from headrace.buffer.pool import SACReplayPool

CAPACITY = 1 << 16
ROBOT = "arm-0"
CONFIG = scripted(pool={"capacity": CAPACITY}, pacing={"env_steps": 0, "random_steps": CAPACITY})
HELD_BACK = 60  # newest rows that a killed process may not have handed over: ``flush_s`` of its rate, and the open window


class OwnLoop:
    """The program of ``helpers.own_robot``, started once or again; 200 steps a second where nobody says otherwise.

    Args:
        run: of its buffer.
        endpoint: that it dials.
        before: words before its command line.
        capacity: of the pool.
    """

    def __init__(self, run: Roles, endpoint: str, before: Sequence[str] = (), capacity: int = CAPACITY) -> None:
        self._run, self._endpoint, self._log = run, endpoint, run.directory / "steps.log"
        self._before, self._capacity = before, capacity

    def start(self, steps: int, spool: Path | None, **options: str | int) -> None:
        """Have it make so many steps; without a spool its rows wait in memory."""
        place = [self._endpoint, "" if spool is None else str(spool), str(self._log), str(steps), "60"]
        words = [f"{key}={value}" for key, value in options.items()]
        self._run.start_words(ROBOT, [*self._before, sys.executable, "-P", "-m", "helpers.own_robot", *place, *words])

    @property
    def steps(self) -> int:
        """Steps that all its processes have made."""
        return self._log.read_text().count("\n") if self._log.exists() else 0

    def wait(self, wait: Callable[..., float], steps: int) -> None:
        """Wait until it has made so many more."""
        goal = self.steps + steps
        wait(lambda: self.steps >= goal, f"{steps} more steps")

    def counts(self) -> Mapping[str, int]:
        """What the program said at its end of its rows."""
        return {name: int(n) for name, n in re.findall(r"(\w+)=(\d+)", self._run.log(ROBOT))}

    def account(self, least: int, most: int) -> dict[str, float]:
        """Faults of the pool, in which ``least`` of its steps must be and ``most`` may; the buffer has ended."""
        with SACReplayPool(self._capacity, path=self._run.run / "pool") as pool:
            rows = list(pool.dump())
        found = account(rows, {ROBOT: len(rows)}, wrong(rows))
        return {**found, "lost": max(0, least - len(rows)), "phantom": max(0, len(rows) - most), "rows": len(rows)}


def wrong(rows: Sequence[Mapping[str, Any]]) -> int:
    """Rows that no step of the program can be."""
    return sum(not 0 <= row["t"] < LENGTH for row in rows)
