"""Options of SAC's critics and schedule: REDQ, DroQ, CrossQ, warm-up, clipping; each off by default, each by its numbers."""

import math

import pytest
import torch
from helpers.learner import OwnModel, make_batch, make_sac, make_spec

from headrace.common.errors import ConfigError, SpecError
from headrace.learner import checkpoint
from headrace.learner.config import LearnerConfig, ModelConfig
from headrace.learner.group import Group
from headrace.learner.losses import critic_loss, td_target
from headrace.learner.sac import SAC
from headrace.learner.subset import CriticSubset

SPEC = make_spec()


def mlp(**options):
    return ModelConfig("mlp", {"hidden": [16, 16], **options})


REDQ = {"model": mlp(critics=5), "target_critics": 2, "actor_reduction": "mean", "actor_update_interval": 2}
DROQ = {"model": mlp(critic_layer_norm=True, critic_dropout=0.1), "actor_update_interval": 2}
CROSSQ = {"model": mlp(critic_hidden=[24, 24], critic_batch_norm=True), "adam_beta1": 0.5, "actor_update_interval": 3}
TD3_BC = {"bc_weight": 1.0, "bc_sources": ("policy",), "td3_bc_alpha": 2.5}
ALL = {"redq": REDQ, "droq": DROQ, "crossq": CROSSQ, "td3-bc": TD3_BC}
ALL |= {"cql": {"cql_weight": 1.0, "cql_actions": 2}, "average": {"ema_decay": 0.9}}


def flat(sac):
    return {name: tensor.clone() for name, tensor in sac.get_state()["tensors"].items()}


def changed(first, second):
    assert first.keys() == second.keys()
    return {name for name in first if not torch.equal(first[name], second[name])}


def train(sac, updates, start=0):
    for i in range(start, start + updates):
        sac.update(make_batch(SPEC, seed=i))
    return sac


def features_of(sac, sample):
    return sac.model.sac_state_features(sample.obs, "critic")


def buffers_of(sac):
    return {name: buffer.clone() for name, buffer in sac.model.named_buffers()}


@pytest.mark.parametrize("options", ALL.values(), ids=ALL)
def test_resuming_is_exact_to_the_bit(tmp_path, options):
    straight, before = train(make_sac(SPEC, **options), 20), train(make_sac(SPEC, **options), 10)
    path = checkpoint.write(tmp_path, before.step, before.get_state(), keep=1)
    resumed = make_sac(SPEC, seed=99, **options)  # other weights, other noise: all of it must come from the file
    resumed.set_state(checkpoint.read(path).state)
    train(resumed, 10, start=10)
    assert changed(flat(resumed), flat(straight)) == set()
    assert straight.check_valid() == (True, "")


@pytest.mark.parametrize("options", ALL.values(), ids=ALL)
def test_a_batch_with_nan_changes_no_trained_number(options):
    sac = train(make_sac(SPEC, **options), 5)
    before, batch = flat(sac), make_batch(SPEC, seed=9)
    batch.next_obs["obs"][0, 0] = math.nan
    assert sac.update(batch)["sac/updates_skipped"] == 1
    assert changed(before, flat(sac)) - {name for name in before if "target" in name} <= {"generator", "skipped"}


# --- REDQ -----------------------------------------------------------------------------------------------------------------


def test_the_target_is_the_least_of_two_of_ten_critics():
    subset, values = CriticSubset(2, torch.Generator().manual_seed(0), Group()), torch.arange(1.0, 11).unsqueeze(0)

    def draw():
        subset.renew()
        return subset.of(values)

    drawn = torch.cat([draw() for _ in range(100_000)])
    assert (drawn[:, 0] != drawn[:, 1]).all()
    assert drawn.min(dim=1).values.mean().item() == pytest.approx(11 / 3, abs=0.03)


def test_one_draw_serves_all_rows_and_critics_of_an_update(monkeypatch):
    sac, seen = make_sac(SPEC, model=mlp(critics=10), target_critics=2, gamma=0.5), []
    values = torch.arange(1.0, 11).expand(8, 10), torch.zeros(8)
    monkeypatch.setattr(sac.model, "sac_next_values", lambda *a: values)
    real = sac.model.sac_critic_gradients
    monkeypatch.setattr(sac.model, "sac_critic_gradients", lambda f, a, y, *rest: seen.append(y) or real(f, a, y, *rest))
    for i in range(20):
        sac.update_critic(sac.prepare(make_batch(SPEC, seed=i)))
    assert all(target.shape == (8,) and len(target.unique()) == 1 for target in seen)
    assert len({target[0].item() for target in seen}) > 3


