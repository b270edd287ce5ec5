"""Exploring: beyond its policy's own noise an actor takes some actions uniformly at random, each actor its own share of them.

The shares form a ladder, from actors that try much to actors that hardly disturb the policy: Horgan et al., Distributed
Prioritized Experience Replay, arXiv:1803.00933, section 4.1.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from headrace.actor.config import ActorConfig
from headrace.actor.deciding import Decided
from headrace.actor.policy import RandomPolicy
from headrace.common.seeds import derive_seed
from headrace.common.specs import TransitionSpec

Array = np.ndarray[Any, Any]
_NUMBERED = re.compile(r"actor-(\d{1,9})")


def epsilon_of(actor_id: str, config: ActorConfig) -> float:
    """epsilon ** (1 + ladder * i / (N - 1)): the share of this actor's decisions that are uniformly random.

    Args:
        actor_id: ``actor-<i>`` are the run's own N = ``config.count``, from 0 on. Whoever joins by another name has a place of
            its own between the first and the last, which its name alone decides.
        config: epsilon, ladder and count.
    """
    if config.epsilon == 0:
        return 0.0
    return float(config.epsilon ** (1 + config.epsilon_ladder * _place(actor_id, config.count)))


def _place(actor_id: str, count: int) -> float:
    """Where on the ladder, from 0 to 1."""
    numbered = _NUMBERED.fullmatch(actor_id)
    if numbered is not None and int(numbered[1]) < count:
        return int(numbered[1]) / max(1, count - 1)
    return derive_seed(0, actor_id, "ladder") / (1 << 31)


class Explorer:
    """Puts random actions in place of the policy's.

    Attributes:
        epsilon: share of the decisions that are random.

    Args:
        spec: whose action box.
        epsilon: see :func:`epsilon_of`; 0 draws nothing and changes nothing.
    """

    def __init__(self, spec: TransitionSpec, epsilon: float) -> None:
        self.epsilon = epsilon
        self._random = RandomPolicy(spec)

    def mix(self, found: Array | Decided, rng: np.random.Generator) -> Array | Decided:
        """What lanes do: some random actions in place of those that were ``found``; with latents, these alone."""
        if self.epsilon == 0 or isinstance(found, Decided):
            return found
        actions = found
        own = rng.random(len(actions)) >= self.epsilon
        uniform = self._random.draw(len(actions), rng)  # for all, so that how much is drawn does not depend on what
        return np.where(own.reshape(-1, *[1] * (actions.ndim - 1)), actions, uniform)
