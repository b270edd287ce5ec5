"""Measured processes: each prints that it is ready, then answers every line that says how long a window is with its rate."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any, cast

HERE = Path(__file__).resolve().parent
READY_S = 300.0  # a peer may fill gigabytes first
SLACK_S = 60.0
STOP_S = 10.0


class ChildFailed(Exception):
    """A measured process said something else than it should, or nothing in time."""


class Child:
    """One process of ours or of a peer, measured window by window.

    Attributes:
        ready: what it said when it was.
        last: the newest answer.

    Args:
        script: file beside this one.
        options: what it is to be, as JSON in its only argument.
        python: its interpreter; ours by default.
        variables: of its environment, beside ours.
        wait: whether to wait until it is ready; else :meth:`wait_ready` does.
    """

    def __init__(
        self,
        script: str,
        options: Mapping[str, Any],
        python: Path | None = None,
        *,
        variables: Mapping[str, str] | None = None,
        wait: bool = True,
    ) -> None:
        self._what = f"{script} {options.get('role')}"
        self.ready: dict[str, Any] = {}
        self.last: dict[str, Any] = {}
        environment = {
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "CUDA_VISIBLE_DEVICES": "",
            "TF_CPP_MIN_LOG_LEVEL": "3",
            **(variables or {}),
        }
        found = os.environ.get("PYTHONPATH") if python is None else None  # what is ours is nothing for a peer's venv
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(HERE.parent), found]))
        self._process = subprocess.Popen(
            [str(python or sys.executable), str(HERE / script), json.dumps(options)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=None if "POOL_VERBOSE" in os.environ else subprocess.DEVNULL,
            env=environment,
            start_new_session=True,  # a group of its own, so that nothing that it starts outlives it
        )
        self._in, self._out = cast("IO[bytes]", self._process.stdin), cast("IO[bytes]", self._process.stdout)
        if wait:
            self.wait_ready()

    def wait_ready(self) -> None:
        """Wait until it says that it is ready, once."""
        try:
            self.ready = self.ready or self._read(READY_S)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def ask(self, seconds: float) -> None:
        """Begin a window of ``seconds``."""
        self._in.write(f"{seconds}\n".encode())
        self._in.flush()
        self._until = seconds + SLACK_S

    def answer(self) -> dict[str, Any]:
        """What the window gave; ``rate`` is a number a second."""
        self.last = self._read(self._until)
        return self.last

    def window(self, seconds: float) -> float:
        """The rate of one window."""
        self.ask(seconds)
        return float(self.answer()["rate"])

    def close(self) -> None:
        """End it."""
        with contextlib.suppress(OSError):
            self._in.close()
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._out.close()

    def _read(self, seconds: float) -> dict[str, Any]:
        if not select.select([self._out], [], [], seconds)[0]:
            raise ChildFailed(f"{self._what}: no answer within {seconds:.0f} s")
        line = self._out.readline()
        try:
            return dict(json.loads(line))
        except ValueError:
            raise ChildFailed(f"{self._what}: said {line[:200]!r}; POOL_VERBOSE=1 shows its errors") from None


def answer_windows(window: Callable[[float], Mapping[str, Any]], ready: Mapping[str, Any] | None = None) -> None:
    """The child's side: say ready, then measure as often as asked."""
    print(json.dumps(ready or {}), flush=True)
    for line in sys.stdin:
        print(json.dumps(window(float(line))), flush=True)


def repeat(call: Callable[[], object], seconds: float, each: float = 1.0) -> dict[str, float]:
    """Call as often as fits: ``rate`` in calls times ``each`` a second."""
    count, start = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - start) < seconds:
        call()
        count += 1
    return {"rate": count * each / elapsed}
