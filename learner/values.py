"""What the critics of a checkpoint say of observations and actions, for whoever looks at a policy."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from headrace.common.errors import CheckpointError
from headrace.common.specs import TransitionSpec
from headrace.learner import checkpoint
from headrace.learner.adam import copy_tensors
from headrace.learner.config import LearnerConfig, ModelConfig
from headrace.learner.distribution import ActionBox
from headrace.learner.losses import over_critics
from headrace.learner.models import make_model
from headrace.learner.normalise import ObsNormaliser

Array = np.ndarray[Any, Any]


class Values:
    """The critics of one checkpoint.

    Args:
        path: its directory.
        spec: what its run sees and does.
        model, learner: options of that run.

    Raises:
        CheckpointError: it is damaged, or of another model.
    """

    def __init__(self, path: Path, spec: TransitionSpec, model: ModelConfig, learner: LearnerConfig) -> None:
        tensors = checkpoint.read(path).state["tensors"]
        if spec.latent:
            raise CheckpointError(f"{path}: its critics judge latents, and not actions")
        self._model = make_model(spec, model, 0).eval()
        if self._model.sac_tasks:
            raise CheckpointError(f"{path}: its critics are those of tasks, and nobody tells here which it is")
        copy_tensors(self._model.learned_tensors(), _below("model.", tensors), str(path))
        self._normaliser = ObsNormaliser(spec) if learner.normalise_obs else None
        if self._normaliser is not None:
            self._normaliser.set_state(_below("normaliser.", tensors))
        self._box, self._keys = ActionBox(spec.action), [o.key for o in spec.obs]
        self._unit = tensors.get("rewards.spread", torch.ones(()))  # values beside raw rewards are raw too

    @torch.no_grad()
    def __call__(self, obs: Mapping[str, Array], action: Array) -> Array:
        """The least value of all critics, ``(B,)``, in the unit of raw rewards.

        Args:
            obs: key -> ``(B, *shape)`` or ``(B, h, *shape)``, as an actor sees them.
            action: ``(B, *shape)`` in env units.
        """
        tensors = {key: torch.from_numpy(np.array(obs[key])) for key in self._keys}
        if self._normaliser is not None:
            tensors = self._normaliser(tensors)
        features = self._model.sac_state_features(tensors, "critic")
        unit, _ = self._box.normalise(torch.from_numpy(np.array(action, np.float32)).reshape(len(action), -1))
        values: Array = (over_critics(self._model.sac_forward_critic(features, unit)) * self._unit).numpy()
        return values


def _below(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
