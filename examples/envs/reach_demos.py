"""Demonstrations of the reach task by a script that knows the way, as a directory that `pool.demos` takes.

From the root of the repository: python -m examples.envs.reach_demos reach_demos
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from examples.envs.reach import Array, Reach
from headrace.actor.assembler import Assembler
from headrace.actor.config import EnvConfig, WindowConfig
from headrace.actor.gym_spaces import PLAIN_KEY, spec_of
from headrace.buffer import SACReplayPool, export_pool
from headrace.common.block import Block
from headrace.common.specs import OUTCOME_SUCCESS, SOURCE_DEMO, TransitionSpec
from headrace.common.weights import NO_VERSION

ACTOR, STREAM = "demonstrator", 1
MAX_ROWS = 1024  # of one episode


def demonstrate(env: Reach, rng: np.random.Generator, noise: float = 0.3) -> Array:
    """An action ``(2,)`` straight to the target, shaken by ``noise``, so that demonstrations see more than a line."""
    away = (env.target - env.tip) / env.speed
    return np.clip(away / max(1.0, np.abs(away).max()) + noise * rng.standard_normal(2), -1, 1).astype(np.float32)


def record(out: str | Path, episodes: int = 50, seed: int = 0, **kwargs: Any) -> int:
    """Play ``episodes`` demonstrations of ``Reach(**kwargs)`` that end with a touch into an export at ``out``; its rows."""
    env, rng = Reach(**kwargs), np.random.default_rng(seed)
    spec = spec_of(env.observation_space, env.action_space, EnvConfig(id="reach"), WindowConfig())
    blocks = [_episode(env, spec, number, rng) for number in range(episodes)]
    rows = sum(block.n_rows for block in blocks)
    with SACReplayPool(rows, spec=spec) as pool:
        for block in blocks:
            pool.insert(block, ACTOR, STREAM, pool.last_seq(ACTOR, STREAM) + 1)
        export_pool(pool, out)
    return rows


def _episode(env: Reach, spec: TransitionSpec, number: int, rng: np.random.Generator) -> Block:
    assembler, ended = Assembler(spec), False
    obs, _ = env.reset(seed=int(rng.integers(1 << 31)))
    assembler.begin(number, {PLAIN_KEY: obs})
    while not ended:
        action = demonstrate(env, rng)
        obs, reward, terminated, truncated, _ = env.step(action)
        assembler.step(action, reward, terminated, truncated, {PLAIN_KEY: obs}, version=NO_VERSION, source=SOURCE_DEMO)
        ended = terminated or truncated
    block = assembler.take(MAX_ROWS)
    if block is None or not block.rows["terminated"][-1]:
        raise RuntimeError(f"episode {number}: the demonstrator did not reach the target")
    block.rows["outcome"] = OUTCOME_SUCCESS
    return block


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Play demonstrations into a directory that pool.demos takes.")
    parser.add_argument("out", help="a directory that does not exist")
    parser.add_argument("--episodes", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    print(f"{arguments.out}: {record(arguments.out, arguments.episodes, arguments.seed)} rows")
