"""What a fake arm wrote down, judged: commands that came late or crossed a reset, and when the arm was safe after a fault."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

Line = Mapping[str, Any]
WANTED = ("policy", "human")  # kinds of commands that somebody wants; the others are the guard's own


class RobotLog:
    """The lines of one :class:`headrace.actor.fake_arm.FakeArm`, in their order; times are monotonic seconds of this machine.

    Attributes:
        lines: commands that were carried out, resets and stops.
        refused: commands that the arm itself refused, since their deadline had passed.
    """

    def __init__(self, lines: Sequence[Line]) -> None:
        self.lines = [line for line in lines if line["what"] != "act" or line["done"]]
        self.refused = len(lines) - len(self.lines)

    @classmethod
    def read(cls, path: Path, last_bytes: int | None = None) -> RobotLog:
        """The log in a file, or its end, which may still be written to; a line that is not whole is left out."""
        if not path.exists():
            return cls([])
        with path.open("rb") as file:
            begin = 0 if last_bytes is None else max(0, file.seek(0, os.SEEK_END) - last_bytes)
            file.seek(begin)
            lines = file.read().splitlines(keepends=True)[begin > 0 :]
        return cls([json.loads(line) for line in lines if line.endswith(b"\n")])

    def count(self, kind: str) -> int:
        """Commands of a kind, or ``stop`` or ``reset``."""
        return sum(kind in (line["what"], line.get("kind")) for line in self.lines)

    @property
    def stale_commands(self) -> int:
        """Commands that were carried out after their deadline."""
        return sum(line["deadline"] is not None and line["at"] > line["deadline"] for line in self._acts)

    @property
    def crossed_resets(self) -> int:
        """Commands of another episode than the one that the arm was reset for last."""
        crossed, episode = 0, -1
        for line in self.lines:
            if line["what"] == "reset":
                episode = line["episode"]
            elif line["what"] == "act" and line["kind"] in WANTED:
                crossed += line["episode"] != episode
        return crossed

    @property
    def period_ms(self) -> tuple[float, float]:
        """p50 and p99 of the time from one command to the next within an episode (ms); 0 without any."""
        acts = [line for line in self._acts if line["episode"] >= 0]
        times = [b["at"] - a["at"] for a, b in itertools.pairwise(acts) if a["episode"] == b["episode"]]
        p50, p99 = np.percentile(np.array(times or [0.0]) * 1e3, [50, 99]).round(3).tolist()
        return p50, p99

    def safe_s(self, fault: float, until: float, allowed_s: float = 0.0, whom: Sequence[str] = WANTED) -> float | None:
        """How long after a fault the arm was safe for good: it held or had stopped, and followed nobody until ``until``.

        Args:
            fault: when it came.
            until: end of what is looked at.
            allowed_s: age that is declared as tolerable, which is taken off.
            whom: whose commands it must not follow; a human who is there may drive it whatever has failed.

        Returns:
            Seconds, 0 at least; none when the arm followed them to the end, or nothing is written of it.
        """
        seen = [line for line in self.lines if line["what"] != "reset" and line["at"] <= until]
        wanted = [i for i, line in enumerate(seen) if line.get("kind") in whom]
        safe = seen[wanted[-1] + 1 :] if wanted else seen
        if not safe:
            return None
        return max(0.0, float(safe[0]["at"]) - fault - allowed_s)

    def idle_s(self, fault: float, until: float, rate_hz: float) -> float:
        """How much of the time from a fault to the last command of policy or human before ``until`` no episode ran (s)."""
        wanted = [float(line["at"]) for line in self._acts if line["kind"] in WANTED and fault < line["at"] <= until]
        if not wanted:
            return 0.0
        acts = [line for line in self._acts if line["episode"] >= 0 and fault < line["at"] <= wanted[-1]]
        return max(0.0, wanted[-1] - fault - len(acts) / rate_hz)

    @property
    def _acts(self) -> list[Line]:
        return [line for line in self.lines if line["what"] == "act"]
