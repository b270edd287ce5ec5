"""P14: a synchronous run that was killed again and again ends with the same bits as one that never was.

Each trial plays one run straight to its end, and the same run with SIGKILLs at random times, each followed by `--resume`. Then
the last checkpoints of both are compared leaf by leaf: every parameter, target, log-alpha, optimiser moment, random state and
sampler state, every row and priority of the pool, every actor's counters.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from campaign.leaves import differing, leaves
from campaign.process import ProcessFailed, headrace
from campaign.promise import SUM, Outcome, Part, Promise, Trial, at_least, never, told

from headrace.buffer import SACReplayPool
from headrace.common.config import merge
from headrace.launch.config import make_config, read_config
from headrace.launch.leash import leash
from headrace.learner import checkpoint

KILLS, TRIALS = 3, 10
RUN_S, LATER_S = 180.0, 0.5
CONFIG: dict[str, Any] = {
    "env": {"id": "Pendulum-v1", "max_episode_steps": 50},
    "run": {"mode": "sync", "name": "run"},
    "model": {"options": {"hidden": [32, 32]}},
    "learner": {"batch_size": 32, "checkpoint_every_updates": 100},
    "pool": {"capacity": 1000},  # so that rows are evicted too
    "pacing": {"env_steps": 1500, "min_fill": 100, "random_steps": 100},
    "eval": {"every": 0, "final_episodes": 0},
    "sinks": {"tensorboard": False},
}
SHORT = {"pacing": {"env_steps": 600}}
CROSSQ = {
    "model": {"options": {"critic_hidden": [64, 64], "critic_batch_norm": True}},
    "learner": {"adam_beta1": 0.5, "actor_update_interval": 3},
}
BY_PRIORITY = {"sampling": {"method": "prioritised", "importance_anneal_updates": 500}}


def run(trial: Trial, changes: Mapping[str, Any]) -> Outcome:
    """One pair of runs."""
    config = merge(merge(CONFIG, changes), SHORT if trial.quick else {})
    config["seed"] = int(trial.rng.integers(1 << 30))
    whole, killed = trial.place / "whole", trial.place / "killed"
    play(whole, config)
    kills, resumed, total = 0, 0, config["pacing"]["env_steps"] - config["pacing"]["min_fill"]
    for updates in sorted(trial.rng.integers(0, int(0.7 * total), KILLS)):
        if play(killed, config, kill_at=(int(updates), float(trial.rng.uniform(0, LATER_S)))):
            break  # it came to its end before
        kills += 1
        resumed += newest_step(killed) > 0
    else:
        play(killed, config)
    one, other = end_of(whole), end_of(killed)
    different = differing(one, other)
    problems = (f"{len(different)} leaves differ: {', '.join(different[:5])}",) if different else ()
    return Outcome({"kills": kills, "resumed": resumed, "leaves": len(one), "different": len(different)}, problems)


def play(place: Path, config: Mapping[str, Any], kill_at: tuple[int, float] | None = None) -> bool:
    """Begin or go on with the run in ``place``; whether it came to its end.

    Args:
        place: directory of the run.
        config: of the run.
        kill_at: kill it so many seconds after its first checkpoint of at least so many updates.
    """
    place.mkdir(exist_ok=True)
    (place / "config.yaml").write_text(yaml.safe_dump({**config, "run": {**config["run"], "dir": str(place)}}))
    words = ["--resume", str(place / "run")] if (place / "run" / "config.yaml").exists() else [str(place / "config.yaml")]
    with (place / "log").open("ab") as log:
        child = subprocess.Popen(
            headrace("train", *words),
            stdout=log,
            stderr=log,
            start_new_session=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            preexec_fn=leash(),
        )
        try:
            if kill_at is None:
                child.wait(RUN_S)
            else:
                _wait_for(child, place, *kill_at)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait(10)
    if child.returncode not in (0, -signal.SIGKILL):
        raise ProcessFailed(f"exit code {child.returncode}: {(place / 'log').read_text()[-500:]}")
    return child.returncode == 0


def _wait_for(child: subprocess.Popen[bytes], place: Path, updates: int, later_s: float) -> None:
    end = time.monotonic() + RUN_S
    while child.poll() is None and newest_step(place) < updates:
        if time.monotonic() > end:
            raise ProcessFailed(f"no checkpoint of {updates} updates within {RUN_S:g} s")
        time.sleep(0.01)
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(later_s)


def newest_step(place: Path) -> int:
    """Updates of the newest checkpoint that can be seen; 0 without any."""
    return max([0, *(int(path.name[5:17]) for path in (place / "run" / "checkpoints").glob("step_*"))])


def end_of(place: Path) -> dict[str, str]:
    """The leaves of the last checkpoint: learner, pool with sampler, and actors."""
    newest = checkpoint.newest(place / "run" / "checkpoints")
    if newest is None:
        raise ProcessFailed("a run that has ended has no checkpoint")
    own, sampling = (
        json.loads((newest / "sync.json").read_text()),
        make_config(read_config(place / "run" / "config.yaml")).sampling,
    )
    with contextlib.closing(SACReplayPool.from_path(newest / "pool", sampling)) as pool:
        return leaves({"learner": checkpoint.read(newest).state, "pool": pool.get_state(), "actors": own["actors"]})


def one_bit(place: Path) -> dict[str, bool]:
    """Whether one changed bit of a tensor, of an array, of random bytes or of a number is seen, and nothing else."""
    state = {"moment": torch.zeros(3), "priority": np.ones(3), "generator": torch.zeros(5, dtype=torch.uint8), "step": 7}
    changed = {
        "moment": torch.tensor([0.0, 0.0, 1e-45]),
        "priority": np.array([1.0, 1.0, np.nextafter(1, 2)]),
        "generator": torch.tensor([0, 0, 0, 0, 1], dtype=torch.uint8),
        "step": 8,
    }
    found = {name: differing(leaves(state), leaves({**state, name: value})) == [name] for name, value in changed.items()}
    return {**found, "a leaf that is gone": differing(leaves(state), leaves({"step": 7})) == sorted(state.keys() - {"step"})}


BARS = (*never("different"), *at_least("kills", 2 * TRIALS, SUM), *at_least("resumed", TRIALS, SUM), *told("leaves"))
VARIANTS = {"sac": {}, "crossq": CROSSQ, "prioritised": BY_PRIORITY}

PROMISE = Promise(
    "P14",
    "In the deterministic mode a run that was killed and resumed is equal to one that was not, to the bit.",
    tuple(Part(name, TRIALS, partial(run, changes=changes), BARS, control=one_bit) for name, changes in VARIANTS.items()),
)
