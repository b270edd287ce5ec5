"""One function gives the rewards of live steps and of demonstrations, from the same things."""

import numpy as np
import pytest
from helpers.demo_files import write_minari
from helpers.demo_import import fails, rows_of, run

from headrace.actor.config import EnvConfig, WindowConfig
from headrace.actor.envs import HoldingLanes, LaneObs, LaneStep, make_lanes
from headrace.actor.evaluate import evaluate
from headrace.actor.policy import RandomPolicy
from headrace.actor.rewarding import RewardedLanes, find_reward, on_success, reward_of, rewarded
from headrace.common.errors import ConfigError, EnvError
from headrace.common.specs import OUTCOME_SUCCESS, ActionSpec, ObsSpec, TransitionSpec


def told(obs, action, next_obs, outcome):
    """What it is given, in one number."""
    (seen,), (after,) = obs.values(), next_obs.values()
    return float(1e4 * outcome + 100 * seen[-1] + 10 * after[-1] + action[-1])


def wrong(obs, action, next_obs, outcome):
    return float("nan")


class Lanes:
    """Two lanes: lane 0 goes on, lane 1 ends with success and resets in the step behind."""

    spec, count, restarts = None, 2, 3

    def __init__(self):
        self.t = 0

    def see(self):
        return {"obs": np.array([[0, self.t], [1, self.t]], np.float32)}

    def reset(self):
        return LaneObs(self.see(), np.array([0, 1]))

    def step(self, actions):
        self.t += 1
        ends, no = np.array([False, self.t == 1]), np.zeros(2, bool)
        live = np.array([True, self.t != 2])
        after, success = self.see(), np.array([0, self.t == 1], np.uint8)
        executed = None if self.t == 1 else np.full((2, 1), 0.5, np.float32)
        rewards = np.full(2, 77, np.float32)
        return LaneStep(live, rewards, ends, no, after, no, after, np.array([0, 1]), success, None, executed)


def test_live_steps_are_worth_what_the_function_says_of_what_was_executed():
    lanes = RewardedLanes(Lanes(), told)
    lanes.reset()
    actions = np.array([[0.25], [0.75]], np.float32)
    first, second, third = (lanes.step(actions).rewards.tolist() for _ in range(3))
    assert first == [10 + 0.25, 10000 + 10 + 0.75]
    assert second == [100 + 20 + 0.5, 0]  # nothing was executed in lane 1
    assert third == [200 + 30 + 0.5, 200 + 30 + 0.5]
    assert lanes.restarts == 3


def test_the_last_step_is_worth_what_the_function_says_of_it_with_another_outcome():
    lanes = RewardedLanes(Lanes(), told)
    lanes.reset()
    assert lanes.worth(1, 1, 2) is None
    for _ in range(3):  # lane 1 ends with the first
        lanes.step(np.array([[0.25], [0.75]], np.float32))
    assert [lanes.worth(1, 1, outcome) for outcome in (0, 1, 2)] == [10.75, 10010.75, 20010.75]
    assert lanes.worth(1, 2, 0) is None
    assert lanes.worth(0, 0, 0) is None


def test_lanes_in_real_time_stay_so():
    class Robot(Lanes):
        running, spec = True, TransitionSpec((ObsSpec("obs", (2,), "<f4"),), ActionSpec((1,), (-1.0,), (1.0,)))

        def hold(self):
            self.t = 1  # behind it lanes say what was executed
            return self.step(None)

        close = get_state = set_state = check_valid = reward_of  # lanes have them

    env = EnvConfig("Pendulum-v1", reward=f"{__name__}:told")
    lanes = rewarded(Robot(), env)
    assert isinstance(lanes, HoldingLanes)
    assert lanes.running
    lanes.reset()
    assert lanes.hold().rewards.tolist() == [20 + 0.5, 0]
    assert not isinstance(rewarded(Lanes(), env), HoldingLanes)


def test_the_config_names_it_for_actors_and_evaluators():
    env = EnvConfig("Pendulum-v1", reward="headrace.actor.rewarding:on_success", max_episode_steps=5)
    lanes = make_lanes(env, WindowConfig(), run_seed=0, actor="a", epoch=1)
    lanes.reset()
    assert lanes.step(np.zeros((1, 1), np.float32)).rewards.tolist() == [0.0]
    lanes.close()
    result = evaluate(RandomPolicy(lanes.spec), env, WindowConfig(), 1, 0)
    assert result.returns.tolist() == [0.0]
    with pytest.raises(ConfigError, match="env.reward: 'nowhere:f' cannot be imported"):
        make_lanes(EnvConfig("Pendulum-v1", reward="nowhere:f"), WindowConfig(), run_seed=0, actor="a", epoch=1)


def test_a_function_at_fault_is_named():
    obs = {"obs": np.zeros(2)}
    assert find_reward("") is None
    assert [on_success(obs, obs["obs"], obs, outcome) for outcome in (0, OUTCOME_SUCCESS, 2)] == [0, 1, 0]
    for function in (wrong, lambda *_: 1e300, lambda *_: None, lambda: 1):
        with pytest.raises(EnvError, match="env.reward: "):
            reward_of(function, obs, obs["obs"], obs)


def test_demonstrations_are_worth_what_the_same_function_says(tmp_path, capsys, monkeypatch):
    place = write_minari(tmp_path, monkeypatch, nested=False)
    name = "test_rewarding_functions"
    (tmp_path / f"{name}.py").write_text(
        "def told(obs, action, next_obs, outcome):\n"
        "    return float(1e4 * outcome + 100 * obs['obs'][1] + 10 * next_obs['obs'][1] + action[1])\n"
        "def wrong(obs, action, next_obs, outcome):\n"
        "    return float('nan')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    run(capsys, "pool", "import", place, tmp_path / "pool", "--reward", f"{name}:told")
    rows = rows_of(tmp_path / "pool")[0].rows
    ends = (rows["terminated"] | rows["truncated"]) != 0
    wanted = 1e4 * rows["outcome"] * ends + 110.0 * rows["t"] + 10 + rows["action"][:, 1]
    np.testing.assert_allclose(rows["rewards"][:, 0], wanted, rtol=1e-6)
    assert "env.reward: nan, expected a finite number" in fails(
        capsys, "pool", "import", place, tmp_path / "new", "--reward", f"{name}:wrong"
    )
    assert "cannot be imported" in fails(capsys, "pool", "import", place, tmp_path / "new", "--reward", f"{name}:nothing")
    assert not (tmp_path / "new").exists()
