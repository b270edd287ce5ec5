"""LeRobot's SmolVLA as a flow policy, with a stand-in for the package; the real one is benchmarks/smolvla.py's."""

import copy
import json
import sys
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch
from helpers import smol
from helpers.flow import SEEN, SPEC, mode_of, see, weights_of
from helpers.learner import make_batch

from headrace.actor.config import ActorConfig
from headrace.actor.policy import make_policy
from headrace.common.errors import ConfigError, SpecError
from headrace.common.exported import write_export
from headrace.learner.config import LearnerConfig, ModelConfig
from headrace.learner.models import make_model
from headrace.learner.sac import SAC

KIND = "headrace.learner.smolvla:SmolVLA"


@pytest.fixture
def options(tmp_path, monkeypatch):
    smol.install(monkeypatch)
    return {**SEEN, **smol.write_checkpoint(tmp_path / "smol")}


def make(options, **more):
    return make_model(SPEC, ModelConfig(KIND, {**options, **more}), 0)


@pytest.mark.parametrize(("trains", "moved"), [("expert", {"expert"}), ("heads", {"expert"}), ("lora", {"expert"})])
def test_it_learns_by_its_expert_alone_and_only_that_travels(options, trains, moved, tmp_path):
    sac = SAC(make(options, trains=trains), SPEC, LearnerConfig(batch_size=8, bc_weight=1.0), 0)
    before = copy.deepcopy(sac.model.state_dict())
    for seed in range(2):
        assert float(sac.update(make_batch(SPEC, 8, seed, steps=4))["sac/updates_skipped"]) == 0
    here = sac.model.state_dict()
    found = {name.partition(".")[0] for name in here if not torch.equal(here[name], before[name])}
    assert found == {*moved, "pool", "critics", "target_pool", "target_critics", "updates"}
    assert {name.partition(".")[0] for name in sac.model.policy_tensors()} == {"expert", "updates"}
    obs = see()
    acted = make_policy(weights_of(sac.model), SPEC, ActorConfig()).act(
        {key: value.numpy() for key, value in obs.items()}, np.random.default_rng(0), True
    )
    assert acted.shape == (6, 4, 2)
    write_export(tmp_path / "out", weights_of(sac.model), SPEC, {})
    residual = make_model(
        SPEC, ModelConfig("residual", {"base": str(tmp_path / "out"), "hidden": [8], "critic_hidden": [8]}), 0
    )
    torch.testing.assert_close(mode_of(residual, obs), mode_of(sac.model, obs))


def test_actions_and_state_are_scaled_as_it_was_trained(options):
    model = make(options)
    ends = torch.tensor([[[1.0, 0.0], [-2.0, 4.0]]])
    torch.testing.assert_close(model.to_box(ends), torch.tensor([[[0.6, -0.2], [-0.9, 0.8]]]))  # mean .1 -.2, std .5 .25
    torch.testing.assert_close(model.from_box(model.to_box(ends)), ends)
    seen, obs = [], see()
    embed = model.prefix.checkpoint.model.embed_prefix
    model.prefix.checkpoint.model.embed_prefix = lambda *args, state: seen.append(state) or embed(*args, state=state)
    model.sac_state_features(obs, "actor")
    torch.testing.assert_close(seen[0], torch.nn.functional.pad((obs["arm"] - 1) / 2, (0, 1)))  # mean 1, std 2, one of padding


def test_padding_is_seen_by_the_expert_and_counts_nowhere(options):
    model, obs = make(options, noise="learned"), see()
    with torch.no_grad():
        features = model.eval().sac_state_features(obs, "actor")
        noise = torch.randn(6, smol.HORIZON, smol.DIMS, generator=torch.Generator().manual_seed(0))
        other = noise.clone()
        other[:, :, 2] += 1
        assert not torch.allclose(model.denoise(features, noise), model.denoise(features, other), atol=1e-4)
    model.bc_loss(features, torch.zeros(6, 8), torch.ones(6, 8)).backward()
    assert float(model.expert.velocity.weight.grad[2].abs().max()) == 0
    assert float(model.expert.velocity.weight.grad[:2].abs().max()) > 0
    _, log_prob, _ = model.train().sac_forward_actor(features, None, False)
    single = make(options, noise="learned", steps=1)
    single.sac_forward_actor(features, None, False)[1].sum().backward()
    assert float(single.expert.level.weight.grad[2].abs().max()) == 0
    assert log_prob.shape == (6,)


