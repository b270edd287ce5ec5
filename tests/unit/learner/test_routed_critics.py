"""Critics of their own for each task: a row trains those of its task, and no others."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from helpers.flow import SEEN, SPEC, TINY, export_flow
from helpers.learner import make_batch

from headrace.common.errors import SpecError
from headrace.learner.config import LearnerConfig, ModelConfig
from headrace.learner.models import make_model
from headrace.learner.sac import SAC


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return export_flow(tmp_path_factory.mktemp("pretrained") / "out", noise="none")


def sac_of(kind, base, tasks):
    options = {"flow": {**SEEN, **TINY}, "residual": {"base": base, "hidden": [16], "critic_hidden": [16]}}[kind]
    model = make_model(SPEC, ModelConfig(kind, {**options, "critic_tasks": tasks}), 3)
    return SAC(model, SPEC, LearnerConfig(batch_size=8), 0)


def batch_of(*tasks):
    batch = make_batch(SPEC, len(tasks), 0)
    batch.rows["task"] = tasks
    return batch


@pytest.mark.parametrize("kind", ["flow", "residual"])
def test_a_row_trains_the_critics_of_its_task_and_leaves_the_others(kind, base):
    sac = sac_of(kind, base, 3)
    before = [[p.detach().clone() for p in network.parameters()] for critic in sac.model.critics for network in critic.tasks]
    assert float(sac.update(batch_of(0, 2, 2, 0, 0, 2, 2, 0))["sac/updates_skipped"]) == 0
    after = [[p.detach() for p in network.parameters()] for critic in sac.model.critics for network in critic.tasks]
    moved = [not all(map(torch.equal, a, b)) for a, b in zip(before, after, strict=True)]
    assert moved == [True, False, True] * 2
    assert not all(
        torch.equal(a, b) for a, b in zip(*(sac.model.target_critics[0].tasks[i].parameters() for i in (0, 1)), strict=True)
    )


@pytest.mark.parametrize("kind", ["flow", "residual"])
def test_the_row_s_task_chooses_who_judges(kind, base):
    sac = sac_of(kind, base, 3)
    sample = sac.prepare(batch_of(0, 1, 2, 1))
    with torch.no_grad():
        for critic in sac.model.critics:
            for task, network in enumerate(critic.tasks):
                network.head.weight.zero_()
                network.head.bias.fill_(10.0 + task)
        features = sac.model.state_features(sample.obs, "critic")
        q = sac.model.sac_forward_critic(features, sample.action)
    np.testing.assert_allclose(q.numpy(), np.array([10, 11, 12, 11])[:, None].repeat(2, axis=1))


def test_a_task_without_critics_is_refused_by_name(base):
    with pytest.raises(SpecError, match=r"critic_tasks: 3, but there are rows of task 5; nearest valid: 6"):
        sac_of("flow", base, 3).update(batch_of(0, 5))


def test_acting_knows_nothing_of_them(base):
    models = [sac_of("flow", base, tasks).model for tasks in (0, 4)]
    assert models[0].policy_description() == models[1].policy_description()
    assert models[0].policy_tensors().keys() == models[1].policy_tensors().keys()
