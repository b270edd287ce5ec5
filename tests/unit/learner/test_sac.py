"""One update of SAC, rule by rule."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers.learner import make_batch, make_sac, make_spec

from headrace.common.errors import CheckpointError, ConfigError, SpecError
from headrace.common.statistics import ObsStatistics
from headrace.common.weights import Version
from headrace.learner.config import LearnerConfig, ModelConfig
from headrace.learner.models import make_model
from headrace.learner.sac import SAC

SPEC = make_spec()


def flat(state):
    return {name: tensor.clone() for name, tensor in state["tensors"].items()}


def same(first, second):
    return [name for name in first if not torch.equal(first[name], second[name])]


def test_a_batch_of_one_row_trains():
    sac = make_sac(make_spec())
    sac.update(make_batch(make_spec(), size=1))
    assert sac.check_valid() == (True, "")


def test_doubling_the_envs_action_scale_leaves_alphas_trajectory_to_the_bit():
    narrow = make_spec(low=[-1.0, 0.5], high=[1.0, 3.0])
    wide = make_spec(low=[-2.0, 1.0], high=[2.0, 6.0])
    one, two = make_sac(narrow), make_sac(wide)
    for i in range(30):
        batch, double = make_batch(narrow, seed=i), make_batch(wide, seed=i)
        double.rows["action"] = 2 * batch.rows["action"]
        a, b = one.update(batch), two.update(double)
        assert torch.equal(a["sac/alpha"], b["sac/alpha"])
    assert one.log_alpha != 0
    assert same(flat(one.get_state()), flat(two.get_state())) == []  # also networks: alpha alone feels them hardly


def test_executed_actions_outside_the_box_are_clipped_and_counted():
    sac, batch = make_sac(SPEC), make_batch(SPEC)
    batch.rows["action"][:3, 1] = 7.0
    sample = sac.prepare(batch)
    assert sample.action.abs().max() == 1.0
    assert sac.update(batch)["data/actions_clipped"] == 3
    assert sac.update(batch)["data/actions_clipped"] == 6


@pytest.mark.parametrize(
    ("columns", "reward", "weight"),
    [
        ({"rewards": [1, 2, 3], "steps": 3}, 5.23, 0.729),
        ({"rewards": [1, 2, 0], "steps": 2, "terminated": 1}, 2.8, 0.0),
        ({"rewards": [1, 2, 0], "steps": 2, "truncated": 1}, 2.8, 0.81),
        ({"rewards": [1, 2, 0], "steps": 2, "truncated": 1, "terminated": 1}, 2.8, 0.0),
    ],
)
def test_rows_become_returns_and_bootstrap_weights(columns, reward, weight):
    spec = make_spec(window=3)
    sample = make_sac(spec, gamma=0.9).prepare(make_batch(spec, size=4, **columns))
    np.testing.assert_allclose(sample.reward, np.full(4, reward), rtol=1e-6)
    np.testing.assert_allclose(sample.weight, np.full(4, weight), rtol=1e-6)
    assert sample.reward.dtype == sample.weight.dtype == torch.float32


def test_read_only_batches_are_fine():
    batch = make_batch(SPEC)
    for array in (batch.rows, *batch.obs.values(), *batch.next_obs.values()):
        array.flags.writeable = False
    make_sac(SPEC).update(batch)


def test_batches_of_another_spec_are_refused():
    sac = make_sac(SPEC)
    with pytest.raises(SpecError, match=r"batch\.rows: rows of"):
        sac.update(make_batch(make_spec(window=2)))
    batch = make_batch(SPEC)
    batch.next_obs.clear()
    with pytest.raises(SpecError, match=r"batch\.next_obs: key 'obs' is missing"):
        sac.update(batch)


def target_of(sac, batch, monkeypatch):
    """The critic's target that an update uses, with next values of 10 and 12 and log pi of -2."""
    values = torch.tensor([[10.0, 12.0]]).expand(len(batch), 2), torch.full((len(batch),), -2.0)
    monkeypatch.setattr(sac.model, "sac_next_values", lambda *a: values)
    seen = {}
    real = sac.model.sac_critic_gradients
    monkeypatch.setattr(sac.model, "sac_critic_gradients", lambda f, a, y, *rest: seen.update(y=y) or real(f, a, y, *rest))
    sac.update_critic(sac.prepare(batch))
    return seen["y"]


