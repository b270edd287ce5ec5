"""A run of several shards without sockets: the simulated home shard, and further ones that are its clients."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from helpers.simulated import NETWORK, Actor, Learner, Run

from headrace.buffer.lent import LentPacing
from headrace.buffer.pacing import Pacing
from headrace.buffer.satellite import Satellite
from headrace.buffer.satellite_service import SatelliteService
from headrace.buffer.service import Service
from headrace.common.weights import NO_VERSION
from headrace.common.wire.link import new_hello
from headrace.common.wire.session import Phase
from headrace.launch.config import RunConfig


class Further(Run):
    """A further shard; to the home shard's simulation it is a client that acts by moving its own.

    Attributes:
        heard: whether home and this one reach each other.
    """

    def __init__(self, config: RunConfig, directory: Path, number: int = 1) -> None:
        self.name, self.heard = f"shard-{number}", True
        self.role = Satellite(1 << 16, NO_VERSION)
        self.link = SimpleNamespace(
            session=SimpleNamespace(phase=Phase.SEEKING, waiting="", hello=None),
            endpoint="home",
            wake=lambda: None,
            check=lambda: None,
            start=lambda: None,
            declare=self._declare,
        )
        super().__init__(config, directory)
        self.peer, self.hello = self.name.encode(), new_hello("shard", self.name)
        self.link.session.hello = self.hello
        self.news = False
        self.service.begin(self._soon)

    def make_pacing(self, config: RunConfig) -> Pacing:
        return LentPacing(config.pacing)

    def make_service(self, *parts: Any) -> Service:
        return SatelliteService(*parts, satellite=self.role, link=self.link)

    def _declare(self, spec: dict) -> None:
        self.hello = new_hello("shard", self.name, spec=spec)
        self.link.session.hello = self.hello

    def _soon(self, answer: Any) -> None:
        self.news = True

    def act(self) -> None:
        """Take what home has said, and let the actors here act once."""
        self.link.session.phase = Phase.LIVE
        if self.news:
            self.news = False
            self._deliver(self.service.heard(self.now))
            self._work()

    def round(self) -> None:
        """Also as a shard that nobody reaches."""
        self.act()
        super().round()


def sharded(config: RunConfig, directory: Path, further: int = 1) -> tuple[Run, list[Further]]:
    """A home shard with so many further ones."""
    for name in ("home", *(f"shard-{n}" for n in range(1, further + 1))):
        (directory / name).mkdir()
    home = Run(config, directory / "home")
    others = [Further(config, directory / f"shard-{n}", n) for n in range(1, further + 1)]
    for other in others:
        home.add(other)
    return home, others


def move(home: Run, others: list[Further]) -> None:
    """Everybody acts once."""
    for other in others:
        other.round()
    home.round()


def committed(*runs: Run) -> list[int]:
    """Env steps in the pools of these shards."""
    return [run.worker.pool.env_steps if run.worker.pool is not None else 0 for run in runs]


__all__ = ["NETWORK", "Actor", "Further", "Learner", "Run", "committed", "move", "sharded"]