def test_all_critics_give_the_target_of_sac_to_the_bit():
    assert changed(flat(train(make_sac(SPEC), 5)), flat(train(make_sac(SPEC, target_critics=2), 5))) == set()


def test_more_critics_than_there_are_cannot_be_drawn():
    """A model that says how many it has is refused before anybody acts by it, another one by its first update."""
    why = r"learner\.target_critics: 3 of the model's 2 critics; nearest valid: 2"
    with pytest.raises(ConfigError, match=why):
        make_sac(SPEC, target_critics=3)
    sac = make_sac(SPEC, model=ModelConfig("helpers.learner:OwnModel", {}), target_critics=3)
    with pytest.raises(ConfigError, match=why):
        sac.update(make_batch(SPEC))


@pytest.mark.parametrize("model", [mlp(), ModelConfig("helpers.learner:OwnModel", {})], ids=["mlp", "own"])
def test_the_actor_may_climb_the_mean_of_the_critics(model):
    losses = []
    for reduction in ("min", "mean"):
        sac = make_sac(SPEC, model=model, actor_reduction=reduction)
        first, second = sac.model.critic_network_heads
        second.load_state_dict(first.state_dict())
        with torch.no_grad():
            list(second.parameters())[-1].add_(100)  # the bias of the output
        losses.append(sac.update_actor(sac.prepare(make_batch(SPEC)))["actor/loss"].item())
    assert losses[0] - losses[1] == pytest.approx(50, abs=1e-3)


# --- DroQ -----------------------------------------------------------------------------------------------------------------


def test_dropout_is_awake_in_targets_and_touches_no_deterministic_action():
    sac = make_sac(SPEC, **DROQ)
    model, sample = sac.model, sac.prepare(make_batch(SPEC))
    for twin in ("online", "target"):
        first, second = (model.sac_forward_critic(features_of(sac, sample), sample.action, twin) for _ in range(2))
        assert not torch.equal(first, second), twin
    acts = [model.sac_forward_actor(model.sac_state_features(sample.obs, "actor"), None, True)[0] for _ in range(2)]
    assert torch.equal(*acts)
    model.eval()
    for twin in ("online", "target"):
        first, second = (model.sac_forward_critic(features_of(sac, sample), sample.action, twin) for _ in range(2))
        assert torch.equal(first, second), twin


def test_the_same_seed_gives_the_same_masks_whatever_torch_draws_elsewhere():
    runs = []
    for elsewhere in (1, 2):
        sac = make_sac(SPEC, **DROQ)
        torch.manual_seed(elsewhere)
        runs.append(flat(train(sac, 4)))
    assert changed(*runs) == set()


def test_the_target_of_layer_norm_follows_too():
    sac = make_sac(SPEC, **DROQ, tau=1.0)
    train(sac, 2)
    online, target = sac.model.critics.state_dict(), sac.model.target_critics.state_dict()
    assert any("2.weight" in name for name in online)  # layer norm behind linear and dropout
    assert all(torch.equal(online[name], target[name]) for name in online)


# --- CrossQ ---------------------------------------------------------------------------------------------------------------


def next_action(sac, sample):
    """What the policy would do next, by the noise that the next update draws."""
    generator = torch.Generator()
    generator.set_state(sac.generator.get_state())
    with torch.no_grad():
        found = sac.model.sac_forward_actor(sac.model.sac_state_features(sample.next_obs, "actor"), generator, False)
    return found[0], found[1]


def joint_inputs(sample, action):
    return torch.cat((torch.cat((sample.obs["obs"], sample.action), 1), torch.cat((sample.next_obs["obs"], action), 1)))


def test_running_statistics_move_to_the_joint_batch_once_a_critic_update():
    sac = make_sac(SPEC, **{**CROSSQ, "actor_update_interval": 1})
    sample = sac.prepare(make_batch(SPEC))
    joint = joint_inputs(sample, next_action(sac, sample)[0])
    sac.update(make_batch(SPEC))  # of the critics, then of the actor
    for critic in sac.model.critics:
        torch.testing.assert_close(critic[0].running_mean, 0.01 * joint.mean(dim=0))
        torch.testing.assert_close(critic[0].running_var, 0.99 + 0.01 * joint.var(dim=0))
    assert {int(b) for name, b in sac.model.named_buffers() if "num_batches" in name} == {1}