@pytest.mark.parametrize(("backup", "expected"), [(True, 10.9), (False, 10.0)])
def test_the_entropy_of_the_backup_can_be_left_out(backup, expected, monkeypatch):
    sac = make_sac(SPEC, gamma=0.9, alpha=0.5, entropy_backup=backup)
    target = target_of(sac, make_batch(SPEC, rewards=1.0), monkeypatch)
    np.testing.assert_allclose(target, np.full(8, expected), rtol=1e-6)


@pytest.mark.parametrize("model", [None, ModelConfig("helpers.learner:OwnModel", {})], ids=["mlp", "own"])
def test_a_row_of_weight_zero_teaches_nothing_and_equal_weights_change_nothing(model):
    batch = make_batch(SPEC, rewards=np.arange(8)[:, None])
    heavy = replace(batch, weights=np.array([1, 1, 1, 1, 0, 0, 0, 0], np.float32))
    other = replace(heavy, rows=make_batch(SPEC, rewards=np.where(np.arange(8) < 4, np.arange(8), 50)[:, None]).rows)
    grads = {}
    for name, b in {
        "heavy": heavy,
        "other": other,
        "ones": replace(batch, weights=np.ones(8, np.float32)),
        "none": batch,
    }.items():
        sac = make_sac(SPEC, model=model)
        sac.update(b)
        grads[name] = [p.detach().clone() for _, p in sac.model.critic_params()]
    torch.testing.assert_close(grads["heavy"], grads["other"], rtol=0, atol=0)
    torch.testing.assert_close(grads["ones"], grads["none"])
    assert any((a != b).any() for a, b in zip(grads["heavy"], grads["none"], strict=True))


def test_td_errors_are_there_when_the_batch_has_weights(monkeypatch):
    sac = make_sac(SPEC, gamma=0.9, alpha=0.5)
    batch = make_batch(SPEC, rewards=1.0)
    target_of(sac, batch, monkeypatch)
    assert sac.td_error is None
    sac = make_sac(SPEC, gamma=0.9, alpha=0.5)
    target = target_of(sac, replace(batch, weights=np.full(8, 0.3, np.float32)), monkeypatch)
    fresh = make_sac(SPEC, gamma=0.9, alpha=0.5)
    sample = fresh.prepare(batch)
    q = fresh.model.sac_forward_critic(fresh.model.sac_state_features(sample.obs, "critic"), sample.action)
    expected = (q - target[:, None]).abs().mean(dim=1)
    torch.testing.assert_close(sac.td_error, expected.detach())


def test_targets_are_float32_under_autocast(monkeypatch):
    sac = make_sac(SPEC, gamma=0.9, alpha=0.5)
    batch = make_batch(SPEC, rewards=1.0)
    with torch.autocast("cpu", torch.bfloat16):
        target = target_of(sac, batch, monkeypatch)
        metrics = sac.update_actor(sac.prepare(batch))
    assert target.dtype == torch.float32
    np.testing.assert_allclose(target, np.full(8, 10.9), rtol=1e-6)
    assert metrics["actor/loss"].dtype == torch.float32
    assert torch.isfinite(metrics["actor/grad_norm"])


def test_an_early_success_in_a_chunk_raises_the_value_of_the_whole_planned_chunk():
    spec = make_spec(action=(4, 1), window=4, kind="chunk")
    sac = make_sac(spec, gamma=0.9, critic_lr=3e-3)
    batch = make_batch(spec, rewards=[0, 1, 0, 0], steps=2, terminated=1)
    sample = sac.prepare(batch)
    assert sample.action.shape == (8, 4)
    for _ in range(300):
        sac.update_critic(sample)
    features = sac.model.sac_state_features(sample.obs, "critic")
    values = sac.model.sac_forward_critic(features, sample.action).detach()
    np.testing.assert_allclose(values, np.full((8, 2), 0.9), atol=0.02)  # gamma^1 times the only reward


