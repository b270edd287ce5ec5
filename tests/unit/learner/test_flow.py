"""Rule 27 and what follows from it: paths of a flow policy, their density, and what trains which part."""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from helpers.learner import make_batch, make_spec

from headrace.actor.config import ActorConfig
from headrace.actor.policy import make_policy
from headrace.common.errors import ConfigError, SpecError
from headrace.common.specs import ObsSpec
from headrace.common.statistics import ObsStatistics
from headrace.common.weights import Version, WeightSet
from headrace.learner import flow
from headrace.learner.config import LearnerConfig
from headrace.learner.flow_policy import FlowPolicy
from headrace.learner.sac import SAC

CAMERA, THERE = ObsSpec("eye", (20, 20, 3), "|u1"), ObsSpec("eye_there", (1,), "|b1")
ARM, WORDS, SAID = ObsSpec("arm", (3,), "<f4"), ObsSpec("words", (5,), "<i4"), ObsSpec("words_there", (5,), "|b1")
SPEC = make_spec(obs=(ARM, CAMERA, THERE, WORDS, SAID), action=(4, 2), window=4, kind="chunk")
SEEN = {"words": "words", "masks": {"eye": "eye_there", "words": "words_there"}, "vocabulary": 300}
TINY = {"channels": [4], "strides": [4], "width": 16, "heads": 2, "expert_layers": 1, "critic_hidden": [16], "steps": 3}


def make(spec=SPEC, **options):
    torch.manual_seed(0)
    return FlowPolicy(spec, **{**(SEEN if spec is SPEC else {}), **TINY, **options})


def observe(rows=6, seed=0):
    batch = make_batch(SPEC, rows, seed)
    obs = {key: torch.tensor(value) for key, value in batch.obs.items()}
    obs["eye_there"], obs["words_there"] = torch.ones_like(obs["eye_there"]), torch.ones_like(obs["words_there"])
    return obs


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def test_patches_begin_with_where_they_are():
    tall = make_spec(obs=(ObsSpec("eye", (20, 12, 3), "|u1"),), action=(4, 2), window=4, kind="chunk")
    places = make(tall).prefix.places.detach().view(5, 3, 16)
    rows, columns = places[:, :, :8], places[:, :, 8:]
    assert (rows == rows[:, :1]).all()
    assert (columns == columns[:1]).all()
    for line in (rows[:, 0], columns[0]):
        away = torch.cdist(line, line) + 9 * torch.eye(len(line))
        near = [abs(i - int(j)) for i, j in enumerate(away.argmin(dim=1))]
        assert near == [1] * len(line)
        assert float(away.min()) > 0.1


# --- the path ---------------------------------------------------------------------------------------------------------


def variance_of(steps, level, taken):
    """Variance after so many steps of the linear chain whose velocity knows that the action is 0: v = x / t."""
    variance = 1.0
    for time, until in list(pairwise(flow.times(steps)))[:taken]:
        one = torch.ones((), dtype=torch.float64)
        mean, std = flow.sde_step(one, one / time, time, until, level)
        variance = float(mean) ** 2 * variance + float(std) ** 2
    return variance


@pytest.mark.parametrize(("level", "variance"), [(0.065, 0.810), (0.5, 0.845), (0.0, 0.81)])
def test_the_first_step_is_bounded_and_of_the_chains_variance(level, variance):
    assert variance_of(10, level, 1) == pytest.approx(variance, abs=5e-4)


def test_samples_have_the_variance_of_the_chain():
    x = torch.randn(200_000, 1, 1, generator=generator(), dtype=torch.float64)
    for time, until in list(pairwise(flow.times(8)))[:6]:
        mean, std = flow.sde_step(x, x / time, time, until, 0.7)
        x = mean + std * torch.randn(x.shape, generator=generator(int(100 * time)), dtype=torch.float64)
    assert float(x.var()) == pytest.approx(variance_of(8, 0.7, 6), rel=0.01)


def test_without_noise_the_sde_is_the_ode():
    x, velocity = (torch.randn(5, 4, 2, generator=generator(i)) for i in (1, 2))
    for time, until in pairwise(flow.times(7)):
        mean, std = flow.sde_step(x, velocity, time, until, 0.0)
        torch.testing.assert_close(mean, flow.ode_step(x, velocity, time, until), rtol=1e-5, atol=1e-6)
        assert std == 0


