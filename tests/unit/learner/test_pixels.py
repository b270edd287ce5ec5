"""The model for cameras: who trains the encoder, what is augmented, what travels, and where encoders come from."""

import numpy as np
import pytest
import safetensors.torch
import torch
from helpers.learner import make_batch, make_sac, make_spec

from headrace.actor.config import ActorConfig
from headrace.actor.policy import make_policy
from headrace.common.errors import ConfigError, SpecError
from headrace.common.shrinking import shrunk
from headrace.common.specs import ObsSpec
from headrace.common.weights import Version, WeightSet
from headrace.learner.config import ModelConfig
from headrace.learner.encoder import encoder_tensors
from headrace.learner.models import make_model

ARM, EYE = ObsSpec("arm", (3,), "<f4"), ObsSpec("eye", (12, 14, 3), "|u1")
SPEC = make_spec(obs=(ARM, EYE), low=[-2.0, 0.0], high=[2.0, 5.0])
SMALL = {"channels": [4, 8], "strides": [2, 1], "projection": 6, "hidden": [16]}
FEATURES = 8 * 3 * 4  # 12 x 14 pixels, then 5 x 6, then 3 x 4


def pixels(**options):
    return ModelConfig("pixels", {**SMALL, **options})


def sac_of(spec=SPEC, seed=0, options=None, **learner):
    return make_sac(spec, seed=seed, model=pixels(**(options or {})), **learner)


def copies(model):
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def changed(model, before):
    return {name.partition(".")[0] for name, tensor in model.state_dict().items() if not torch.equal(tensor, before[name])}


# --- shapes -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stack", [1, 3])
def test_shapes_of_the_contract(stack):
    left = ObsSpec("left", (9, 9, 1), "|u1")
    spec = make_spec(obs=(ARM, EYE, left, ObsSpec("mask", (2, 2), "|u1")), action=(2, 2), window=2, kind="chunk", stack=stack)
    sac = sac_of(spec, options={"critics": 3})
    sample = sac.prepare(make_batch(spec, size=5))
    model, action = sac.model, torch.zeros(5, 4)
    features = {role: model.sac_state_features(sample.obs, role) for role in ("actor", "critic")}
    assert features["actor"].shape == features["critic"].shape == (5, FEATURES + 8 * 2 * 2 + stack * (3 + 4))
    assert features["actor"].dtype == torch.float32
    for twin in ("online", "target"):
        assert model.sac_forward_critic(features["critic"], action, twin).shape == (5, 3)
    acted, log_prob, latent = model.sac_forward_actor(features["actor"], sac.generator, False)
    assert (acted.shape, log_prob.shape, latent) == ((5, 4), (5,), None)
    torch.testing.assert_close(model._get_logprobs(features["actor"], acted), log_prob, rtol=1e-3, atol=1e-3)
    assert model.bc_loss(features["actor"], acted, torch.ones_like(acted)).shape == ()
    assert all(torch.isfinite(value) for value in sac.update(make_batch(spec, size=5)).values())
    with pytest.raises(SpecError, match="'both' is not one of online, target"):
        model.sac_forward_critic(features["critic"], action, "both")


def test_images_are_bytes_until_the_encoder_divides_them():
    sac, batch = sac_of(), make_batch(SPEC)
    sample = sac.augment(sac.prepare(batch))
    assert sample.obs["eye"].dtype == sample.next_obs["eye"].dtype == torch.uint8
    encoder = sac.model.encoders[0]
    seen = []
    encoder.convolutions[0].register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    encoder(torch.tensor([0, 51, 255], dtype=torch.uint8).repeat(1, 12, 14, 1))
    assert seen[0].shape == (1, 3, 12, 14)
    np.testing.assert_allclose(seen[0].mean(dim=(0, 2, 3)), [-0.5, -0.3, 0.5], atol=1e-6)


