"""A buffer process on one pool directory that is killed and started again, and the writers that outlive it."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
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
from campaign.numbered import Found, Rows, Verdict, Written
from campaign.process import ProcessFailed
from campaign.writing import ACKED, OFFERED, REJECTED, WRITERS, Array, Progress
from headrace.buffer import generations, manifest, snapshot
from headrace.buffer.config import PoolConfig, SamplingConfig
from headrace.buffer.pacing import PacingConfig
from headrace.buffer.pool import SACReplayPool
from headrace.buffer.query import Observer
from headrace.buffer.server import serve
from headrace.buffer.settings import BufferSettings
from headrace.common import boot
from headrace.common.config import load
from headrace.common.wire.network import NetworkConfig

HERE = Path(__file__).resolve().parents[1]
SCRIPT = HERE / "kills.py"
POLL_S = 0.002
START_S, STOP_S, ANSWER_S = 300.0, 60.0, 60.0  # deadlines, and nothing measured: on a busy machine all of it is slow
CHUNK = 8192
SNAPSHOT_KEEP = 2
SAMPLING = SamplingConfig(method="prioritised", priority_eps=numbered.PRIORITY_EPS)


@dataclass(frozen=True)
class Place:
    """The files of a campaign: under ``root``, and those of the buffer under ``disk``."""

    root: Path
    disk: Path

    @property
    def pool(self) -> Path:
        """The pool's directory."""
        return self.disk / "pool"

    @property
    def snapshots(self) -> Path:
        """Of the snapshots."""
        return self.disk / "snapshots"

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
    """The buffer's process: holds nobody, keeps ``capacity`` rows, draws by priority, and takes a snapshot when asked.

    ``boot`` names the file that says which boot of the machine this is; ``unsynced`` plants a fault: nothing is synced.
    """
    if options["boot"]:
        boot.BOOT_ID = Path(options["boot"])
    if options["unsynced"]:
        os.fdatasync = lambda fd: None
    place = Place(Path(options["root"]), Path(options["disk"]))
    serve(settings(place, options["capacity"], options["ack"], options["endpoint"]))


def settings(place: Place, capacity: int, ack: str, endpoint: str = "tcp://127.0.0.1:0") -> BufferSettings:
    """Of a buffer on the files of ``place``."""
    pool = PoolConfig(capacity=capacity, ack=ack, snapshot_keep=SNAPSHOT_KEEP)
    pacing = PacingConfig(env_steps=0, hold_actors=False, hold_learner=False)
    network = NetworkConfig(endpoint=endpoint)
    return BufferSettings(network, pool, place.pool, pacing, "kills", 0, snapshot_dir=place.snapshots, sampling=SAMPLING)


class Target:
    """The processes: writers, which live as long as this, and one buffer at a time.

    Args:
        root: an empty directory.
        rate: rows a second of all writers.
        fill: rows that they write as fast as they can first.
        ack: what an acknowledgement stands for, ``pool.ack``.
        through: the endpoint that each writer dials, from the buffer's; none: that one.
        largest: rows of a writer's largest message; none: as it comes.

    Attributes:
        place: where the buffer's files are; may be changed while there is no buffer.
    """

    def __init__(
        self,
        root: Path,
        rate: float,
        fill: int,
        ack: str = "memory",
        through: Callable[[str], list[str]] | None = None,
        largest: int | None = None,
    ) -> None:
        self.place = Place(root, root)
        self.progress = Progress(self.place.progress, create=True)
        self.endpoint = f"tcp://127.0.0.1:{_free_port()}"
        self._ack = ack
        self._log = (root / "log").open("ab", buffering=0)
        self._buffer: subprocess.Popen[bytes] | None = None
        endpoints = through(self.endpoint) if through else [self.endpoint] * WRITERS
        words = {"progress": str(self.place.progress), "endpoints": endpoints, "rate": rate, "fill": fill}
        words["largest"] = largest
        self._writers = self._spawn("--writers", words)

    def start(self, capacity: int, *, boot: Path | None = None, unsynced: bool = False) -> float:
        """Start a buffer; the time (seconds since the epoch) just before."""
        begun = time.time()
        place = {"root": str(self.place.root), "disk": str(self.place.disk), "endpoint": self.endpoint}
        how = {"ack": self._ack, "boot": str(boot or ""), "unsynced": unsynced}
        self._buffer = self._spawn("--buffer", {**place, "capacity": capacity, **how})
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
                    raise ProcessFailed(f"the {name} ended with {process.returncode} before there was {what}: {self._seen()}")
            if time.monotonic() > end:
                raise ProcessFailed(f"no {what} within {deadline_s:g} s: {self._seen()}")
            time.sleep(POLL_S)

    def restart(self, capacity: int, *, boot: Path | None = None, unsynced: bool = False) -> float:
        """Start a buffer and wait for the first acknowledgement; how long that took (s)."""
        acks, begun = self.progress.acks(), time.monotonic()
        self.start(capacity, boot=boot, unsynced=unsynced)
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

    def _seen(self) -> str:
        """What there is to say of a wait that was in vain."""
        lines = (self.place.root / "log").read_text(errors="replace").splitlines()
        log = " / ".join(lines[-3:]).replace(str(self.place.root), "") if lines else "nobody wrote to the log"
        codes = {"buffer": self._buffer and self._buffer.poll(), "writers": self._writers.poll()}
        gone = [f"the {name} ended with {code}" for name, code in codes.items() if code is not None]
        gone += ["there is no buffer"] if self._buffer is None else []
        alive = ", ".join(gone) or "buffer and writers run"
        pool = "a pool" if os.path.exists(self.place.pool / manifest.NAME) else "no pool yet"
        offered, acked = self.progress.total(OFFERED), self.progress.acked()
        rows = f"{offered} rows offered, {acked} acknowledged in {self.progress.acks()} answers"
        return f"{log}; {alive}; {pool}; {rows}; load {os.getloadavg()[0]:.1f} of {os.cpu_count()} cores"


