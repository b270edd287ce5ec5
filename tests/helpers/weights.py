"""Weight sets of small MLP policies with reproducible random tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

from headrace.actor.policy import MlpLayout
from headrace.common.specs import ActionSpec, ObsSpec, TransitionSpec
from headrace.common.weights import Version, WeightSet
from headrace.launch.chaos import canary


def small_spec(
    obs: int = 3, low: tuple[float, ...] = (-2.0, 0.0), high: tuple[float, ...] = (2.0, 5.0), stack: int = 1
) -> TransitionSpec:
    """A plain float observation and a box."""
    return TransitionSpec((ObsSpec("obs", (obs,), "<f4"),), ActionSpec((len(low),), low, high), 1, "steps", stack)


def rich_spec() -> TransitionSpec:
    """Stacked pictures, keys of each role, and a box that is not centred."""
    keys = (ObsSpec("camera", (2, 4), "|u1"), ObsSpec("hidden", (5,), "<f4", "critic"), ObsSpec("state", (3,), "<f4", "actor"))
    return TransitionSpec(keys, ActionSpec((2,), (-2.0, 0.1), (2.0, 5.0)), 3, "steps", 2)


def observe(spec: TransitionSpec, rows: int, seed: int = 0) -> dict[str, Any]:
    """Random observations of the keys that an actor sees, ``(rows, ...)`` each."""
    rng = np.random.default_rng(seed)
    shapes = {o: (rows, *([spec.stack] if spec.stack > 1 else []), *o.shape) for o in spec.obs if o.role != "critic"}
    return {
        o.key: rng.standard_normal(shape).astype("<f4") if o.dtype == "<f4" else rng.integers(0, 255, shape).astype(o.dtype)
        for o, shape in shapes.items()
    }


def mlp_description(spec: TransitionSpec, **changes: Any) -> dict[str, Any]:
    """The description that a learner would publish for an MLP over all keys of ``spec``."""
    return {**canary.mlp_description(spec, (32, 16)), **changes}


def mlp_weights(spec: TransitionSpec, seed: int = 0, scale: float = 1.0, step: int = 1, **changes: Any) -> WeightSet:
    """Random tensors of that MLP, scaled as a usual initialisation times ``scale``."""
    policy = mlp_description(spec, **changes)
    rng = np.random.default_rng(seed)
    tensors = {}
    for name, shape in MlpLayout.of(policy, spec).shapes.items():
        values = rng.standard_normal(shape, np.float32) * np.float32(scale / np.sqrt(shape[-1] if len(shape) == 2 else 1))
        tensors[name] = np.abs(values) + np.float32(0.1) if name.startswith("var.") else values
    return WeightSet(Version("test", 1, step), policy, tensors)
