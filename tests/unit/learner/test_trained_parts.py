"""What of a flow policy is trained, saved and sent; what it begins with; and hosts whose files are others."""

import importlib
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers.flow import SEEN, SPEC, TINY, export_flow, make_flow, weights_of
from helpers.learner import make_batch, make_sac, make_spec

from headrace.actor.config import ActorConfig
from headrace.actor.policy import make_policy
from headrace.common.errors import ConfigError, SpecError
from headrace.common.weights import Version, WeightSet
from headrace.learner.config import LearnerConfig, ModelConfig
from headrace.learner.models import make_model
from headrace.learner.sac import SAC

HEADS = {"expert.velocity.weight", "expert.velocity.bias", "expert.level.weight", "expert.level.bias"}
THIN = {
    f"expert.{layer}.low_rank_{end}"
    for layer in ("embed", "time.0", "time.2", "layers.0.linear1", "layers.0.linear2")
    for end in ("down", "up")
}


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return export_flow(tmp_path_factory.mktemp("pretrained") / "out", noise="none")


def learner(base, config=None, **options):
    model = make_model(SPEC, ModelConfig("flow", {**SEEN, **TINY, "pretrained": base, **options}), 3)
    return SAC(model, SPEC, config or LearnerConfig(batch_size=8), 0)


def see(seed=0):
    return {key: torch.tensor(value) for key, value in make_batch(SPEC, 6, seed).obs.items()}


@torch.no_grad()
def mode_of(model, obs):
    return model.eval().sac_forward_actor(model.sac_state_features(obs, "actor"), None, True)[0]


@pytest.mark.parametrize(("trains", "names"), [("heads", HEADS), ("lora", HEADS | THIN)])
def test_only_what_is_trained_is_saved_sent_and_changed(trains, names, base):
    sac = learner(base, trains=trains)
    before = {name: p.detach().clone() for name, p in sac.model.named_parameters()}
    for seed in range(3):
        assert float(sac.update(make_batch(SPEC, 8, seed))["sac/updates_skipped"]) == 0
    moved = {name for name, p in sac.model.named_parameters() if not torch.equal(p, before[name])}
    actor = {name for name in moved if name.startswith(("prefix.", "expert."))}
    assert actor == {name for name, _ in sac.model.actor_params()} == names
    assert set(sac.weights(Version("l", 1, 3)).tensors) == names | {"updates"}
    saved = {name.removeprefix("model.") for name in sac.get_state()["tensors"] if name.startswith("model.")}
    assert {name for name in saved if name.startswith(("prefix.", "expert."))} == names


@pytest.mark.parametrize("prefix", ["shared", "own"])
def test_critic_warm_up_leaves_the_pretrained_actor_as_it_was(prefix, base):
    sac = learner(base, LearnerConfig(batch_size=8, critic_warmup_updates=3), critic_prefix=prefix)
    before = {name: t.clone() for name, t in sac.model.policy_tensors().items() if name != "updates"}
    for seed in range(4):
        after = {name: t for name, t in sac.model.policy_tensors().items() if name != "updates"}
        assert all(torch.equal(t, before[name]) for name, t in after.items())
        sac.update(make_batch(SPEC, 8, seed))
    assert not all(torch.equal(t, before[name]) for name, t in after.items())  # the fourth update moved it


@pytest.mark.parametrize("trains", ["all", "expert", "heads", "lora"])
def test_it_begins_as_the_policy_that_it_is_made_of(trains, base):
    model = learner(base, trains=trains).model
    torch.testing.assert_close(mode_of(model, see()), mode_of(make_model(SPEC, base_config(base), 0).base, see()))
    sac, again = (learner(base, trains=trains) for _ in range(2))
    sac.update(make_batch(SPEC, 8, 0))
    again.set_state(sac.get_state())
    for seed in (1, 2):
        ours, theirs = (float(one.update(make_batch(SPEC, 8, seed))["actor/loss"]) for one in (sac, again))
        assert ours == theirs
    assert torch.equal(mode_of(sac.model, see()), mode_of(again.model, see()))
    assert not torch.allclose(mode_of(sac.model, see()), mode_of(model, see()), atol=1e-4)


def base_config(base):
    return ModelConfig("residual", {"base": base, "hidden": [8]})


