"""The pool, and what is decided where actors and learner meet. Importing the pool needs only numpy."""

from headrace.buffer.config import PoolConfig, SamplingConfig, SetConfig
from headrace.buffer.pool import SACReplayPool
from headrace.buffer.transfer import export_pool, import_pool

__all__ = ["PoolConfig", "SACReplayPool", "SamplingConfig", "SetConfig", "export_pool", "import_pool"]
