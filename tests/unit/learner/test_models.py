"""Models by name, and the contract at its door."""

import pytest
import torch
from helpers.learner import OwnModel, make_batch, make_sac, make_spec

from headrace.common.errors import ConfigError, SpecError
from headrace.common.weights import Version
from headrace.learner.config import ModelConfig
from headrace.learner.models import make_model

HERE = "helpers.learner"


def own(name="OwnModel", **options):
    return ModelConfig(f"{HERE}:{name}", options)


def test_initial_weights_come_from_the_seed_alone():
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    first, second, third = (make_model(make_spec(), ModelConfig(), seed).state_dict() for seed in (1, 1, 2))
    assert torch.equal(torch.random.get_rng_state(), before)
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert not torch.equal(first["actor.head.weight"], third["actor.head.weight"])


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("mlpp", "neither one of mlp, pixels, flow, residual, dsrl nor module:Class"),
        ("no.such:Model", "cannot be imported: ModuleNotFoundError"),
        (f"{HERE}:Missing", "cannot be imported: AttributeError"),
        (f"{HERE}:Unrelated", "does not extend"),
        (
            f"{HERE}:HalfModel",
            "does not define sac_forward_actor, sac_forward_critic, actor_params, critic_params, critic_network_heads, target",
        ),
    ],
)
def test_models_that_cannot_be_made(kind, message):
    with pytest.raises(ConfigError, match=message):
        make_model(make_spec(), ModelConfig(kind), 0)


def test_own_options_are_checked_by_the_own_dataclass():
    assert make_model(make_spec(), own(width=16), 0).options.width == 16
    with pytest.raises(ConfigError, match=r"model\.options\.width: 99 is above the largest allowed value; nearest valid: 64"):
        make_model(make_spec(), own(width=99), 0)


def test_own_model_trains_through_autograd():
    spec = make_spec()
    sac = make_sac(spec, model=own())
    before = {name: tensor.clone() for name, tensor in sac.model.state_dict().items()}
    for i in range(3):
        metrics = sac.update(make_batch(spec, seed=i))
    assert all(torch.isfinite(value) for value in metrics.values())
    after = sac.model.state_dict()
    for part in ("encoder.weight", "mean.weight", "log_std", "q.0.0.weight", "q_target.1.0.weight"):
        assert not torch.equal(before[part], after[part]), part


def test_buffers_of_the_target_are_copied_and_it_stays_in_eval_mode():
    spec = make_spec()
    sac = make_sac(spec, model=own())
    sac.update(make_batch(spec))
    model = sac.model
    assert model.q[0][1].training
    assert not model.q_target[0][1].training
    assert model.q[0][1].num_batches_tracked > 0
    for online, target in zip(model.q.buffers(), model.q_target.buffers(), strict=True):
        assert torch.equal(online, target)


def test_published_tensors_are_what_acting_needs():
    sac = make_sac(make_spec(), model=own(width=4))
    weights = sac.weights(Version("learner", 1, 0))
    assert set(weights.tensors) == {"mean.weight", "mean.bias", "log_std", "calls"}
    code = weights.policy["code"]
    assert set(code) == {OwnModel.__module__}
    assert dict(weights.policy) == {
        "code": code,
        "type": "torch",
        "class": f"{OwnModel.__module__}:OwnModel",
        "options": {"width": 4, "density": True},
        "normalise": False,
    }


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("FlatModel", r"sac_forward_critic\(target\): shape \(8,\), expected \(8, any\)"),
        ("ColumnModel", r"sac_forward_actor: log_prob: shape \(8, 1\), expected \(8,\)"),
        ("IdleModel", r"actor_params\(\): the loss does not depend on q\.0\.0\.bias"),
    ],
)
def test_what_a_model_gives_is_checked_at_the_door(name, message):
    spec = make_spec()
    with pytest.raises(SpecError, match=message):
        make_sac(spec, model=own(name)).update(make_batch(spec))


def test_a_policy_without_density_needs_alpha_zero():
    spec = make_spec()
    for options in ({}, {"temperature": "fixed", "alpha": 0.1}, {"temperature": "auto_softplus"}):
        sac = make_sac(spec, model=own(density=False), **options)
        before = {name: p.detach().clone() for name, p in sac.model.named_parameters()}
        for step in (sac.update, lambda batch, sac=sac: sac.update_actor(sac.prepare(batch))):
            with pytest.raises(ConfigError, match="set temperature fixed and alpha 0"):
                step(make_batch(spec))
        assert all(torch.equal(p, before[name]) for name, p in sac.model.named_parameters())
    sac = make_sac(spec, model=own(density=False), temperature="fixed", alpha=0.0)
    assert "actor/logprob_mean" not in sac.update(make_batch(spec))


def test_a_policy_without_density_climbs_its_values_and_its_target_has_no_entropy(monkeypatch):
    sac, seen = make_sac(make_spec(), model=own(density=False), temperature="fixed", alpha=0.0, gamma=0.9), []
    model, sample = sac.model, sac.prepare(make_batch(make_spec(), rewards=1.0))

    def values(obs, twin):
        action = model.sac_forward_actor(model.sac_state_features(obs, "actor"), None, False)[0]
        return model.sac_forward_critic(model.sac_state_features(obs, "critic"), action, twin).min(dim=1).values

    expected = 1 + 0.9 * values(sample.next_obs, "target")
    real = model.sac_critic_gradients
    monkeypatch.setattr(model, "sac_critic_gradients", lambda f, a, y, *rest: seen.append(y) or real(f, a, y, *rest))
    sac.update_critic(sample)
    torch.testing.assert_close(seen[0], expected.detach())
    expected = -values(sample.obs, "online").mean()
    torch.testing.assert_close(sac.update_actor(sample)["actor/loss"], expected.detach())
    for _ in range(20):
        sac.update_actor(sample)
    assert values(sample.obs, "online").mean() > -expected