def audit_copy(place: Place, progress: Progress) -> Verdict:
    """Open a copy of the pool that a dead buffer has left, as the next buffer will open it, and account for everything."""
    before, copy = progress.known(), place.root / "copy"
    shutil.copytree(place.pool, copy, ignore=shutil.ignore_patterns("*lock"))
    try:
        return audit(copy, progress, before)
    finally:
        shutil.rmtree(copy)


def audit(pool_dir: Path, progress: Progress, before: Array, *, thorough: bool = False) -> Verdict:
    """Open a pool that nobody owns, look at every row, and account for all that was acknowledged ``before``.

    ``thorough`` also asks the pool whether its parts agree, which takes longer.
    """
    found = generations.read(pool_dir)
    if found is None:
        return Verdict(lost=int(before[:, ACKED].sum()), problems=("there is no pool",))
    capacity = load(PoolConfig, found[0]["config"], "pool").capacity
    with SACReplayPool(capacity, path=pool_dir, sampling=SAMPLING) as pool:
        priorities = np.load(found[1] / "priority.npy", mmap_mode="r")
        seen, counters = numbered.collect(_rows(pool, priorities), pool.actors()), pool.counters()
        valid, why = pool.check_valid() if thorough else (True, "")
    refused = progress.total(REJECTED)
    problems = [*([] if valid else [why]), *([f"{refused} rows or labels were refused"] if refused else [])]
    return numbered.judge(seen, progress.written(before), counters) + Verdict(problems=tuple(problems))


def audit_snapshots(place: Place, progress: Progress) -> Verdict:
    """The newest snapshot must be whole and hold what the streams held at its instant."""
    folders = sorted(p.name for p in place.snapshots.glob("snapshot-*"))
    body = snapshot.read(place.snapshots)
    if body is None:
        return Verdict(problems=("there is no snapshot, though one was made before the first kill",))
    newest = f"snapshot-{body[0]['number']:06d}"
    damaged = () if newest == folders[-1] else (f"{folders[-1]} is there and not whole",)
    with SACReplayPool.from_path(place.snapshots) as pool:
        return judge_instant(pool, progress)[0] + Verdict(problems=damaged)


def judge_instant(pool: SACReplayPool, progress: Progress) -> tuple[Verdict, Array]:
    """A pool must hold what the streams held at some instant; and each writer's last seq in it, ``(WRITERS,)``."""
    found, counters = numbered.collect(_rows(pool), pool.actors()), pool.counters()
    known = progress.written(progress.known())
    written = {key: Written(_top(found, key), w.offered, 0, w.labels) for key, w in known.items()}
    tops = np.array([max((w.acked for (i, _), w in written.items() if i == writer), default=0) for writer in range(WRITERS)])
    return numbered.judge(found, written, counters), tops


def _top(found: Found, key: numbered.Key) -> int:
    seqs = found.seq[(found.writer == key[0]) & (found.stream == key[1])]
    return int(seqs.max()) if len(seqs) else 0


def _rows(pool: SACReplayPool, priorities: Array | None = None) -> Iterator[Rows]:
    """All rows, in order."""
    for start in range(pool.tail, pool.head, CHUNK):
        ids = np.arange(start, min(start + CHUNK, pool.head))
        discarded = ~np.isin(ids, pool.live(start, start + CHUNK).ids)
        yield Rows(pool.gather(ids), discarded, None if priorities is None else priorities[ids % len(priorities)])


def _ended(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        raise ProcessFailed(f"process {process.pid} was told to end and has not within {STOP_S:g} s") from None
    finally:
        if process.stdin is not None:
            process.stdin.close()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
