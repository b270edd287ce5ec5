"""Demonstrations in synchronous mode: the offline phase on them alone, and runs that go on with the same ones."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from helpers.demo_pool import export_demos

from headrace.actor.envs import make_spec
from headrace.buffer import SACReplayPool, export_pool
from headrace.common.block import Block
from headrace.common.clock import ManualClock
from headrace.common.config import dump
from headrace.common.errors import ConfigError
from headrace.launch.config import make_config
from headrace.launch.interrupt import Interrupt
from headrace.launch.rundir import RunDir
from headrace.launch.sync import SyncRun
from headrace.learner.sinks import MetricSinks

HALVES = {
    "demo": {"share": 0.5, "source": ["demo"], "when_small": "replace"},
    "online": {"share": 0.5, "source": ["policy"]},
}


def config_of(demos, sets=None, **pacing):
    return make_config(
        {
            "env": {"id": "Pendulum-v1", "max_episode_steps": 20},
            "model": {"options": {"hidden": [8, 8]}},
            "learner": {"batch_size": 16, "normalise_obs": True, "checkpoint_every_updates": 1_000_000, "threads": 1},
            "pool": {"capacity": 60, "demos": [str(demos)]},  # the ring of a run wraps
            "sampling": {"sets": sets or {}},
            "pacing": {"env_steps": 160, "min_fill": 20, "random_steps": 30, **pacing},
            "eval": {"every": 0},
            "sinks": {"tensorboard": False},
        }
    )


@pytest.fixture
def demos(tmp_path):
    """An export of 40 steps of Pendulum's form."""
    return export_demos(tmp_path / "demos", config_of(""))


class Told:
    def notice(self, text):
        pass

    def update(self, status):
        pass


def play(place: Path, config, interrupt=None, stop_at=None):
    """Run or go on in ``place``; the digest of the end, the last status, and the pool's counts."""
    run = RunDir.open(place) if (place / "config.yaml").exists() else RunDir.create(place, dump(config))
    with MetricSinks(run.path, config.sinks) as sinks:
        job = SyncRun(config, run, Told(), sinks, ManualClock())
        learn, status = job._learn, None

        def counting():
            learn()
            interrupt.asked |= job.sac.step >= stop_at
            assert job.executed == 0 or not job.pacing.offline

        job._learn = learn if stop_at is None else counting
        try:
            status = job.run(interrupt or Interrupt())
        finally:
            assert job.check_valid() == (True, "")
            digest, info = job.digest(), job.pool.sampling_info()
            counts = (job.pool.size, job.pool.demo_rows, job.pool.statistics().count)
            job.close()
    return digest, status, info, counts


def test_the_offline_phase_runs_on_demonstrations_alone(tmp_path, demos):
    _, status, _, counts = play(tmp_path / "run", config_of(demos, offline_updates=150, env_steps=0))
    assert (status["phase"], status["env_steps"], status["updates"], status["offline_updates"]) == ("done", 0, 150, 150)
    assert counts == (0, 40, 40)


def test_then_half_of_each_batch_stays_demonstrated_and_a_stopped_run_is_equal_to_a_whole_one(tmp_path, demos):
    config = config_of(demos, HALVES, offline_updates=100)
    digest, status, info, counts = play(tmp_path / "whole", config)
    assert (status["env_steps"], status["offline_updates"], status["updates"]) == (160, 100, 240)
    assert info["sets"] == {"demo": 40, "online": 60}
    # Offline batches were of demonstrations alone; of the 140 others half of the rows.
    assert info["mixes"]["critic"]["demo"]["realised"] == pytest.approx((100 + 0.5 * 140) / 240)
    assert counts == (60, 40, 200)
    interrupt = Interrupt()
    with pytest.raises(KeyboardInterrupt):
        play(tmp_path / "stopped", config, interrupt, stop_at=150)
    assert play(tmp_path / "stopped", config)[0] == digest


def test_a_run_that_goes_on_with_others_is_refused(tmp_path, demos):
    config, interrupt = config_of(demos, HALVES, offline_updates=100), Interrupt()
    with pytest.raises(KeyboardInterrupt):
        play(tmp_path / "run", config, interrupt, stop_at=150)
    shutil.rmtree(tmp_path / "run" / "pool")  # the checkpoint names them too
    pool = SACReplayPool(5, spec=make_spec(config.env, config.window))
    rows = np.zeros(5, pool.spec.row_dtype)
    rows["steps"] = 1
    pool.insert(Block(rows, {"obs": np.zeros((1, 3), "<f4")}), "teacher", 1, 1)
    shutil.rmtree(demos)
    export_pool(pool, demos)
    run = RunDir.open(tmp_path / "run")
    with MetricSinks(run.path, config.sinks) as sinks, pytest.raises(ConfigError, match="what is loaded has demonstrations"):
        SyncRun(config, run, Told(), sinks, ManualClock())
