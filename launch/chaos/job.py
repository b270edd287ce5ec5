"""One whole job under faults: its config, its roles with witnesses in them, and the proxies that they dial through."""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headrace.buffer.query import Observer
from headrace.common.config import dump, replace
from headrace.common.wire.network import NetworkConfig
from headrace.launch.chaos.disk import Disk
from headrace.launch.chaos.scripted import ENV
from headrace.launch.children import Child, headrace_command, role_environment
from headrace.launch.config import RunConfig, make_config
from headrace.launch.credentials import make_keys
from headrace.launch.lineup import Lineup
from headrace.launch.roles import LEARNER_ID
from headrace.launch.rundir import RunDir
from headrace.launch.supervise import Supervisor, Watcher
from headrace.launch.supervision import RolePlan

PACKAGE = "headrace.launch.chaos"
HOST = "host"  # a role beside those of processes
HEARTBEAT_S, LEASE_S = 0.2, 2.0
STEP_S = 0.006
PUBLISH_S = 0.05
NUMBERS = 1 << 24  # version numbers below are exact in float32, and so in an action


@dataclass(frozen=True)
class Scale:
    """How large a job is.

    Attributes:
        actors: processes.
        robots: how many of the last of these are programs with a loop of their own, and a spool.
        lanes: parallel episodes of each of the others.
        capacity: rows of the pool.
        step_s: how long an env step takes (s).
        evaluator: whether there is one.
    """

    actors: int = 4
    robots: int = 1
    lanes: int = 2
    capacity: int = 10_000
    step_s: float = STEP_S
    evaluator: bool = True


FULL = Scale()


def make_job_config(place: Path, seed: int, scale: Scale, port: int) -> RunConfig:
    """The config of a job below ``place``: rows that prove themselves, outcomes, nobody waits for anybody, no end."""
    kwargs = {
        "actor": None,
        "lengths": [7, 40, 3],
        "ends": ["terminated", "truncated"],
        "history": str(place / "history"),
        "action_dim": 2,
        "bounds": [0, NUMBERS],
        "delay_s": scale.step_s,
        "success": True,
    }
    return make_config(
        {
            "env": {"id": ENV, "kwargs": kwargs, "lanes": scale.lanes},
            "seed": seed,
            "run": {"dir": str(place), "name": "run"},
            "actor": {"count": scale.actors},
            "pool": {"capacity": scale.capacity},
            "pacing": {"env_steps": 0, "min_fill": 64, "random_steps": 0, "ratio": 0.2, "hold_actors": False},
            "learner": {"batch_size": 32},
            "eval": {"every": 500 if scale.evaluator else 0, "episodes": 1, "final_episodes": 0},
            "network": {
                "endpoint": f"tcp://127.0.0.1:{port}",
                "heartbeat_s": HEARTBEAT_S,
                "lease_s": LEASE_S,
                "connect_s": 60,
            },
            # Faults are as frequent as they are asked for: nobody is given up for them, or made to wait long.
            "supervisor": {"restarts": 10_000, "pause_s": 0.05, "pause_max_s": 0.5, "stop_s": 30},
        }
    )


