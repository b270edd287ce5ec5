"""The table with blocks: its tasks, what its cameras and words tell and what they do not, and the demonstrations on it."""

import numpy as np
import pytest

from examples.envs.tabletop import BLOCK, LENGTH, RING, SIZE, TASKS, TIP, VOCABULARY, Tabletop
from examples.envs.tabletop_demos import demonstrate, record
from headrace.actor.config import EnvConfig, WindowConfig
from headrace.actor.envs import make_spec
from headrace.buffer import SACReplayPool, import_pool


def laid(task, tip, red=(0.5, 0.5), blue=(-0.5, 0.5), green=(0.5, -0.5), ring=(-0.5, -0.5)):
    """A table on which everything is where the test wants it."""
    env = Tabletop()
    env.reset(seed=0)
    env.task, env.tip, env.ring = task, np.array(tip), np.array(ring)
    env.blocks = {"red": np.array(red), "blue": np.array(blue), "green": np.array(green)}
    return env


def test_touching_the_named_block_succeeds_and_any_other_one_fails():
    for task, success in ((0, True), (1, False)):
        env = laid(task, (0.5 - TIP - BLOCK - 0.05, 0.5))
        _, reward, terminated, truncated, info = env.step([1.0, 0.0])
        assert (reward, terminated, truncated) == (float(success), True, False)
        assert info == {"is_success": success, "task": task}


def test_a_push_moves_the_block_and_ends_in_the_ring():
    env, far = laid(2, (0.1, 0.5), red=(0.3, 0.5), ring=(0.7, 0.5)), []
    for _ in range(20):
        _, reward, terminated, _, info = env.step([0.5, 0.0])
        far.append(env.blocks["red"][0])
        if terminated:
            break
    assert (reward, info["is_success"]) == (1.0, True)
    assert far[-1] > 0.7 - (RING - BLOCK)
    assert np.all(np.diff(far) >= 0)
    assert env.blocks["red"][1] == pytest.approx(0.5)


def test_blocks_stay_on_the_table_and_an_episode_is_cut_after_its_horizon():
    env = laid(2, (0.6, 0.5), red=(0.8, 0.5))
    for t in range(1, 61):
        _, _, terminated, truncated, _ = env.step([1.0, 0.0])
        assert (terminated, truncated) == (False, t == 60)
    assert env.blocks["red"][0] == pytest.approx(1 - BLOCK)


def test_the_words_say_the_task_and_the_cameras_do_not():
    env = Tabletop()
    seen = {}
    for seed in range(40):
        obs, info = env.reset(seed=seed)
        assert info == {"task": env.task}
        count = int(obs["words_there"].sum())
        assert " ".join(VOCABULARY[i] for i in obs["words"][:count]) == TASKS[env.task]
        assert not obs["words"][count:].any()
        seen.setdefault(env.task, obs)
    assert set(seen) == {0, 1, 2, 3}
    env = laid(0, (0.0, 0.0))
    pictures = []
    for env.task in range(4):
        pictures.append(env._observe())
    for other in pictures[1:]:
        np.testing.assert_array_equal(pictures[0]["top"], other["top"])
        np.testing.assert_array_equal(pictures[0]["wrist"], other["wrist"])


def test_places_of_blocks_are_in_the_cameras_alone():
    here, there = laid(0, (0.0, 0.0)), laid(0, (0.0, 0.0), red=(0.3, 0.2))
    a, b = here._observe(), there._observe()
    assert {key for key in a if not np.array_equal(a[key], b[key])} == {"top", "wrist"}
    red = (a["top"][..., 0].astype(int) - a["top"][..., 2]) > 100
    rows, columns = np.nonzero(red)
    found = ((np.array([columns.mean(), rows.mean()]) + 0.5) * 2 / SIZE) - 1
    np.testing.assert_allclose(found, [0.5, 0.5], atol=0.03)


