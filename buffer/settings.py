"""What a buffer process is told when it starts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from headrace.buffer.bound import bound
from headrace.buffer.config import BufferConfig, PoolConfig, SamplingConfig
from headrace.buffer.limits import OTHERS
from headrace.buffer.pacing import PacingConfig
from headrace.buffer.pinned import Pinned
from headrace.buffer.pool import SACReplayPool
from headrace.common.bound import Bound
from headrace.common.exporter import Exporter
from headrace.common.specs import TransitionSpec
from headrace.common.wire.network import NetworkConfig


@dataclass(frozen=True)
class BufferSettings:
    """All that a buffer process needs to know.

    ``past`` opens the pool whose rows an empty pool begins with, ``demos`` finds the demonstrations in its directory,
    ``return_gamma`` is the discount of the returns whose spread the learner asks for, ``readers`` are its ranks, and
    ``update_rows`` the rows of one update. ``shard`` is the place of this buffer in the run; ``home`` says where the first
    of them, the home shard, listens, and is empty there.
    """

    network: NetworkConfig
    pool: PoolConfig
    pool_dir: Path
    pacing: PacingConfig
    run_id: str
    seed: int
    ready: Callable[[str], None] | None = None
    past: Callable[[], SACReplayPool] | None = None
    snapshot_dir: Path | None = None
    sampling: SamplingConfig = field(default_factory=SamplingConfig)
    demos: Callable[[], Pinned] | None = None
    return_gamma: float | None = None
    limits: BufferConfig = field(default_factory=BufferConfig)
    readers: int = 1
    shard: int = 0
    home: str = ""
    update_rows: int = 256
    exporter: Exporter = Exporter()

    def bound(self, spec: TransitionSpec | None) -> Bound:
        """The private memory that the process declares, with rows of ``spec``."""
        return bound(self.pool, self.sampling, self.network, spec, readers=self.readers, rows=self.update_rows)

    @property
    def sessions(self) -> int:
        """Sessions at a time: actors and those who take their place, learner, evaluators, observers."""
        return 2 * self.pool.max_actors + OTHERS
