"""A run over several hosts by what `headrace launch plan` prints: each host starts its own processes, again and again, as an
init system would."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from campaign.lan import Lan
from campaign.process import ProcessFailed, headrace
from campaign.records import ROOT
from headrace.common.wire.network import NetworkConfig
from headrace.launch.children import thread_variables
from headrace.launch.exits import MUST_NOT_RESTART, USAGE
from headrace.launch.leash import leash

CONFIG, TOPOLOGY, KEYS, NAME = "run.yaml", "cluster.yaml", "keys", "run"
PLAN_S, END_S = 60.0, 60.0
REST_S = 2.0  # as RestartSec of the units that `headrace launch plan` writes
LINES = 12
# Both ends of a copy are on this machine, so ssh is a shell and scp is cp; what the plan prints is what is run.
TOOLS = {
    "ssh": 'shift\nexec sh -c "$*"',
    "scp": 'for word; do shift; case $word in *:/*) word=${word##*:} ;; esac; set -- "$@" "$word"; done\nexec cp "$@"',
}

Status = dict[str, Any]


class Process:
    """One process of the plan: a child of this script on its host.

    Attributes:
        name: in the plan.
        kind: ``buffer``, ``learner``, ``actor`` or ``evaluator``.
        host: by its name.
        starts: how often it was started.
        code: its exit code, once it has ended in order.
    """

    def __init__(self, start: Mapping[str, Any], log: Path) -> None:
        self.name, self.kind, self.host = str(start["name"]), str(start["kind"]), str(start["host"])
        self._start, self._log = start, log
        self._process: subprocess.Popen[bytes] | None = None
        self._again_at = 0.0
        self.starts = 0
        self.code: int | None = None

    def start(self, words: Sequence[str], environment: Mapping[str, str]) -> None:
        """Start it on its host, behind ``words``."""
        own = {**environment, **self._start["variables"]}
        with self._log.open("ab") as out:
            self._process = subprocess.Popen(
                [*words, *self._start["words"]],
                cwd=self._start["directory"],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env=own,
                start_new_session=True,
                preexec_fn=leash(),
            )
        self.starts += 1
        self.code = None

    @property
    def is_due(self) -> bool:
        """Whether it is to be started again: it has ended with an error, some time ago.

        Raises:
            ProcessFailed: it would fail in the same way again.
        """
        code = None if self._process is None else self._process.poll()
        if code is None or self.code == 0:
            return False
        if self.code is None:
            self.code, self._again_at = code, time.monotonic() + REST_S
        if code in (USAGE, MUST_NOT_RESTART):
            raise ProcessFailed(f"{self.name} ended with {code}:\n{self.last_words()}", code)
        return code != 0 and time.monotonic() >= self._again_at

    def reap(self) -> None:
        """It was killed with its host."""
        if self._process is not None:
            self._process.wait(END_S)
        self._process, self.code = None, None

    def end(self) -> int:
        """Ask it to end; its exit code."""
        if self._process is None:
            return 0
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(END_S)

    def last_words(self) -> str:
        """The last lines of its log."""
        lines = self._log.read_text(encoding="utf-8", errors="replace").splitlines()
        return "\n".join(f"  {line}" for line in lines[-LINES:])


class Cluster:
    """All processes of a topology.

    Args:
        lan: the hosts.
        place: empty directory, in which each host has one of its own.
        config: of the run, plain values.
        roles: of the topology: ``buffers``, ``ranks``, ``actors``, ``evaluator``.

    Attributes:
        lan: the hosts.
        endpoints: of the buffers, the home shard's first.
        network: of whoever looks on.
        killed: pids that went with a host.
    """

    def __init__(self, lan: Lan, place: Path, config: Mapping[str, Any], roles: Mapping[str, Any]) -> None:
        self.lan, self._place = lan, place
        self._environment = {**os.environ, **thread_variables(1), "PYTHONUNBUFFERED": "1"}
        found = os.pathsep.join(filter(None, (str(ROOT / "benchmarks"), os.environ.get("PYTHONPATH"))))
        self._environment["PYTHONPATH"] = found
        self._write(config, roles)
        plan = json.loads(self._planned("--format", "json"))
        self._carry_out(self._planned().partition("# 1. ")[0])
        self.processes = [Process(start, place / f"{start['name']}.log") for start in plan["starts"]]
        self.endpoints: list[str] = plan["endpoints"]
        home = next(p.host for p in self.processes if p.kind == "buffer")
        self.network = NetworkConfig(keys=str(self.directory(home) / KEYS))
        self.killed: frozenset[int] = frozenset()

    def directory(self, host: str) -> Path:
        """The working directory of a host."""
        return self._place / host

    def run_dir(self, process: Process) -> Path:
        """The run directory of a process."""
        return self.directory(process.host) / "runs" / NAME

    def of_kind(self, kind: str) -> Iterator[Process]:
        """Processes of one kind, in the plan's order."""
        return (process for process in self.processes if process.kind == kind)

    def start(self) -> None:
        """Start everything."""
        for process in self.processes:
            self._begin(process)

    def look(self) -> None:
        """Start again what has ended with an error; raises :class:`ProcessFailed` for what would fail in the same way."""
        for process in self.processes:
            if process.is_due:
                self._begin(process)

    def crash(self, host: str) -> None:
        """The host's processes end at once, and nobody is told."""
        self.killed |= self.lan.hosts[host].crash()
        for process in self._on(host):
            process.reap()

    def boot(self, host: str) -> None:
        """The host starts what it had before."""
        self.lan.hosts[host].boot()
        for process in self._on(host):
            self._begin(process)

    @property
    def has_left(self) -> bool:
        """Whether all have ended in order, but for the buffers, which nobody tells to."""
        return all(process.code == 0 for process in self.processes if process.kind != "buffer")

    def end(self) -> None:
        """End the buffers in order; raises :class:`ProcessFailed` where one does not."""
        for process in reversed(list(self.of_kind("buffer"))):
            if code := process.end():
                raise ProcessFailed(f"{process.name} ended with {code}:\n{process.last_words()}", code)

    def _begin(self, process: Process) -> None:
        process.start(self.lan.hosts[process.host].words, self._environment)

    def _on(self, host: str) -> list[Process]:
        return [process for process in self.processes if process.host == host]

    def _write(self, config: Mapping[str, Any], roles: Mapping[str, Any]) -> None:
        """A directory for each host, with the run's config and the topology."""
        hosts = {
            name: {"address": host.address, "directory": str(self.directory(name)), "interface": "eth0"}
            for name, host in self.lan.hosts.items()
        }
        topology = {"config": CONFIG, "name": NAME, "command": headrace()[0], "keys": KEYS, "hosts": hosts, **roles}
        for name in hosts:
            self.directory(name).mkdir()
            for file, content in ((CONFIG, config), (TOPOLOGY, topology)):
                (self.directory(name) / file).write_text(yaml.safe_dump(dict(content)), encoding="utf-8")

    def _planned(self, *words: str) -> str:
        path = self.directory(next(iter(self.lan.hosts))) / TOPOLOGY
        return self._tool(headrace("launch", "plan", str(path), *words))

    def _carry_out(self, lines: str) -> None:
        """Run lines of the plan."""
        tools = self._place / "tools"
        tools.mkdir()
        for name, script in TOOLS.items():
            (tools / name).write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
            (tools / name).chmod(0o755)
        self._tool(["sh", "-e", "-c", lines], PATH=f"{tools}{os.pathsep}{os.environ['PATH']}")

    def _tool(self, words: Sequence[str], **variables: str) -> str:
        environment = {**self._environment, **variables}
        done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=PLAN_S, check=False)
        if done.returncode:
            raise ProcessFailed(f"{shlex.join(words)[:200]}: {done.stderr.strip()}", done.returncode)
        return done.stdout