@pytest.mark.parametrize(("action", "expected"), [((2,), -2.0), ((5, 7), -35.0)])
def test_target_entropy_is_minus_the_executed_dimensions_or_as_many_times_another_number(action, expected):
    spec = make_spec(action=action, window=action[0] if len(action) == 2 else 1, kind="chunk")
    assert make_sac(spec).target_entropy == expected
    assert make_sac(spec, target_entropy_per_dim=-0.5).target_entropy == expected / 2
    assert make_sac(spec, target_entropy_per_dim=0.0).target_entropy == 0


def test_alarm_when_alpha_runs_away():
    fine, wild = make_sac(SPEC, alpha=999.0), make_sac(SPEC, alpha=1001.0)
    assert fine.update(make_batch(SPEC))["sac/alpha_alarm"] == 0
    assert wild.update(make_batch(SPEC))["sac/alpha_alarm"] == 1


def test_target_moves_by_tau_once_per_update():
    sac = make_sac(SPEC)
    with torch.no_grad():
        for p in sac.model.critics.parameters():
            p.fill_(1.0)
        for p in sac.model.target_critics.parameters():
            p.fill_(0.0)
    for _ in range(100):
        sac.update_target_network()
    for p in sac.model.target_critics.parameters():
        np.testing.assert_allclose(p, np.full(p.shape, 0.394230), atol=1e-6)
    before = [p.clone() for p in sac.model.target_critics.parameters()]
    sac.update(make_batch(SPEC))
    after = zip(before, sac.model.target_critics.parameters(), sac.model.critics.parameters(), strict=True)
    for was, p, online in after:  # which has stepped before
        torch.testing.assert_close(p, torch.lerp(was, online, 0.005), rtol=0, atol=0)


def test_the_target_is_a_frozen_copy():
    model = make_model(SPEC, ModelConfig("mlp", {"hidden": [8]}), 0)
    with torch.no_grad():
        for p in model.target_critics.parameters():
            p.fill_(3.0)
    sac = SAC(model, SPEC, LearnerConfig(batch_size=8), 0)
    assert model.critics.state_dict().keys() == model.target_critics.state_dict().keys()
    assert not same(model.critics.state_dict(), model.target_critics.state_dict())
    sac.update(make_batch(SPEC))
    assert all(not p.requires_grad and p.grad is None for p in model.target_critics.parameters())
    assert all(p.grad is None for p in model.parameters())
    assert same(model.critics.state_dict(), model.target_critics.state_dict())


@pytest.mark.parametrize("generic", [False, True])
def test_the_actors_step_changes_the_actor_and_alpha_only(generic):
    options = ModelConfig("helpers.learner:OwnModel", {}) if generic else None
    sac, batch = make_sac(SPEC, model=options), make_batch(SPEC)
    flags = {name: p.requires_grad for name, p in sac.model.named_parameters()}
    before = {name: p.detach().clone() for name, p in sac.model.named_parameters()}
    sac.update_actor(sac.prepare(batch))
    changed = {name for name, p in sac.model.named_parameters() if not torch.equal(p, before[name])}
    actor = {id(p) for _, p in sac.model.actor_params()}
    assert changed == {name for name, p in sac.model.named_parameters() if id(p) in actor}
    assert {name: p.requires_grad for name, p in sac.model.named_parameters()} == flags
    assert all(p.grad is None for p in sac.model.parameters())
    assert sac.log_alpha != 0


