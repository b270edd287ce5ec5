"""The limits of one buffer process: the memory that it declares, the cap that holds it to that, and its connections."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headrace.common.bound import Bound
from headrace.common.errors import ConfigError
from headrace.common.limits import cap_memory, raise_open_files

CAP_SHARE = 2  # cap over bound: what allocators and libraries keep must not end a buffer that is in order
FILES = 96  # open files beside connections: the pool's, logs, a snapshot that is being written, ZeroMQ's own
OTHERS = 64  # sessions of the learner's ranks, evaluators and observers


@dataclass(frozen=True)
class Limits:
    """What was declared and set.

    Attributes:
        bound: private memory that the buffer declares.
        cap_bytes: private memory that it may take beside what it had at its start.
        open_files: that the system lets it have.
        actors: that may be known.
    """

    bound: Bound
    cap_bytes: int
    open_files: int
    actors: int

    @classmethod
    def set(cls, bound: Bound, cap_bytes: int, actors: int) -> Limits:
        """Set the limits of this process; ``cap_bytes`` 0 is the default cap.

        Raises:
            ConfigError: the cap is below the bound.
        """
        if 0 < cap_bytes < bound.total:
            raise ConfigError(
                f"buffer.memory_cap_bytes: {cap_bytes} is below what the buffer declares, {bound}; nearest valid:"
                f" {bound.total}, or lower network.credit_bytes, network.message_bytes or pool.max_actors"
            )
        cap = cap_bytes or CAP_SHARE * bound.total
        cap_memory(cap)
        return cls(bound, cap, raise_open_files(), actors)

    @property
    def reach(self) -> int:
        """Actors for which the open files suffice: each takes a connection, and one more while another takes its place."""
        return max(0, self.open_files - FILES - OTHERS) // 2

    def warnings(self) -> list[str]:
        """What the system lacks."""
        if self.reach >= self.actors:
            return []
        return [
            f"RLIMIT_NOFILE {self.open_files} suffices for {self.reach} actors, pool.max_actors is {self.actors}; raise it"
            " (ulimit -Hn), or declare fewer"
        ]

    def report(self) -> dict[str, Any]:
        """For the status."""
        return {"bound_bytes": self.bound.total, "cap_bytes": self.cap_bytes, "open_files": self.open_files}
