"""Network namespaces: one of this script's own, and others that processes which do nothing hold."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence

from campaign.process import ProcessFailed, Unable
from headrace.launch.children import thread_variables
from headrace.launch.leash import leash

INSIDE = "HEADRACE_OWN_NETWORK"
TOOL_S, END_S = 10.0, 10.0


def move_in(*more: str) -> None:
    """Begin this script again in a network namespace of its own, which goes with its last process.

    Args:
        more: tools that it needs beside ``ip``.

    Raises:
        Unable: not root, or no tools for it.
    """
    if INSIDE in os.environ:
        return
    missing = [name for name in ("unshare", "nsenter", "ip", *more) if shutil.which(name) is None]
    if os.geteuid() != 0 or missing:
        raise Unable(f"network namespaces need root and {', '.join(missing) or 'nothing else'}")
    environment = {**os.environ, **thread_variables(1), INSIDE: "1"}  # a robot's numpy would wait for its own threads
    os.execvpe("unshare", ["unshare", "--net", sys.executable, *sys.argv], environment)


class Space:
    """A namespace as long as a process in it lives.

    Attributes:
        holder: the process that holds it.
        words: a command line behind them runs in it.
    """

    def __init__(self) -> None:
        self._process = subprocess.Popen(["unshare", "--net", "sleep", "infinity"], preexec_fn=leash())
        self.holder = self._process.pid
        self.words = ("nsenter", f"--net=/proc/{self.holder}/ns/net", "--")
        try:
            self._wait_apart()
        except ProcessFailed:
            self.close()
            raise
        tool("ip link set lo up", self.words)

    def pids(self) -> list[int]:
        """Of every process in it."""
        own = _space_of(self.holder)
        return [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if own is not None and _space_of(pid) == own]

    def kill(self) -> frozenset[int]:
        """SIGKILL for all that is in it, until nothing is; so it goes, with its devices and connections, and nobody is told.

        Returns:
            The pids.

        Raises:
            ProcessFailed: something does not end.
        """
        killed: set[int] = set()
        end = time.monotonic() + END_S
        while others := [pid for pid in self.pids() if pid != self.holder]:  # those that start others go with them
            for pid in others:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            killed |= set(others)
            if time.monotonic() > end:
                raise ProcessFailed(f"still there after SIGKILL: {others}")
            time.sleep(0.01)
        self.close()
        return frozenset(killed)

    def close(self) -> None:
        """Nothing holds it any more."""
        self._process.kill()
        self._process.wait(END_S)

    def _wait_apart(self) -> None:
        own, end = _space_of(os.getpid()), time.monotonic() + END_S
        while _space_of(self.holder) in (own, None):
            if time.monotonic() > end:
                raise ProcessFailed("a network namespace was not made")
            time.sleep(0.01)


def tool(words: str, before: Sequence[str] = ()) -> None:
    """Run a command line; raises :class:`ProcessFailed` with what it says."""
    command = [*before, *words.split()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TOOL_S, check=False)
    if done.returncode:
        raise ProcessFailed(f"{' '.join(command)}: {done.stderr.strip()}", done.returncode)


def _space_of(pid: int) -> int | None:
    """The number of a process's namespace; none where it is gone."""
    with contextlib.suppress(OSError):
        return os.stat(f"/proc/{pid}/ns/net").st_ino
    return None
