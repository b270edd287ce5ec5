"""Rules 23 and 24: SAC in the noise of a flow policy, and corrections of its actions; the policy itself stays as it is."""

import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers.flow import SPEC, export_flow, make_flow, weights_of
from helpers.learner import make_batch, make_spec

from headrace.actor.config import ActorConfig
from headrace.actor.deciding import Decided, Decider
from headrace.actor.envs import LaneObs, LaneStep
from headrace.actor.policy import make_policy
from headrace.actor.recorder import Recorder
from headrace.common.errors import ConfigError, SpecError
from headrace.common.exported import write_export
from headrace.common.specs import SOURCE_HUMAN, SOURCE_POLICY
from headrace.common.weights import Version
from headrace.learner.config import LearnerConfig, ModelConfig
from headrace.learner.models import make_model
from headrace.learner.sac import SAC

SMALL = {"hidden": [16], "critic_hidden": [16]}
NOISY = replace(SPEC, latent=8)
SPECS = {"residual": SPEC, "dsrl": NOISY}
CONFIG = LearnerConfig(batch_size=8, entropy_backup=False)


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return export_flow(tmp_path_factory.mktemp("base") / "out")


def make(kind, base, spec=None, **options):
    return make_model(spec or SPECS[kind], ModelConfig(kind, {"base": base, **SMALL, **options}), 0)


def learner(kind, base, config=CONFIG, **options):
    return SAC(make(kind, base, **options), SPECS[kind], config, 0)


def rows(spec=NOISY, size=8, seed=0, **columns):
    own = {} if not spec.latent else {"latent": np.random.default_rng(seed).uniform(-1, 1, (size, 8)), "has_latent": 1}
    return make_batch(spec, size, seed, **{**own, **columns})


def see(seed=0):
    return {key: torch.tensor(value) for key, value in make_batch(SPEC, 6, seed).obs.items()}


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


# --- both -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", SPECS)
def test_warm_up_moves_critics_updates_move_the_small_actor_and_nothing_moves_the_base(kind, base):
    sac = learner(kind, base, replace(CONFIG, critic_warmup_updates=2))
    start = {name: p.detach().clone() for name, p in sac.model.named_parameters()}
    # the actor's last layer is 0 in the beginning, so nothing before it has a gradient in its first step
    parts_of = [{"pool", "critics"}] * 2 + [{"pool", "critics", "actor"}, {"pool", "critics", "actor_pool", "actor"}]
    for update, parts in enumerate(parts_of):
        metrics = sac.update(rows(sac.model.spec, seed=update))
        assert float(metrics["sac/updates_skipped"]) == 0
        moved = {name.partition(".")[0] for name, p in sac.model.named_parameters() if not torch.equal(p, start[name])}
        assert moved - {"target_pool", "target_critics"} == parts


@pytest.mark.parametrize("kind", SPECS)
def test_the_base_is_neither_saved_nor_sent_and_a_resumed_run_is_equal_to_the_bit(kind, base):
    sac, again = learner(kind, base), learner(kind, base)
    sac.update(rows(sac.model.spec))
    state = sac.get_state()
    again.set_state(state)
    assert not [name for name in state["tensors"] if name.startswith("model.base.")]
    assert {name.partition(".")[0] for name in sac.weights(Version("l", 1, 1)).tensors} == {"actor", "actor_pool"}
    for one in (sac, again):
        for seed in range(1, 4):
            one.update(rows(sac.model.spec, seed=seed))
    ours, theirs = sac.get_state()["tensors"], again.get_state()["tensors"]
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


@pytest.mark.parametrize("kind", SPECS)
def test_an_actor_acts_as_the_learner_would_on_its_own_copy_of_the_base(kind, base):
    sac = learner(kind, base)
    sac.update(rows(sac.model.spec))
    policy = make_policy(sac.weights(Version("l", 1, 1)), sac.model.spec, ActorConfig())
    obs, model = see(), sac.model.eval()
    acted = policy.act({key: value.numpy() for key, value in obs.items()}, np.random.default_rng(0), True)
    features = model.sac_state_features(obs, "actor")
    with torch.no_grad():
        wanted = model.sac_forward_actor(features, None, True)[0]
        wanted = model.sac_execute(features, wanted) if kind == "dsrl" else wanted
    np.testing.assert_allclose(acted.reshape(6, 8), wanted.numpy(), atol=1e-6)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda tensors: tensors.pop("expert.embed.bias"), r"'expert\.embed\.bias' is missing"),
        (lambda tensors: tensors.update(odd=np.zeros(1, "<f4")), r"'odd' is unknown here"),
        (lambda tensors: tensors.update({"expert.embed.bias": np.zeros((4, 4), "<f4")}), r"'expert\.embed\.bias' is \(4, 4\)"),
        (lambda tensors: tensors["expert.embed.bias"].fill(np.nan), r"'expert\.embed\.bias' holds NaN"),
    ],
)
def test_a_base_is_taken_by_its_tensors_names_or_not_at_all(change, message, tmp_path):
    weights = weights_of(make_flow())
    tensors = {name: np.array(tensor) for name, tensor in weights.tensors.items()}
    change(tensors)
    write_export(tmp_path / "bad", replace(weights, tensors=tensors), SPEC, {})
    with pytest.raises(ConfigError, match=rf"model\.options\.base: .*bad: tensor {message}"):
        make("residual", str(tmp_path / "bad"))


