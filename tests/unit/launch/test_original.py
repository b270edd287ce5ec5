"""The original's names: they work as the notes on it describe them, without its faults."""

import importlib.util
import types
from pathlib import Path

import numpy as np
import pytest
import torch

from headrace.actor.config import EnvConfig, WindowConfig
from headrace.actor.envs import make_lanes
from headrace.buffer.pool import SACReplayPool
from headrace.common.errors import ConfigError, PoolTooSmall, SpecError
from headrace.common.specs import ActionSpec, ObsSpec, TransitionSpec
from headrace.launch.chaos.scripted import ENV, executed
from headrace.launch.digests import state_digest
from headrace.launch.original import EnvLoop, RobDataParallelSACActor, RobRaySACTrainer, SACActorConfig, SupportSACTraining
from headrace.learner.adam import Adam
from headrace.learner.config import LearnerConfig, ModelConfig
from headrace.learner.models import make_model
from headrace.learner.sac import SAC

EXAMPLE = Path(__file__).parents[3] / "examples" / "original_trainer.py"
SPEC = TransitionSpec((ObsSpec("state", (3,), "<f4"),), ActionSpec((2,), (-2.0, -1.0), (2.0, 5.0)))
CHUNK = TransitionSpec((ObsSpec("state", (3,), "<f4"),), ActionSpec((4, 2), (-1.0, -1.0), (1.0, 1.0)), window=4, kind="chunk")


def model_of(spec=SPEC, seed=0):
    return make_model(spec, ModelConfig(options={"hidden": [16, 16]}), seed)


def actor_of(spec=SPEC, **options):
    options = {"action_dim": int(np.prod(spec.action.shape)), "batch_size": 8, "replay_pool_size": 100, **options}
    return RobDataParallelSACActor(model_of(spec), SACActorConfig(**options))


def rows_of(n, seed=0, done=0.0):
    rng = np.random.default_rng(seed)
    return {
        "state": rng.normal(size=(n, 3)).astype("<f4"),
        "action": rng.uniform(-1, 1, (n, 2)).astype("<f4"),
        "reward": rng.normal(size=n).astype("<f4"),
        "next_state": rng.normal(size=(n, 3)).astype("<f4"),
        "done": np.full(n, done, "<f4"),
    }


def parameters(part):
    return [p.detach().clone() for p in part]


# --- from the notes alone: only names and calls that they show -------------------------------------------------------


def test_the_notes_alone():
    config = types.SimpleNamespace(
        actor_lr=1e-3, critic_lr=1e-3, alpha_lr=1e-3, action_dim=2, replay_pool_size=50, batch_size=8
    )
    actor = RobDataParallelSACActor(model_of(), config)
    assert isinstance(actor.model, SupportSACTraining)
    assert isinstance(actor.replay_pool, SACReplayPool)
    assert float(actor.log_alpha.detach()) == 0.0
    assert float(actor.alpha) == 1.0
    assert actor.target_entropy == -2
    for optimizer in (actor.actor_optimizer, actor.critic_optimizer, actor.alpha_optimizer):
        assert isinstance(optimizer, Adam)
    target, online = actor.model.target_network_heads, actor.model.critic_network_heads
    before = parameters(actor.model.actor.parameters()), parameters(online[0].parameters()), parameters(target[0].parameters())
    assert all(torch.equal(t, o) for t, o in zip(before[2], before[1], strict=True))  # targets begin as copies

    new_data = {name: torch.as_tensor(value) for name, value in rows_of(10).items()}
    actor.update_with_replay(new_data)

    assert actor.replay_pool.size == 10
    after = parameters(actor.model.actor.parameters()), parameters(online[0].parameters()), parameters(target[0].parameters())
    assert not any(torch.equal(a, b) for part in (0, 1) for a, b in zip(after[part], before[part], strict=True))
    for t0, t1, o1 in zip(before[2], after[2], after[1], strict=True):
        torch.testing.assert_close(t1, t0 + 0.005 * (o1 - t0))
    assert float(actor.log_alpha.detach()) != 0.0
    actor.replay_pool.add_batch(rows_of(60, seed=1))
    assert actor.replay_pool.size == 50
    batch = actor.replay_pool.sample_batch(8)
    assert isinstance(batch["state"], torch.Tensor)
    actor._forward_critic(batch)
    actor._forward_actor(batch)

    rollouts = []

    class Loop:
        def reset(self):
            rollouts.append("reset")

        def rollout(self):
            rollouts.append("rollout")
            flat = rows_of(20, seed=len(rollouts))
            return {
                **{
                    name: flat[name].reshape(4, 5, *flat[name].shape[1:])
                    for name in ("state", "action", "reward", "next_state")
                },
                "terminated": np.zeros((4, 5), bool),
                "truncated": np.zeros((4, 5), bool),
                "steps": np.ones((4, 5), int),
            }

    trainer = RobRaySACTrainer(
        Loop(), RobDataParallelSACActor(model_of(), config), total_steps=3, gradient_steps_per_env_step=1
    )
    transitions = trainer.add_transition_prefixes(Loop().rollout())
    assert list(transitions) == ["state", "action", "reward", "next_state", "done", "response_mask"]
    rollouts.clear()
    trainer.fit()
    assert rollouts == ["reset", "rollout"] * 3
    assert trainer.replay_pool.size == 50
    assert trainer.updates == 3 * 20 - 8