def test_stacked_frames_are_further_colours_oldest_first():
    spec = make_spec(obs=(EYE,), stack=2)
    encoder = make_model(spec, pixels(), 0).encoders[0]
    seen = []
    encoder.convolutions[0].register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    frames = torch.arange(6, dtype=torch.uint8).reshape(1, 2, 1, 1, 3).expand(1, 2, 12, 14, 3)
    encoder(frames)
    np.testing.assert_allclose(seen[0][0, :, 0, 0], np.arange(6) / 255 - 0.5, atol=1e-6)


# --- who trains what --------------------------------------------------------------------------------------------------------


def test_the_actors_loss_changes_no_encoder_and_no_critic():
    sac, batch = sac_of(), make_batch(SPEC)
    before = copies(sac.model)
    sac.update_actor(sac.prepare(batch))
    assert changed(sac.model, before) == {"actor"}
    assert not torch.equal(sac.model.actor.projection.weight, before["actor.projection.weight"])
    assert all(p.grad is None for p in sac.model.parameters())


def test_the_critics_loss_changes_encoders_and_critics_only():
    sac, batch = sac_of(), make_batch(SPEC)
    before = copies(sac.model)
    sac.update_critic(sac.prepare(batch))
    assert changed(sac.model, before) == {"encoders", "critics"}
    untouched = [name for name, p in sac.model.critic_params() if torch.equal(p, before[name])]
    assert untouched == []


def test_no_gradient_leads_from_the_actors_features_to_an_encoder():
    model = sac_of().model
    obs = {"arm": torch.zeros(2, 3), "eye": torch.zeros(2, 12, 14, 3, dtype=torch.uint8)}
    assert not model.sac_state_features(obs, "actor").requires_grad
    assert model.sac_state_features(obs, "critic").requires_grad
    assert not model.sac_target_features(obs).requires_grad
    torch.testing.assert_close(model.sac_state_features(obs, "actor"), model.sac_state_features(obs, "critic"))


def test_target_critics_look_through_encoders_of_their_own(monkeypatch):
    sac, batch = sac_of(options={"shift": 0}), make_batch(SPEC)
    model = sac.model
    with torch.no_grad():
        model.target_encoders[0].convolutions[0].weight.mul_(2.0)
    sample = sac.prepare(batch)
    expected = model.sac_target_features(sample.next_obs)
    assert not torch.allclose(expected, model.sac_state_features(sample.next_obs, "critic"))
    seen, real = [], model.sac_next_values
    monkeypatch.setattr(model, "sac_next_values", lambda a, c, *rest: seen.append(c) or real(a, c, *rest))
    sac.update_critic(sample)
    assert torch.equal(seen[0], expected)


def test_the_target_encoders_follow_by_tau():
    sac = sac_of(tau=0.25)
    assert not changed(sac.model.target_encoders, copies(sac.model.encoders))
    old = copies(sac.model.target_encoders)
    sac.update(make_batch(SPEC))
    for name, now in sac.model.encoders.state_dict().items():
        expected = old[name] + 0.25 * (now - old[name])
        torch.testing.assert_close(sac.model.target_encoders.state_dict()[name], expected)


def test_300_updates_learn_the_rewards_of_a_fixed_batch_by_its_pictures():
    spec = make_spec(obs=(EYE,))
    sac = sac_of(spec, options={"shift": 0}, critic_lr=3e-3)
    batch = make_batch(spec, rewards=np.linspace(-1, 1, 8)[:, None], terminated=1)
    losses = [float(sac.update(batch)["critic/loss"]) for _ in range(300)]
    assert losses[-1] < 0.02 * losses[0]
    assert sac.check_valid() == (True, "")


# --- augmentation -----------------------------------------------------------------------------------------------------------


def test_observations_and_next_ones_are_moved_once_each_and_differently():
    sac, batch = sac_of(), make_batch(SPEC)
    batch.next_obs.update(batch.obs)
    kept = torch.from_numpy(batch.obs["eye"].copy())
    sample = sac.augment(sac.prepare(batch))
    moved, after = sample.obs["eye"], sample.next_obs["eye"]
    assert not torch.equal(moved, kept)
    assert not torch.equal(after, kept)
    assert not torch.equal(moved, after)
    assert torch.equal(sample.obs["arm"], sample.next_obs["arm"])
    np.testing.assert_array_equal(batch.obs["eye"], kept)