def test_no_gradient_flows_through_the_value_of_the_next_step(monkeypatch):
    sac, other, seen = make_sac(SPEC, **CROSSQ), make_sac(SPEC, **CROSSQ), []
    sample = sac.prepare(make_batch(SPEC))
    monkeypatch.setattr(sac.critic_optimizer, "step", lambda g, skip: seen.extend(x.clone() for x in g))
    sac.update_critic(sample)
    action, log_prob = next_action(other, sample)
    x = joint_inputs(sample, action)
    q, next_q = torch.cat([critic(x) for critic in other.model.critics], 1).chunk(2)
    target = td_target(sample.reward, sample.weight, next_q.detach(), log_prob, 1.0)
    expected = torch.autograd.grad(critic_loss(q, target), list(other.model.critics.parameters()))
    torch.testing.assert_close(seen, list(expected))


def test_there_is_no_target_network():
    sac = make_sac(SPEC, **CROSSQ)
    assert not [name for name in sac.model.state_dict() if "target" in name]
    sac.update_target_network()
    with pytest.raises(SpecError, match="'target' is not one of online"):
        sac.model.sac_forward_critic(torch.zeros(1, 3), torch.zeros(1, 2), "target")


def test_the_actor_is_judged_by_running_statistics_and_leaves_them():
    sac, other = (train(make_sac(SPEC, **CROSSQ), 2) for _ in range(2))
    sample, before = sac.prepare(make_batch(SPEC, seed=7)), buffers_of(sac)
    found = sac.update_actor(sample)["actor/qvalue_mean"]
    assert not changed(before, buffers_of(sac))
    assert all(critic.training for critic in sac.model.critics)
    other.model.eval()
    features = other.model.sac_state_features(sample.obs, "actor")
    action = other.model.sac_forward_actor(features, other.generator, False)[0]
    torch.testing.assert_close(found, other.model.sac_forward_critic(features, action).mean().detach())


def test_acting_leaves_the_statistics_alone():
    sac = train(make_sac(SPEC, **CROSSQ), 2)
    sample, before = sac.prepare(make_batch(SPEC, size=1)), buffers_of(sac)
    sac.model.sac_forward_actor(sac.model.sac_state_features(sample.obs, "actor"), sac.generator, False)
    assert not changed(before, buffers_of(sac))
    assert not [name for name in sac.model.policy_tensors() if "running" in name]


class Jointly(OwnModel):
    """A user's model without targets."""

    @property
    def target_network_heads(self):
        return []


def test_any_model_without_target_heads_learns_jointly():
    sac = SAC(Jointly(SPEC), SPEC, LearnerConfig(batch_size=8), 0)
    before = flat(sac)
    train(sac, 3)
    assert sac.model.q[0][1].num_batches_tracked == 3
    assert {"model.q.0.0.weight", "model.encoder.weight", "model.mean.weight"} <= changed(before, flat(sac))


# --- schedule and clipping ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("interval", "acts"), [(1, [0, 0, 0, 1, 1, 1]), (2, [0, 0, 0, 1, 0, 1])])
def test_the_critics_warm_up_before_actor_and_alpha_move(interval, acts):
    sac, seen = make_sac(SPEC, critic_warmup_updates=3, actor_update_interval=interval), []
    for i in range(6):
        before = flat(sac)
        metrics = sac.update(make_batch(SPEC, seed=i))
        moved = changed(before, flat(sac))
        assert {"model.critics.0.head.bias", "model.target_critics.0.head.bias"} <= moved
        seen.append(int("model.actor.head.bias" in moved))
        assert ("log_alpha" in moved) == ("actor/loss" in metrics) == bool(seen[-1])
    assert seen == acts


@pytest.mark.parametrize(("critic_clip", "expected"), [(None, 1e-3), (1e-2, 1e-2)])
def test_the_critics_may_have_a_limit_of_their_own(critic_clip, expected, monkeypatch):
    sac, norms = make_sac(SPEC, grad_clip=1e-3, critic_grad_clip=critic_clip), {}
    for part in ("critic", "actor"):

        def step(gradients, skip, part=part):
            norms[part] = math.sqrt(sum(g.square().sum().item() for g in gradients))

        monkeypatch.setattr(getattr(sac, f"{part}_optimizer"), "step", step)
    metrics = sac.update(make_batch(SPEC))
    assert min(metrics["critic/grad_norm"], metrics["actor/grad_norm"]) > 1e-2
    assert norms["critic"] == pytest.approx(expected, rel=2e-3)
    assert norms["actor"] == pytest.approx(1e-3, rel=2e-3)