def test_a_host_with_another_lerobot_is_refused_by_name(options, monkeypatch):
    weights = weights_of(make(options))
    smol.install(monkeypatch, version="0.3.9")
    with pytest.raises(SpecError, match=r"policy\.lerobot: '0\.3\.9' != '0\.4\.4'"):
        make_policy(weights, SPEC, ActorConfig())


def lose(place, name):
    tensors = safetensors.torch.load_file(place / "model.safetensors")
    del tensors[name]
    safetensors.torch.save_file(tensors, place / "model.safetensors")


def reshape(place, name):
    tensors = safetensors.torch.load_file(place / "model.safetensors")
    tensors[name] = tensors[name][:-1].contiguous()
    safetensors.torch.save_file(tensors, place / "model.safetensors")


def add(place, name):
    tensors = safetensors.torch.load_file(place / "model.safetensors")
    safetensors.torch.save_file({**tensors, name: torch.zeros(1)}, place / "model.safetensors")


def say(place, **changed):
    file = place / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changed}))


REFUSALS = [
    (lambda place: lose(place, "model.state_proj.weight"), {}, r"model\.safetensors does not fit.*state_proj\.weight"),
    (lambda place: add(place, "model.more"), {}, r"model\.safetensors does not fit.*model\.more"),
    (lambda place: reshape(place, "model.state_proj.weight"), {}, r"model\.safetensors does not fit.*state_proj\.weight"),
    (lambda place: (place / "policy_preprocessor.json").unlink(), {}, r"no policy_preprocessor\.json in it"),
    (lambda place: say(place, type="act"), {}, r"a policy of type 'act', expected 'smolvla'"),
    (lambda place: say(place, vlm_model_name="Some/VLM"), {}, r"model\.options\.backbone: 'Some/VLM' is no directory"),
    (lambda place: say(place, modes={"ACTION": "MIN_MAX"}), {}, r"action is scaled by MIN_MAX"),
    (lambda place: say(place, cameras=["left"]), {}, r"'cameras': \['left'\].*the env shows.*\['eye'\]"),
    (lambda place: None, {"checkpoint": ""}, r"model\.options\.checkpoint: empty"),
    (lambda place: None, {"stored": True, "pretrained": "teacher"}, r"model\.options\.stored: true"),
    (lambda place: None, {"critic_prefix": "own"}, r"model\.options\.critic_prefix: own"),
    (lambda place: None, {"trains": "all"}, r"model\.options\.trains"),
    (lambda place: None, {"horizon": 4}, r"model\.options\.horizon: 4, but .* denoises 5"),
    (lambda place: None, {"dims": 2}, r"model\.options\.dims: 2, but .* denoises 3"),
    (lambda place: None, {"width": 16}, r"model\.options\.width: 16, but .* are of 8"),
]


@pytest.mark.parametrize(("damage", "more", "message"), REFUSALS)
def test_what_does_not_fit_is_named(options, damage, more, message):
    damage(Path(options["checkpoint"]))
    with pytest.raises((ConfigError, SpecError), match=f"(?s){message}"):
        make(options, **more)


def test_without_the_package_it_says_what_to_install(options, monkeypatch):
    monkeypatch.setitem(sys.modules, "lerobot.policies.smolvla.modeling_smolvla", None)
    with pytest.raises(ConfigError, match=r"needs the package lerobot 0\.4 .*pip install 'lerobot\[smolvla\]==0\.4\.\*'"):
        make(options)