def test_an_update_augments_each_batch_once(monkeypatch):
    sac, batch = sac_of(), make_batch(SPEC)
    seen, real = [], sac.model.sac_augment
    monkeypatch.setattr(sac.model, "sac_augment", lambda obs, generator: seen.append(generator) or real(obs, generator))
    sac.update(batch)
    assert seen == [sac.generator] * 2
    sac.update(batch, None, make_batch(SPEC, seed=1))
    assert len(seen) == 6


def test_without_a_shift_images_are_as_they_came():
    sac = sac_of(options={"shift": 0})
    sample, state = sac.prepare(make_batch(SPEC)), sac.generator.get_state()
    assert sac.augment(sample).obs is sample.obs
    assert torch.equal(sac.generator.get_state(), state)


def test_the_same_seed_is_the_same_run_and_a_state_goes_on_as_if_nothing_had_been():
    def states(sac):
        return sac.get_state()["tensors"]

    first, second = sac_of(), sac_of()
    for i in range(3):
        first.update(make_batch(SPEC, seed=i))
        second.update(make_batch(SPEC, seed=i))
    assert all(torch.equal(tensor, states(second)[name]) for name, tensor in states(first).items())
    third = sac_of(seed=9)
    third.set_state(first.get_state())
    for i in range(3, 6):
        first.update(make_batch(SPEC, seed=i))
        third.update(make_batch(SPEC, seed=i))
    assert all(torch.equal(tensor, states(third)[name]) for name, tensor in states(first).items())
    assert not all(torch.equal(tensor, states(second)[name]) for name, tensor in states(first).items())


def test_networks_see_images_at_the_size_that_is_asked_for():
    sac = sac_of(options={"size": 9, "shift": 0})
    batch = make_batch(SPEC)
    small = {**batch.obs, "eye": shrunk(batch.obs["eye"], 9)}
    obs, seen = ({key: torch.tensor(value) for key, value in views.items()} for views in (batch.obs, small))
    assert sac.model.sac_augment(obs, sac.generator) is obs
    for role in ("actor", "critic"):
        assert torch.equal(sac.model.sac_state_features(obs, role), sac.model.sac_state_features(seen, role))
    assert torch.equal(sac.model.sac_target_features(obs), sac.model.sac_target_features(seen))
    moved = sac_of(options={"size": 9}).model.sac_augment(obs, sac.generator)["eye"]
    assert moved.shape == (8, 9, 9, 3)
    assert moved.dtype == torch.uint8
    with pytest.raises(SpecError, match=r"size: 13, but the images of spec\.obs\.eye are 12 x 14; nearest valid: 12"):
        make_model(SPEC, pixels(size=13), 0)


# --- acting -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stack", "kind", "size"), [(1, "torch", 0), (2, "torch", 7), (1, "numpy", 0), (2, "numpy", 0), (2, "numpy", 7)]
)
def test_actors_run_the_published_policy(stack, kind, size):
    others = ObsSpec("left", (9, 9, 1), "|u1", "critic"), ObsSpec("mask", (2, 2), "|u1"), ObsSpec("over", (9, 9, 1), "|u1")
    spec = make_spec(obs=(ARM, EYE, *others), low=[-2.0, 0.0], high=[2.0, 5.0], stack=stack)
    sac = sac_of(spec, options={"size": size})
    sac.update(make_batch(spec))
    weights = WeightSet.unpack(sac.weights(Version("learner", 1, 1)).pack())
    policy, batch = make_policy(weights, spec, ActorConfig(policy=kind)), make_batch(spec, seed=3)
    with torch.no_grad():
        features = sac.model.sac_state_features(sac.prepare(batch).obs, "actor")
        unit, _, _ = sac.model.sac_forward_actor(features, None, True)
    expected = sac.prepare._box.to_env(unit)
    np.testing.assert_allclose(policy.act(batch.obs, np.random.default_rng(0), True), expected, atol=1e-6)
    single = {key: value[:1] for key, value in batch.obs.items()}
    np.testing.assert_allclose(policy.act(single, np.random.default_rng(0), True), expected[:1], atol=1e-6)
    sac.update(batch)
    policy.load(sac.weights(Version("learner", 1, 2)))
    assert np.abs(policy.act(batch.obs, np.random.default_rng(0), True) - expected.numpy()).max() > 1e-5


