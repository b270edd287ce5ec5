"""One measured process at a time: start it, watch it, end it in order, and never leave it or its children behind."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from campaign.records import ROOT
from headrace.launch.leash import leash

POLL_S = 0.05
STOP_S = 15.0  # an ordered end of a run may take 10 s
TAIL_LINES = 12
UNABLE = 2  # exit code


class ProcessFailed(Exception):
    """A measured process ended with an error or ran past its deadline; the text holds its last lines.

    Attributes:
        code: its exit code; None when it did not end by itself.
    """

    def __init__(self, text: str, code: int | None = None) -> None:
        super().__init__(text)
        self.code = code


class Unable(Exception):
    """This machine or this process cannot do what was asked for; the text says what is missing."""


@dataclass(frozen=True)
class Ended:
    """A process that has ended with exit code 0.

    Attributes:
        started: seconds since the epoch, just before it was made.
        seconds: from then until its end was seen.
        log: its output.
    """

    started: float
    seconds: float
    log: Path

    def output(self) -> list[str]:
        """Lines of its output."""
        return self.log.read_text(encoding="utf-8", errors="replace").splitlines()


def run(
    command: Sequence[str],
    log: Path,
    *,
    deadline_s: float,
    environment: Mapping[str, str] | None = None,
    watch: Callable[[int], None] | None = None,
    cwd: Path = ROOT,
) -> Ended:
    """Run ``command`` to its end; Ctrl-C and the deadline end it in order first.

    Args:
        command: words.
        log: file that its output is written to.
        deadline_s: longest time that it may take.
        environment: laid over this process's environment.
        watch: called with the pid every :data:`POLL_S` seconds.
        cwd: its working directory.

    Raises:
        ProcessFailed: it exited with another code than 0, or took too long.
        KeyboardInterrupt: somebody stopped us; the process is gone.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as out:
        started = time.time()
        begun = time.monotonic()
        # A session of its own: Ctrl-C of the terminal reaches this script alone, which then asks the process to end.
        child = subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            cwd=cwd,
            env={**os.environ, **(environment or {})},
            start_new_session=True,
            preexec_fn=leash(),
        )
        try:
            while child.poll() is None:
                if time.monotonic() - begun > deadline_s:
                    raise ProcessFailed(f"still running after {deadline_s:.0f} s: {' '.join(map(str, command))}")
                if watch is not None:
                    watch(child.pid)
                time.sleep(POLL_S)
        finally:
            seconds = time.monotonic() - begun
            _end(child)
    ended = Ended(started, seconds, log)
    if child.returncode != 0:
        text = f"exit code {child.returncode} after {seconds:.0f} s; last lines of {log.name}:\n{_tail(ended)}"
        raise ProcessFailed(text, child.returncode)
    return ended


def headrace(*words: str) -> list[str]:
    """The command line of the headrace that is installed beside this interpreter."""
    return [str(Path(sys.executable).with_name("headrace")), *words]


def guarded(main: Callable[[], int]) -> int:
    """Run a script's main; Ctrl-C and SIGTERM end it without a traceback, with exit code 130.

    What one of its processes did wrong ends it with one line and exit code 1, and what this machine cannot do with 2.
    """
    try:
        with _terminate_as_interrupt():
            return main()
    except KeyboardInterrupt:
        print("stopped; what had finished is recorded, and the same command goes on from there", file=sys.stderr)
        return 130
    except (ProcessFailed, Unable) as error:
        print(f"{Path(sys.argv[0]).name}: {' '.join(str(error).split())}", file=sys.stderr)
        return UNABLE if isinstance(error, Unable) else 1


def _tail(ended: Ended) -> str:
    return "\n".join(f"  {line}" for line in ended.output()[-TAIL_LINES:])


def _end(child: subprocess.Popen[bytes]) -> None:
    """Ask for an ordered end; kill the group when it does not come, or when somebody presses Ctrl-C again."""
    if child.poll() is None:
        child.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired, KeyboardInterrupt):
            child.wait(STOP_S)
    if child.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait(STOP_S)


@contextlib.contextmanager
def _terminate_as_interrupt() -> Iterator[None]:
    """SIGTERM ends a campaign as Ctrl-C does, so that its process is ended in order."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