def test_a_true_velocity_leads_from_any_noise_to_the_action():
    action, x = (torch.randn(3, 4, 2, generator=generator(i)) for i in (1, 2))
    for time, until in pairwise(flow.times(5)):
        x = flow.ode_step(x, (x - action) / time, time, until)
    torch.testing.assert_close(x, action, rtol=1e-4, atol=1e-5)


def test_the_density_of_a_path_is_that_of_its_steps():
    noise, std = torch.randn(3, 4, 2, generator=generator()), torch.rand(3, 4, 2, generator=generator(1)) + 0.1
    wanted = torch.distributions.Normal(0.0, std).log_prob(std * noise).sum((1, 2))
    torch.testing.assert_close(flow.log_density(noise, std), wanted)


# --- rule 27: what an entropy can change ------------------------------------------------------------------------------


def test_a_fixed_schedule_has_no_density_and_refuses_a_temperature():
    model = make(noise="fixed")
    assert model.sac_forward_actor(model.sac_state_features(observe(), "actor"), generator(), False)[1] is None
    with pytest.raises(ConfigError, match="no density; set temperature fixed and alpha 0"):
        update(make(noise="fixed"), LearnerConfig(batch_size=8))
    assert math.isfinite(update(make(noise="fixed"), LearnerConfig(batch_size=8, temperature="fixed", alpha=0.0)))


def test_only_a_learned_level_gives_the_entropy_a_gradient():
    model = make()
    _, log_prob, _ = model.sac_forward_actor(model.sac_state_features(observe(), "actor"), generator(), False)
    assert log_prob.shape == (6,)
    log_prob.mean().backward()
    assert float(model.expert.level.weight.grad.abs().max()) > 1e-4
    # the mean of a step cannot change its density: only through later levels does the velocity matter
    single = make(steps=1)
    single.sac_forward_actor(single.sac_state_features(observe(), "actor"), generator(), False)[1].mean().backward()
    assert single.expert.velocity.weight.grad is None or float(single.expert.velocity.weight.grad.abs().max()) == 0


def test_the_target_entropy_is_in_the_units_of_the_path():
    sac = SAC(make(), SPEC, LearnerConfig(batch_size=8), 0)
    assert sac.target_entropy == -3 * 8


def test_a_deterministic_path_has_no_noise_but_the_first():
    here, there = (actions_of(make(noise="fixed", level=level), observe()) for level in (0.1, 1.0))
    assert torch.equal(here, there)
    model = make()
    features = model.sac_state_features(observe(), "actor")
    assert torch.equal(*(model.sac_forward_actor(features, None, True)[0] for _ in range(2)))


def test_learned_levels_stay_between_their_bounds_and_scales_differ_by_place():
    model = make(level_low=0.1, level=0.4, rollout_scale=2.0, train_scale=0.5)
    raw = torch.tensor([-100.0, 0.0, 100.0])
    torch.testing.assert_close(model.train()._level(raw), torch.tensor([0.05, 0.1, 0.2]))
    torch.testing.assert_close(model.eval()._level(raw), torch.tensor([0.2, 0.4, 0.8]))


def test_the_fixed_level_comes_down_by_a_cosine_over_the_updates():
    model, levels = make(noise="fixed", level=1.0, level_end=0.2, level_updates=4), []
    for _ in range(6):
        levels.append(float(model._level(None)))
        model.sac_update_target_network(0.005)
    assert levels == pytest.approx([1.0, 0.2 + 0.4 * (1 + 2**-0.5), 0.6, 0.2 + 0.4 * (1 - 2**-0.5), 0.2, 0.2])
    assert float(model.policy_tensors()["updates"]) == 6


# --- what is seen -----------------------------------------------------------------------------------------------------


def actions_of(model, obs):
    return model.eval().sac_forward_actor(model.sac_state_features(obs, "actor"), generator(7), True)[0]


def values_of(model, obs):
    return model.eval().sac_forward_critic(model.sac_state_features(obs, "critic"), torch.zeros(6, 8))


@pytest.mark.parametrize(("key", "mask"), [("words", "words_there"), ("eye", "eye_there")])
@pytest.mark.parametrize("out", [actions_of, values_of])
def test_what_is_absent_does_not_matter_and_what_is_there_does(key, mask, out):
    model, obs = make(prefix_layers=1), observe()
    other = {**obs, key: torch.randint(0, 250, obs[key].shape, generator=generator()).to(obs[key].dtype)}
    assert not torch.allclose(out(model, obs), out(model, other), atol=1e-4)
    gone = torch.zeros_like(obs[mask])
    torch.testing.assert_close(out(model, {**obs, mask: gone}), out(model, {**other, mask: gone}))


