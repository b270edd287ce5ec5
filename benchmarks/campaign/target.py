"""A buffer process on one pool directory that is killed and started again, and the writers that outlive it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from campaign import numbered
from campaign.numbered import Found, Verdict, Written
from campaign.process import ProcessFailed
from campaign.writing import ACKED, Progress
from headrace.buffer import generations, snapshot
from headrace.buffer.config import PoolConfig
from headrace.buffer.pacing import PacingConfig
from headrace.buffer.pool import SACReplayPool
from headrace.buffer.query import Observer
from headrace.buffer.server import BufferSettings, serve
from headrace.buffer.view import PoolView
from headrace.common.wire.network import NetworkConfig

HERE = Path(__file__).resolve().parents[1]
SCRIPT = HERE / "kills.py"
POLL_S = 0.002
START_S, STOP_S, ANSWER_S = 60.0, 15.0, 10.0
CHUNK = 8192
SNAPSHOT_KEEP = 2


@dataclass(frozen=True)
class Place:
    """The files of a campaign under one directory."""

    root: Path

    @property
    def pool(self) -> Path:
        """The pool's directory."""
        return self.root / "pool"

    @property
    def snapshots(self) -> Path:
        """Of the snapshots."""
        return self.root / "snapshots"

    @property
    def progress(self) -> Path:
        """The file that writers note in what they know."""
        return self.root / "progress"

    def writing(self, since: float) -> bool:
        """Whether there is a half written snapshot that was begun after the time ``since``; a killed writer leaves one."""
        with contextlib.suppress(FileNotFoundError):
            return (self.snapshots / ".writing").stat().st_ctime >= since
        return False

    def half_changed(self, since: float) -> bool:
        """Whether a generation made after the time ``since`` is not named by the manifest: so only during a change."""
        found = generations.read(self.pool)
        with contextlib.suppress(FileNotFoundError):  # one is swept meanwhile
            others = [p for p in self.pool.glob("generation-*") if found is None or p != found[1]]
            return any(p.stat().st_ctime >= since for p in others)
        return False


def run_buffer(options: dict[str, Any]) -> None:
    """The buffer's process: holds nobody, keeps ``capacity`` rows, and takes a snapshot when asked."""
    place = Place(Path(options["root"]))
    network = NetworkConfig(endpoint=options["endpoint"])
    pool = PoolConfig(capacity=options["capacity"], snapshot_keep=SNAPSHOT_KEEP)
    pacing = PacingConfig(env_steps=0, hold_actors=False, hold_learner=False)
    serve(BufferSettings(network, pool, place.pool, pacing, "kills", 0, snapshot_dir=place.snapshots))


