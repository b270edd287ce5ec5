"""What a checkpoint's critics say is what they said when it was written."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from headrace.common.errors import CheckpointError
from headrace.common.specs import ActionSpec, ObsSpec, TransitionSpec
from headrace.common.statistics import ObsStatistics, ReturnStatistics
from headrace.learner import checkpoint
from headrace.learner.config import LearnerConfig, ModelConfig
from headrace.learner.models import make_model
from headrace.learner.train_state import TrainState
from headrace.learner.values import Values

SPEC = TransitionSpec((ObsSpec("obs", (3,), "<f4"),), ActionSpec((2,), (-2.0, 0.0), (2.0, 10.0)))
OBS = {"obs": np.float32([[1, 2, 3], [4, 5, 6]])}
ACTION = np.float32([[1.0, 5.0], [-2.0, 10.0]])  # [0.5, 0] and [-1, 1] in the policy's own units


def written(directory, model, learner):
    state = TrainState(make_model(SPEC, model, 7), SPEC, learner, 0)
    if state.normaliser is not None:
        state.normaliser.load(ObsStatistics(9, {"obs": np.float32([1, 2, 3])}, {"obs": np.float32([4, 4, 4])}))
        state.rewards.load(ObsStatistics(returns=ReturnStatistics(9, 9.0)))
    return state, checkpoint.write(directory, 3, state.get_state(), keep=1)


@pytest.mark.parametrize("normalise", [False, True])
def test_the_least_of_the_critics_in_normalised_units(tmp_path, normalise):
    model = ModelConfig(options={"hidden": [8], "critics": 3})
    learner = LearnerConfig(normalise_obs=normalise, normalise_rewards=normalise)
    state, path = written(tmp_path, model, learner)
    raw = torch.tensor(OBS["obs"])
    seen = (raw - torch.tensor([1.0, 2.0, 3.0])) / 2 if normalise else raw
    with torch.no_grad():
        features = state.model.sac_state_features({"obs": seen}, "critic")
        expected = state.model.sac_forward_critic(features, torch.tensor([[0.5, 0.0], [-1.0, 1.0]])).min(dim=1).values
    expected = expected * 3 if normalise else expected  # in the unit of raw rewards
    assert Values(path, SPEC, model, learner)(OBS, ACTION) == pytest.approx(expected.numpy(), rel=1e-4)


def test_a_checkpoint_of_another_model_is_refused(tmp_path):
    _, path = written(tmp_path, ModelConfig(options={"hidden": [8]}), LearnerConfig())
    with pytest.raises(CheckpointError, match=r"step_000000000003: tensor 'actor.head.weight' is \(4, 8\)"):
        Values(path, SPEC, ModelConfig(options={"hidden": [9]}), LearnerConfig())