def test_numpy_draws_from_the_same_distribution_and_refuses_what_is_not_whole():
    sac = sac_of()
    weights = sac.weights(Version("learner", 1, 1))
    policy = make_policy(weights, SPEC, ActorConfig(policy="numpy"))
    obs = {key: np.repeat(value[:1], 4000, axis=0) for key, value in make_batch(SPEC).obs.items()}
    with torch.no_grad():
        features = sac.model.sac_state_features({key: torch.tensor(value[:1]) for key, value in obs.items()}, "actor")
        mean, log_std = sac.model.actor(features).chunk(2, 1)
    u = np.arctanh((policy.act(obs, np.random.default_rng(0), False) - [0, 2.5]) / [2, 2.5])
    np.testing.assert_allclose(u.mean(0), mean[0], atol=0.1)
    np.testing.assert_allclose(u.std(0), log_std[0].exp(), rtol=0.1)
    one = {key: value[:1] for key, value in obs.items()}
    before = policy.act(one, np.random.default_rng(0), True)
    for wrong, text in (({"actor.norm.bias": None}, "'actor.norm.bias' is missing"), ({"x": before}, "'x' is unknown")):
        tensors = {name: t for name, t in {**weights.tensors, **wrong}.items() if t is not None}
        with pytest.raises(SpecError, match=text):
            policy.load(WeightSet(Version("learner", 1, 2), weights.policy, tensors))
    assert (policy.act(one, np.random.default_rng(0), True) == before).all()


def test_weights_hold_what_acting_needs_and_nothing_else(tmp_path):
    spec = make_spec(obs=(ARM, EYE, ObsSpec("over", (9, 9, 1), "|u1", "critic")))
    file = tmp_path / "encoders.safetensors"
    safetensors.torch.save_file(encoder_tensors(make_model(spec, pixels(), 1).named_encoders()), file)
    sac = sac_of(spec, options={"critics": 5, "encoder_file": str(file), "encoder_frozen": True})
    weights = sac.weights(Version("learner", 1, 0))
    layers = [f"encoders.0.convolutions.{i}" for i in (0, 1)]
    layers += ["actor.projection", "actor.norm", "actor.dense.trunk.0", "actor.dense.head"]
    assert set(weights.tensors) == {f"{layer}.{part}" for layer in layers for part in ("weight", "bias")}
    file.unlink()  # an actor has no such file
    policy = make_policy(WeightSet.unpack(weights.pack()), spec)
    obs = {key: value for key, value in make_batch(spec).obs.items() if key != "over"}
    assert policy.act(obs, np.random.default_rng(0), False).shape == (8, 2)
    assert policy.model.encoders[0].convolutions[0].weight.equal(sac.model.encoders[0].convolutions[0].weight)
    assert len(policy.model.critics) == 1


# --- encoders from a file ---------------------------------------------------------------------------------------------------


@pytest.fixture
def trained(tmp_path):
    """A file of encoders, and their tensors by name."""
    tensors = {name: t.clone() for name, t in encoder_tensors(make_model(SPEC, pixels(), 7).named_encoders()).items()}
    safetensors.torch.save_file(tensors, tmp_path / "encoders.safetensors")
    return tmp_path / "encoders.safetensors", tensors


def test_encoders_begin_as_their_file_has_them(trained):
    file, tensors = trained
    assert set(tensors) == {f"eye.convolutions.{i}.{part}" for i in (0, 1) for part in ("weight", "bias")}
    sac = sac_of(options={"encoder_file": str(file)})
    for encoders in (sac.model.encoders, sac.model.target_encoders):
        assert all(torch.equal(t, tensors[f"eye.{name}"]) for name, t in encoders[0].state_dict().items())
    sac.update(make_batch(SPEC))
    assert not torch.equal(sac.model.encoders[0].convolutions[0].weight, tensors["eye.convolutions.0.weight"])