@pytest.mark.parametrize("training", [True, False])
def test_nothing_at_all_is_still_a_number(training):
    obs = observe()
    spec = make_spec(obs=(WORDS, SAID), action=(4, 2), window=4, kind="chunk")
    model = make(spec, words="words", masks={"words": "words_there"}, vocabulary=300)
    seen = {"words": obs["words"], "words_there": torch.zeros_like(obs["words_there"])}
    with torch.set_grad_enabled(training):
        features = model.train(training).sac_state_features(seen, "actor")
        assert torch.isfinite(model.sac_forward_actor(features, None, True)[0]).all()
        assert torch.isfinite(model.sac_forward_critic(features, torch.zeros(6, 8))).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"words": "text"}, r"model\.options\.words: the actor sees no 'text'; there are arm, eye"),
        ({"words": "arm"}, r"model\.options\.words: 'arm' is \(3,\) <f4"),
        ({"masks": {"arm": "eye_there"}}, r"model\.options\.masks: 'arm' is neither a camera nor words"),
        ({"masks": {"eye": "words_there"}}, r"model\.options\.masks\.eye: 'words_there' is \(5,\), expected \(1,\)"),
        ({"horizon": 3}, r"model\.options\.horizon: 3 actions, but 4 are executed"),
    ],
)
def test_options_that_the_spec_cannot_serve_are_named(options, message):
    with pytest.raises(SpecError, match=message):
        make(**options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"strides": [1, 1]}, r"model\.options\.strides: 2 entries for 1"),
        ({"heads": 3}, r"model\.options\.heads: 3 do not divide"),
        ({"level_low": 0.6}, r"model\.options\.level_low: 0.6 is not below"),
        ({"train_scale": 0.0}, r"model\.options\.train_scale: 0"),
        ({"noise": "much"}, r"model\.options\.noise"),
    ],
)
def test_options_that_do_not_fit_each_other_are_named(options, message):
    with pytest.raises(ConfigError, match=message):
        make(**options)


# --- what is trained --------------------------------------------------------------------------------------------------


def trained(model, loss):
    model.zero_grad()
    loss.backward()
    return {name.split(".")[0] for name, p in model.named_parameters() if p.grad is not None and p.grad.abs().max() > 0}


@pytest.mark.parametrize(("frozen", "parts"), [(False, {"prefix", "expert"}), (True, {"expert"})])
def test_the_actors_loss_reaches_what_it_is_declared_to_train(frozen, parts):
    model = make(trains="expert" if frozen else "all")
    action, log_prob, _ = model.sac_forward_actor(model.sac_state_features(observe(), "actor"), generator(), False)
    assert trained(model, action.sum() + log_prob.sum()) == parts
    assert {name.split(".")[0] for name, _ in model.actor_params()} == parts
    gradients = model.sac_actor_gradients(
        model.sac_state_features(observe(), "actor"),
        model.sac_state_features(observe(), "critic"),
        torch.tensor(0.1),
        generator(),
    )
    assert len(gradients.gradients) == len(list(model.actor_params()))


@pytest.mark.parametrize(("prefix", "parts"), [("shared", {"pool", "critics"}), ("own", {"critic_prefix", "pool", "critics"})])
def test_the_critics_loss_leaves_the_actors_prefix_alone(prefix, parts):
    model = make(critic_prefix=prefix)
    q = model.sac_forward_critic(model.sac_state_features(observe(), "critic"), torch.zeros(6, 8))
    assert trained(model, q.sum()) == parts
    assert {name.split(".")[0] for name, _ in model.critic_params()} == parts
    for online, target in zip(model.critic_network_heads, model.target_network_heads, strict=True):
        assert not any(p.requires_grad for p in target.parameters())
        for a, b in zip(online.parameters(), target.parameters(), strict=True):
            assert torch.equal(a, b)


def test_cloning_counts_what_was_executed_and_nothing_behind_it():
    model = make(horizon=6)
    model.use_generator(generator(4))
    features, action = model.sac_state_features(observe(), "actor"), torch.rand(6, 8, generator=generator()) - 0.5
    counts = torch.zeros(6, 4, 2)
    assert float(model.bc_loss(features, action, counts.flatten(1)).detach()) == 0
    counts[:, :2] = 1

    def loss(actions):
        model.use_generator(generator(4))
        return float(model.bc_loss(features, actions, counts.flatten(1)).detach())

    changed = action.clone()
    changed.view(6, 4, 2)[:, 2:] += 0.3
    here, there = loss(action), loss(changed)
    assert here > 0.1
    assert here == pytest.approx(there, rel=0.2)  # through attention only: what is not counted is still seen
    whole = make(horizon=0)
    whole.use_generator(generator(4))
    assert float(whole.bc_loss(features, action, torch.ones(6, 8)).detach()) > 0


