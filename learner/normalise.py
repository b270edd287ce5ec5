"""Observation statistics on the learner's side: raw batches in, centred and scaled tensors out."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from headrace.common.errors import SpecError
from headrace.common.specs import TransitionSpec
from headrace.common.statistics import NORMAL_LIMIT, VAR_FLOOR, ObsStatistics
from headrace.learner.adam import copy_tensors


class ObsNormaliser:
    """``clip((x - mean) / sqrt(var + 1e-8), -10, 10)`` for every float key; other keys pass.

    The statistics are the pool's, counted once per committed decision; an update changes nothing here. They are part
    of the weight version that was trained with them.

    Args:
        spec: whose observations.
        device: where batches are.
    """

    def __init__(self, spec: TransitionSpec, device: torch.device | None = None) -> None:
        self._shapes = {o.key: o.shape for o in spec.obs if o.dtype == "<f4"}
        self._mean = {key: torch.zeros(shape, device=device) for key, shape in self._shapes.items()}
        self._var = {key: torch.ones(shape, device=device) for key, shape in self._shapes.items()}
        self._scale = {key: torch.ones(shape, device=device) for key, shape in self._shapes.items()}
        self._rescale()

    def load(self, statistics: ObsStatistics) -> None:
        """Use these statistics from now on.

        Raises:
            SpecError: a key is missing or of another shape; the old statistics stay.
        """
        if statistics.count == 0:
            return
        for key, shape in self._shapes.items():
            for name, values in (("mean", statistics.mean), ("var", statistics.var)):
                if key not in values or values[key].shape != shape:
                    found = values[key].shape if key in values else "nothing"
                    raise SpecError(f"statistics.{name}.{key}: {found}, expected {shape}")
        for key in self._shapes:
            self._mean[key].copy_(torch.tensor(statistics.mean[key]))
            self._var[key].copy_(torch.tensor(statistics.var[key]))
        self._rescale()

    def __call__(self, obs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Observations of a batch, ``(B, *shape)`` or ``(B, h, *shape)`` per key, normalised."""
        out = dict(obs)
        for key in self._shapes:
            if key in out:
                out[key] = (out[key] - self._mean[key]).div_(self._scale[key]).clamp_(-NORMAL_LIMIT, NORMAL_LIMIT)
        return out

    def get_state(self) -> dict[str, Tensor]:
        """Copies of ``mean.{key}`` and ``var.{key}``, as they also travel beside a policy's tensors."""
        return {name: tensor.clone() for name, tensor in self._named().items()}

    def set_state(self, state: Mapping[str, Tensor]) -> None:
        """Take what :meth:`get_state` gave; raises :class:`CheckpointError` when it does not fit."""
        copy_tensors(self._named(), state, "normaliser")
        self._rescale()

    def check_valid(self) -> tuple[bool, str]:
        """Whether every mean is finite and every variance finite and not negative."""
        for name, tensor in self._named().items():
            if not bool(torch.isfinite(tensor).all()) or (name.startswith("var.") and bool((tensor < 0).any())):
                return False, f"normaliser: {name} is not finite or negative"
        return True, ""

    def _named(self) -> dict[str, Tensor]:
        means = {f"mean.{key}": tensor for key, tensor in self._mean.items()}
        return {**means, **{f"var.{key}": tensor for key, tensor in self._var.items()}}

    def _rescale(self) -> None:
        for key, scale in self._scale.items():  # in place, where a recorded update reads it
            scale.copy_((self._var[key] + VAR_FLOOR).sqrt())
