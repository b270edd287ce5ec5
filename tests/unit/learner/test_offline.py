"""Options for data that the policy has not made itself: cloning of replayed actions, TD3+BC, CQL; each by its numbers."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers.learner import OwnModel, make_batch, make_sac, make_spec

from headrace.common.errors import ConfigError, SpecError
from headrace.common.specs import SOURCE_DEMO, SOURCE_HUMAN, SOURCE_POLICY
from headrace.learner.config import ModelConfig
from headrace.learner.gradients import Cloning
from headrace.learner.losses import actor_loss, conservative_penalty, critic_loss, td_target

SPEC, CHUNKS = make_spec(), make_spec(action=(4, 1), window=4, kind="chunk")
OWN = ModelConfig("helpers.learner:OwnModel", {})
STILL = {"actor_lr": 0.0, "critic_lr": 0.0, "alpha_lr": 0.0}
CLOSE = {"rtol": 1e-5, "atol": 1e-6}
POLICY, HUMAN, DEMO = SOURCE_POLICY, SOURCE_HUMAN, SOURCE_DEMO


def generator_of(sac):
    """The noise that the next step will draw."""
    generator = torch.Generator()
    generator.set_state(sac.generator.get_state())
    return generator


def features_of(sac, sample):
    return [sac.model.sac_state_features(sample.obs, role) for role in ("actor", "critic")]


def mode_of(sac, sample):
    return sac.model.sac_forward_actor(features_of(sac, sample)[0], None, True)[0]


# --- cloning ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sources", "expected"),
    [
        ((), [1, 1, 0, 0]),
        (("demo",), [1, 0, 0, 0]),
        (("human",), [0, 0, 0, 0]),  # they acted in the third step, which the policy planned and nobody executed
        (("demo", "policy"), [1, 1, 0, 0]),
    ],
)
def test_executed_steps_of_a_chunk_are_cloned_and_planned_ones_are_not(sources, expected):
    sac = make_sac(CHUNKS, bc_weight=1.0, bc_sources=sources)
    batch = make_batch(CHUNKS, steps=2, terminated=1, source=[DEMO, POLICY, HUMAN, HUMAN])
    assert sac.prepare(batch).cloned.tolist() == [expected] * 8


def test_of_several_dimensions_whole_steps_are_cloned():
    spec = make_spec(action=(2, 3), window=2, kind="chunk")
    assert make_sac(spec, bc_weight=1.0).prepare(make_batch(spec, size=1)).cloned.tolist() == [[1, 1, 1, 0, 0, 0]]


@pytest.mark.parametrize(("sources", "expected"), [((), 1), (("human",), 1), (("demo",), 0)])
def test_a_window_of_several_steps_is_one_action_of_whoever_began_it(sources, expected):
    spec = make_spec(window=3)
    sample = make_sac(spec, bc_weight=1.0, bc_sources=sources).prepare(make_batch(spec, steps=3, source=[HUMAN, DEMO, DEMO]))
    assert sample.cloned.tolist() == [[expected] * 2] * 8


def test_nothing_is_cloned_unless_asked_for():
    assert make_sac(SPEC).prepare(make_batch(SPEC)).cloned is None


@pytest.mark.parametrize("model", [None, OWN], ids=["mlp", "own"])
def test_the_first_updates_clone_alone_then_the_critics_warm_up_then_all_move(model):
    sac = make_sac(SPEC, model=model, bc_weight=2.0, cloning_updates=2, critic_warmup_updates=1, ema_decay=0.5)
    batch, seen = make_batch(SPEC), []
    parts = {"actor": sac.model.actor_params, "critic": sac.model.critic_params}

    def state():
        found = {name: [p.detach().clone() for _, p in params()] for name, params in parts.items()}
        for name, tensor in sac.get_state()["tensors"].items():
            found.setdefault(name.partition(".")[0], []).append(tensor)
        return found

    for _ in range(4):
        mode, before = mode_of(sac, sac.prepare(batch)), state()
        metrics = sac.update(batch)
        after = state()
        same = {name for name in before if all(map(torch.equal, before[name], after[name]))}
        seen.append(set(before) - same - {"generator", "model"})
        if "critic/loss" not in metrics:
            expected = (mode - torch.from_numpy(batch.rows["action"].copy())).square().mean()
            torch.testing.assert_close(metrics["actor/loss"], 2 * expected.detach(), **CLOSE)
            torch.testing.assert_close(metrics["actor/cloning_loss"], expected.detach(), **CLOSE)
            assert sac.q is None
    actor, critic = {"actor", "actor_optimizer", "average"}, {"critic", "critic_optimizer"}
    assert seen == [actor, actor, critic, actor | critic | {"alpha_optimizer", "log_alpha"}]


def test_cloning_takes_the_actors_own_rows_and_skips_what_is_no_number():
    sac = make_sac(SPEC, bc_weight=1.0, cloning_updates=9)
    mine, theirs = make_batch(SPEC, seed=1), make_batch(SPEC, seed=2)
    expected = float(make_sac(SPEC, bc_weight=1.0, cloning_updates=9).update(theirs)["actor/loss"])
    assert float(sac.update(mine, actor_batch=theirs)["actor/loss"]) == expected
    theirs.obs["obs"][:] = np.nan
    before = sac.get_state()["tensors"]
    assert float(sac.update(mine, actor_batch=theirs)["sac/updates_skipped"]) == 1
    after = sac.get_state()["tensors"]
    assert [name for name in before if not torch.equal(before[name], after[name])] == ["skipped"]


def test_cloning_of_nothing_is_refused():
    with pytest.raises(ConfigError, match=r"learner\.cloning_updates: 5 with learner\.bc_weight 0.*learner\.bc_weight 1"):
        make_sac(SPEC, cloning_updates=5)


@pytest.mark.parametrize("model", [None, OWN], ids=["mlp", "own"])
def test_the_cloning_is_of_replayed_actions_and_adds_to_the_actors_loss(model):
    plain, cloning = (make_sac(SPEC, model=model, bc_weight=weight, **STILL) for weight in (0.0, 3.0))
    batch = make_batch(SPEC)
    sample = cloning.prepare(batch)
    expected = (mode_of(cloning, sample) - torch.from_numpy(batch.rows["action"].copy())).square().mean()
    without, found = (sac.update_actor(sac.prepare(batch)) for sac in (plain, cloning))
    torch.testing.assert_close(found["actor/cloning_loss"], expected.detach(), **CLOSE)
    torch.testing.assert_close(found["actor/loss"], without["actor/loss"] + 3 * expected.detach(), **CLOSE)
    assert "actor/cloning_loss" not in without


def test_what_was_planned_and_not_executed_pulls_at_nothing():
    losses = []
    for tail in (-1.0, 1.0):
        sac = make_sac(CHUNKS, bc_weight=1.0)
        batch = make_batch(CHUNKS, steps=2)
        batch.rows["action"][:, 2:] = tail
        losses.append(sac.update_actor(sac.prepare(batch))["actor/cloning_loss"])
    assert torch.equal(*losses)


def test_an_actor_that_only_clones_comes_to_the_replayed_actions():
    sac = make_sac(SPEC, bc_weight=1e4, actor_lr=0.01, critic_lr=0.0)
    sample = sac.prepare(make_batch(SPEC, size=4))
    for _ in range(300):
        sac.update_actor(sample)
    torch.testing.assert_close(mode_of(sac, sample), sample.action, rtol=0, atol=0.05)


def test_a_models_own_cloning_loss_is_checked_at_the_door():
    class PerRow(OwnModel):
        def bc_loss(self, features, action, counts):
            return (counts * action).mean(dim=1)

    model, sample = PerRow(SPEC), make_sac(SPEC, bc_weight=1.0).prepare(make_batch(SPEC))
    actor, critic = (model.sac_state_features(sample.obs, role) for role in ("actor", "critic"))
    cloning = Cloning(sample.action, sample.cloned, 1.0, torch.tensor(1.0))
    with pytest.raises(SpecError, match=r"bc_loss: shape \(8,\), expected \(\)"):
        model.sac_actor_gradients(actor, critic, torch.tensor(0.1), None, "min", cloning)


@pytest.mark.parametrize("options", [{"bc_weight": 2.0}, {"cql_weight": 2.0, "cql_actions": 2}], ids=["cloning", "cql"])
def test_the_mlps_other_steps_by_hand_go_with_it(options, monkeypatch):
    by_hand, generic = make_sac(SPEC, **options), make_sac(SPEC, **options)
    monkeypatch.setattr(generic.model, "_by_hand", lambda x: None)
    for i in range(10):
        ours, theirs = by_hand.update(make_batch(SPEC, seed=i)), generic.update(make_batch(SPEC, seed=i))
    assert by_hand.model._steps is not None
    for name, value in ours.items():
        torch.testing.assert_close(value, theirs[name], rtol=1e-4, atol=1e-5, msg=name)


# --- TD3+BC ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reduction", ["min", "mean"])
def test_td3_bc_divides_the_values_by_the_mean_of_their_absolute_values(reduction):
    sac = make_sac(SPEC, bc_weight=1.0, td3_bc_alpha=2.5, actor_reduction=reduction, **STILL)
    sample = sac.prepare(make_batch(SPEC))
    actor_features, critic_features = features_of(sac, sample)
    q = sac.model.sac_forward_critic(critic_features, sample.action)
    values = q.min(dim=1).values if reduction == "min" else q.mean(dim=1)
    sac.update_critic(sample)
    action, log_prob, _ = sac.model.sac_forward_actor(actor_features, generator_of(sac), False)
    own = actor_loss(sac.model.sac_forward_critic(critic_features, action), log_prob, 1.0, reduction)
    cloned = (mode_of(sac, sample) - sample.action).square().mean()
    found = sac.update_actor(sample)["actor/loss"]
    torch.testing.assert_close(found, (2.5 / values.abs().mean() * own + cloned).detach(), **CLOSE)


def test_td3_bc_without_cloning_is_refused():
    with pytest.raises(ConfigError, match=r"learner\.td3_bc_alpha: 2\.5 with learner\.bc_weight 0, so nothing is cloned"):
        make_sac(SPEC, td3_bc_alpha=2.5)


# --- the executed next action --------------------------------------------------------------------------------------------


FOLLOWED = replace(make_spec(low=[-2.0, -2.0], high=[2.0, 2.0]), next_action=True)
CROSSQ = ModelConfig("mlp", {"hidden": [16], "critic_batch_norm": True})


def target_of(sac, batch, monkeypatch):
    """The target that an update of the critics uses."""
    seen, name = [], "sac_gradients_at" if sac.model.sac_is_joint else "sac_critic_gradients"
    real, place = getattr(sac.model, name), 1 if sac.model.sac_is_joint else 2
    monkeypatch.setattr(sac.model, name, lambda *words: seen.append(words[place]) or real(*words))
    sac.update_critic(sac.prepare(batch))
    return seen[0]


def following(**options):
    return make_sac(FOLLOWED, resample_target_action=False, gamma=0.5, **options)


@pytest.mark.parametrize("model", [None, OWN], ids=["mlp", "own"])
def test_the_executed_next_action_takes_the_place_of_the_policys_own_where_there_is_one(model, monkeypatch):
    sac = following(model=model)
    batch = make_batch(FOLLOWED, 4, rewards=1.0, next_action=[0.2, -4.0], terminated=[0, 1, 0, 1], truncated=[0, 0, 1, 1])
    sample, noise = sac.prepare(batch), generator_of(sac)
    own = sac.model.sac_forward_actor(sac.model.sac_state_features(sample.next_obs, "actor"), noise, False)[0]
    executed = torch.tensor([0.1, -1.0])  # in units of the box, and inside it
    action = torch.stack([executed, own[1], own[2], own[3]])
    q = sac.model.sac_forward_critic(sac.model.sac_target_features(sample.next_obs), action, "target")
    expected = 1 + torch.tensor([0.5, 0, 0.5, 0]) * q.min(dim=1).values  # no entropy, though alpha is 1
    torch.testing.assert_close(target_of(sac, batch, monkeypatch), expected.detach(), **CLOSE)


def test_critics_without_targets_judge_the_executed_next_action_too(monkeypatch):
    batch, seen = make_batch(FOLLOWED, 4, next_action=[0.2, -0.4]), []
    sac = following(model=CROSSQ)
    forward = sac.model.sac_forward_critic
    monkeypatch.setattr(sac.model, "sac_forward_critic", lambda f, a, twin: seen.append(a) or forward(f, a, twin))
    sac.update_critic(sac.prepare(batch))
    torch.testing.assert_close(seen[0][4:], torch.tensor([[0.1, -0.2]]).expand(4, 2))


def test_the_policys_own_next_action_is_drawn_anew_for_each_update(monkeypatch):
    batch = make_batch(FOLLOWED, next_action=[0.2, -0.4])
    for sac, differ in ((make_sac(FOLLOWED, **STILL), True), (following(**STILL), False)):
        first, second = (target_of(sac, batch, monkeypatch) for _ in range(2))
        assert torch.equal(first, second) != differ


def test_rows_without_a_next_action_cannot_be_followed():
    with pytest.raises(ConfigError, match=r"learner\.resample_target_action: false, but the pool's rows hold no next action"):
        make_sac(SPEC, resample_target_action=False)


# --- CQL ----
# --- CQL -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", [None, OWN], ids=["mlp", "own"])
def test_other_actions_are_the_policys_at_both_ends_and_uniform_ones_each_with_its_density(model):
    sac = make_sac(SPEC, model=model)
    sample = sac.prepare(make_batch(SPEC, size=500))
    ends = [sac.model.sac_state_features(obs, "actor") for obs in (sample.obs, sample.next_obs)]
    actions, log_density = sac.model.sac_other_actions(ends, 3, generator_of(sac))
    assert (actions.shape, log_density.shape) == ((9, 500, 2), (9, 500))
    noise = generator_of(sac)
    drawn = [sac.model.sac_forward_actor(end, noise, False) for end in ends for _ in range(3)]
    torch.testing.assert_close(actions[:6], torch.stack([action for action, _, _ in drawn]).detach())
    torch.testing.assert_close(log_density[:6], torch.stack([log_prob for _, log_prob, _ in drawn]).detach())
    torch.testing.assert_close(log_density[6:], torch.full((3, 500), -2 * np.log(2.0), dtype=torch.float32))
    assert not actions.requires_grad
    assert not log_density.requires_grad
    uniform = actions[6:]
    assert -1 <= uniform.min() < -0.99
    assert 0.99 < uniform.max() <= 1
    assert uniform.mean().item() == pytest.approx(0, abs=0.05)
    assert uniform.square().mean().item() == pytest.approx(1 / 3, abs=0.03)


def test_actions_of_a_policy_without_a_density_count_as_uniform():
    model = OwnModel(SPEC, density=False)
    _, log_density = model.sac_other_actions([torch.zeros(5, 8)], 2, torch.Generator())
    torch.testing.assert_close(log_density, torch.full((4, 5), -2 * np.log(2.0), dtype=torch.float32))


@pytest.mark.parametrize("model", [None, OWN], ids=["mlp", "own"])
def test_the_penalty_is_that_of_the_paper_and_adds_to_the_critics_loss(model):
    options = {"cql_weight": 3.0, "cql_actions": 2, "cql_temperature": 0.5, "model": model}
    sac, other = make_sac(SPEC, **options, **STILL), make_sac(SPEC, **options, **STILL)
    sample, net, noise = sac.prepare(make_batch(SPEC)), other.model, generator_of(other)
    here, critic_features = features_of(other, sample)
    after, target_features = net.sac_state_features(sample.next_obs, "actor"), net.sac_target_features(sample.next_obs)
    action, log_prob, _ = net.sac_forward_actor(after, noise, False)
    target = td_target(sample.reward, sample.weight, net.sac_forward_critic(target_features, action, "target"), log_prob, 1.0)
    actions, log_density = net.sac_other_actions([here, after], 2, noise)
    q = net.sac_forward_critic(critic_features, sample.action)
    other_q = torch.stack([net.sac_forward_critic(critic_features, each) for each in actions])
    penalty = conservative_penalty(q, other_q, log_density, 0.5)
    found = sac.update_critic(sample)
    torch.testing.assert_close(found["critic/penalty"], penalty.detach(), **CLOSE)
    torch.testing.assert_close(found["critic/loss"], (critic_loss(q, target) + 3 * penalty).detach(), **CLOSE)


def test_values_of_other_actions_are_held_down():
    gaps = []
    for weight in (0.0, 5.0):
        sac = make_sac(SPEC, cql_weight=weight, cql_actions=2, gamma=0.0, critic_lr=0.01)
        sample = sac.prepare(make_batch(SPEC, size=32))
        for _ in range(60):
            sac.update_critic(sample)
        features = features_of(sac, sample)[1]
        values = sac.model.sac_forward_critic(features, sample.action), sac.model.sac_forward_critic(features, -sample.action)
        gaps.append((values[0].mean() - values[1].mean()).item())
    assert gaps[0] == pytest.approx(0, abs=0.1)
    assert gaps[1] > 0.5


def test_critics_without_targets_cannot_be_conservative():
    with pytest.raises(ConfigError, match=r"learner\.cql_weight: 5, but the model's critics have no targets"):
        make_sac(SPEC, model=ModelConfig("mlp", {"hidden": [8], "critic_batch_norm": True}), cql_weight=5.0)
