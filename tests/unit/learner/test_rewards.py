"""What the losses see of raw rewards."""

import numpy as np
import pytest
import torch
from helpers.lane_pool import SPECS, put
from helpers.lane_rows import Lane
from helpers.learner import make_batch, make_sac, make_spec
from helpers.pinned_pool import demos_of, is_demo, with_demos

from headrace.common.batch import PINNED
from headrace.common.errors import CheckpointError, SpecError
from headrace.common.statistics import ObsStatistics, ReturnStatistics
from headrace.common.weights import Version
from headrace.learner import losses
from headrace.learner.config import LearnerConfig
from headrace.learner.rewards import Rewards

SPEC = make_spec(window=3)
WINDOWS = torch.tensor([[1.0, 2, 3], [1, 2, 0]])
STEPS = torch.tensor([3, 2])
RETURNS = torch.tensor([5.23, 2.8])  # gamma .9


def statistics(var, count=100):
    return ObsStatistics(returns=ReturnStatistics(count, var))


def make(**options):
    return Rewards(losses.discounts(0.9, 3), **{"normalise": True, **options})


def test_raw_rewards_are_discounted_and_divided_by_the_spread():
    assert torch.equal(make(normalise=False)(WINDOWS, STEPS), losses.discounted_return(WINDOWS, losses.discounts(0.9, 3)))
    rewards = make()
    torch.testing.assert_close(rewards(WINDOWS, STEPS), RETURNS)
    rewards.load(statistics(4.0))
    torch.testing.assert_close(rewards(WINDOWS, STEPS), RETURNS / 2)
    torch.testing.assert_close(rewards(torch.zeros(2, 3), STEPS), torch.zeros(2))  # not centred: nothing stays nothing


def test_without_any_spread_rewards_stay_as_they_are():
    rewards = make()
    for none_yet in (statistics(1.0, count=0), statistics(0.0)):
        rewards.load(none_yet)
        torch.testing.assert_close(rewards(WINDOWS, STEPS), RETURNS)
    rewards.load(statistics(4.0))
    rewards.load(statistics(0.0))  # of a pool that has begun anew
    torch.testing.assert_close(rewards(WINDOWS, STEPS), RETURNS / 2)


def test_a_pool_that_follows_no_returns_is_refused():
    with pytest.raises(SpecError, match=r"learner\.normalise_rewards: true, but the buffer follows no returns"):
        make().load(ObsStatistics(5))
    make(normalise=False).load(ObsStatistics(5))


def test_old_rows_see_new_statistics_and_updates_change_none():
    sac = make_sac(SPEC, normalise_rewards=True, gamma=0.9)
    batch = make_batch(SPEC, steps=3, rewards=[1.0, 2.0, 3.0])
    seen = statistics(4.0)
    for i in range(1000):
        sac.update(make_batch(SPEC, seed=i), seen)
    assert sac.rewards.get_state()["spread"].item() == pytest.approx(2.0, rel=1e-6)
    torch.testing.assert_close(sac.prepare(batch).reward, torch.full((8,), 2.615))
    metrics = sac.update(batch, statistics(100.0))
    torch.testing.assert_close(sac.prepare(batch).reward, torch.full((8,), 0.523))
    assert metrics["data/return_std"].item() == pytest.approx(10.0)
    assert "data/return_std" not in make_sac(SPEC).update(batch)


def test_rewards_of_another_unit_are_the_same_to_the_losses():
    """A hundred times the rewards, and so the returns: the spread takes the unit away."""
    runs = []
    for unit in (1.0, 100.0):
        sac = make_sac(SPEC, normalise_rewards=True)
        batches = [make_batch(SPEC, seed=i, steps=3, rewards=unit * np.linspace(-1, 1, 24).reshape(8, 3)) for i in range(5)]
        runs.append([float(sac.update(batch, statistics(unit**2))["critic/loss"]) for batch in batches])
    assert runs[0] == pytest.approx(runs[1], rel=1e-5)


def test_both_normalisers_work_together_and_actors_get_that_of_observations_alone():
    sac = make_sac(SPEC, normalise_rewards=True, normalise_obs=True)
    both = ObsStatistics(9, {"obs": np.ones(3, "<f4")}, {"obs": np.ones(3, "<f4")}, ReturnStatistics(9, 4.0))
    sac.update(make_batch(SPEC), both)
    assert sac.rewards.get_state()["spread"].item() == pytest.approx(2.0)
    assert sac.normaliser.get_state()["mean.obs"].tolist() == [1, 1, 1]
    assert not [name for name in sac.weights(Version("learner", 1, 1)).tensors if "spread" in name]


def test_state():
    first, second = make(), make()
    first.load(statistics(9.0))
    second.set_state(first.get_state())
    torch.testing.assert_close(second(WINDOWS, STEPS), RETURNS / 3)
    assert make(normalise=False).get_state() == {}
    with pytest.raises(CheckpointError, match="'spread' is missing"):
        second.set_state({})
    assert second.check_valid() == (True, "")
    second.set_state({"spread": torch.tensor(0.0)})
    assert second.check_valid() == (False, "rewards: spread is 0")
    sac = make_sac(SPEC, normalise_rewards=True)
    assert "rewards.spread" in sac.get_state()["tensors"]
    assert not [name for name in make_sac(SPEC).get_state()["tensors"] if name.startswith("rewards")]


@pytest.mark.parametrize(
    ("options", "normalises", "gamma"),
    [({}, False, None), ({"normalise_obs": True}, True, None), ({"normalise_rewards": True, "gamma": 0.8}, True, 0.8)],
)
def test_what_the_learner_asks_of_the_pool(options, normalises, gamma):
    config = LearnerConfig(**options)
    assert (config.normalises, config.return_gamma) == (normalises, gamma)


def test_each_executed_step_costs_its_penalty_at_its_own_discount():
    rewards = make(normalise=False, penalty=0.1)
    torch.testing.assert_close(rewards(WINDOWS, STEPS), RETURNS - 0.1 * torch.tensor([2.71, 1.9]))  # 1 + .9 + .81, 1 + .9
    torch.testing.assert_close(rewards(torch.zeros(1, 3), torch.tensor([1])), torch.tensor([-0.1]))
    both = make(penalty=0.1)
    both.load(statistics(4.0))
    torch.testing.assert_close(both(WINDOWS, STEPS), rewards(WINDOWS, STEPS) / 2)  # in the unit of raw rewards


@pytest.mark.parametrize("window", ["plain", "n-step", "chunk"])
def test_demonstrations_and_the_policys_rows_get_equal_rewards(window):
    """The same episodes, pinned as demonstrations and sent by an actor, raw in the pool and alike to the losses."""
    spec, n = SPECS[window], 12
    pool = with_demos(demos_of(n, spec))
    put(pool, Lane(spec, 1), n)
    sac = make_sac(spec, step_penalty=0.5, gamma=0.9)
    online, demos = pool.gather(np.arange(n)), pool.gather(PINNED + np.arange(n))
    assert is_demo(demos).all()
    np.testing.assert_array_equal(online.rows["rewards"], demos.rows["rewards"])
    ours, theirs = sac.prepare(online).reward, sac.prepare(demos).reward
    assert torch.equal(ours, theirs)
    by_hand = [
        sum(0.9**i * (t + i - 0.5) for i in range(m))  # the reward of a lane's step t is t
        for t, m in zip(online.rows["t"].tolist(), online.rows["steps"].tolist(), strict=True)
    ]
    np.testing.assert_allclose(ours.numpy(), by_hand, rtol=1e-5)
