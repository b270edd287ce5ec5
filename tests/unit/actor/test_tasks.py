"""Tasks: what an env calls its task at a reset is on every row of the episode, and evaluations tell tasks apart."""

import numpy as np
import pytest

from headrace.actor.config import EnvConfig, WindowConfig
from headrace.actor.envs import make_lanes
from headrace.actor.evaluate import EvalResult, evaluate
from headrace.buffer import SACReplayPool
from headrace.common.weights import Version
from headrace.launch.play import verdict_lines
from headrace.launch.sync_actor import SyncActor


class Still:
    def act(self, obs, rng, deterministic):
        return np.zeros((len(obs["obs"]), 1), np.float32)


@pytest.mark.parametrize("autoreset", ["next_step", "same_step", "disabled"])
@pytest.mark.parametrize("window", [{}, {"n_step": 3}, {"chunk": 2}])
def test_every_row_is_of_its_episodes_task(autoreset, window):
    rows = rows_of(EnvConfig("helpers.tasks:TaskEnv", lanes=3, autoreset=autoreset), window)
    assert set(rows["task"].tolist()) == {0, 1, 2}
    assert (rows["task"] == rows["seen"]).all()


def test_tasks_of_envs_in_processes_of_their_own_arrive_too():
    rows = rows_of(EnvConfig("helpers.tasks:TaskEnv", lanes=2, vector="async"), {}, steps=12)
    assert len(set(rows["task"].tolist())) > 1
    assert (rows["task"] == rows["seen"]).all()


def test_a_text_is_no_task():
    rows = rows_of(EnvConfig("helpers.tasks:TaskEnv", kwargs={"words": True}, lanes=2), {}, steps=12)
    assert set(rows["task"].tolist()) == {0}


def rows_of(env, window, steps=40):
    """Task of each row, and the one that its observation says."""
    lanes = make_lanes(env, WindowConfig(**window), run_seed=0, actor="a", epoch=1)
    pool = SACReplayPool(1000, spec=lanes.spec)
    actor = SyncActor("a", lanes, pool, np.random.default_rng(0))
    actor.begin()
    for _ in range(steps):
        actor.step(None, Version("l", 1, 1))
    actor.cut()
    actor.close()
    batch = pool.gather(np.arange(pool.tail, pool.head))
    return {"task": batch.rows["task"], "seen": batch.obs["obs"][:, 0].astype(int)}


@pytest.mark.parametrize("autoreset", ["next_step", "same_step"])
def test_an_evaluation_knows_the_task_of_each_episode(autoreset):
    env = EnvConfig("helpers.tasks:TaskEnv", lanes=3, autoreset=autoreset)
    result = evaluate(Still(), env, WindowConfig(), 30, seed=0)
    assert set(result.tasks.tolist()) == {0, 1, 2}
    assert (result.successes == (result.tasks % 2 == 0)).all()
    assert evaluate(Still(), EnvConfig("helpers.tasks:TaskEnv", kwargs={"tasks": 1}), WindowConfig(), 3, seed=0).tasks is None


def test_the_verdict_has_a_line_for_each_task():
    result = EvalResult(np.zeros(5), np.ones(5, int), np.array([1, 1, 0, 0, 1], bool), np.array([7, 7, 7, 2, 2]))
    lines = dict(verdict_lines(result))
    assert [label for label in lines if label.startswith("task")] == ["task 2", "task 7"]
    assert lines["task 2"].startswith("50% (1 of 2; ")
    assert lines["task 7"].startswith("67% (2 of 3; ")
