"""Switches, such as a gripper: chances and draws, the actor's loss over all settings, cloning, and actors that act alike."""

import math

import numpy as np
import pytest
import torch
from helpers.learner import make_batch, make_sac, make_spec

from headrace.actor.config import ActorConfig
from headrace.actor.policy import make_policy
from headrace.common.errors import ConfigError, SpecError
from headrace.common.specs import ActionSpec, ObsSpec
from headrace.common.switches import switch_places
from headrace.common.weights import Version, WeightSet
from headrace.learner.config import ModelConfig
from headrace.learner.gradients import Cloning
from headrace.learner.models import make_model
from headrace.learner.switched import SwitchedGaussian

LEANS = [0.5, -1.0]
CHANCES = [0.5 * (1 + math.erf(lean / math.sqrt(2))) for lean in LEANS]


def policy_of(rows):
    """Two switches around a free dimension: D = 3."""
    return SwitchedGaussian(torch.tensor([[LEANS[0], 0.3, LEANS[1], 9.0, -0.5, -9.0]]).expand(rows, 6), (0, 2))


def mlp(**options):
    return ModelConfig("mlp", {"hidden": [16], "switches": [1], **options})


def climb(model, optimiser, found):
    for parameter, gradient in zip(model.actor.parameters(), found.gradients, strict=True):
        parameter.grad = gradient
    optimiser.step()


def noise():
    return torch.Generator().manual_seed(11)


def test_switches_are_drawn_by_their_chances_and_stand_on_an_end_whatever_is_drawn():
    action, log_prob, latent = policy_of(4_000).act(noise(), False)
    assert set(action[:, [0, 2]].unique().tolist()) == {-1.0, 1.0}
    np.testing.assert_allclose((action[:, [0, 2]] > 0).float().mean(0), CHANCES, atol=0.035)
    torch.testing.assert_close(policy_of(4_000).log_prob(action), log_prob, rtol=1e-3, atol=1e-3)
    assert latent is None
    np.testing.assert_allclose(policy_of(1).mode(), [[1.0, math.tanh(0.3), -1.0]], atol=1e-6)
    np.testing.assert_allclose(policy_of(1).expected()[0, [0, 2]], 2 * np.array(CHANCES) - 1, atol=1e-6)