def test_a_separate_batch_moves_the_actor_only():
    first, second = make_batch(SPEC), make_batch(SPEC, size=8)
    second.obs["obs"][:] += 1.0
    shared, separate, other = (make_sac(SPEC) for _ in range(3))
    shared.update(first)
    separate.update(first, None, second)
    other.update(second)
    critics = [dict(sac.model.critic_params()) for sac in (shared, separate, other)]
    actors = [dict(sac.model.actor_params()) for sac in (shared, separate, other)]
    assert all(torch.equal(critics[0][name], critics[1][name]) for name in critics[0])
    assert not all(torch.equal(critics[2][name], critics[1][name]) for name in critics[0])
    assert not all(torch.equal(actors[0][name], actors[1][name]) for name in actors[0])


def test_intervals():
    sac = make_sac(SPEC, actor_update_interval=2, target_update_interval=3)
    seen = []
    for i in range(6):
        before = flat(sac.get_state())
        metrics = sac.update(make_batch(SPEC, seed=i))
        changed = same(before, flat(sac.get_state()))
        actor = "model.actor.head.bias" in changed
        assert actor == ("actor/loss" in metrics)
        seen.append((actor, "model.target_critics.0.head.bias" in changed))
    assert seen == [(False, False), (True, False), (False, True), (True, False), (False, False), (True, True)]


@pytest.mark.parametrize("where", ["rewards", "obs", "next_obs", "action"])
def test_a_batch_with_nan_changes_no_trained_number_and_is_counted(where):
    sac = make_sac(SPEC, tau=1.0)
    sac.update(make_batch(SPEC))
    before = flat(sac.get_state())
    batch = make_batch(SPEC, seed=1)
    if where in ("rewards", "action"):
        batch.rows[where][0] = math.nan
    else:
        getattr(batch, where)["obs"][0, 0] = math.inf
    metrics = sac.update(batch)
    assert metrics["sac/updates_skipped"] == 1
    assert set(same(before, flat(sac.get_state()))) <= {"generator", "skipped", "outside"}
    assert sac.check_valid() == (True, "")
    assert sac.update(make_batch(SPEC, seed=2))["sac/updates_skipped"] == 1
    assert same(before, flat(sac.get_state()))


def test_buffers_that_a_bad_batch_has_written_are_put_back():
    sac = make_sac(SPEC, model=ModelConfig("helpers.learner:OwnModel", {}))
    batch = make_batch(SPEC, seed=1)
    batch.obs["obs"][0, 0] = math.nan
    assert sac.update(batch)["sac/updates_skipped"] == 1
    assert sac.check_valid() == (True, "")
    assert sac.model.q[0][1].running_var.max() == 1
    assert sac.update(make_batch(SPEC))["sac/updates_skipped"] == 1
    assert sac.model.q[0][1].num_batches_tracked > 0


def test_actors_normalise_for_the_mlp_only():
    with pytest.raises(ConfigError, match=r"learner\.normalise_obs: true, but actors normalise for the mlp only"):
        make_sac(SPEC, model=ModelConfig("helpers.learner:OwnModel", {}), normalise_obs=True)


def test_a_loss_that_overflows_is_skipped_too():
    sac = make_sac(SPEC)
    assert sac.update(make_batch(SPEC, rewards=3e38))["sac/updates_skipped"] == 1
    assert sac.check_valid() == (True, "")


def test_gradient_clipping_bounds_the_step(monkeypatch):
    free, clipped = make_sac(SPEC), make_sac(SPEC, grad_clip=0.01)
    seen = []
    for sac in (free, clipped):
        monkeypatch.setattr(sac.critic_optimizer, "step", lambda g, skip: seen.append([x.clone() for x in g]))
    norms = [sac.update_critic(sac.prepare(make_batch(SPEC)))["critic/grad_norm"] for sac in (free, clipped)]
    assert norms[0] == norms[1] > 0.01  # the metric is the norm before clipping
    total = math.sqrt(sum(g.square().sum().item() for g in seen[1]))
    assert total == pytest.approx(0.01, rel=1e-3)


