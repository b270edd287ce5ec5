"""Real role processes for system tests: started by the command line, killed by pid, never left behind."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from headrace.buffer.query import status
from headrace.common.config import load
from headrace.common.errors import DeadlineExceeded
from headrace.common.wire.network import NetworkConfig
from headrace.launch.leash import leash

TESTS = Path(__file__).resolve().parents[1]


def free_port() -> int:
    """A port that was free a moment ago."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


class Roles:
    """The processes of one run.

    Args:
        directory: holds config and logs.
        config: the run's config.
    """

    def __init__(self, directory: Path, config: dict[str, Any]) -> None:
        self.directory = directory
        self.endpoint = f"tcp://127.0.0.1:{free_port()}"
        self.run = directory / "run"
        self.config = directory / "config.yaml"
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        base = {"run": {"dir": str(directory), "name": "run"}, "network": {"heartbeat_s": 0.1, "lease_s": 1.0, "connect_s": 60}}
        whole = {**base, **config}
        self.network = load(NetworkConfig, whole["network"], "network")
        self.endpoint = self.network.shards[0] if self.network.shards else self.endpoint
        self.config.write_text(yaml.safe_dump(whole))

    def start(self, name: str, *words: str) -> subprocess.Popen[bytes]:
        """Start ``headrace WORDS`` under ``name``; its output goes to a log file."""
        return self.start_words(name, [sys.executable, "-P", "-m", "headrace", *words])

    def buffer(self, before: Sequence[str] = ()) -> subprocess.Popen[bytes]:
        """Start the buffer; the words ``before`` run its command line."""
        words = ["-P", "-m", "headrace", "buffer", str(self.config), "--bind", self.endpoint]
        return self.start_words("buffer", [*before, sys.executable, *words])

    def shard(self, number: int) -> subprocess.Popen[bytes]:
        """Start a further buffer, as ``buffer-NUMBER``; the config names where all listen (:func:`with_shards`)."""
        words = ["-P", "-m", "headrace", "buffer", str(self.config), "--shard", str(number)]
        return self.start_words(f"buffer-{number}", [sys.executable, *words])

    def actor(self, name: str, *words: str, through: str = "", before: Sequence[str] = ()) -> subprocess.Popen[bytes]:
        """Start an actor with this id, which dials ``through`` a proxy; the words ``before`` run its command line."""
        command = ["-P", "-m", "headrace", "actor", str(self.config), "--connect", through or self.endpoint, "--id", name]
        return self.start_words(name, [*before, sys.executable, *command, *words])

    def ranks(self, size: int) -> subprocess.Popen[bytes]:
        """Start a learner of ``size`` ranks by torchrun, as ``learner``; its workers are its children."""
        engine = ["-m", "torch.distributed.run", "--nproc-per-node", str(size), "--master-port", str(free_port())]
        words = ["-m", "headrace", "learner", str(self.config), "--connect", self.endpoint]
        return self.start_words("learner", [sys.executable, *engine, *words])

    def canary(
        self, batch_size: int, publish_every: int, seconds: float, reading: str = "auto", compression: str = "none"
    ) -> subprocess.Popen[bytes]:
        """Start the stand-in learner."""
        words = ["--batch-size", str(batch_size), "--publish-every", str(publish_every), "--seconds", str(seconds)]
        words += ["--reading", reading, "--compression", compression]
        words += [word for shard in self.network.shards[1:] for word in ("--shard", shard)]
        return self.start_words("canary", [sys.executable, "-P", "-m", "headrace.launch.chaos.canary", self.endpoint, *words])

    def log(self, name: str) -> str:
        """What a process has printed."""
        return (self.directory / f"{name}.log").read_text(errors="replace")

    def kill(self, name: str) -> None:
        """SIGKILL."""
        self.processes[name].kill()
        self.processes[name].wait(10)

    def status(self, deadline_s: float = 10.0) -> dict[str, Any]:
        """The buffer's status."""
        return status(self.endpoint, deadline_s, self.network)

    def wait(self, what: Callable[[dict[str, Any]], bool], deadline_s: float, watch: tuple[str, ...] = ()) -> dict[str, Any]:
        """Wait until the status satisfies ``what``; until then processes named in ``watch`` must stay alive."""
        end = time.monotonic() + deadline_s
        last: dict[str, Any] = {}
        while time.monotonic() < end:
            ended = [name for name in watch if self.processes[name].poll() is not None]
            with contextlib.suppress(DeadlineExceeded):
                last = self.status(1.0)  # later than that look: who ended because it is so is not who ended too early
                if what(last):
                    return last
            for name in ended:
                raise AssertionError(f"{name} ended with {self.processes[name].returncode}:\n{self.log(name)[-2000:]}")
            time.sleep(0.05)
        logs = "".join(f"\n--- {name}\n{self.log(name)[-800:]}" for name in self.processes)
        raise AssertionError(f"not within {deadline_s} s; last status {last}{logs}")

    def stop(self) -> dict[str, int]:
        """SIGTERM all, actors first; exit codes."""
        order = sorted(self.processes, key=lambda name: name.startswith("buffer"))
        codes = {}
        for name in order:
            process = self.processes[name]
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
            codes[name] = process.wait(20)
        return codes

    def start_words(self, name: str, words: list[str]) -> subprocess.Popen[bytes]:
        """Start a command line under ``name``; its output goes to a log file."""
        found = os.pathsep.join(filter(None, (str(TESTS), os.environ.get("PYTHONPATH"))))
        environment = {**os.environ, "PYTHONPATH": found, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        with (self.directory / f"{name}.log").open("ab") as log:
            options = {"stdout": log, "stderr": log, "env": environment, "cwd": self.directory}
            self.processes[name] = subprocess.Popen(words, **options, preexec_fn=leash())
        return self.processes[name]


@contextlib.contextmanager
def roles(directory: Path, config: dict[str, Any]) -> Iterator[Roles]:
    """Processes that are killed at the end, whatever happens."""
    made = Roles(directory, config)
    try:
        yield made
    finally:
        for process in made.processes.values():
            if process.poll() is None:
                process.kill()
            process.wait(10)


def with_shards(config: dict[str, Any], shards: int) -> dict[str, Any]:
    """``config`` with so many buffers on this host."""
    network = {"heartbeat_s": 0.1, "lease_s": 1.0, "connect_s": 60}
    return {**config, "network": {**network, "shards": [f"tcp://127.0.0.1:{free_port()}" for _ in range(shards)]}}


def scripted(**changes: Any) -> dict[str, Any]:
    """A config whose rows prove themselves."""
    kwargs = {"lengths": [7, 3, 11], "ends": ["terminated", "truncated"]}
    config: dict[str, Any] = {
        "env": {"id": "headrace.launch.chaos.scripted:make", "kwargs": kwargs},
        "pool": {"capacity": 3000},
        "pacing": {"min_fill": 256, "env_steps": 6000, "random_steps": 100, "lead_steps": 128},
        "learner": {"batch_size": 64},
    }
    for key, value in changes.items():
        config[key] = {**config.get(key, {}), **value}
    return config