def test_branches_are_all_settings_with_one_draw_of_the_rest_and_their_chances_add_up_to_one():
    branches = policy_of(5).branches(noise())
    settings = [tuple(b.action[0, [0, 2]].tolist()) for b in branches]
    assert settings == [(-1, -1), (-1, 1), (1, -1), (1, 1)]
    assert all(torch.equal(b.action[:, 1], branches[0].action[:, 1]) for b in branches)
    for branch, (a, b) in zip(branches, settings, strict=True):
        chance = (CHANCES[0] if a > 0 else 1 - CHANCES[0]) * (CHANCES[1] if b > 0 else 1 - CHANCES[1])
        np.testing.assert_allclose(branch.chance, chance, rtol=1e-5)
        torch.testing.assert_close(branch.log_prob, policy_of(5).log_prob(branch.action), rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(sum(b.chance for b in branches), torch.ones(5))


def test_a_lean_that_is_no_number_gives_no_command():
    torn = SwitchedGaussian(torch.full((1, 4), float("nan")), (1,))
    assert torn.mode().isnan().all()
    assert torn.act(noise(), False)[0].isnan().all()


def test_the_actors_loss_is_the_expectation_over_all_settings():
    model, alpha = make_model(make_spec(), mlp(), 0), torch.tensor(0.2)
    features = torch.randn(32, 3, generator=noise())
    found = model.sac_actor_gradients(features, features, alpha, noise())
    drawn = torch.randn(32, 2, generator=noise())
    (mean, lean), log_std = model.actor(features)[:, :2].unbind(1), model.actor(features)[:, 2].clamp(-20, 2)
    u = mean + log_std.exp() * drawn[:, 0]
    density = -0.5 * drawn[:, 0] ** 2 - log_std - 0.5 * math.log(2 * math.pi) - torch.log(1 - torch.tanh(u) ** 2)
    loss, entropy = torch.zeros(32), torch.zeros(32)
    for end in (-1.0, 1.0):
        chance = 0.5 * (1 + torch.erf(end * lean / math.sqrt(2)))
        action = torch.stack((torch.tanh(u), torch.full((32,), end)), 1)
        q = model.sac_forward_critic(features, action).min(1).values
        loss = loss + chance * (alpha * (density + chance.log()) - q)
        entropy = entropy + chance * (density + chance.log())
    expected = torch.autograd.grad(loss.mean(), list(model.actor.parameters()))
    torch.testing.assert_close(found.loss, loss.mean(), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(found.log_prob, entropy.detach(), rtol=1e-4, atol=1e-4)
    for mine, wanted in zip(found.gradients, expected, strict=True):
        torch.testing.assert_close(mine, wanted, rtol=1e-3, atol=1e-5)


def test_a_switch_learns_which_end_is_better_of_critics_that_have_no_slope(monkeypatch):
    model = make_model(make_spec(), mlp(), 0)
    monkeypatch.setattr(
        model, "sac_forward_critic", lambda features, action, twin: (action[:, 1:] * features[:, :1] > 0).float().expand(-1, 2)
    )
    features, alpha = torch.randn(128, 3, generator=noise()), torch.tensor(0.02)
    optimiser, generator = torch.optim.Adam(model.actor.parameters(), 0.02), noise()
    for _ in range(60):
        climb(model, optimiser, model.sac_actor_gradients(features, features, alpha, generator))
    mode, _, _ = model.sac_forward_actor(features, None, True)
    assert (mode[:, 1] * features[:, 0] > 0).float().mean() > 0.95


def test_cloning_finds_the_share_of_each_end():
    model = make_model(make_spec(), mlp(hidden=[]), 0)
    features = torch.zeros(100, 3)
    action = torch.where(torch.arange(200).reshape(100, 2) < 140, 1.0, -1.0)  # 70 % of the rows
    cloning = Cloning(action, torch.ones(100, 2), 1.0, torch.tensor(1.0))
    optimiser = torch.optim.Adam(model.actor.parameters(), 0.05)
    for _ in range(150):
        climb(model, optimiser, model.sac_cloning_gradients(features, cloning))
    lean = model.actor(features)[0, 1].item()
    assert 0.5 * (1 + math.erf(lean / math.sqrt(2))) == pytest.approx(0.7, abs=0.03)


def test_an_update_knows_of_switches_and_neither_passes_by_hand_nor_their_entropy_do():
    spec = make_spec(action=(2, 2), window=2, kind="chunk")
    sac = make_sac(spec, model=mlp(), cql_weight=1.0)
    assert (sac.model.sac_switches, sac.model.sac_entropy_dim) == ((1, 3), 2)
    actions, densities = sac.model.sac_other_actions([torch.zeros(5, 3)], 3, noise())
    assert set(actions[..., [1, 3]].unique().tolist()) == {-1.0, 1.0}
    assert (densities[3:] == densities[3, 0]).all()
    with pytest.raises(ConfigError, match=r"cuda_graphs: true, but model\.options\.switches cannot be recorded"):
        sac.record(None)
    before = [p.clone() for _, p in sac.model.actor_params()]
    sac.update(make_batch(spec))
    assert all(not torch.equal(old, p) for old, (_, p) in zip(before, sac.model.actor_params(), strict=True))


@pytest.mark.parametrize("kind", ["mlp", "pixels"])
@pytest.mark.parametrize("place", ["numpy", "torch"])
def test_actors_stand_on_the_same_ends_as_the_learner_and_draw_as_often(kind, place):
    eye = (ObsSpec("eye", (12, 14, 3), "|u1"),) if kind == "pixels" else ()
    spec = make_spec(action=(3,), low=[0.0] * 3, high=[5.0] * 3, obs=(ObsSpec("arm", (3,), "<f4"), *eye))
    small = {"channels": [4], "strides": [2], "projection": 6, "hidden": [8]} if eye else {"hidden": [16]}
    sac = make_sac(spec, model=ModelConfig(kind, {**small, "switches": [2, 0]}))
    weights = WeightSet.unpack(sac.weights(Version("learner", 1, 1)).pack())
    policy, batch = make_policy(weights, spec, ActorConfig(policy=place)), make_batch(spec, seed=3)
    with torch.no_grad():
        features = sac.model.sac_state_features(sac.prepare(batch).obs, "actor")
        unit, _, _ = sac.model.sac_forward_actor(features, None, True)
        lean = sac.model.actor(features)[0, [0, 2]]
    acted = policy.act(batch.obs, np.random.default_rng(0), True)
    np.testing.assert_allclose(acted, sac.prepare._box.to_env(unit), atol=1e-6)
    assert np.isin(acted[:, [0, 2]], (0.0, 5.0)).all()
    many = {key: np.repeat(value[:1], 4000, axis=0) for key, value in batch.obs.items()}
    drawn = policy.act(many, np.random.default_rng(0), False)[:, [0, 2]]
    assert np.isin(drawn, (0.0, 5.0)).all()
    np.testing.assert_allclose((drawn > 0).mean(0), 0.5 * (1 + torch.erf(lean / math.sqrt(2))), atol=0.04)


@pytest.mark.parametrize(
    ("shape", "switches", "text"),
    [
        ((3,), [3], "3 is no dimension of an action of 3; nearest valid: 2"),
        ((3,), [-1], "-1 is no dimension"),
        ((3,), [1, 1], "names a dimension twice; nearest valid: \\[1\\]"),
        ((3, 2), [0, 1], "2 in each of 3 env steps of a decision, 6 in all.*at most 4; nearest valid: 1 of them"),
        ((8, 2), [1], "8 in all.*nearest valid: 0 of them"),
    ],
)
def test_switches_that_are_none_or_too_many_are_refused(shape, switches, text):
    with pytest.raises(SpecError, match=text):
        switch_places(ActionSpec(shape, (-1.0,) * shape[-1], (1.0,) * shape[-1]), switches)
