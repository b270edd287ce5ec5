"""headrace: asynchronous actor-learner Soft Actor-Critic for robots and VLA policies."""

__version__ = "0.1.0"