class WitnessLineup(Lineup):
    """The roles of a job, with witnesses in all but the buffer.

    Args:
        config: of the job.
        run: its run directory.
        history: directory of the histories.
        robots: role names of the actors that are robots.
        keys: directory of the keys of all; empty where nobody has one.
        dials: role name -> where it dials; the buffer itself for those that are not named.
        sabotage: role name -> how it lies.
    """

    def __init__(
        self,
        config: RunConfig,
        run: RunDir,
        history: Path,
        robots: Sequence[str],
        keys: str,
        dials: Mapping[str, str],
        sabotage: Mapping[str, str],
    ) -> None:
        super().__init__(config, run, None)
        self._endpoint, self._place, self._history = config.network.endpoint, run.path, history
        self._batch_size, self._robots, self._keys = config.learner.batch_size, robots, keys
        self._dials, self._sabotage = dials, sabotage

    def command(self, plan: RolePlan, again: bool) -> list[str]:
        """The command line of a role."""
        if plan.kind == "buffer":
            return super().command(plan, again)
        return self.client(plan, self._dials.get(plan.name, self._endpoint))

    def heir(self, plan: RolePlan) -> list[str]:
        """The command line of a second process under the role's id, which dials the buffer itself."""
        return self.client(plan, self._endpoint)

    def client(self, plan: RolePlan, endpoint: str) -> list[str]:
        """The command line of whoever dials."""
        history = ["--id", plan.name, "--history", str(self._history)]
        if plan.name == LEARNER_ID:
            memory = ["--memory", str(self._history.parent / "canary.json"), "--batch-size", str(self._batch_size)]
            pace = ["--publish-s", str(PUBLISH_S), "--heartbeat", str(HEARTBEAT_S), "--lease", str(LEASE_S)]
            return headrace_command([endpoint, *history, *memory, *pace, "--keys", self._keys], f"{PACKAGE}.canary")
        lies = ["--sabotage", self._sabotage[plan.name]] if plan.name in self._sabotage else []
        kind = ["--evaluate"] if plan.kind == "evaluator" else []
        if plan.name in self._robots:
            kind = ["--spool", str(self._history.parent / "spool")]
        return headrace_command([str(self._place), "--connect", endpoint, *history, *kind, *lies], f"{PACKAGE}.client")


@dataclass
class Job:
    """A job that can be run once.

    Attributes:
        place: directory of everything.
        history: directory of the histories.
        run: run directory.
        plans: role name -> plan.
        lineup: command lines.
        supervisor: keeps them alive.
        config: of all roles.
        network: how to reach its buffer, with the keys if there are some.
        disk: of the run directory, where it can be filled.
    """

    place: Path
    history: Path
    run: RunDir
    lineup: WitnessLineup
    supervisor: Supervisor
    config: RunConfig
    network: NetworkConfig
    plans: dict[str, RolePlan] = field(default_factory=dict)
    disk: Disk | None = None

    @classmethod
    def make(
        cls,
        place: Path,
        seed: int,
        scale: Scale,
        watcher: Watcher,
        *,
        port: int,
        dials: Mapping[str, str],
        sabotage: Mapping[str, str],
        keyed: bool = False,
        disk: Disk | None = None,
    ) -> Job:
        """A job below ``place``, with its run directory on ``disk`` if there is one, where everybody has a key if ``keyed``.

        Nothing is started.
        """
        home = place if disk is None else disk.place
        config = make_job_config(place, seed, scale, port)
        history, run = place / "history", RunDir.create(home / "run", dump(config))
        history.mkdir()
        robots = [f"actor-{n}" for n in range(scale.actors - scale.robots, scale.actors)]
        network = replace(config.network, keys=str(run.keys)) if keyed else config.network
        lineup = WitnessLineup(config, run, history, robots, network.keys, dials, sabotage)
        plans = lineup.plans()
        make_keys(network, run, plans)
        supervisor = Supervisor(
            plans,
            run,
            config.supervisor,
            command=lineup.command,
            environment=lineup.environment,
            observe=lambda endpoint: Observer(endpoint, network),
            watcher=watcher,
        )
        return cls(place, history, run, lineup, supervisor, config, network, {plan.name: plan for plan in plans}, disk)

    def names(self, role: str) -> list[str]:
        """Names of the processes of a role, in order."""
        return [role] if role == HOST else [name for name, plan in self.plans.items() if plan.kind == role]

    def start_heir(self, name: str) -> Child:
        """Start a second process under the id of a role; whoever asks for it ends it."""
        plan = self.plans[name]
        environment = role_environment(self.lineup.environment(plan))
        return Child(f"{name}-heir", self.lineup.heir(plan), self.run.log(f"{name}-heir"), environment)

    @property
    def is_whole(self) -> bool:
        """Whether every role has been heard of by the buffer at once."""
        status: Mapping[str, Any] = self.supervisor.status
        if not status:
            return False
        here = {who["id"] for kind in ("actors", "evaluators") for who in status[kind]}
        return status["learner"] is not None and {*self.names("actor"), *self.names("evaluator")} <= here


def free_port() -> int:
    """A port of this host that was free a moment ago; the proxies must know it before the buffer listens there."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])
