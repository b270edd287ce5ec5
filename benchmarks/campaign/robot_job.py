"""A robot's job on two hosts: buffer and learner here, the arm with its actor there, keys between them."""

from __future__ import annotations

import contextlib
import shutil
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

from campaign.process import ProcessFailed
from campaign.two_hosts import HERE, TwoHosts
from headrace.buffer.query import Observer
from headrace.common.config import merge
from headrace.common.errors import DeadlineExceeded
from headrace.common.wire.key_files import KeyFiles
from headrace.common.wire.keys import LEARNER, OPERATOR
from headrace.common.wire.network import NetworkConfig
from headrace.launch.chaos.robot_log import RobotLog
from headrace.launch.children import Child, headrace_command, role_environment, thread_variables, wait_all
from headrace.launch.rundir import RunDir

ARM, PORT = "arm-0", 5555
ANSWER_S, END_S = 2.0, 30.0
TAIL_BYTES = 1 << 16  # of the arm's record: some minutes
SPOOL_BYTES = 2 << 30  # 10 minutes at 20 Hz: 12,000 steps of 98 kB, and a fifth picture for each four
RUN = "run"


class RobotJob:
    """The processes of one run.

    Args:
        hosts: where they run.
        place: empty directory for all files.
        config: of the run, plain values.

    Attributes:
        record: where the arm writes down what it is told.
        run: the run directory on this host.
        left: exit codes of roles that have ended in order.
        left_at: when the actor was killed, or asked to leave before the run's end (monotonic s).
    """

    def __init__(self, hosts: TwoHosts, place: Path, config: Mapping[str, Any]) -> None:
        self.hosts, self.place = hosts, place
        self.record, self.run = place / "arm.jsonl", RunDir(place / RUN)
        keys, robot_keys = place / "keys", place / "robot-keys"
        files = KeyFiles(keys)
        for name, role in ((ARM, "actor"), (LEARNER, LEARNER), (OPERATOR, OPERATOR)):
            files.new(name, role)
        robot_keys.mkdir(mode=0o700)
        shutil.copy2(files.secret_path(ARM), robot_keys)
        own = {
            "env": {"kwargs": {"record": str(self.record)}},
            "run": {"dir": str(place), "name": RUN},
            "network": {"keys": str(keys), "endpoint": f"tcp://0.0.0.0:{PORT}"},
        }
        self._config = merge(config, own)
        spool = {"spool": str(place / "spool"), "spool_bytes": SPOOL_BYTES}
        self._robot = merge(self._config, {"network": {"keys": str(robot_keys)}, "actor": spool})
        self._children: dict[str, Child] = {}
        self._observer = Observer(f"tcp://{HERE}:{PORT}", NetworkConfig(keys=str(keys)))
        self.left: dict[str, int] = {}
        self.left_at: list[float] = []
        self._write("gpu", self._config)
        self.guard({})

    def guard(self, changes: Mapping[str, Any]) -> None:
        """Change the guard of actors that start from now on."""
        self._write("robot", merge(self._robot, {"robot": {"guard": dict(changes)}}))

    @property
    def log(self) -> RobotLog:
        """What the arm has written in the last minutes."""
        return RobotLog.read(self.record, TAIL_BYTES)

    def start(self, role: str) -> None:
        """Start ``buffer``, ``learner`` or ``actor``."""
        where = {
            "buffer": ["gpu.yaml", "--bind", f"tcp://0.0.0.0:{PORT}"],
            "learner": ["gpu.yaml", "--connect", f"tcp://127.0.0.1:{PORT}"],
            "actor": ["robot.yaml", "--connect", f"tcp://{HERE}:{PORT}", "--id", ARM],
        }[role]
        command = headrace_command([role, str(self.place / where[0]), *where[1:]])
        before = self.hosts.on_robot if role == "actor" else []
        environment = role_environment(thread_variables(1))
        self._children[role] = Child(role, [*before, *command], self.place / f"{role}.log", environment)

    def status(self) -> dict[str, Any]:
        """What the buffer says; empty when it says nothing in time."""
        with contextlib.suppress(DeadlineExceeded):
            return self._observer.status(ANSWER_S)
        return {}

    def arm(self, status: Mapping[str, Any]) -> dict[str, Any]:
        """What a status says of the arm's actor; empty when it is not there."""
        found: list[dict[str, Any]] = [actor for actor in status.get("actors", ()) if actor["id"] == ARM]
        return found[0] if found else {}

    def wait(self, what: Callable[[], bool], deadline_s: float, every_s: float = 0.1) -> bool:
        """Look until ``what`` is true, or for so long; whether it is.

        Raises:
            ProcessFailed: a role has ended with an error.
        """
        end = time.monotonic() + deadline_s
        while not (done := what()) and time.monotonic() < end:
            self.look()
            time.sleep(every_s)
        return done

    def look(self) -> None:
        """Note who has left.

        Raises:
            ProcessFailed: a role has ended with an error.
        """
        for role, child in self._children.items():
            if role not in self.left and (code := child.poll()) is not None:
                if code:
                    raise ProcessFailed(f"{role} ended with {code}: {' '.join(child.last_words())}", code)
                self.left[role] = code

    def hurt(self, role: str, how: str) -> float:
        """Kill, stop or cut off a role; when."""
        if (role, how) == ("actor", "kill"):
            self.left_at.append(time.monotonic())
        if how != "partition":
            self._children[role].signal(signal.SIGKILL if how == "kill" else signal.SIGSTOP)
        elif role == "learner":
            self.hosts.inside(whole=False)
        else:
            self.hosts.cable(whole=False)
        return time.monotonic()

    def mend(self, role: str, how: str) -> None:
        """Undo it."""
        if how == "kill":
            self._children[role].kill()
            self.start(role)
        elif how == "stop":
            self._children[role].signal(signal.SIGCONT)
        elif role == "learner":
            self.hosts.inside(whole=True)
        else:
            self.hosts.cable(whole=True)

    def restart(self, role: str) -> None:
        """End a role in order and start it again."""
        if role == "actor":
            self.left_at.append(time.monotonic())
        self._children[role].terminate()
        wait_all([self._children[role]], END_S)
        self.left.pop(role, None)
        self.start(role)

    def spill(self) -> None:
        """Kill the actor and lose what waits in its spool."""
        self.hurt("actor", "kill")
        self._children["actor"].kill()
        shutil.rmtree(self.place / "spool")
        self.start("actor")

    def end(self) -> None:
        """End what still runs, in order."""
        rest = [child for role, child in self._children.items() if role not in self.left]
        for child in rest:
            child.terminate()
        for child in wait_all(rest, END_S):
            child.kill()

    def close(self) -> None:
        """Leave no process behind."""
        for child in self._children.values():
            child.kill()
        self._observer.close()

    def _write(self, name: str, config: Mapping[str, Any]) -> None:
        (self.place / f"{name}.yaml").write_text(yaml.safe_dump(dict(config)), encoding="utf-8")