def test_what_is_no_base_is_refused_by_name(base, tmp_path):
    with pytest.raises(ConfigError, match=r"model\.options\.base: empty; name the directory"):
        make("residual", "")
    with pytest.raises(ConfigError, match=r"model\.options\.base: .*policy\.json: not an exported policy"):
        make("residual", str(tmp_path))
    shorter = make_spec(obs=SPEC.obs, action=(2, 2), window=2, kind="chunk")
    with pytest.raises(SpecError, match=r"\(the policy's first\): spec\.action\.shape\[0\]: 4 != 2; spec\.window: 4 != 2"):
        make("residual", base, shorter)
    blind = make_spec(obs=SPEC.obs[1:], action=(4, 2), window=4, kind="chunk")
    with pytest.raises(SpecError, match=r"spec\.obs\.arm: .* != None"):
        make("residual", base, blind)
    shutil.copytree(base, tmp_path / "cut")
    (tmp_path / "cut" / "policy.safetensors").write_bytes(b"")
    with pytest.raises(ConfigError, match="does not match its digest"):
        make("residual", str(tmp_path / "cut"))


# --- residual (rule 24) ------------------------------------------------------------------------------------------------


@torch.no_grad()
def test_a_residual_begins_as_the_base_to_the_bit_and_adds_its_scale_at_most(base):
    model, obs = make("residual", base), see()
    features = model.sac_state_features(obs, "actor")
    prefix = model.base.sac_state_features(obs, "actor")
    wanted = model.base.denoise(prefix, torch.zeros(6, *model.base.noise_shape))
    assert torch.equal(model.sac_forward_actor(features, None, True)[0], wanted)
    drawn = model.sac_forward_actor(features, generator(), False)[0]
    assert 0 < float((drawn - wanted).abs().max()) < 0.2 * 0.3  # within six deviations, each of exp(-3) of the scale
    with torch.no_grad():
        model.actor.head.bias[:8] = 30.0
    far = model.sac_forward_actor(features, None, True)[0]
    torch.testing.assert_close(far, (wanted + 0.2).clamp(-1, 1))


def test_the_density_is_that_of_the_correction_alone(base):
    densities = []
    for scale in (0.2, 0.4):
        model = make("residual", base, scale=scale)
        densities.append(model.sac_forward_actor(model.sac_state_features(see(), "actor"), generator(), False)[1])
    assert torch.equal(*densities)


def test_the_base_of_the_next_state_is_used_there_and_critics_judge_what_is_executed(base, monkeypatch):
    model, here, there = make("residual", base, scale=1e-6), see(0), see(1)
    before, after = (model.sac_state_features(obs, "actor") for obs in (here, there))
    assert not torch.allclose(before.base, after.base, atol=1e-3)
    q, _ = model.sac_next_values(after, model.sac_target_features(there), generator())
    wanted, wrong = (
        model.sac_forward_critic(model.sac_state_features(there, "critic"), seen.base, "target") for seen in (after, before)
    )
    torch.testing.assert_close(q, wanted, rtol=1e-4, atol=1e-5)
    assert not torch.allclose(q, wrong, rtol=1e-4, atol=1e-4)
    batch = make_batch(SPEC, source=SOURCE_HUMAN)
    sac, seen = learner("residual", base), []
    judge = sac.model.sac_next_values
    monkeypatch.setattr(sac.model, "sac_next_values", lambda actor, *rest: seen.append(actor.base) or judge(actor, *rest))
    sac.update(batch)
    ahead = sac.model.sac_state_features({key: torch.tensor(value) for key, value in batch.next_obs.items()}, "actor")
    torch.testing.assert_close(seen, [ahead.base])
    judged = learner("residual", base).prepare(batch).action.numpy()
    np.testing.assert_allclose(judged, batch.rows["action"].reshape(8, 8), atol=1e-6)


# --- noise (rule 23) ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("shared", "numbers"), [(False, 8), (True, 2)])
@torch.no_grad()
def test_the_same_noise_gives_the_same_action_and_other_noise_another(shared, numbers, base):
    model = make("dsrl", base, replace(SPEC, latent=numbers), shared=shared)
    features = model.sac_state_features(see(), "actor")
    u, log_prob, _ = model.sac_forward_actor(features, generator(), False)
    assert (u.shape, log_prob.shape) == ((6, numbers), (6,))
    assert (model.sac_entropy_dim, float(u.abs().max()) <= 1) == (numbers, True)
    noise = (1.5 * u).reshape(6, -1, 2).expand(6, 4, 2)
    assert torch.equal(model.sac_execute(features, u), model.base.denoise(features.prefix, noise))
    assert torch.equal(model.sac_execute(features, u), model.sac_execute(features, u))
    assert not torch.allclose(model.sac_execute(features, u), model.sac_execute(features, -u), atol=1e-2)


