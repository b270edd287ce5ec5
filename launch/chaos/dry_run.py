"""``headrace dry-run``: a robot's own config with a fake arm, fake cameras and a bad network, and what became of it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from headrace.buffer.query import status
from headrace.common.config import dump
from headrace.common.errors import ConfigError, DeadlineExceeded, EnvError
from headrace.launch.chaos.dry_config import dry_config
from headrace.launch.chaos.job import free_port
from headrace.launch.chaos.proxy import Proxy
from headrace.launch.chaos.robot_log import WANTED, RobotLog
from headrace.launch.chaos.tampering import Faults
from headrace.launch.children import Child, headrace_command, role_environment, thread_variables, wait_all
from headrace.launch.config import RunConfig, make_config, read_config
from headrace.launch.exits import FAILED
from headrace.launch.pools import own_pool
from headrace.launch.rundir import RunDir

READY_S, DRAIN_S, END_S, ANSWER_S = 120.0, 15.0, 15.0, 2.0
ARM = "arm"
DELAY_S, QUIET_S = 0.1, 0.6
SHORTEST_S = 5.0
PERIODS = 2  # in which the arm is to be safe once its actor is lost
# When something happens, as a share of the time that the arm acts, what, and for how long (share).
EVENTS = (
    (0.05, "slow link", 0.2),
    (0.30, "link down", 0.15),
    (0.50, "actor stopped", 0.0),
    (0.58, "actor stopped", 0.0),
    (0.66, "learner killed", 0.0),
    (0.74, "buffer killed", 0.0),
    (0.86, "actor killed", 0.0),
)
FREEZE = (0.47, 0.02)  # of the cameras: share of the time, and share that it takes


@dataclass
class Seen:
    """What the buffer said while it ran."""

    spooled: int = 0
    station: dict[str, Any] | None = None
    acked: dict[int, int] | None = None


class DryRun:
    """The processes of one dry run.

    Args:
        config: of :func:`headrace.launch.chaos.dry_config.dry_config`.
        run: its directory.
        record: where the arm writes.
        proxy: stands between actor and buffer.
    """

    def __init__(self, config: RunConfig, run: RunDir, record: Path, proxy: Proxy) -> None:
        self._config, self._run, self._record, self._proxy = config, run, record, proxy
        self._children: dict[str, Child] = {}
        self.seen = Seen(acked={})
        self.lost_at: list[tuple[float, float]] = []
        for role in ("buffer", "learner", "actor"):
            self._start(role)

    @property
    def log(self) -> RobotLog:
        """What the arm has written so far."""
        return RobotLog.read(self._record)

    def wait(self, what: Callable[[], bool], deadline_s: float) -> bool:
        """Look at the run until ``what`` is true, or for so long; whether it is.

        Raises:
            EnvError: a process has ended by itself; the text is what it said last.
        """
        end = time.monotonic() + deadline_s
        while not (done := what()) and time.monotonic() < end:
            for name, child in self._children.items():
                if child.poll() is not None:
                    raise EnvError(f"{name} has ended: {' '.join(child.last_words())}")
            self._look()
            time.sleep(0.1)
        return done

    def happen(self, what: str, seconds: float) -> None:
        """Do what an event says."""
        if what == "slow link":
            self._link(Faults(delay_s=DELAY_S), seconds)
        elif what == "link down":
            self._link(Faults(held=True), seconds)
        elif what == "actor stopped":
            self._lose(signal.SIGSTOP)
            os.kill(self._children["actor"].pid, signal.SIGCONT)
        elif what == "actor killed":
            self._lose(signal.SIGKILL)
            self._restart("actor")
        else:
            self._restart(what.partition(" ")[0])

    def end(self) -> None:
        """Let the actor hand over what it has, and end everything in order."""
        self._children["actor"].terminate()
        wait_all([self._children["actor"]], DRAIN_S)
        self._look()
        for child in self._children.values():
            child.terminate()
        for child in wait_all(list(self._children.values()), END_S):
            child.kill()

    def close(self) -> None:
        """Leave no process behind."""
        for child in self._children.values():
            child.kill()

    def _link(self, faults: Faults, seconds: float) -> None:
        self._proxy.set(faults)
        self.wait(lambda: False, seconds)
        self._proxy.set(Faults())

    def _lose(self, number: int) -> None:
        """Stop or kill the actor while the arm follows it, and wait until it cannot have missed that."""
        end = time.monotonic() + 5.0
        while time.monotonic() < end and not _follows(self.log):
            time.sleep(0.001)
        os.kill(self._children["actor"].pid, number)
        at = time.monotonic()
        time.sleep(QUIET_S)
        self.lost_at.append((at, time.monotonic()))

    def _restart(self, role: str) -> None:
        self._children[role].kill()
        self._start(role)

    def _start(self, role: str) -> None:
        words = [role, str(self._run.path)]
        if role == "actor":
            words += ["--connect", self._proxy.endpoint, "--id", ARM]
        threads = thread_variables(1)
        self._children[role] = Child(role, headrace_command(words), self._run.log(role), role_environment(threads))

    def _look(self) -> None:
        with contextlib.suppress(DeadlineExceeded):
            said = status(self._config.network.endpoint, ANSWER_S)
            for actor in (a for a in said["actors"] if a["id"] == ARM):
                self.seen.spooled = max(self.seen.spooled, int(actor.get("spooled_steps", 0)))
                self.seen.station = actor.get("station") or self.seen.station
                self.seen.acked = {int(stream): seq for stream, seq in actor["acked"].items()}


def dry_run_command(path: Path, overrides: Sequence[str], seconds: float, place: Path | None, *, as_json: bool) -> int:
    """``headrace dry-run``.

    Raises:
        ConfigError: too short a time, a directory that is there already, or as :func:`dry_run`.
    """
    if seconds < SHORTEST_S:
        raise ConfigError(f"--seconds: {seconds:g} is too short for what happens; nearest valid: {SHORTEST_S:g}")
    place = (place or Path("runs") / time.strftime("dry-%Y%m%d-%H%M%S")).absolute()
    if place.exists():
        raise ConfigError(f"--dir: {place} is there already; name a new directory")
    return dry_run(make_config(read_config(path), overrides), seconds, place, as_json=as_json)


def dry_run(config: RunConfig, seconds: float, place: Path, *, as_json: bool) -> int:
    """Run dry for ``seconds`` in which the arm acts, and print what came of it; 0 when nothing was lost or carried out late.

    Raises:
        ConfigError: the config is not that of a robot with limits.
        EnvError: a process ended by itself.
        DeadlineExceeded: the arm never acted.
    """
    record, endpoint = place / "robot.jsonl", f"tcp://127.0.0.1:{free_port()}"
    begin = FREEZE[0] * seconds
    dry = dry_config(config, record, endpoint, (begin, begin + max(1.0, FREEZE[1] * seconds)))
    place.mkdir(parents=True)
    run = RunDir.create(place / "run", dump(dry))
    with Proxy(endpoint, config.seed) as proxy:
        made = DryRun(dry, run, record, proxy)
        try:
            _tell(f"dry run of {config.env.id} in {place}: waiting for the arm to act")
            if not made.wait(lambda: made.log.count("policy") > 0, READY_S):
                raise DeadlineExceeded(f"the arm did not act within {READY_S:g} s; look into {run.path / 'logs'}")
            began = time.monotonic()
            for share, what, lasts in EVENTS:
                made.wait(lambda at=share: time.monotonic() - began > at * seconds, seconds)  # type: ignore[misc]  # bound now
                _tell(f"{time.monotonic() - began:5.1f} s: {what}")
                made.happen(what, lasts * seconds)
            made.wait(lambda: time.monotonic() - began > seconds, seconds)
            made.end()
        finally:
            made.close()
    report = summarise(made.log, made.lost_at, made.seen, proxy.counts(), stored(run.pool_dir(dry.run.pool_dir)), dry)
    (place / "report.json").write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    print(table(report))
    if as_json:
        print(json.dumps(report))
    return 0 if report["passed"] else FAILED


def stored(pool: Path) -> list[tuple[int, int]]:
    """(stream, seq) of every row of the arm in a pool that nobody owns."""
    with own_pool(pool) as opened:
        return [(int(row["stream"]), int(row["seq"])) for row in opened.dump()]


def summarise(
    log: RobotLog,
    lost_at: Sequence[tuple[float, float]],
    seen: Seen,
    network: dict[str, int],
    rows: Sequence[tuple[int, int]],
    config: RunConfig,
) -> dict[str, Any]:
    """All that is known, as one object; ``passed`` says whether each promise was kept.

    Args:
        log: what the arm was told.
        lost_at: when the actor was stopped or killed, and until when it was away.
        seen: what the buffer said.
        network: counters of the proxy.
        rows: (stream, seq) in the pool.
        config: of the run.
    """
    safe = [log.safe_s(at, until) for at, until in lost_at]
    known = [1e3 * s for s in safe if s is not None]
    counts = Counter(rows)
    station = seen.station or {}
    missing = sum(seq - sum(s == stream for s, _ in counts) for stream, seq in (seen.acked or {}).items())
    report: dict[str, Any] = {
        "stale_commands": log.stale_commands,
        "crossed_resets": log.crossed_resets,
        "safe_ms_p99": round(float(np.percentile(known, 99)), 3) if known else None,
        "period_ms": log.period_ms[0],
        "period_ms_p99": log.period_ms[1],
        "lost": max(0, missing),
        "duplicated": sum(n - 1 for n in counts.values()),
        "overruns": station.get("overruns", 0),
        "spooled": seen.spooled,
        "commands": log.count("policy"),
        "held": log.count("hold"),
        "stopped": log.count("stop"),
        "episodes": log.count("reset"),
        "rows": len(rows),
        "dropped": station.get("dropped", {}),
        "guard": station.get("guard", {}),
        "network": network,
    }
    safely = None not in safe and all(ms <= PERIODS * 1e3 / config.robot.rate_hz for ms in known)
    kept = [report[name] == 0 for name in ("stale_commands", "crossed_resets", "lost", "duplicated")]
    return {**report, "passed": all(kept) and safely and bool(known)}


def table(report: dict[str, Any]) -> str:
    """The report for people."""
    about = {
        "stale_commands": "carried out after their deadline; 0 is asked for",
        "crossed_resets": "of an episode that was over; 0 is asked for",
        "safe_ms_p99": f"from the loss of the actor to a hold (ms); {PERIODS} periods are allowed",
        "period_ms": "from one command to the next, p50 (ms)",
        "period_ms_p99": "p99 (ms)",
        "lost": "rows that were acknowledged and are not in the pool; 0 is asked for",
        "duplicated": "rows that are there twice; 0 is asked for",
        "overruns": "periods that were left out, of the last actor",
        "spooled": "most steps that waited for the buffer",
        "commands": "of the policy",
        "held": "periods in which the arm held, those between episodes too",
        "stopped": "times that it was stopped and armed again",
        "episodes": "that were begun",
    }
    lines = [f"{name:<16} {report[name]!s:>10}  {text}" for name, text in about.items()]
    lines += [f"{name:<16} {report[name]}" for name in ("dropped", "guard")]
    return "\n".join([*lines, "passed" if report["passed"] else "NOT passed"])


def _follows(log: RobotLog) -> bool:
    return bool(log.lines) and log.lines[-1].get("kind") in WANTED


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
