"""Options of a policy server, and of who asks one."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.common.config import option
from headrace.common.errors import ConfigError
from headrace.common.wire.network import split_endpoint


@dataclass(frozen=True)
class PolicyServerConfig:
    """Where a policy server listens, what it decides on, and how it gathers requests. actor.policy server asks it."""

    endpoint: str = option("", help="where it listens and actors dial it, tcp://HOST:PORT; keys are those of network.keys")
    start: bool = option(True, help="whether train starts it, where actor.policy is server; false: others do")
    device: str = option("cpu", help="torch device that it decides on; cpu: as actor.policy auto does")
    gather_s: float = option(
        0.001, help="how long the first request waits for others, to be decided with them", unit="s", low=0, high=1
    )
    batch: int = option(64, help="most lanes that are decided together, and that one actor may have", low=1, high=1 << 16)
    actors: int = option(64, help="actors that it serves at most", low=1, high=4096)
    within_s: float = option(
        1.0, help="how long a simulator waits before it asks again; robots have robot.act_within", unit="s", low=0.001
    )

    def check(self, path: str = "policy_server") -> None:
        """Refuse what is no endpoint, and one whose port nobody can know."""
        if self.endpoint and split_endpoint(self.endpoint, f"{path}.endpoint").port == 0:
            raise ConfigError(f"{path}.endpoint: {self.endpoint!r} leaves the port open; name one, since actors dial it")
