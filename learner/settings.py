"""A learner process's settings, and what it makes of them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from headrace.common.cores import usable_cores
from headrace.common.exporter import Exporter
from headrace.common.specs import TransitionSpec
from headrace.common.weights import WeightSet
from headrace.common.wire.messages import Welcome
from headrace.common.wire.network import NetworkConfig
from headrace.learner.config import CPU, SHARDED, LearnerConfig, ModelConfig
from headrace.learner.contract import SupportSACTraining
from headrace.learner.group import Group, find_device
from headrace.learner.models import make_model
from headrace.learner.place import Place
from headrace.learner.reach import Asks
from headrace.learner.reading import OpenView
from headrace.learner.sac import SAC
from headrace.learner.sinks import SinkConfig


@dataclass(frozen=True)
class LearnerSettings:
    """All that a learner process needs to know: ``endpoint`` of the buffer, and of several where all ``shards`` listen."""

    endpoint: str
    learner_id: str
    learner: LearnerConfig
    model: ModelConfig
    sinks: SinkConfig
    network: NetworkConfig
    run_dir: Path
    seed: int
    init_from: WeightSet | None = None
    offline_updates: int = 0
    open_view: OpenView | None = None
    exporter: Exporter = Exporter()
    shards: tuple[str, ...] = ()

    def asks(self, rank: int) -> Asks:
        """What a rank of the group asks of the buffers."""
        learner = self.learner
        return Asks(
            self.shards or (self.endpoint,),
            self.learner_id,
            rank,
            learner.batch_size,
            learner.prefetch_batches,
            self.network,
            self.seed,
            learner.normalises,
            learner.reading,
            self.open_view,
        )

    def make_sac(self, welcome: Welcome, group: Group) -> SAC:
        """What this rank of the group learns with, for the pool's spec."""
        spec = TransitionSpec.from_dict(welcome.spec)
        model = make_model(spec, self.model, self.seed)
        alone = group.size == 1
        threads = self.learner.threads or (0 if alone else max(1, usable_cores() // Place.here().local_size))
        model.to(find_device(self.learner.device))
        if self.learner.device != CPU or self.learner.strategy == SHARDED:
            # processes of the model's own would see neither a GPU's memory nor parameters that come and go
            SupportSACTraining.use_threads(model, threads)
        else:
            model.use_threads(threads)
        return SAC(model, spec, self.learner, self.seed, group)

    @property
    def checkpoints(self) -> Path:
        """Where checkpoints are written."""
        return self.run_dir / "checkpoints"
