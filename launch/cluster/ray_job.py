"""A topology on Ray: each process of the plan is the child of a Ray task on a node of its host, which Ray repeats when it dies.

A node says whose host it is by a resource of that name: ``ray start --resources '{"near": 1}'``.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from headrace.common.errors import ConfigError, HeadraceError
from headrace.launch.children import role_environment
from headrace.launch.cluster.plan import ACTOR, Start, make_plan
from headrace.launch.cluster.shown import summary
from headrace.launch.cluster.topology import Topology, read_topology
from headrace.launch.exits import FAILED, MUST_NOT_RESTART, STOPPED, USAGE
from headrace.launch.leash import PARENT, leash
from headrace.launch.supervision import LEARNER, TURNS
from headrace.learner.config import CPU

DEATHS = 20  # of one role; then it is for people
SHARE = 0.001  # of its host's resource, which tells where and not how many
STOP_S = {LEARNER: 120.0}  # until its last checkpoint is written
SOON_S = 20.0  # for all others
LOOK_S = 1.0


class RoleDied(HeadraceError):
    """A process ended by a fault, and may be started again."""


class RoleRefused(HeadraceError):
    """A process ended in a way in which it would end again."""


def play(start: Start) -> str:
    """The body of a Ray task: run one process to its end; its name.

    Raises:
        RoleDied, RoleRefused: it did not end in order.
        KeyboardInterrupt: Ray cancels the task; the process has been ended in order.
    """
    environment = role_environment(dict(start.variables))
    if "-m" in start.words:  # torchrun stands between this process and the ranks, whose parent it is
        del environment[PARENT]
    where: dict[str, Any] = {"cwd": Path(start.directory).expanduser(), "env": environment, "stdin": subprocess.DEVNULL}
    before = leash() if "-m" in start.words else None
    with subprocess.Popen(start.words, start_new_session=True, preexec_fn=before, **where) as child:
        try:
            code = _wait(child)
        except BaseException:
            child.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(STOP_S.get(start.kind, SOON_S))
            raise
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
    if code:
        raise (RoleRefused if code in (USAGE, MUST_NOT_RESTART) else RoleDied)(f"{start.name} ended with {code}")
    return start.name


def _wait(child: subprocess.Popen[bytes]) -> int:
    """Its exit code. Ray interrupts by no signal, so a call of the system that waits would never be."""
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return child.wait(LOOK_S)


def run_on_ray(cluster: Path, address: str) -> int:
    """Run a topology to its goal; an exit code.

    Raises:
        ConfigError: ray is not installed, no cluster is at ``address``, or it has no node for a host.
    """
    try:
        import ray
    except ImportError as error:
        raise ConfigError("ray is not installed: pip install 'headrace[ray]'") from error
    topology, run = read_topology(cluster)
    starts = make_plan(topology)
    try:
        ray.init(address=address, logging_level=logging.WARNING)
    except (ConnectionError, ValueError) as error:
        raise ConfigError(f"--address: no Ray cluster at {address!r}: {str(error).splitlines()[0]}") from error
    try:
        _require_nodes(topology, starts, ray.cluster_resources())
        print(summary(topology, starts), flush=True)
        return _Job(ray, starts, gpu=run.learner.device != CPU).run()
    finally:
        ray.shutdown()


def _require_nodes(topology: Topology, starts: Sequence[Start], resources: dict[str, float]) -> None:
    for host in dict.fromkeys(start.host for start in starts):
        if resources.get(host, 0.0) <= 0.0:
            raise ConfigError(
                f"hosts.{host}: no node of the Ray cluster has a resource of this name; start its raylet with"
                f" ray start --address ADDRESS --resources '{{\"{host}\": 1}}'"
            )


class _Job:
    """The tasks of one run, from the driver's side."""

    def __init__(self, ray: Any, starts: Sequence[Start], *, gpu: bool) -> None:
        self._ray = ray
        task = ray.remote(play)
        self._tasks: dict[Any, Start] = {}
        for start in starts:
            words = list(start.words)
            ranks = int(words[words.index("--nproc-per-node") + 1]) if "--nproc-per-node" in words else 1
            computes = start.kind in (LEARNER, ACTOR)
            wanted = task.options(
                name=start.name,
                num_cpus=ranks if computes else 0,
                num_gpus=ranks if gpu and start.kind == LEARNER else 0,
                resources={start.host: SHARE},
                max_retries=DEATHS,
                retry_exceptions=[RoleDied],
            )
            self._tasks[wanted.remote(start)] = start

    def run(self) -> int:
        """Wait until the learner is done, then end the others; Ctrl-C ends all."""
        code = 0
        try:
            while any(start.kind == LEARNER for start in self._tasks.values()):
                if self._gather(LOOK_S):
                    code = FAILED
                    break
        except KeyboardInterrupt:
            print("ending in order", flush=True)
            code = STOPPED
        for turn in sorted({TURNS[start.kind] for start in self._tasks.values()}):
            self._end([ref for ref, start in self._tasks.items() if TURNS[start.kind] == turn], told=code == 0 and not turn)
        return code

    def _gather(self, seconds: float) -> bool:
        """Take who has ended; whether the run cannot go on without it."""
        ended, _ = self._ray.wait(list(self._tasks), timeout=seconds)
        lost = False
        for ref in ended:
            start = self._tasks.pop(ref)
            try:
                self._ray.get(ref)
                print(f"{start.name} has ended in order", flush=True)
                lost |= start.kind == "buffer"
            except self._ray.exceptions.TaskCancelledError:
                print(f"{start.name} was ended", flush=True)
            except self._ray.exceptions.RayError as error:
                print(f"{start.name}: {str(error).strip().splitlines()[-1]}", flush=True)
                lost |= start.kind in ("buffer", LEARNER)
        return lost

    def _end(self, refs: Sequence[Any], *, told: bool) -> None:
        """End these; who is ``told`` by the buffer that the run is done gets time to leave by itself."""
        if told:
            self._wait(refs, SOON_S)
        for ref in refs:
            if ref in self._tasks:
                self._ray.cancel(ref)
        self._wait(refs, max(STOP_S.values()))

    def _wait(self, refs: Sequence[Any], seconds: float) -> None:
        end = time.monotonic() + seconds
        while any(ref in self._tasks for ref in refs) and time.monotonic() < end:
            self._gather(LOOK_S)
