"""What several parts of a model want to see is seen once, and is what each would have seen by itself."""

from collections import Counter

import pytest
import torch
from helpers.flow import SPEC, export_flow, make_flow, see
from helpers.learner import make_batch, make_spec

from headrace.common.specs import ObsSpec
from headrace.learner.config import LearnerConfig, ModelConfig
from headrace.learner.models import make_model
from headrace.learner.sac import SAC

EYES = make_spec(
    obs=(ObsSpec("arm", (3,), "<f4"), ObsSpec("eye", (12, 14, 3), "|u1"), ObsSpec("truth", (9, 9, 1), "|u1", "critic"))
)
# encoders -> passes of each in an update: of the next observations, in the critics' step, in the actor's
PASSES = {
    "pixels": {"encoders.0": 3, "encoders.1": 2, "target_encoders.0": 1, "target_encoders.1": 1},
    "flow": {"prefix": 3},
    "flow whose critics see by themselves": {"prefix": 2, "critic_prefix": 2, "target_prefix": 1},
    "residual": {"base.prefix": 3},
}


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return export_flow(tmp_path_factory.mktemp("base") / "out")


def make(kind, base):
    if kind == "pixels":
        return make_model(EYES, ModelConfig(kind, {"channels": [4, 8], "strides": [2, 1], "projection": 6, "hidden": [16]}), 0)
    if kind == "residual":
        return make_model(SPEC, ModelConfig(kind, {"base": base, "hidden": [16], "critic_hidden": [16]}), 0)
    return make_flow(critic_prefix="shared" if kind == "flow" else "own", trains="all")


def observe(spec):
    return see() if spec is SPEC else {key: torch.tensor(value) for key, value in make_batch(spec, 6).obs.items()}


def tensors_of(features):
    """All tensors of features, in order."""
    if isinstance(features, torch.Tensor):
        return [features]
    return [tensor for part in features if part is not None for tensor in tensors_of(part)]


@pytest.mark.parametrize("kind", PASSES)
def test_each_sees_what_it_would_see_by_itself(kind, base):
    model = make(kind, base)
    obs = observe(model.spec)
    for both, alone in (
        (model.next_features(obs), (model.sac_state_features(obs, "actor"), model.sac_target_features(obs))),
        (model.actor_step_features(obs), (model.sac_state_features(obs, "actor"), model.sac_state_features(obs, "critic"))),
    ):
        for found, wanted in zip(both, alone, strict=True):
            assert len(tensors_of(found)) == len(tensors_of(wanted)) > 0
            for one, other in zip(tensors_of(found), tensors_of(wanted), strict=True):
                assert torch.equal(one, other)


@pytest.mark.parametrize("kind", PASSES)
def test_gradients_flow_into_what_the_actor_sees_where_it_trains_that_and_nowhere_else(kind, base):
    model = make(kind, base)
    obs = observe(model.spec)
    acting, judged = model.actor_step_features(obs)
    assert any(tensor.requires_grad for tensor in tensors_of(acting)) == kind.startswith("flow")
    assert not any(tensor.requires_grad for tensor in [*tensors_of(judged), *tensors_of(model.next_features(obs))])


@pytest.mark.parametrize("kind", PASSES)
def test_an_encoder_runs_once_for_all_that_want_to_see_the_same(kind, base):
    model, passes = make(kind, base), Counter()
    for name in PASSES[kind]:
        model.get_submodule(name).register_forward_hook(lambda *_, name=name: passes.update([name]))
    sac = SAC(model, model.spec, LearnerConfig(batch_size=8), 0)
    assert float(sac.update(make_batch(model.spec, 8, steps=4 if model.spec is SPEC else 1))["sac/updates_skipped"]) == 0
    assert passes == PASSES[kind]
