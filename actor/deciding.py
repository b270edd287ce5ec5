"""Deciding: what each lane does in each env step, where a decision of the policy is one action or a chunk of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from headrace.actor.envs import LaneStep
from headrace.common.specs import TransitionSpec

Array = np.ndarray[Any, Any]
Obs = Mapping[str, Array]


class Decided(NamedTuple):
    """What n lanes decide at once.

    Attributes:
        actions: ``(n, *action.shape)``, env units.
        latents: ``(n, spec.latent)``, what the policy decided on in place of these actions.
    """

    actions: Array
    latents: Array


@dataclass(frozen=True)
class Acts:
    """What L lanes do in one env step; valid until the next one.

    Attributes:
        actions: ``(L, ...)`` of one env step each, env units.
        begins: ``(L,)`` bool, lanes that have decided just now.
        decided: ``(L, *action.shape)``, the decisions that the actions are of: the same, or the chunks.
        latents: ``(L, spec.latent)``, what the policy decided on in their place, NaN where nothing; None where rows hold none.
    """

    actions: Array
    begins: Array
    decided: Array
    latents: Array | None = None


def held(step: LaneStep, spec: TransitionSpec) -> Acts:
    """What lanes did without anybody's decision: each is a decision of its own, to do just what was executed."""
    executed = np.zeros((len(step.live), spec.action.dim), np.float32) if step.executed is None else step.executed
    decided = np.repeat(executed[:, None], spec.window, axis=1) if spec.kind == "chunk" else executed
    return Acts(executed, np.ones(len(executed), np.bool_), decided)


class Decider:
    """Asks for a decision where one is due, and deals it out, an action an env step.

    A chunk is executed to its end without looking, unless :meth:`restart` throws its rest away. Lanes come to their ends at
    different times, so only the observations of those that decide are given to the policy.

    Args:
        spec: of the rows.
        lanes: L.
    """

    def __init__(self, spec: TransitionSpec, lanes: int) -> None:
        self._chunk = spec.window if spec.kind == "chunk" else 0
        self._decided = np.zeros((lanes, *spec.action.shape), np.float32)
        self._done = np.full(lanes, self._chunk)  # actions of its decision that each lane has executed
        self._lanes = np.arange(lanes)
        self._latents = np.full((lanes, spec.latent), np.nan, np.float32) if spec.latent else None

    def act(self, obs: Obs, choose: Callable[[Obs], Array | Decided]) -> Acts:
        """The next action of each lane.

        Args:
            obs: key -> ``(L, ...)``, what the lanes see.
            choose: observations of n lanes -> ``(n, *action.shape)`` in env units, with latents or without.
        """
        if not self._chunk:
            every = np.ones(len(self._lanes), np.bool_)
            actions = self._keep(every, choose(obs))
            return Acts(actions, every, actions, self._latents)
        due = self._done == self._chunk
        if due.any():
            seen = obs if due.all() else {key: values[due] for key, values in obs.items()}
            self._decided[due] = self._keep(due, choose(seen))
            self._done[due] = 0
        actions = self._decided[self._lanes, self._done]
        self._done += 1
        return Acts(actions, due, self._decided, self._latents)

    def restart(self, lanes: Array | None = None) -> None:
        """Let the lanes of an ``(L,)`` mask, or all, decide anew: what is left of a chunk is of an episode that is over."""
        self._done[self._lanes if lanes is None else lanes] = self._chunk

    def _keep(self, due: Array, found: Array | Decided) -> Array:
        """The actions of a decision; its latents, if rows are to hold any, are those of the lanes that are due."""
        actions, latents = found if isinstance(found, Decided) else (found, np.nan)
        if self._latents is not None:
            self._latents[due] = latents
        return actions