class Target:
    """The processes: writers, which live as long as this, and one buffer at a time.

    Args:
        root: an empty directory.
        rate: rows a second of all writers.
        fill: rows that they write as fast as they can first.
    """

    def __init__(self, root: Path, rate: float, fill: int) -> None:
        self.place = Place(root)
        self.progress = Progress(self.place.progress, create=True)
        self.endpoint = f"tcp://127.0.0.1:{_free_port()}"
        self._log = (root / "log").open("ab", buffering=0)
        self._buffer: subprocess.Popen[bytes] | None = None
        words = {"progress": str(self.place.progress), "endpoint": self.endpoint, "rate": rate, "fill": fill}
        self._writers = self._spawn("--writers", words)

    def start(self, capacity: int) -> float:
        """Start a buffer; the time (seconds since the epoch) just before."""
        begun = time.time()
        self._buffer = self._spawn("--buffer", {"root": str(self.place.root), "endpoint": self.endpoint, "capacity": capacity})
        return begun

    def kill(self, number: int = signal.SIGKILL) -> None:
        """End the buffer, and wait until it is gone."""
        if self._buffer is not None:
            self._buffer.send_signal(number)
            _ended(self._buffer)
            self._buffer = None

    def wait(self, holds: Callable[[], bool], what: str, deadline_s: float = START_S) -> None:
        """Wait until something holds.

        Raises:
            ProcessFailed: it did not within the deadline, or a process ended meanwhile.
        """
        end = time.monotonic() + deadline_s
        while not holds():
            for name, process in (("buffer", self._buffer), ("writers", self._writers)):
                if process is not None and process.poll() is not None:
                    raise ProcessFailed(f"the {name} ended with {process.returncode} before there was {what}: {self._tail()}")
            if time.monotonic() > end:
                raise ProcessFailed(f"no {what} within {deadline_s:g} s: {self._tail()}")
            time.sleep(POLL_S)

    def restart(self, capacity: int) -> float:
        """Start a buffer and wait for the first acknowledgement; how long that took (s)."""
        acks, begun = self.progress.acks(), time.monotonic()
        self.start(capacity)
        self.wait(lambda: self.progress.acks() > acks, "acknowledgement")
        return time.monotonic() - begun

    def ask_snapshot(self) -> float:
        """Have the running buffer begin a snapshot; the time just before."""
        begun = time.time()
        observer = Observer(self.endpoint)
        try:
            observer.ask("snapshot", ANSWER_S)
        finally:
            observer.close()
        return begun

    def close(self) -> None:
        """Kill everything."""
        self.kill()
        self._writers.kill()
        _ended(self._writers)
        self._log.close()

    def _spawn(self, role: str, options: dict[str, Any]) -> subprocess.Popen[bytes]:
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        command = [sys.executable, str(SCRIPT), role, json.dumps(options)]
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=self._log, stderr=self._log, env=environment)

    def _tail(self) -> str:
        lines = (self.place.root / "log").read_text(errors="replace").splitlines()
        return " / ".join(lines[-3:]).replace(str(self.place.root), "")


def audit(place: Place, progress: Progress) -> Verdict:
    """Look at every row of the pool that a dead buffer has left, through its mapped files, and account for all."""
    acked = [int(a) for a in progress.cells[:, ACKED]]
    with PoolView(place.pool) as view:
        found = numbered.collect(_live(view), view.actors())
        counters = view.counters()
    verdict = numbered.judge(found, progress.written(acked), counters)
    refused = progress.rejected()
    problems = (*verdict.problems, f"{refused} rows were refused") if refused else verdict.problems
    return Verdict(verdict.lost, verdict.duplicated, verdict.corrupted, verdict.phantom, problems)


def audit_snapshots(place: Place, progress: Progress) -> Verdict:
    """The newest snapshot must be whole and hold what the streams held at its instant."""
    folders = sorted(p.name for p in place.snapshots.glob("snapshot-*"))
    body = snapshot.read(place.snapshots)
    if body is None:
        return Verdict(0, 0, 0, 0, ("there is no snapshot, though one was made before the first kill",))
    newest = f"snapshot-{body[0]['number']:06d}"
    damaged = () if newest == folders[-1] else (f"{folders[-1]} is there and not whole",)
    with SACReplayPool.from_path(place.snapshots) as pool:
        parts = (pool.gather(np.arange(i, min(i + CHUNK, pool.head))) for i in range(pool.tail, pool.head, CHUNK))
        found, counters = numbered.collect(parts, pool.actors()), pool.counters()
    written = {key: Written(_top(found, key), known.offered) for key, known in progress.written().items()}
    verdict = numbered.judge(found, written, counters)
    return Verdict(verdict.lost, verdict.duplicated, verdict.corrupted, verdict.phantom, (*verdict.problems, *damaged))


def _top(found: Found, key: numbered.Key) -> int:
    seqs = found.seq[(found.writer == key[0]) & (found.stream == key[1])]
    return int(seqs.max()) if len(seqs) else 0


def _live(view: PoolView) -> Iterator[Any]:
    for start in range(view.tail, view.head, CHUNK):
        yield view.live(start, start + CHUNK)


def _ended(process: subprocess.Popen[bytes]) -> None:
    process.wait(STOP_S)
    if process.stdin is not None:
        process.stdin.close()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
