"""The ladder of exploration, and random actions in place of the policy's."""

import numpy as np
import pytest
from helpers.weights import mlp_weights, observe, small_spec

from headrace.actor.config import ActorConfig
from headrace.actor.exploring import Explorer, epsilon_of
from headrace.actor.policy import MlpPolicy
from headrace.common import config
from headrace.common.errors import ConfigError

SPEC = small_spec()  # a box of [-2, 2] and [0, 5]


def ladder(count, epsilon=0.4, **more):
    return [epsilon_of(f"actor-{i}", ActorConfig(count=count, epsilon=epsilon, **more)) for i in range(count)]


def test_the_ladder_of_ape_x():
    assert ladder(3) == pytest.approx([0.4, 0.4**4.5, 0.4**8])
    assert ladder(1) == [0.4]
    assert ladder(4, epsilon_ladder=0.0) == pytest.approx([0.4] * 4)
    assert ladder(2, epsilon_ladder=1.0) == pytest.approx([0.4, 0.16])
    assert ladder(3, epsilon=1.0) == [1.0] * 3
    assert ladder(3, epsilon=0.0) == [0.0] * 3  # and not 0 ** 0


@pytest.mark.parametrize("identity", ["left-arm", "actor-7", "actor-x", "actor-", "xactor-1"])
def test_who_joins_by_another_name_has_a_place_of_its_own_that_the_name_decides(identity):
    options = ActorConfig(count=2, epsilon=0.4)
    first, last = ladder(2)
    assert last < epsilon_of(identity, options) < first
    assert epsilon_of(identity, options) == epsilon_of(identity, options)
    assert epsilon_of(identity, options) != epsilon_of(identity + "'", options)


def test_robots_do_not_act_at_random():
    with pytest.raises(ConfigError, match=r"actor\.epsilon: 0\.1 with actor\.robot true"):
        config.load(ActorConfig, {"robot": True, "epsilon": 0.1}, "actor")
    assert config.load(ActorConfig, {"robot": True}, "actor").epsilon == 0


def test_without_a_share_nothing_is_drawn_and_nothing_changes():
    rng, before = np.random.default_rng(1), np.random.default_rng(1)
    actions = np.zeros((3, 2), np.float32)
    assert Explorer(SPEC, 0.0).mix(actions, rng) is actions
    assert rng.bit_generator.state == before.bit_generator.state


def test_the_share_is_met_lane_by_lane_and_random_actions_fill_the_box():
    explorer, rng = Explorer(SPEC, 0.25), np.random.default_rng(2)
    own = np.full((4, 2), [1.5, 1.5], np.float32)
    seen = np.stack([explorer.mix(own, rng) for _ in range(5000)])
    random = (seen != 1.5).any(2)
    np.testing.assert_allclose(random.mean(0), 0.25, atol=0.025)  # four standard deviations of 5000 throws
    assert (random.any(1) & ~random.all(1)).any()
    drawn = seen[random]
    assert (np.array(SPEC.action.low) <= drawn).all()
    assert (drawn <= np.array(SPEC.action.high)).all()
    np.testing.assert_allclose(drawn.mean(0), [0.0, 2.5], atol=0.1)
    np.testing.assert_allclose(drawn.std(0), [4 / 12**0.5, 5 / 12**0.5], rtol=0.05)


def test_the_same_seed_explores_in_the_same_way():
    policy, obs = MlpPolicy(mlp_weights(SPEC), SPEC), observe(SPEC, 3)
    runs = []
    for seed in (5, 5, 6):
        rng, explorer = np.random.default_rng(seed), Explorer(SPEC, 0.5)
        runs.append(np.stack([explorer.mix(policy.act(obs, rng, False), rng) for _ in range(20)]))
    np.testing.assert_array_equal(runs[0], runs[1])
    assert (runs[0] != runs[2]).any()


def test_how_much_is_drawn_does_not_depend_on_the_share():
    states = []
    for epsilon in (1e-9, 0.5, 1.0):
        rng = np.random.default_rng(3)
        Explorer(SPEC, epsilon).mix(np.zeros((3, 2), np.float32), rng)
        states.append(rng.bit_generator.state)
    assert states[0] == states[1] == states[2]