# --- the actor -------------------------------------------------------------------------------------------------------


def test_a_terminal_state_does_not_bootstrap_and_a_truncated_one_does():
    rows = {name: torch.as_tensor(value) for name, value in rows_of(64).items()}
    model, generator = model_of(), actor_of()._sac.generator
    with torch.no_grad():  # y = r + gamma (1 - done) (min Q_target(s', a') - alpha log pi(a'|s')), with alpha 1
        features = model.sac_state_features({"state": rows["next_state"]}, "actor")
        action, log_prob, _ = model.sac_forward_actor(features, generator, False)
        after = model.sac_forward_critic(features, action, "target").min(dim=1).values - log_prob
        unit = actor_of()._sample(rows).action
        q = model.sac_forward_critic(rows["state"], unit, "online")
        loss = [float((q - y[:, None]).square().mean(dim=0).sum()) for y in (rows["reward"], rows["reward"] + 0.99 * after)]
    ended = float(actor_of()._forward_critic({**rows, "done": torch.ones(64)})["critic/loss"])
    cut = float(actor_of()._forward_critic({**rows, "done": torch.zeros(64)})["critic/loss"])
    assert [ended, cut] == pytest.approx(loss, rel=1e-5)
    assert abs(ended - cut) > 0.1


def test_one_update_is_that_of_sac_to_the_bit():
    actor = actor_of(seed=3)
    sac = SAC(model_of(), SPEC, LearnerConfig(batch_size=8), 3)
    pool = SACReplayPool(8, spec=SPEC)
    pool.add_batch(rows_of(8, done=0.0))
    batch = pool.gather(np.arange(8))
    for _ in range(3):
        actor._forward_critic(rows_of(8))
        actor._forward_actor(rows_of(8))
        actor.update_target_network()
        sac.update(batch)
    assert state_digest(actor._sac.get_state()) == state_digest(sac.get_state())


def test_chunks_discount_by_executed_steps():
    actor, n = actor_of(CHUNK, gamma=0.9), 16
    rows = {**rows_of(n), "action": np.zeros((n, 4, 2), "<f4"), "reward": np.ones((n, 4), "<f4")}
    rows["response_mask"] = np.tile(np.arange(4) < 2, (n, 1))
    sample = actor._sample(rows)
    assert sample.reward.tolist() == pytest.approx([1.9] * n)  # what lies beyond the executed steps does not count
    assert sample.weight.tolist() == pytest.approx([0.81] * n)
    assert actor._sample({**rows, "done": np.ones(n)}).weight.tolist() == [0.0] * n
    actor.replay_pool.add_batch({**rows, "reward": rows["reward"] * rows["response_mask"]})
    actor._forward_critic(actor.replay_pool.sample_batch(8))


def test_actions_are_executed_units_and_stay_in_the_box():
    actor = actor_of()
    actions = actor.act(rows_of(500)["state"])
    assert actions.shape == (500, 2)
    assert actions.dtype == np.float32
    assert (actions >= [-2, -1]).all()
    assert (actions <= [2, 5]).all()
    assert actions[:, 1].max() > 2
    assert (actor.act(rows_of(5)["state"], deterministic=True) == actor.act(rows_of(5)["state"], deterministic=True)).all()
    unit = actor._sample({**rows_of(1), "action": np.array([[2.0, 2.0]])}).action
    assert unit.tolist() == [[1.0, 0.0]]


def test_state_is_whole():
    one, two = actor_of(), actor_of(seed=9)
    one.update_with_replay(rows_of(20))
    two.set_state(one.get_state())
    assert two.check_valid() == (True, "")
    for actor in (one, two):
        actor.update_with_replay(rows_of(20, seed=5))
    assert state_digest(one.get_state()) == state_digest(two.get_state())


