"""The names of the system that headrace replaces, for code that was written for it, on today's parts."""

from headrace.buffer.pool import SACReplayPool
from headrace.launch.original_actor import BaseSACActor, RobDataParallelSACActor, SACActorConfig
from headrace.launch.original_env_loop import EnvLoop
from headrace.launch.original_trainer import RobRaySACTrainer
from headrace.learner.contract import SupportSACTraining

__all__ = [
    "BaseSACActor",
    "EnvLoop",
    "RobDataParallelSACActor",
    "RobRaySACTrainer",
    "SACActorConfig",
    "SACReplayPool",
    "SupportSACTraining",
]
