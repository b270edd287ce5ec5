"""Role processes of one run: start them in groups of their own, reap, signal, and read the end of their logs."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

from headrace.launch.leash import PARENT
from headrace.launch.logs import open_log

ERROR_MARK = "error: "  # how a role's last line begins, after its name, when it ended for a reason that it understood
TAIL_LINES = 15
LINE_CHARS = 300  # of a line that is shown among others
TUNABLES = "GLIBC_TUNABLES"
PAST_CACHE_BYTES = 1 << 15  # a row of a camera or more; glibc takes 16.1 KiB at least
THREAD_VARIABLES = (  # of the numeric libraries
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)
_ROUTINE = re.compile(r"\d{4}-\S+ \S+ (INFO|DEBUG) ")  # begins a line of the log that tells of no trouble
_TAIL_BYTES = 16 << 10
_REAP_S = 5.0  # how long a killed process may take to vanish


def headrace_command(words: Sequence[str], module: str = "headrace") -> list[str]:
    """The command line of one more headrace process, or of one of its modules, under this interpreter."""
    # -P keeps the working directory, which may be this repository's root, off the front of the path; 3.10 has no -P,
    # there headrace.__main__ removes it.
    safe = ["-P"] if sys.version_info >= (3, 11) else []
    return [sys.executable, *safe, "-m", module, *words]


class Child:
    """One role process.

    Args:
        name: for messages.
        command: its command line.
        log: file that its output is appended to.
        environment: its environment variables.
    """

    def __init__(self, name: str, command: Sequence[str], log: Path, environment: Mapping[str, str]) -> None:
        self.name, self.log = name, log
        with open_log(log) as out:
            self._begin = out.tell()
            self._process = _spawn(command, out, environment)

    @property
    def pid(self) -> int:
        """Process id, which is the id of its process group too."""
        return self._process.pid

    def poll(self) -> int | None:
        """Its exit code once it has ended; what it left in its group is killed then."""
        code = self._process.poll()
        if code is not None:
            self._signal_group(signal.SIGKILL)
        return code

    def terminate(self) -> None:
        """Ask the role to end in order."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGTERM)

    def signal(self, number: int) -> bool:
        """Send a signal to the role's own process; whether it was still there. A pid that was reaped is never hit."""
        self._process.send_signal(number)
        return self._process.returncode is None

    def kill(self) -> None:
        """End the role and everything that it started, now."""
        self._signal_group(signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_REAP_S)

    def last_words(self) -> list[str]:
        """Why it ended, as far as its log of this life tells: the one line of an understood error, else the last lines."""
        with self.log.open("rb") as file:
            end = file.seek(0, os.SEEK_END)
            file.seek(max(self._begin, end - _TAIL_BYTES))
            lines = file.read().decode("utf-8", "replace").rstrip().splitlines()
        if lines and lines[-1].startswith("headrace") and ERROR_MARK in lines[-1]:
            return [lines[-1].partition(ERROR_MARK)[2]]
        return lines[-TAIL_LINES:]

    def last_line(self) -> str:
        """The last of its last words that may tell why it ended, cut to a bounded length; empty when there is none."""
        telling = [line.strip() for line in self.last_words() if line.strip() and not is_routine(line)]
        line = telling[-1] if telling else ""
        return line if len(line) <= LINE_CHARS else line[: LINE_CHARS - 3] + "..."

    def _signal_group(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)


def is_routine(line: str) -> bool:
    """Whether a line of a log tells of no trouble."""
    return _ROUTINE.match(line) is not None


def role_environment(variables: Mapping[str, str]) -> dict[str, str]:
    """Environment of a role: this process's, tied to it, unbuffered, with ``variables`` of its own."""
    return {**os.environ, PARENT: str(os.getpid()), "PYTHONUNBUFFERED": "1", **variables}


def thread_variables(threads: int) -> dict[str, str]:
    """Environment variables that keep the numeric libraries at ``threads``; they are read when numpy is imported."""
    return dict.fromkeys(THREAD_VARIABLES, str(threads))


def copy_variables() -> dict[str, str]:
    """Environment variable by which glibc copies large rows past the cache.

    It is for a process that only hands them on to a GPU, and read when that starts. One that the user has set stays.
    """
    return {TUNABLES: os.environ.get(TUNABLES, f"glibc.cpu.x86_non_temporal_threshold={PAST_CACHE_BYTES}")}


def wait_all(children: Sequence[Child], deadline_s: float) -> list[Child]:
    """Wait until all have ended or ``deadline_s`` is over; those that are left."""
    end = time.monotonic() + deadline_s
    left = list(children)
    while left and time.monotonic() < end:
        left = [c for c in left if c.poll() is None]
        time.sleep(0.02)
    return left


def _spawn(command: Sequence[str], out: BinaryIO, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    # A session of its own: Ctrl-C in the terminal reaches the supervisor alone, which then ends roles in order.
    return subprocess.Popen(
        list(command), stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=dict(environment), start_new_session=True
    )
