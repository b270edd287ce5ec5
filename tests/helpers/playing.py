"""What plays in tests of evaluation: the centre of the box, in the scripted env."""

from __future__ import annotations

from headrace.actor.config import EnvConfig
from headrace.actor.policy import RandomPolicy


class Centre:
    """The centre of the box, for any number of lanes."""

    def __init__(self, spec):
        self._spec = spec

    def act(self, obs, rng, deterministic):
        assert deterministic
        return RandomPolicy(self._spec).act(obs, rng, True)


def scripted(**kwargs):
    """The scripted env with these arguments."""
    return EnvConfig("headrace.launch.chaos.scripted:make", kwargs=kwargs)


def huge(obs, action, next_obs, outcome):
    """A reward that no sum of squares has room for."""
    return 1e30
