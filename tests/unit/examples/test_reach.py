"""The reach task, as numbers and as pictures, and the demonstrations of it."""

import numpy as np
import pytest

from examples.envs.pixel_reach import SIZE, PixelReach
from examples.envs.reach import Reach, draw
from examples.envs.reach_demos import demonstrate, record
from headrace.actor.config import EnvConfig, WindowConfig
from headrace.actor.envs import make_spec
from headrace.buffer import SACReplayPool, import_pool
from headrace.common.specs import ObsSpec
from headrace.launch.config import make_config
from headrace.launch.pinning import pin_demos


def test_an_episode_ends_with_a_touch_or_after_50_steps():
    env, rng = Reach(), np.random.default_rng(0)
    env.reset(seed=3)
    assert np.linalg.norm(env.tip - env.target) >= 1
    for t in range(1, 51):
        _, reward, terminated, truncated, info = env.step(np.zeros(2))
        assert (reward, terminated, truncated, info) == (0, False, t == 50, {"is_success": False})
    env.reset(seed=3)
    rewards = []
    while not rewards or not terminated:
        _, reward, terminated, truncated, info = env.step(demonstrate(env, rng))
        rewards.append(reward)
    assert rewards == [0] * (len(rewards) - 1) + [1]
    assert (truncated, info) == (False, {"is_success": True})
    assert 5 < len(rewards) < 40


def test_the_dense_reward_is_minus_the_distance_and_the_wall_holds():
    env = Reach("dense", gap=0.0)
    env.reset(seed=0)
    env.tip, env.target = np.array([0.95, 0.0]), np.array([-0.5, 0.0])
    obs, reward, *_ = env.step(np.array([5.0, 0.0]))
    np.testing.assert_allclose(obs, [1.0, 0.0, -0.5, 0.0], atol=1e-6)
    assert reward == pytest.approx(-1.5)


def test_the_seed_decides_where_an_episode_begins():
    first, second = Reach(), PixelReach(gap=1.0)
    for seed in (1, 2):
        first.reset(seed=seed)
        second.reset(seed=seed)
        np.testing.assert_array_equal(first.tip, second.tip)
        np.testing.assert_array_equal(first.target, second.target)


def test_the_picture_says_where_both_are_to_a_tenth_of_a_pixel():
    rng = np.random.default_rng(0)
    for _ in range(20):
        tip, target = rng.uniform(-0.8, 0.8, (2, 2))
        picture = draw(tip, target, SIZE)
        assert (picture.dtype, picture.shape) == (np.uint8, (48, 48, 3))
        centres = (np.arange(SIZE) + 0.5) * 2 / SIZE - 1
        for colour, place in enumerate((tip, target)):
            weight = picture[:, :, colour] / picture[:, :, colour].sum(dtype=float)
            found = weight.sum(axis=0) @ centres, weight.sum(axis=1) @ centres
            np.testing.assert_allclose(found, place, atol=0.1 * 2 / SIZE)
    assert not picture[:, :, 2].any()


def test_the_pixel_task_shows_nothing_but_its_picture():
    spec = make_spec(EnvConfig(id="examples.envs.pixel_reach:PixelReach"), WindowConfig())
    assert spec.obs == (ObsSpec("obs", (48, 48, 3), "|u1"),)
    env = PixelReach(render_mode="rgb_array")
    obs, _ = env.reset(seed=0)
    np.testing.assert_array_equal(obs, draw(env.tip, env.target, SIZE))
    assert env.render().shape == (192, 192, 3)
    moved = env.step(np.ones(2, np.float32))[0]
    assert (moved[:, :, 0] != obs[:, :, 0]).any()
    np.testing.assert_array_equal(moved[:, :, 1], obs[:, :, 1])


def test_options_that_make_no_task_are_refused():
    with pytest.raises(ValueError, match="'spares' must be one of sparse, dense"):
        Reach("spares")
    with pytest.raises(ValueError, match="gap 3"):
        Reach(gap=3)


def test_demonstrations_all_touch_and_a_run_pins_them(tmp_path):
    rows = record(tmp_path / "demos", episodes=5)
    spec = make_spec(EnvConfig(id="examples.envs.reach:Reach"), WindowConfig())
    with SACReplayPool(rows, spec=spec) as pool:
        assert import_pool(tmp_path / "demos", pool).rows == rows
        batch = pool.gather(np.arange(rows))
    assert batch.rows["terminated"].sum() == batch.rows["rewards"].sum() == 5
    assert set(batch.rows["outcome"].tolist()) == {1}
    assert set(batch.rows["source"].ravel().tolist()) == {2}
    assert not batch.rows["truncated"].any()
    moved = batch.next_obs["obs"][:, :2] - batch.obs["obs"][:, :2]
    inside = (np.abs(batch.next_obs["obs"][:, :2]) < 1).all(axis=1)
    np.testing.assert_allclose(moved[inside], 0.1 * batch.rows["action"][inside], atol=1e-6)
    config = make_config({"env": {"id": "examples.envs.reach:Reach"}, "pool": {"demos": [str(tmp_path / "demos")]}})
    assert len(pin_demos(config, tmp_path / "pool")) == rows
