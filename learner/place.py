"""The place of a process in a learner's group, as its environment tells it: set by ``torchrun``, or by ``headrace train``."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass

from headrace.common.errors import ConfigError

MEETING = "HEADRACE_RANKS"  # environment variable: the file in which the ranks that `train` started find each other
LOOPBACK = "lo" if sys.platform.startswith("linux") else "lo0"


@dataclass(frozen=True)
class Place:
    """Which rank of how many.

    Attributes:
        rank: 0 is the learner.
        size: G ranks.
        local_rank: the same among those of this host, and the number of its GPU.
        local_size: ranks on this host.
        meeting: path of a file, new for each group, in which ranks of one host find each other; empty: they do at
            ``MASTER_ADDR``, as torchrun has them. A file opens no port to anybody, and none can be taken.
    """

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1
    meeting: str = ""

    @classmethod
    def here(cls) -> Place:
        """This process's; without any variable it is alone.

        Raises:
            ConfigError: a variable is no number.
        """
        numbers = (_number("RANK", 0), _number("WORLD_SIZE", 1), _number("LOCAL_RANK", 0), _number("LOCAL_WORLD_SIZE", 1))
        return cls(*numbers, os.environ.get(MEETING, ""))

    @classmethod
    def of_one_host(cls, rank: int, size: int, meeting: str) -> Place:
        """Rank ``rank`` of a group whose ranks are all on this host."""
        return cls(rank, size, rank, size, meeting)

    def environment(self) -> dict[str, str]:
        """Variables for the process that has this place."""
        return {
            "RANK": str(self.rank),
            "LOCAL_RANK": str(self.local_rank),
            "WORLD_SIZE": str(self.size),
            "LOCAL_WORLD_SIZE": str(self.local_size),
            "GLOO_SOCKET_IFNAME": LOOPBACK,
            MEETING: self.meeting,
        }


def rank_name(learner_id: str, rank: int | str) -> str:
    """What rank ``rank`` of a learner is called, on the wire, in the status and in logs; rank 0 is the learner itself."""
    return f"{learner_id}-{rank}" if str(rank) not in ("0", "") else learner_id


def _number(name: str, default: int) -> int:
    text = os.environ.get(name, str(default))
    try:
        return int(text)
    except ValueError:
        raise ConfigError(f"{name}: {text!r} in the environment is no number; torchrun sets it") from None