def test_frozen_encoders_stay(trained):
    file, tensors = trained
    sac = sac_of(options={"encoder_file": str(file), "encoder_frozen": True})
    before = copies(sac.model)
    for i in range(3):
        sac.update(make_batch(SPEC, seed=i))
    assert changed(sac.model, before) == {"actor", "critics", "target_critics"}
    assert all(torch.equal(t, tensors[f"eye.{name}"]) for name, t in sac.model.encoders[0].state_dict().items())


@pytest.mark.parametrize(
    ("name", "tensor", "message"),
    [
        ("eye.convolutions.1.bias", None, "'eye.convolutions.1.bias' is missing"),
        ("eye.convolutions.2.bias", torch.zeros(8), "'eye.convolutions.2.bias' is unknown here"),
        ("left.convolutions.0.bias", torch.zeros(4), "'left.convolutions.0.bias' is unknown here"),
        ("eye.convolutions.0.bias", torch.zeros(5), r"'eye.convolutions.0.bias' is \(5,\) torch.float32, expected \(4,\)"),
        ("eye.convolutions.0.bias", torch.zeros(4).half(), r"is \(4,\) torch.float16, expected \(4,\) torch.float32"),
        ("eye.convolutions.0.bias", torch.full((4,), torch.nan), "'eye.convolutions.0.bias' holds NaN or infinity"),
    ],
)
def test_a_file_of_other_tensors_is_refused_by_name(trained, name, tensor, message):
    file, tensors = trained
    found = {key: value for key, value in {**tensors, name: tensor}.items() if value is not None}
    safetensors.torch.save_file(found, file)
    with pytest.raises(ConfigError, match=rf"model\.options\.encoder_file: {file}: tensor .*{message}"):
        make_model(SPEC, pixels(encoder_file=str(file)), 0)


def test_a_file_that_is_none_is_refused(tmp_path):
    (tmp_path / "text").write_text("no tensors")
    for name in ("missing", "text"):
        with pytest.raises(ConfigError, match=rf"model\.options\.encoder_file: {tmp_path / name} cannot be read"):
            make_model(SPEC, pixels(encoder_file=str(tmp_path / name)), 0)


# --- refusals ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"strides": [2]}, r"model\.options\.strides: 1 entries for 2 of model\.options\.channels"),
        ({"channels": [], "strides": []}, "one for each, and at least one"),
        (
            {"encoder_frozen": True},
            r"encoder_frozen: true, but .*encoder_file names no file; nearest valid: false",
        ),
        ({"shift": -1}, r"model\.options\.shift: -1 is below"),
    ],
)
def test_options_that_make_no_model_are_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        make_model(SPEC, pixels(**options), 0)


@pytest.mark.parametrize(
    ("obs", "message"),
    [
        ((ARM,), r"no uint8 images \(H, W, C\) that the actor may see among arm \(3,\) <f4; .* mlp needs none"),
        ((ARM, ObsSpec("eye", (12, 14, 3), "|u1", "critic")), "that the actor may see"),
        ((EYE, ObsSpec("wrist", (12, 12, 3), "|u1", "actor")), r"spec\.obs\.wrist: role actor.* set env\.roles\.wrist to both"),
        ((ObsSpec("eye", (12, 5, 3), "|u1"),), r"spec\.obs\.eye: images \(12, 5, 3\) are too small .*strides \[2, 1\]"),
    ],
)
def test_observations_that_give_no_model_are_refused(obs, message):
    with pytest.raises(SpecError, match=message):
        make_model(make_spec(obs=obs), pixels(), 0)


def test_keys_with_dots_are_cameras_like_others():
    spec = make_spec(obs=(ObsSpec("keys", (9, 9, 3), "|u1"), ObsSpec("robot.eye", (9, 9, 3), "|u1")))
    sac = sac_of(spec)
    sac.update(make_batch(spec))
    assert {name.rpartition(".convolutions")[0] for name in encoder_tensors(sac.model.named_encoders())} == {
        "keys",
        "robot.eye",
    }
