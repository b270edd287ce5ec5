"""Small synchronous runs for tests: their configs, and playing one to its end."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from headrace.common.clock import ManualClock
from headrace.common.config import dump, merge
from headrace.launch.chaos.scripted import ENV
from headrace.launch.config import make_config
from headrace.launch.interrupt import Interrupt
from headrace.launch.rundir import RunDir
from headrace.launch.sync import SyncRun
from headrace.learner.sinks import MetricSinks

PENDULUM = {
    "env": {"id": "Pendulum-v1", "max_episode_steps": 20},
    "model": {"options": {"hidden": [8, 8]}},
    "learner": {"batch_size": 16, "checkpoint_every_updates": 1_000_000},
    "pool": {"capacity": 100},  # smaller than a run, so that rows are evicted too
    "pacing": {"env_steps": 160, "min_fill": 20, "random_steps": 30},
    "eval": {"every": 0},
    "sinks": {"tensorboard": False},
}
FANCY = {
    "env": {"lanes": 2},
    "actor": {"count": 2, "epsilon": 0.4},
    "window": {"n_step": 3, "stack": 2},
    "pacing": {"ratio": 0.7},
    "learner": {"normalise_obs": True, "normalise_rewards": True, "actor_update_interval": 2},
    "pool": {"min_block_rows": 4},
}
MIXED = {  # odd shares, so that remainders are carried over a checkpoint
    "actor": {"count": 2},
    "learner": {"batch_size": 15},
    "sampling": {
        "sets": {
            "first": {"share": 0.3, "actor_share": 0.8, "actor": ["actor-0"], "when_small": "replace", "min_fill": 15},
            "newest": {"share": 0.7, "actor_share": 0.2, "newest_rows": 60, "balance": "task"},
        }
    },
}
BY_PRIORITY = {"sampling": {"method": "prioritised", "importance_anneal_updates": 200}}
CROSSQ = {"model": {"options": {"critic_batch_norm": True}}, "learner": {"adam_beta1": 0.5, "actor_update_interval": 3}}
DROQ = {"model": {"options": {"critic_layer_norm": True, "critic_dropout": 0.1}}, "learner": {"actor_reduction": "mean"}}
PIXELS = {
    "env": {
        "id": ENV,
        "max_episode_steps": None,
        "kwargs": {"lengths": [20], "form": "dict"},
    },
    "window": {"stack": 2},
    "model": {"type": "pixels", "options": {"channels": [4], "strides": [1], "projection": 8}},
}
UNEVEN = {  # two lanes whose episodes never end together: a checkpoint must cut one of them
    "env": {
        "id": ENV,
        "max_episode_steps": None,
        "lanes": 2,
        "kwargs": {"lengths": [3, 4, 5, 7, 9], "ends": ["truncated", "terminated", "both"]},
    },
    "learner": {"checkpoint_every_updates": 30},
}


class Told:
    def __init__(self, on_update=lambda: None):
        self.notices, self.on_update = [], on_update

    def notice(self, text):
        self.notices.append(text)

    def update(self, status):
        self.on_update()


def config_of(*changes):
    mapping = PENDULUM
    for change in changes:
        mapping = merge(mapping, change)
    return make_config(mapping)


def play(place: Path, config, interrupt=None, told=None, clock=None, begin=None):
    """Run or go on in ``place`` and give the digest of the end."""
    run = RunDir.open(place) if (place / "config.yaml").exists() else RunDir.create(place, dump(config))
    with MetricSinks(run.path, config.sinks) as sinks:
        job = SyncRun(config, run, told or Told(), sinks, clock or ManualClock())
        try:
            if begin is not None:
                begin(job)
            job.run(interrupt or Interrupt())
        finally:
            assert job.check_valid() == (True, "")
            digest = job.digest()
            job.close()
    return digest


def steps(n):
    return {"pacing": {"env_steps": n}}


def range_of(pool):
    return np.arange(pool.tail, pool.head)