def test_what_is_wrong_is_named():
    with pytest.raises(ConfigError, match=r"config.action_dim: 3, but actions \(2,\) have 2 dimensions"):
        actor_of(action_dim=3)
    with pytest.raises(ConfigError, match=r"config.action_dim: required"):
        RobDataParallelSACActor(model_of(), types.SimpleNamespace(actor_lr=1e-3))
    with pytest.raises(ConfigError, match=r"config.critic_lr: -1 is below"):
        RobDataParallelSACActor(model_of(), types.SimpleNamespace(action_dim=2, critic_lr=-1))
    actor = actor_of()
    rows = rows_of(4)
    with pytest.raises(SpecError, match=r"batch.done: missing"):
        actor._forward_critic({name: value for name, value in rows.items() if name != "done"})
    with pytest.raises(SpecError, match=r"batch.done: shape \(4, 1\), expected \(4,\)"):
        actor._forward_critic({**rows, "done": rows["done"][:, None]})
    with pytest.raises(SpecError, match=r"batch.reward: shape \(4, 3\), expected \(4, 1\)"):
        actor._forward_critic({**rows, "reward": np.zeros((4, 3))})
    with pytest.raises(SpecError, match=r"state.state: shape \(4, 2\), expected \(any, 3\)"):
        actor._forward_critic({**rows, "state": np.zeros((4, 2), "<f4")})
    with pytest.raises(SpecError, match=r"batch.response_mask: missing"):
        actor_of(CHUNK)._forward_critic({**rows, "reward": np.zeros((4, 4)), "action": np.zeros((4, 4, 2))})
    with pytest.raises(PoolTooSmall, match="a batch of 8 rows was asked of 4"):
        actor.update_with_replay(rows)
    assert actor.replay_pool.size == 4


# --- the trainer -----------------------------------------------------------------------------------------------------


def trainer_of(loop=None, **options):
    return RobRaySACTrainer(loop or types.SimpleNamespace(), actor_of(), **{"total_steps": 1, **options})


def trajectories_of(steps, **changes):
    """Two lanes; the state names its lane and time."""
    steps = np.asarray(steps)
    lanes, times = steps.shape
    where = np.stack([*np.meshgrid(np.arange(lanes), np.arange(times), indexing="ij"), np.zeros((lanes, times))], axis=2)
    return {
        "state": where.astype("<f4"),
        "action": np.zeros((lanes, times, 2), "<f4"),
        "reward": where[..., 1].astype("<f4"),
        "next_state": (where + np.array([0, 1, 0])).astype("<f4"),
        "terminated": np.zeros((lanes, times), bool),
        "truncated": np.zeros((lanes, times), bool),
        "steps": steps,
        **changes,
    }


def test_every_executed_decision_becomes_a_row_also_a_one_step_episode():
    terminated = np.array([[True, False, True], [False, False, False]])
    truncated = np.array([[False, False, True], [True, False, True]])
    found = trainer_of().add_transition_prefixes(
        trajectories_of([[1, 1, 1], [1, 0, 1]], terminated=terminated, truncated=truncated)
    )
    assert found["state"][:, :2].tolist() == [[0, 0], [0, 1], [0, 2], [1, 0], [1, 2]]
    assert found["done"].tolist() == [True, False, True, False, False]  # both flags: terminated; truncated alone: not done
    assert (found["next_state"][:, 1] == found["state"][:, 1] + 1).all()
    assert found["response_mask"].tolist() == [[True]] * 5


def test_response_mask_marks_the_executed_steps():
    data = {"steps": np.array([[0, 1, 2, 4]]), "reward": np.ones((1, 4, 4))}
    mask = trainer_of().compute_response_mask(data)
    assert (mask == (np.arange(4) < data["steps"][..., None])).all()
    with pytest.raises(SpecError, match="steps: 0 to 5, expected 0 to 4"):
        trainer_of().compute_response_mask({**data, "steps": np.array([[0, 5]])})
    chunks = trajectories_of([[2, 4]], action=np.zeros((1, 2, 4, 2), "<f4"), reward=np.ones((1, 2, 4), "<f4"))
    found = trainer_of().add_transition_prefixes(chunks)
    assert found["reward"].tolist() == [[1, 1, 0, 0], [1, 1, 1, 1]]