def test_actors_put_what_travels_beside_what_they_have(base):
    sac = learner(base, trains="lora")
    for seed in range(3):
        sac.update(make_batch(SPEC, 8, seed))
    policy = make_policy(sac.weights(Version("l", 1, 3)), SPEC, ActorConfig())
    noise = torch.Generator().manual_seed(int(np.random.default_rng(0).integers(1 << 63)))
    with torch.no_grad():
        features = sac.model.eval().sac_state_features(see(), "actor")
        wanted = sac.model.sac_forward_actor(features, noise, True)[0]
    acted = policy.act({key: value.numpy() for key, value in see().items()}, np.random.default_rng(0), True)
    np.testing.assert_allclose(acted.reshape(6, 8), wanted.numpy(), atol=1e-6)


def test_a_checkpoint_that_is_not_of_this_policy_is_refused_by_the_tensors_name(base, tmp_path):
    with pytest.raises(ConfigError, match=r"model\.options\.pretrained: .*: tensor 'expert\.layers\.1\..*' is missing"):
        learner(base, expert_layers=2)
    with pytest.raises(ConfigError, match=r"tensor 'expert\.embed\.bias' is \(16,\) torch\.float32, expected \(32,\)"):
        learner(base, width=32)
    learned = export_flow(tmp_path / "learned")
    with pytest.raises(ConfigError, match=r"tensor 'expert\.level\.bias' is unknown here"):
        learner(learned, noise="fixed", config=LearnerConfig(batch_size=8, temperature="fixed", alpha=0.0))
    with pytest.raises(SpecError, match=r"model\.options\.pretrained: the policy is of other observations or actions"):
        make_model(replace(SPEC, stack=1, action=replace(SPEC.action, low=(-2.0, -2.0))), learner_config(base), 0)


def learner_config(base):
    return ModelConfig("flow", {**SEEN, **TINY, "pretrained": base})


def test_a_host_with_another_policy_to_begin_with_is_refused_by_name(base, tmp_path):
    weights = learner(base, trains="heads").weights(Version("l", 1, 0))
    other = export_flow(tmp_path / "other", noise="none", steps=4)
    options = {**weights.policy["options"], "pretrained": other}
    with pytest.raises(SpecError, match=r"is another one on this host.*policy\.pretrained: '\w{64}' != '\w{64}'; put"):
        make_policy(replace(weights, policy={**weights.policy, "options": options}), SPEC, ActorConfig())


OWN = """from headrace.learner.flow_policy import FlowPolicy


class Arm(FlowPolicy):
    pass
"""


def test_a_host_with_other_code_is_refused_by_the_name_of_its_module(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "arm_policy", raising=False)
    (tmp_path / "arm_policy.py").write_text(OWN)
    model = make_model(SPEC, ModelConfig("arm_policy:Arm", {**SEEN, **TINY}), 0)
    weights = weights_of(model)
    assert make_policy(weights, SPEC, ActorConfig())
    (tmp_path / "arm_policy.py").write_text(OWN + "# another version\n")
    importlib.invalidate_caches()
    with pytest.raises(SpecError, match=r"'arm_policy:Arm' is another one on this host.*policy\.code\.arm_policy: '\w{64}'"):
        make_policy(weights, SPEC, ActorConfig())
    same = SAC(model, SPEC, LearnerConfig(batch_size=8), 0)
    edited = WeightSet(weights.version, {**weights.policy, "code": {"arm_policy": "0" * 64}}, weights.tensors)
    same.load_policy(edited)  # to begin with, its tensors are enough
    assert "code" not in make_flow().policy_description()


@pytest.mark.parametrize("ema", [None, 0.9])
def test_trained_tensors_alone_travel_in_bfloat16_if_that_is_asked_for(base, ema):
    config = LearnerConfig(batch_size=8, published="bf16", ema_decay=ema)
    sac = learner(base, config, trains="heads")
    assert set(sac.halved) == HEADS | ({f"average/{name}" for name in HEADS} if ema else set())
    spec = make_spec()
    mlp = make_sac(spec, published="bf16", normalise_obs=True)
    weights = mlp.weights(Version("l", 1, 0))
    assert set(weights.tensors) - set(mlp.halved) == {"mean.obs", "var.obs"}
    assert make_sac(spec).halved == []
    sent = WeightSet.unpack(weights.pack(mlp.halved))
    obs = {"obs": np.random.default_rng(0).standard_normal((5, 3)).astype("<f4")}
    full, halved = (make_policy(w, spec, ActorConfig()).act(obs, np.random.default_rng(0), True) for w in (weights, sent))
    assert 0 < np.abs(full - halved).max() < 0.02