def test_a_gradient_below_the_limit_is_left_as_it_is(monkeypatch):
    seen = []
    for clip in (None, 1e6):
        sac = make_sac(SPEC, grad_clip=clip)
        for optimizer in (sac.critic_optimizer, sac.actor_optimizer):
            monkeypatch.setattr(optimizer, "step", lambda g, skip: seen.append([x.clone() for x in g]))
        sac.update(make_batch(SPEC))
    free, clipped = seen[:2], seen[2:]
    for ours, theirs in zip(free, clipped, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0)


@pytest.mark.parametrize("generic", [False, True])
@pytest.mark.parametrize("alpha", [0.5, 0.0])
def test_the_actors_loss_weighs_the_entropy_by_alpha(generic, alpha):
    model = ModelConfig("helpers.learner:OwnModel", {}) if generic else ModelConfig(options={"hidden": [16], "critics": 1})
    sac = make_sac(SPEC, model=model, alpha=alpha, temperature="fixed", actor_reduction="mean")
    found = sac.update_actor(sac.prepare(make_batch(SPEC)))
    expected = alpha * found["actor/logprob_mean"] - found["actor/qvalue_mean"]
    torch.testing.assert_close(found["actor/loss"], expected)
    assert found["actor/logprob_mean"].abs() > 0.1


@pytest.mark.parametrize("per_dim", [-1.0, 0.25])
def test_alpha_is_steered_to_the_target_entropy_of_the_config(per_dim):
    target = per_dim * 2  # dimensions of the action
    for off, rises in ((-0.1, False), (0.1, True)):
        sac = make_sac(SPEC, target_entropy_per_dim=per_dim)
        sac.temperature.update(torch.tensor(off - target), torch.zeros(()))
        assert (sac.log_alpha > 0) == rises


def test_every_optimizer_has_both_decays_of_the_config():
    sac = make_sac(SPEC, adam_beta1=0.5, adam_beta2=0.9)
    sac.update(make_batch(SPEC))
    for part in (sac.actor_optimizer, sac.critic_optimizer, sac.temperature.optimizer):
        state = part.get_state()
        means, squares = (
            torch.cat([t.flatten() for name, t in sorted(state.items()) if name.startswith(kind)])
            for kind in ("mean", "square")
        )
        moved = means.abs() > 1e-6
        assert moved.any()
        torch.testing.assert_close(means[moved] ** 2 / squares[moved], torch.full((int(moved.sum()),), 0.5**2 / 0.1))


def test_statistics_are_used_and_not_changed():
    sac = make_sac(SPEC, normalise_obs=True)
    first = ObsStatistics(10, {"obs": np.array([1, 2, 3], "<f4")}, {"obs": np.array([4, 4, 4], "<f4")})
    batch = make_batch(SPEC)
    sac.update(batch, first)
    kept = sac.normaliser.get_state()
    for i in range(1000):
        sac.update(make_batch(SPEC, seed=i), first)
    assert not same(kept, sac.normaliser.get_state())
    np.testing.assert_allclose(sac.prepare(batch).obs["obs"], (batch.obs["obs"] - [1, 2, 3]) / 2, rtol=1e-5, atol=1e-6)
    second = ObsStatistics(20, {"obs": np.zeros(3, "<f4")}, {"obs": np.ones(3, "<f4")})
    sac.update(batch, second)
    np.testing.assert_allclose(sac.prepare(batch).obs["obs"], batch.obs["obs"], rtol=1e-5)  # old rows, new statistics
    tensors = sac.weights(Version("learner", 1, 1)).tensors
    assert tensors["mean.obs"].tolist() == [0, 0, 0]
    assert tensors["var.obs"].tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    ("gone", "said"),
    [
        ("critic_optimizer.", "critic_optimizer: optimiser: tensor 'count' is missing"),
        ("actor_optimizer.", "actor_optimizer: optimiser: tensor 'count' is missing"),
        ("alpha_optimizer.", "alpha_optimizer: optimiser: tensor 'count' is missing"),
        ("critic_optimizer.mean.", r"critic_optimizer: optimiser: tensor 'mean\..*' is missing"),
        ("normaliser.", "normaliser: .* is missing"),
        ("generator", "learner state: generator is missing"),
        ("log_alpha", "learner: tensor 'log_alpha' is missing"),
    ],
)
def test_a_part_that_a_state_lacks_is_named(gone, said):
    sac = make_sac(SPEC, normalise_obs=True)
    state = sac.get_state()
    state["tensors"] = {name: tensor for name, tensor in state["tensors"].items() if not name.startswith(gone)}
    with pytest.raises(CheckpointError, match=said):
        sac.set_state(state)


