"""Progress of long work in this process: how far it is, and whether somebody has asked for its end."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TextIO

TERMINAL_S, LINE_S = 0.2, 5.0


class Counting:
    """Says how far the work is: over one line of a terminal every ``TERMINAL_S``, in a line every ``LINE_S`` elsewhere.

    To be entered: leaving it ends the line on the terminal, however the work has ended.

    Args:
        work: what is done, such as ``exporting``.
        passes: how often each thing is counted.
        unit: what is counted.
        size: how many counts make one ``unit``.
        stop: asked at each count; once it is true the work ends with KeyboardInterrupt.
        stream: where to; standard error when there is none.
    """

    def __init__(
        self,
        work: str,
        *,
        passes: int = 1,
        unit: str = "rows",
        size: int = 1,
        stop: Callable[[], bool] = lambda: False,
        stream: TextIO | None = None,
    ) -> None:
        self._work, self._unit, self._per_unit, self._stop = work, unit, passes * size, stop
        self._stream = stream or sys.stderr
        self._terminal = self._stream.isatty()
        self._said = False
        self._last = time.monotonic()

    def __call__(self, done: int, total: int) -> None:
        """Take what is done, and all that there is to do; both may grow."""
        if self._stop():
            raise KeyboardInterrupt
        now = time.monotonic()
        due = now - self._last >= (TERMINAL_S if self._terminal else LINE_S)
        if not due and not (self._said and done >= total):
            return
        self._last, self._said = now, True
        text = f"{self._work}: {100 * done // max(1, total)} % of {total // self._per_unit:,} {self._unit}"
        print(f"\r{text}" if self._terminal else text, end="" if self._terminal else "\n", file=self._stream, flush=True)

    def __enter__(self) -> Counting:
        return self

    def __exit__(self, *_: object) -> None:
        if self._terminal and self._said:
            print(file=self._stream, flush=True)