def test_rows_of_people_and_demonstrations_change_nothing(base):
    left_out = np.array([1, 4, 7])
    batch = rows(rewards=0.25)
    batch.rows["has_latent"][left_out], batch.rows["latent"][left_out] = 0, 0
    batch.rows["rewards"][left_out] = 1e6
    kept = batch[np.setdiff1d(np.arange(8), left_out)]
    ours, theirs = learner("dsrl", base), learner("dsrl", base)
    metrics, wanted = ours.update(batch), theirs.update(kept)
    assert float(metrics["critic/loss"]) == float(wanted["critic/loss"]) < 100
    a, b = ours.get_state()["tensors"], theirs.get_state()["tensors"]
    assert all(torch.equal(a[name], b[name]) for name in a)
    unknown = ours.q.isnan().any(1)
    assert np.flatnonzero(unknown.numpy()).tolist() == left_out.tolist()
    assert torch.equal(ours.q[~unknown], theirs.q)


def test_a_batch_without_any_latent_is_an_update_that_is_skipped(base):
    sac = learner("dsrl", base)
    before = sac.get_state()["tensors"]
    assert float(sac.update(rows(has_latent=0))["sac/updates_skipped"]) == 1
    changed = {name for name, t in sac.get_state()["tensors"].items() if not torch.equal(t, before[name])}
    assert changed <= {"skipped", "generator"}


@pytest.mark.parametrize(
    ("sources", "random", "expected"),
    [
        ([SOURCE_POLICY] * 4, False, 1),
        ([SOURCE_POLICY] * 4, True, 0),
        ([SOURCE_POLICY, SOURCE_POLICY, SOURCE_HUMAN, SOURCE_HUMAN], False, 0),
    ],
)
def test_rows_hold_what_the_policy_decided_on_unless_somebody_took_over(sources, random, expected):
    spec = replace(make_spec(action=(4, 2), window=4, kind="chunk"), latent=3)
    decider, recorder = Decider(spec, 1), Recorder(spec, 1)
    obs = {"obs": np.zeros((1, 3), "<f4")}
    recorder.begin(LaneObs(obs, np.zeros(1, np.int64)))
    latent, false, true = np.array([[0.1, -0.2, 0.3]], "<f4"), np.zeros(1, bool), np.ones(1, bool)
    for t, source in enumerate(sources):
        actions = np.zeros((1, 4, 2), "<f4")
        acts = decider.act(obs, lambda seen, a=actions: a if random else Decided(a, latent))
        rewards, episode, outcome, by = (np.zeros(1, kind) for kind in ("<f4", "<i8", "u1", "u1"))
        by[:] = source
        step = LaneStep(true, rewards, true if t == 3 else false, false, obs, false, obs, episode, outcome, source=by)
        recorder.record(acts, step, Version("l", 1, 1))
    block = recorder.assemblers[0].take(9)
    block.check(spec)
    assert block.rows["has_latent"].tolist() == [expected]
    np.testing.assert_array_equal(block.rows["latent"], latent * expected)


def test_random_decisions_have_no_latent_and_lanes_keep_their_own():
    spec = replace(make_spec(action=(2, 1), window=2, kind="chunk"), latent=2)
    decider, obs = Decider(spec, 2), {"obs": np.zeros((2, 3))}
    acts = decider.act(obs, lambda seen: np.zeros((2, 2, 1)))
    assert np.isnan(acts.latents).all()
    decider.restart(np.array([False, True]))
    acts = decider.act(obs, lambda seen: Decided(np.zeros((len(seen["obs"]), 2, 1)), np.full((len(seen["obs"]), 2), 0.5)))
    assert np.isnan(acts.latents).all(axis=1).tolist() == [True, False]


def test_an_actor_decides_on_the_latents_that_its_actions_are_made_of(base):
    sac = learner("dsrl", base)
    policy = make_policy(sac.weights(Version("l", 1, 1)), NOISY, ActorConfig())
    decided = policy.decide({key: value.numpy() for key, value in see().items()}, np.random.default_rng(0))
    assert (decided.actions.shape, decided.latents.shape) == ((6, 4, 2), (6, 8))
    features = sac.model.eval().sac_state_features(see(), "actor")
    wanted = sac.model.sac_execute(features, torch.tensor(decided.latents))
    np.testing.assert_allclose(decided.actions.reshape(6, 8), wanted.numpy(), atol=1e-6)


def test_latents_where_there_can_be_none_are_refused(base):
    with pytest.raises(SpecError, match=r"window\.latent: 3, but the noise of this policy is 8 numbers; nearest valid: 8"):
        make("dsrl", base, replace(SPEC, latent=3))
    for kind in ("residual", "flow", "mlp"):
        with pytest.raises(SpecError, match=rf"window\.latent: 8, but model\.type {kind} decides on no latents"):
            make_model(NOISY, ModelConfig(kind, {}), 0)
    with pytest.raises(ConfigError, match=r"learner\.bc_weight: 1, but this model decides on latents"):
        learner("dsrl", base, replace(CONFIG, bc_weight=1.0))
