"""One `headrace train` as something to be disturbed: its status, its processes, and an end in order."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil
import yaml

from campaign.killing import find_roles
from campaign.process import ProcessFailed, headrace
from campaign.records import ROOT
from headrace.buffer.query import Observer
from headrace.common.errors import DeadlineExceeded
from headrace.launch.leash import leash

Status = dict[str, Any]
BEGIN_S, WAIT_S, STOP_S, POLL_S = 60.0, 60.0, 20.0, 0.02


class Job:
    """A running job.

    Args:
        run_dir: its run directory.
        process: of its supervisor.
        log: what that prints.
    """

    def __init__(self, run_dir: Path, process: subprocess.Popen[bytes], log: Path) -> None:
        self.run_dir, self.process, self._log = run_dir, process, log
        end = time.monotonic() + BEGIN_S
        while not (run_dir / "endpoint").exists():
            if time.monotonic() > end or process.poll() is not None:
                raise ProcessFailed(f"no buffer has said where it listens: {self.tail()}")
            time.sleep(POLL_S)
        self.endpoint = (run_dir / "endpoint").read_text().strip()
        self._observer = Observer(self.endpoint)

    def status(self) -> Status:
        """The status now."""
        return self.wait(lambda s: True)

    def wait(self, holds: Callable[[Status], bool], deadline_s: float = WAIT_S) -> Status:
        """The first status that holds.

        Raises:
            ProcessFailed: none did within ``deadline_s``, or the job ended.
        """
        end, last = time.monotonic() + deadline_s, {}
        while time.monotonic() < end:
            with contextlib.suppress(DeadlineExceeded):
                last = self._observer.status(0.3)
                if holds(last):
                    return last
            if self.process.poll() is not None:
                raise ProcessFailed(f"the job ended with {self.process.returncode}: {self.tail()}")
            time.sleep(POLL_S)
        told = {key: last.get(key) for key in ("phase", "env_steps", "updates", "warnings", "waiting")}
        raise ProcessFailed(f"not within {deadline_s:g} s; the last status says {told}")

    def role(self, kind: str) -> psutil.Process:
        """A process of a kind."""
        for found, process in find_roles(self.process.pid):
            if found == kind:
                return process
        raise ProcessFailed(f"there is no {kind}")

    def tail(self) -> str:
        """The last of what it printed."""
        return self._log.read_text(errors="replace")[-800:]

    def close(self) -> None:
        """End it in order, and all of it if that takes too long."""
        self._observer.close()
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(STOP_S)
            return
        for _, child in find_roles(self.process.pid):
            child.kill()
        self.process.kill()
        self.process.wait(STOP_S)


@contextlib.contextmanager
def training(place: Path, config: Mapping[str, Any], log: Path) -> Iterator[Job]:
    """A job in ``place/run``, which prints to ``log``; it is ended, and must not have ended before."""
    file = log.with_suffix(".yaml")
    file.write_text(yaml.safe_dump({**config, "run": {"dir": str(place), "name": "run"}}))
    paths = os.pathsep.join([str(ROOT / "tests"), os.environ.get("PYTHONPATH", "")])
    with log.open("wb") as out:
        words = headrace("train", str(file))
        environment = {**os.environ, "PYTHONPATH": paths}
        process = subprocess.Popen(
            words, stdout=out, stderr=out, stdin=subprocess.DEVNULL, env=environment, cwd=log.parent, preexec_fn=leash()
        )
    job = None
    try:
        job = Job(place / "run", process, log)
        yield job
        if process.poll() is not None:
            raise ProcessFailed(f"the job ended with {process.returncode}: {job.tail()}")
    finally:
        if job is None:
            process.kill()
            process.wait(STOP_S)
        else:
            job.close()


def undone(before: Status, after: Status) -> int:
    """Streams of which less is acknowledged than was."""
    now = {(a["id"], stream): seq for a in after["actors"] for stream, seq in a["acked"].items()}
    told = {(a["id"], stream): seq for a in before["actors"] for stream, seq in a["acked"].items()}
    return sum(now.get(key, 0) < seq for key, seq in told.items())


def lives(process: psutil.Process) -> bool:
    """Whether it is there and no zombie."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    return False
