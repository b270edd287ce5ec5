"""Which run can be continued, by what its directory holds and what its metrics say."""

import json

import pytest

from headrace.common.config import dump
from headrace.common.errors import ConfigError
from headrace.launch.config import make_config
from headrace.launch.resumable import require_resumable
from headrace.launch.rundir import RunDir
from headrace.launch.runner import resume

CONFIG = {"env": {"id": "Pendulum-v1"}, "learner": {"checkpoint_every_updates": 500}}


@pytest.fixture
def make(tmp_path):
    def build(*, env_steps=0, updates=0, checkpoint=False, pool=False, words=()):
        config = make_config(CONFIG, words)
        run = RunDir.create(tmp_path / "run", dump(config))
        record = {"run/env_steps": env_steps, "run/updates": updates + 9, "learner/updates": updates}
        lines = [record, {"run/env_steps": None, "learner/updates": 0}]  # the second: a learner that has just begun again
        run.metrics.write_text("\n".join(map(json.dumps, lines)) + "\n")
        if checkpoint:
            (run.checkpoints / "step_000000000500").mkdir(parents=True)
        if pool:
            run.pool.mkdir()
            (run.pool / "manifest.json").write_text("{}")
        return run, config

    return build


@pytest.mark.parametrize(
    "state",
    [
        {},
        {"env_steps": 300, "updates": 0, "pool": True},
        {"env_steps": 1999, "updates": 999, "pool": True},
        {"env_steps": 1500, "updates": 500, "pool": True, "checkpoint": True},
        {"env_steps": 9000, "updates": 8000, "checkpoint": True, "words": ["--run.mode", "sync"]},
    ],
    ids=["nothing yet", "filling", "before its first checkpoint", "with both", "synchronous: the pool is in the checkpoint"],
)
def test_a_whole_run_is_continued(make, state):
    run, config = make(**state)
    require_resumable(run, config, config)


@pytest.mark.parametrize("mode", ["async", "sync"])
def test_a_run_without_the_checkpoints_that_it_had_is_refused(make, mode):
    run, _ = make(env_steps=2000, updates=1000, pool=True, words=["--run.mode", mode])
    with pytest.raises(ConfigError) as error:
        resume(run.path)
    said = str(error.value)
    assert f"{run.checkpoints}: no checkpoint, but the run has made 1000 updates" in said
    assert "learner.checkpoint_every_updates 500" in said
    assert "--init-from POLICY" in said


def test_a_later_checkpoint_period_does_not_hide_that_they_are_gone(make):
    run, _ = make(env_steps=2000, updates=1000, pool=True)
    with pytest.raises(ConfigError, match="no checkpoint"):
        resume(run.path, ["--learner.checkpoint_every_updates", "100000"])


@pytest.mark.parametrize(("checkpoint", "policy"), [(True, "{run}"), (False, "POLICY")])
def test_a_run_without_its_pool_is_refused(make, checkpoint, policy, tmp_path):
    words = ["--run.pool_dir", str(tmp_path / "ram")]
    run, config = make(env_steps=300, checkpoint=checkpoint, words=words)
    with pytest.raises(ConfigError) as error:
        resume(run.path)
    said = str(error.value)
    assert "the pool of this run is gone" in said
    assert f"{run.pool_dir(config.run.pool_dir)} or {run.pool}" in said
    assert "300 env steps" in said
    assert said.endswith(f"--init-from {policy.format(run=run.path)}")


def test_a_goal_below_what_was_done_is_refused(make):
    run, _ = make(env_steps=5000, updates=4000, checkpoint=True, pool=True)
    with pytest.raises(ConfigError, match=r"pacing\.env_steps: 4999 is below the 5000 that the run has done"):
        resume(run.path, ["--pacing.env_steps", "4999"])
    config = make_config(CONFIG)
    for goal in ("0", "5000"):
        require_resumable(run, config, make_config(CONFIG, ["--pacing.env_steps", goal]))