def test_cloning_learns_both_ways_of_doing_it():
    """Two modes at -0.6 and 0.6: a mean-squared clone would act at 0, in neither."""
    spec = make_spec(action=(2,))
    model = make(spec, steps=8, noise="none", width=32)
    optimizer = torch.optim.Adam([p for _, p in model.actor_params()], 3e-3)
    noise = generator(5)
    model.use_generator(noise)
    obs = {"obs": torch.zeros(128, 3)}
    for _ in range(250):
        sides = torch.where(torch.rand(128, 1, generator=noise) < 0.5, -0.6, 0.6).expand(128, 2)
        optimizer.zero_grad()
        model.bc_loss(model.sac_state_features(obs, "actor"), sides, torch.ones(128, 2)).backward()
        optimizer.step()
    with torch.no_grad():
        drawn = model.sac_forward_actor(model.sac_state_features(obs, "actor"), noise, False)[0]
    assert float((drawn.abs() - 0.6).abs().median()) < 0.12
    assert 0.25 < float((drawn[:, 0] > 0).float().mean()) < 0.75


def test_cloning_alone_leaves_what_it_cannot_train():
    model = make()
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    sac = SAC(model, SPEC, LearnerConfig(batch_size=8, bc_weight=1.0, cloning_updates=3), 0)
    losses = [float(sac.update(make_batch(SPEC, 8, 0, steps=4))["actor/loss"]) for _ in range(3)]
    assert all(map(math.isfinite, losses))
    moved = {name for name, p in model.named_parameters() if not torch.equal(p, before[name])}
    assert {name.split(".")[0] for name in moved} == {"prefix", "expert"}
    assert not any(name.startswith("expert.level.") for name in moved)  # a noise level is nothing to be cloned


def update(model, config=None, rows=8):
    """The critics' loss of three updates."""
    sac = SAC(model, SPEC, config or LearnerConfig(batch_size=rows), 0)
    for seed in range(3):
        metrics = sac.update(make_batch(SPEC, rows, seed), ObsStatistics(SPEC))
    assert float(metrics["sac/updates_skipped"]) == 0
    return float(metrics["critic/loss"])


@pytest.mark.parametrize("options", [{}, {"critic_prefix": "own"}, {"trains": "expert", "horizon": 6}])
def test_updates_are_finite_and_move_actor_and_critics(options):
    model = make(**options)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    assert math.isfinite(update(model))
    moved = {name.split(".")[0] for name, p in model.named_parameters() if not torch.equal(p, before[name])}
    assert {"expert", "pool", "critics", "target_pool", "target_critics"} <= moved
    assert ("prefix" in moved) != (options.get("trains") == "expert")


# --- acting -----------------------------------------------------------------------------------------------------------


def test_actors_act_as_the_learner_would_and_see_the_same_noise_level():
    model = make(noise="fixed", level=1.0, level_end=0.2, level_updates=4)
    model.updates.fill_(3.0)
    tensors = {name: tensor.detach().numpy() for name, tensor in model.policy_tensors().items()}
    weights = WeightSet(Version("l", 1, 3), {**model.policy_description(), "normalise": False}, tensors)
    policy = make_policy(weights, SPEC, ActorConfig())
    obs = {key: value.numpy() for key, value in observe().items()}
    rng, again = np.random.default_rng(0), np.random.default_rng(0)
    acted = policy.act(obs, rng, True)
    assert acted.shape == (6, 4, 2)
    assert np.abs(acted).max() <= 1
    noise = torch.Generator().manual_seed(int(again.integers(1 << 63)))
    with torch.no_grad():
        wanted = model.eval().sac_forward_actor(model.sac_state_features(observe(), "actor"), noise, True)[0]
    np.testing.assert_allclose(acted.reshape(6, 8), wanted.numpy(), atol=1e-6)
    assert float(policy.model.updates) == 3
    other = make(noise="fixed", level=1.0, level_end=0.2, level_updates=4, critics=3, train_scale=0.3)
    assert {**other.policy_description()} == {**model.policy_description()}
