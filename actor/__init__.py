"""The actor side: environments, policies, and the way from steps to blocks; what a robot's own program imports is named here.

Imports neither torch nor gymnasium by itself.
"""

from headrace.actor.config import ActorConfig
from headrace.actor.connecting import connect
from headrace.actor.server_config import PolicyServerConfig
from headrace.actor.session import Session
from headrace.common.specs import SOURCE_DEMO, SOURCE_HUMAN, SOURCE_POLICY, TransitionSpec
from headrace.common.wire.network import NetworkConfig

__all__ = [
    "SOURCE_DEMO",
    "SOURCE_HUMAN",
    "SOURCE_POLICY",
    "ActorConfig",
    "NetworkConfig",
    "PolicyServerConfig",
    "Session",
    "TransitionSpec",
    "connect",
]