def test_published_weights_do_not_change_with_the_next_update():
    sac = make_sac(SPEC)
    weights = sac.weights(Version("learner", 1, 0))
    kept = {name: tensor.copy() for name, tensor in weights.tensors.items()}
    sac.update(make_batch(SPEC))
    assert all((weights.tensors[name] == kept[name]).all() for name in kept)
    assert (sac.weights(Version("learner", 1, 1)).tensors["head.bias"] != kept["head.bias"]).any()


def test_a_policy_can_be_taken_over():
    old = make_sac(SPEC, seed=1, normalise_obs=True)
    old.update(make_batch(SPEC), ObsStatistics(5, {"obs": np.ones(3, "<f4")}, {"obs": np.ones(3, "<f4")}))
    weights = old.weights(Version("learner", 1, 1))
    new = make_sac(SPEC, seed=2, normalise_obs=True)
    new.load_policy(weights)
    taken = new.weights(Version("learner", 1, 1)).tensors
    assert all((taken[name] == weights.tensors[name]).all() for name in weights.tensors)


@pytest.mark.parametrize(
    ("hidden", "normalise", "said"),
    [
        ([16, 8], True, "policy.hidden[1]: 8 != 16; begin"),
        ([8], True, "policy.hidden: [8] != [16, 16]; begin"),
        ([16, 16], False, "policy.normalise: False != True; begin"),
    ],
)
def test_a_policy_of_another_description_is_refused_by_the_fields_that_differ(hidden, normalise, said):
    weights = make_sac(SPEC, normalise_obs=True).weights(Version("learner", 1, 1))
    new = make_sac(SPEC, model=ModelConfig("mlp", {"hidden": hidden}), normalise_obs=normalise)
    with pytest.raises(SpecError, match=r"another policy \(ours first\): ") as caught:
        new.load_policy(weights)
    assert said in str(caught.value)
    assert str(caught.value).count("policy.") == 1


def test_the_same_seed_gives_the_same_run():
    runs = []
    for seed in (1, 1, 2):
        sac = make_sac(SPEC, seed=seed)
        for i in range(5):
            sac.update(make_batch(SPEC, seed=i))
        runs.append(flat(sac.get_state()))
    assert not same(runs[0], runs[1])
    assert same(runs[0], runs[2])


def test_state_refuses_what_does_not_fit():
    sac = make_sac(SPEC)
    state = sac.get_state()
    for name in ("model.actor.head.bias", "critic_optimizer.count", "generator", "log_alpha"):
        with pytest.raises(CheckpointError, match=name.split(".")[-1]):
            sac.set_state({**state, "tensors": {k: v for k, v in state["tensors"].items() if k != name}})
    wrong = {**state["tensors"], "model.actor.head.bias": torch.zeros(9)}
    with pytest.raises(CheckpointError, match=r"'model\.actor\.head\.bias' is \(9,\)"):
        sac.set_state({**state, "tensors": wrong})


def test_check_valid_names_what_is_wrong():
    sac = make_sac(SPEC, normalise_obs=True)
    assert sac.check_valid() == (True, "")
    with torch.no_grad():
        sac.model.actor.head.bias[0] = math.nan
    assert sac.check_valid() == (False, "model.actor.head.bias is not finite")


def test_a_temperature_that_cannot_move_is_refused():
    with pytest.raises(ConfigError, match=r"learner\.alpha: 0 with temperature auto_exp"):
        make_sac(SPEC, alpha=0.0)
