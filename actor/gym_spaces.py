"""gymnasium spaces as a transition spec, and nested observations as flat keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces

from headrace.actor.config import EnvConfig, WindowConfig
from headrace.common.errors import EnvError, SpecError
from headrace.common.specs import STORED_AS, ActionSpec, ObsSpec, TransitionSpec

Array = np.ndarray[Any, Any]
PLAIN_KEY = "obs"


@dataclass(frozen=True)
class Leaf:
    """One array of a nested observation: where it is, and what it is stored as."""

    path: tuple[str, ...]
    spec: ObsSpec

    def of(self, obs: Any) -> Any:
        """This leaf of one nested observation."""
        for name in self.path:
            obs = obs[name]
        return obs


def leaves_of(space: spaces.Space[Any], config: EnvConfig) -> tuple[Leaf, ...]:
    """The arrays of an observation space, sorted by key; nested keys are joined by dots.

    Raises:
        EnvError: a space that is not stored, two keys of one name, or a role for an unknown key.
    """
    found: dict[str, Leaf] = {}
    for path, leaf in _walk(space, (), config.id):
        key = ".".join(path) or PLAIN_KEY
        if key in found:
            raise EnvError(f"env {config.id}: two observations are both named {key!r} once nested keys are joined by dots")
        role = str(config.roles.get(key, "both"))
        found[key] = Leaf(path, ObsSpec(key, tuple(leaf.shape or ()), _stored_dtype(leaf, key, config.id), role))
    for key in config.roles:
        if key not in found:
            raise EnvError(f"env.roles: {key!r} is no observation of env {config.id}; there are: {', '.join(sorted(found))}")
    return tuple(found[key] for key in sorted(found))


def spec_of(
    obs_space: spaces.Space[Any], action_space: spaces.Space[Any], config: EnvConfig, window: WindowConfig
) -> TransitionSpec:
    """The spec of rows and frames for two (unbatched) spaces.

    Raises:
        EnvError: naming the space or the dimension that is not supported, and what to do about it.
    """
    obs = tuple(leaf.spec for leaf in leaves_of(obs_space, config))
    try:
        action = action_spec(action_space, config.id)
        return window.spec(obs, action)
    except SpecError as error:
        raise EnvError(f"env {config.id}: {error}") from error


def action_spec(space: spaces.Space[Any], env_id: str) -> ActionSpec:
    """Bounds of a Box of floats, flattened.

    Raises:
        EnvError: any other space, or a bound that is not finite.
    """
    if not isinstance(space, spaces.Box) or not np.issubdtype(space.dtype, np.floating):
        raise EnvError(f"env {env_id}: action space {space} is not supported; soft actor-critic needs a Box of floats")
    low, high = np.ravel(space.low).astype(float), np.ravel(space.high).astype(float)
    for i in np.flatnonzero(~(np.isfinite(low) & np.isfinite(high)))[:1]:
        raise EnvError(
            f"env {env_id}: action dimension {i} has the bounds [{low[i]}, {high[i]}], which a squashed policy cannot fill; "
            "give its action_space finite bounds, or add a wrapper that declares them (such as RescaleAction) to env.wrappers"
        )
    return ActionSpec((len(low),), tuple(low.tolist()), tuple(high.tolist()))


def blank(space: spaces.Space[Any]) -> Any:
    """Zeros in the form of ``space``: what stands in for the observation of an environment that raised."""
    if isinstance(space, spaces.Dict):
        return {key: blank(child) for key, child in space.items()}
    return np.zeros(space.shape or (), space.dtype)


def frames_of(leaves: tuple[Leaf, ...], obs: Any) -> dict[str, Array]:
    """Copies of all leaves of one observation or one batch of them, in their stored dtypes."""
    return {leaf.spec.key: np.array(leaf.of(obs), leaf.spec.dtype) for leaf in leaves}


def put_frame(leaves: tuple[Leaf, ...], frames: Mapping[str, Array], lane: int, obs: Any) -> None:
    """Write one unbatched observation over lane ``lane`` of a batch."""
    for leaf in leaves:
        frames[leaf.spec.key][lane] = leaf.of(obs)


def _walk(space: Any, path: tuple[str, ...], env_id: str) -> list[tuple[tuple[str, ...], Any]]:
    if isinstance(space, spaces.Dict):
        return [entry for name, child in space.items() for entry in _walk(child, (*path, str(name)), env_id)]
    if isinstance(space, (spaces.Box, spaces.Discrete, spaces.MultiBinary, spaces.MultiDiscrete)):
        return [(path, space)]
    key = ".".join(path) or PLAIN_KEY
    raise EnvError(f"env {env_id}: observation {key} is a {type(space).__name__}, which has no fixed array; use Box or Dict")


def _stored_dtype(space: Any, key: str, env_id: str) -> str:
    if isinstance(space, spaces.Discrete):
        return "<i8"
    name = np.dtype(space.dtype).name
    if name not in STORED_AS:
        raise EnvError(f"env {env_id}: observation {key} has dtype {name}; stored are {', '.join(STORED_AS)}")
    return STORED_AS[name]