def test_keys_and_shapes_are_declared_not_guessed():
    with pytest.raises(SpecError, match=r"trajectories.steps: missing"):
        trainer_of().add_transition_prefixes({name: v for name, v in trajectories_of([[1]]).items() if name != "steps"})
    with pytest.raises(
        SpecError, match=r"trajectories.reward: shape \(2, 2\), expected \(L, T, \.\.\.\) with the \(L, T\) \(2, 3\)"
    ):
        trainer_of().add_transition_prefixes(trajectories_of(np.ones((2, 3), int), reward=np.zeros((2, 2))))
    nested = {"arm": np.zeros((1, 2, 3)), "eye": np.zeros((1, 3, 4))}
    with pytest.raises(SpecError, match=r"trajectories.state.eye: shape \(1, 3, 4\)"):
        trainer_of().add_transition_prefixes(trajectories_of([[1, 1]], state=nested))


@pytest.mark.parametrize(("ratio", "updates"), [(1, 11), (0.5, 5), (2, 22)])
def test_gradient_steps_are_per_executed_env_step(ratio, updates):
    rollouts = iter([[[1, 1, 1], [1, 0, 1]], [[1, 1, 1], [1, 1, 1]], [[1, 1, 1], [1, 1, 1]], [[0, 0, 1], [1, 0, 0]]])
    loop = types.SimpleNamespace(reset=lambda: None, rollout=lambda: trajectories_of(next(rollouts)))
    trainer = trainer_of(loop, total_steps=4, gradient_steps_per_env_step=ratio)
    trainer.fit()
    assert trainer.env_steps == 19  # and 8 of them, a batch, fill the pool
    assert trainer.updates == updates


# --- the env loop ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["next_step", "same_step", "disabled"])
def test_rollouts_hold_what_was_executed(tmp_path, mode):
    kwargs = {"lengths": [1, 3, 4], "ends": ["terminated", "truncated"], "reuse": True, "history": str(tmp_path)}
    env = EnvConfig(id=ENV, kwargs=kwargs, lanes=2, autoreset=mode)
    lanes = make_lanes(env, WindowConfig(), run_seed=0, actor="a", epoch=1)
    loop = EnvLoop(lanes, lambda state: (state[:, 2:] - 4) / 8, rollout_steps=9)
    with pytest.raises(SpecError, match=r"reset\(\) comes before"):
        loop.rollout()
    log, rows = {}, []
    for _ in range(2):
        loop.reset()
        found = loop.rollout()
        live = found["steps"] > 0
        assert (found["next_state"][live][:, 1] == found["state"][live][:, 1]).all()  # never an observation after a reset
        assert (found["next_state"][live][:, 2] == found["state"][live][:, 2] + 1).all()
        assert (found["truncated"] | found["terminated"])[:, -1][live[:, -1]].all()
        rows += [tuple(s) for s in found["state"][live].astype(int).tolist()]
        log = executed(tmp_path)
    lanes.close()
    assert len(rows) == len(set(rows)) == len(log)
    assert {(e, t) for _, e, t in rows} == {(e, t) for _, e, t in log}
    assert any(e == 0 for _, e, t in rows)  # the episode of one step


def test_a_crash_cuts_its_lane_at_the_last_complete_step():
    env = EnvConfig(
        id=ENV,
        kwargs={"lengths": [3, 5], "ends": ["raise", "terminated"]},
        autoreset="same_step",
    )
    lanes = make_lanes(env, WindowConfig(), run_seed=0, actor="a", epoch=1)
    loop = EnvLoop(lanes, lambda state: np.zeros((1, 1), "<f4"), rollout_steps=6)
    loop.reset()
    found = loop.rollout()
    lanes.close()
    assert found["steps"].tolist() == [[1, 1, 1, 0, 1, 1]]
    assert found["truncated"].tolist() == [[False, False, True, False, False, True]]
    assert not found["terminated"].any()


def test_rollouts_of_windows_are_refused():
    env = EnvConfig(id=ENV)
    lanes = make_lanes(env, WindowConfig(n_step=3), run_seed=0, actor="a", epoch=1)
    with pytest.raises(SpecError, match="window 3 and stack 1 must be 1"):
        EnvLoop(lanes, lambda state: state, 1)
    lanes.close()


def test_the_example_runs(capsys):
    spec = importlib.util.spec_from_file_location("original_trainer_example", EXAMPLE)
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    assert example.main(total_steps=2, episodes=1) < 0
    assert "after 400 env steps and 144 updates" in capsys.readouterr().out
