"""What the supervisor's news becomes: live progress, a learning curve that is drawn anew, and the environment's record."""

from __future__ import annotations

import contextlib
import gc
from typing import Any

from headrace.common.clock import Clock
from headrace.launch.curves import draw_run
from headrace.launch.logs import open_log
from headrace.launch.machine import environment_text
from headrace.launch.progress import Progress
from headrace.launch.rundir import RunDir, write_whole


class Reporter:
    """Watches one run.

    Args:
        progress: shows it to people.
        run: where the curve and the record go.
        curve_s: time between two drawings, 0 for none but the last.
        clock: paces the drawings.
    """

    def __init__(self, progress: Progress, run: RunDir, curve_s: float, clock: Clock) -> None:
        self._progress, self._run, self._curve_s, self._clock = progress, run, curve_s, clock
        self._begun = clock.now()
        self._draw_at = self._begun + curve_s
        self._environment, self._recorded = "", False

    def notice(self, text: str) -> None:
        """One line for people, kept in the supervisor's log too."""
        self._progress.notice(text)
        with contextlib.suppress(OSError), open_log(self._run.log("supervisor")) as log:
            log.write(text.encode() + b"\n")  # a full disk is told by the status, and ends no run

    def update(self, status: dict[str, Any]) -> None:
        """The newest status; the time shown is that of this watch, as a buffer's begins anew with each of its processes."""
        self._progress.update({**status, "uptime_s": self._clock.now() - self._begun})
        if not self._recorded:  # not before the roles are up: it asks git and the driver, and nobody waits for it
            self._record()
        if self._curve_s and self._clock.now() >= self._draw_at:
            self._draw_at = self._clock.now() + self._curve_s
            self._draw()

    def close(self, *, hurried: bool) -> None:
        """Give the terminal back; the last drawing, unless a person cannot wait for it."""
        self._progress.close()
        if hurried:
            return
        if not self._recorded:
            self._record()
        self._draw()

    def _record(self) -> None:
        with contextlib.suppress(OSError):  # it is tried again at the next status
            self._environment = self._environment or environment_text()
            write_whole(self._run.environment, self._environment)
            self._recorded = True

    def _draw(self) -> None:
        try:
            draw_run(self._run, self._run.path.name)
            gc.collect()  # a figure refers to itself, so each would stay until some collection of old objects
        except OSError:  # a full disk takes the next one
            return
        except Exception as error:  # a picture is never worth a run
            self._curve_s = 0.0
            self.notice(f"the learning curve cannot be drawn: {type(error).__name__}: {error}")
