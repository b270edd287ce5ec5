"""The MLP: its passes by hand against autograd, and the policy that it publishes against the actors' numpy forward."""

import numpy as np
import pytest
import torch
from helpers.learner import SHAPES, Alone, make_batch, make_sac, make_spec

from headrace.actor.policy import make_policy
from headrace.common.errors import ConfigError, SpecError
from headrace.common.specs import ObsSpec
from headrace.common.statistics import ObsStatistics
from headrace.common.weights import Version, WeightSet
from headrace.learner import crew, mlp
from headrace.learner.config import ModelConfig
from headrace.learner.contract import SupportSACTraining
from headrace.learner.models import make_model

CLOSE = {"rtol": 1e-5, "atol": 1e-6}


@pytest.fixture
def torch_threads():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture(params=[1, 2, 3], ids=lambda n: f"{n} shares")
def threads(request, torch_threads, monkeypatch):
    monkeypatch.setattr(mlp, "Crew", Alone)
    return request.param


def setup(options, size=32, threads=1):
    spec = make_spec(action=(2,))
    model = make_model(spec, ModelConfig("mlp", options), 0)
    if threads > 1:
        model.use_threads(threads)
    generator = torch.Generator().manual_seed(7)
    features = torch.randn(size, 3, generator=generator)
    action = torch.rand(size, 2, generator=generator) * 2 - 1
    return model, features, action, torch.randn(size, generator=generator)


def noise():
    return torch.Generator().manual_seed(11)


@pytest.mark.parametrize("options", SHAPES)
def test_next_values_by_hand(options, threads):
    model, features, _, _ = setup(options, 31, threads)
    by_hand = model.sac_next_values(features, features, noise())
    generic = SupportSACTraining.sac_next_values(model, features, features, noise())
    torch.testing.assert_close(by_hand, generic, **CLOSE)
    assert by_hand[0].shape == (31, options["critics"])


@pytest.mark.parametrize("importance", [None, torch.linspace(0.1, 1, 31)], ids=["equal", "weighted"])
@pytest.mark.parametrize("options", SHAPES)
def test_critic_gradients_by_hand(options, importance, threads):
    model, features, action, target = setup(options, 31, threads)
    by_hand = model.sac_critic_gradients(features, action, target, importance)
    generic = SupportSACTraining.sac_critic_gradients(model, features, action, target, importance)
    torch.testing.assert_close(by_hand.loss, generic.loss, **CLOSE)
    torch.testing.assert_close(by_hand.q, generic.q, **CLOSE)
    torch.testing.assert_close(by_hand.gradients, generic.gradients, **CLOSE)


@pytest.mark.parametrize("reduction", ["min", "mean"])
@pytest.mark.parametrize("options", SHAPES)
def test_actor_gradients_by_hand(options, reduction, threads):
    model, features, _, _ = setup(options, 31, threads)
    alpha = torch.tensor(0.2)
    by_hand = model.sac_actor_gradients(features, features, alpha, noise(), reduction)
    generic = SupportSACTraining.sac_actor_gradients(model, features, features, alpha, noise(), reduction)
    for name in ("loss", "q", "log_prob", "gradients"):
        torch.testing.assert_close(getattr(by_hand, name), getattr(generic, name), **CLOSE)


def test_buffers_follow_the_batch_size(threads):
    model, features, action, target = setup(SHAPES[0], threads=threads)
    model.sac_critic_gradients(features, action, target)
    found = model.sac_critic_gradients(features[:5], action[:5], target[:5])
    generic = SupportSACTraining.sac_critic_gradients(model, features[:5], action[:5], target[:5])
    torch.testing.assert_close(found.gradients, generic.gradients, **CLOSE)


def test_fewer_rows_than_threads(threads):
    model, features, action, target = setup(SHAPES[0], 2, threads)
    found = model.sac_critic_gradients(features, action, target)
    generic = SupportSACTraining.sac_critic_gradients(model, features, action, target)
    torch.testing.assert_close(found.gradients, generic.gradients, **CLOSE)


@pytest.mark.parametrize(("cores", "asked", "expected"), [(1, 0, 1), (2, 0, 2), (4, 0, 2), (8, 0, 4), (64, 0, 4), (2, 3, 3)])
def test_the_crew_leaves_cores_to_the_others(cores, asked, expected, threads, monkeypatch):
    monkeypatch.setattr(crew.os, "sched_getaffinity", lambda pid: set(range(cores)))
    model = setup(SHAPES[0])[0]
    model.use_threads(asked)
    assert (model._crew.size, torch.get_num_threads()) == (expected, 1)


def test_without_shared_memory_the_learner_is_alone(threads, monkeypatch):
    monkeypatch.setattr(mlp, "SHARES_MEMORY", False)
    model = setup(SHAPES[0], threads=threads)[0]
    assert model._crew.size == 1


@pytest.mark.parametrize(("cores", "asked", "expected"), [(1, 0, 1), (2, 0, 1), (8, 0, 4), (64, 0, 8), (2, 3, 3)])
def test_other_models_take_torch_threads(cores, asked, expected, torch_threads, monkeypatch):
    monkeypatch.setattr(crew.os, "sched_getaffinity", lambda pid: set(range(cores)))
    SupportSACTraining.use_threads(setup(SHAPES[0])[0], asked)
    assert torch.get_num_threads() == expected