def test_cameras_may_be_covered_and_words_exchanged():
    dark, _ = Tabletop(blank=True).reset(seed=1)
    assert not dark["top"].any()
    assert not dark["wrist"].any()
    env, said = Tabletop(shuffle=True), []
    for seed in range(200):
        obs, info = env.reset(seed=seed)
        said.append(TASKS[info["task"]] == " ".join(VOCABULARY[i] for i in obs["words"][: obs["words_there"].sum()]))
    assert 0.15 < np.mean(said) < 0.35


def test_the_seed_decides_and_options_are_looked_at():
    first, second = (Tabletop().reset(seed=4)[0] for _ in range(2))
    assert all(np.array_equal(first[key], second[key]) for key in first)
    assert Tabletop(tasks=(3,)).reset(seed=0)[1] == {"task": 3}
    with pytest.raises(ValueError, match="tasks \\[4\\]: some of 0 to 3"):
        Tabletop(tasks=(4,))


def test_the_demonstrator_mostly_succeeds_in_each_task():
    rng, wins = np.random.default_rng(0), {task: [] for task in range(4)}
    for task, found in wins.items():
        env = Tabletop(tasks=(task,))
        for seed in range(12):
            env.reset(seed=seed)
            ended = False
            while not ended:
                _, _, terminated, truncated, info = env.step(demonstrate(env, rng))
                ended = terminated or truncated
            found.append(info["is_success"])
    assert all(np.mean(found) >= 0.5 for found in wins.values()), wins


def test_demonstrations_are_chunks_of_their_tasks(tmp_path):
    rows = record(tmp_path / "demos", episodes=6, window=WindowConfig(chunk=4), tasks=(1, 2))
    spec = make_spec(EnvConfig(id="examples.envs.tabletop:Tabletop"), WindowConfig(chunk=4))
    assert [o.key for o in spec.obs] == ["tip", "top", "words", "words_there", "wrist"]
    assert spec.obs[2].shape == (LENGTH,)
    with SACReplayPool(rows, spec=spec) as pool:
        assert import_pool(tmp_path / "demos", pool).rows == rows
        batch = pool.gather(np.arange(rows))
    assert batch.rows["terminated"].sum() == batch.rows["rewards"].sum() == 6
    assert set(batch.rows["outcome"].tolist()) == {1}
    assert set(batch.rows["task"].tolist()) <= {1, 2}
    moved = batch.next_obs["tip"] - batch.obs["tip"]
    steps = batch.rows["steps"]
    executed = np.where(np.arange(4)[None, :, None] < steps[:, None, None], batch.rows["action"], 0)
    inside = (np.abs(batch.next_obs["tip"]) < 1).all(axis=1)
    np.testing.assert_allclose(moved[inside], 0.1 * executed.sum(axis=1)[inside], atol=1e-5)


def test_chunks_that_overlap_begin_with_each_step_of_the_same_episodes(tmp_path):
    def played(name, window, **how):
        rows = record(tmp_path / name, episodes=3, window=window, tasks=(0,), **how)
        with SACReplayPool(rows, spec=make_spec(EnvConfig(id="examples.envs.tabletop:Tabletop"), window)) as pool:
            import_pool(tmp_path / name, pool)
            batch = pool.gather(np.arange(rows))
        order = np.lexsort((batch.rows["t"], batch.rows["episode"]))
        return batch.rows[order], batch.next_obs["tip"][order]

    alone, after = played("alone", WindowConfig())
    rows, later = played("chunks", WindowConfig(chunk=4), overlap=True)
    assert (rows[["episode", "t"]] == alone[["episode", "t"]]).all()
    for i, row in enumerate(rows):
        ends = np.flatnonzero(alone["terminated"][i : i + 4])
        assert row["steps"] == (ends[0] + 1 if len(ends) else 4)
        assert (row["action"][: row["steps"]] == alone["action"][i : i + row["steps"]]).all()
        assert (later[i] == after[i + row["steps"] - 1]).all()