def test_a_critic_that_is_never_the_minimum_gets_no_rows():
    model, features, _, _ = setup(SHAPES[0])
    with torch.no_grad():
        model.critics[1].head.bias.fill_(100.0)
    by_hand = model.sac_actor_gradients(features, features, torch.tensor(0.2), noise())
    generic = SupportSACTraining.sac_actor_gradients(model, features, features, torch.tensor(0.2), noise())
    torch.testing.assert_close(by_hand.gradients, generic.gradients, **CLOSE)


def test_training_by_hand_and_by_autograd_stays_together(monkeypatch):
    spec = make_spec()
    by_hand, generic = make_sac(spec), make_sac(spec)
    monkeypatch.setattr(generic.model, "_by_hand", lambda x: None)
    for i in range(20):
        batch = make_batch(spec, seed=i)
        ours, theirs = by_hand.update(batch), generic.update(batch)
    assert by_hand.model._steps is not None
    assert generic.model._steps is None
    for name, value in ours.items():
        torch.testing.assert_close(value, theirs[name], rtol=1e-4, atol=1e-5, msg=name)


@pytest.mark.parametrize(
    "options", [{"critic_layer_norm": True}, {"critic_dropout": 0.1}, {"critic_batch_norm": True}], ids=lambda o: next(iter(o))
)
def test_critics_with_more_than_dense_layers_are_left_to_autograd_and_torchs_threads(options, torch_threads):
    model, features, action, target = setup({"hidden": [8], **options}, threads=2)
    assert (model._crew.size, torch.get_num_threads()) == (1, 2)
    model.sac_critic_gradients(features, action, target)
    assert model._steps is None


def test_roles_see_their_own_keys_and_bytes_are_scaled():
    obs = (
        ObsSpec("both", (2,), "<f4"),
        ObsSpec("eye", (2, 2), "|u1", "actor"),
        ObsSpec("secret", (1,), "<f4", "critic"),
    )
    model = make_model(make_spec(obs=obs), ModelConfig("mlp", {"hidden": [4]}), 0)
    values = {
        "both": torch.tensor([[1.0, 2.0]]),
        "eye": torch.tensor([[[0, 51], [102, 255]]], dtype=torch.uint8),
        "secret": torch.tensor([[9.0]]),
    }
    torch.testing.assert_close(model.sac_state_features(values, "actor"), torch.tensor([[1, 2, 0, 0.2, 0.4, 1]]))
    torch.testing.assert_close(model.sac_state_features(values, "critic"), torch.tensor([[1.0, 2.0, 9.0]]))
    assert model.policy_description()["keys"] == ["both", "eye"]


def test_a_side_without_keys_is_refused():
    with pytest.raises(SpecError, match="no key that the actor may see"):
        make_model(make_spec(obs=(ObsSpec("secret", (1,), "<f4", "critic"),)), ModelConfig(), 0)


def test_chunks_and_stacked_frames_set_the_sizes():
    spec = make_spec(action=(5, 7), window=5, kind="chunk", stack=3)
    model = make_model(spec, ModelConfig("mlp", {"hidden": [4]}), 0)
    assert model.actor.trunk[0].weight.shape == (4, 9)
    assert model.actor.head.weight.shape == (70, 4)
    assert model.critics[0].trunk[0].weight.shape == (4, 9 + 35)


@pytest.mark.parametrize("normalise", [False, True])
@pytest.mark.parametrize("stack", [1, 2])
def test_actors_run_the_published_policy(normalise, stack):
    spec = make_spec(low=[-2.0, 0.0], high=[2.0, 5.0], stack=stack)
    sac = make_sac(spec, normalise_obs=normalise)
    mean, var = {"obs": np.array([1, -2, 3], "<f4")}, {"obs": np.array([4, 0.25, 9], "<f4")}
    sac.update(make_batch(spec), ObsStatistics(7, mean, var))
    weights = WeightSet.unpack(sac.weights(Version("learner", 1, 1)).pack())
    assert weights.policy["normalise"] is normalise
    batch = make_batch(spec, seed=3)
    sample = sac.prepare(batch)
    policy = make_policy(weights, spec)
    unit, _, _ = sac.model.sac_forward_actor(sac.model.sac_state_features(sample.obs, "actor"), None, True)
    acted = policy.act(batch.obs, np.random.default_rng(0), True)
    np.testing.assert_allclose(acted, sac.prepare._box.to_env(unit).detach().numpy(), atol=1e-6)


def test_given_actions_have_the_density_of_samples():
    model, features, _, _ = setup(SHAPES[0])
    action, log_prob, latent = model.sac_forward_actor(features, noise(), False)
    torch.testing.assert_close(model._get_logprobs(features, action), log_prob, rtol=1e-3, atol=1e-3)
    assert latent is None


def test_unknown_twin_and_options_are_refused():
    model, features, action, _ = setup(SHAPES[0])
    with pytest.raises(SpecError, match="'both' is not one of online, target"):
        model.sac_forward_critic(features, action, "both")
    with pytest.raises(ConfigError, match=r"model\.options\.hiden: unknown key; did you mean 'hidden'"):
        make_model(make_spec(), ModelConfig("mlp", {"hiden": [4]}), 0)
    with pytest.raises(ConfigError, match=r"model\.options\.critics: 0 is below"):
        make_model(make_spec(), ModelConfig("mlp", {"critics": 0}), 0)
