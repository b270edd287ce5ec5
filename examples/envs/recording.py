"""Demonstrations by a script that sees everything: episodes that succeed become a directory that `pool.demos` takes."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from headrace.actor.assembler import Assembler
from headrace.actor.config import EnvConfig, WindowConfig
from headrace.actor.gym_spaces import PLAIN_KEY, spec_of
from headrace.buffer import SACReplayPool, export_pool
from headrace.common.block import Block
from headrace.common.specs import OUTCOME_SUCCESS, SOURCE_DEMO, TransitionSpec
from headrace.common.weights import NO_VERSION

Array = np.ndarray[Any, Any]
ACTOR, STREAM = "demonstrator", 1
MAX_ROWS = 1024  # of one episode
PATIENCE = 10  # episodes played for each that is wanted


def record(
    out: str | Path,
    env: gym.Env[Any, Any],
    act: Callable[[np.random.Generator], Array],
    episodes: int,
    seed: int = 0,
    window: WindowConfig | None = None,
    overlap: bool = False,
) -> int:
    """Play until ``episodes`` have succeeded, and write them as an export; its rows.

    Args:
        out: a directory that does not exist.
        env: says ``is_success`` in info, and ``task`` where it has several.
        act: the next action.
        episodes: how many are kept.
        seed: of the episodes and of ``act``.
        window: what a row covers.
        overlap: whether a chunk begins with each step, and not only behind the last one: several times as many rows.
    """
    rng, window = np.random.default_rng(seed), window or WindowConfig()
    spec = spec_of(env.observation_space, env.action_space, EnvConfig(id="recorded"), window)
    blocks: list[Block] = []
    kept = 0
    for _ in range(PATIENCE * episodes):
        found = _episode(env, act, spec, kept, rng, overlap)
        blocks += found
        kept += bool(found)
        if kept == episodes:
            break
    else:
        raise RuntimeError(f"{kept} of {PATIENCE * episodes} episodes succeeded, {episodes} were wanted")
    rows = sum(block.n_rows for block in blocks)
    with SACReplayPool(rows, spec=spec) as pool:
        for block in blocks:
            pool.insert(block, ACTOR, STREAM, pool.last_seq(ACTOR, STREAM) + 1)
        export_pool(pool, out)
    return rows


def _episode(
    env: gym.Env[Any, Any],
    act: Callable[[np.random.Generator], Array],
    spec: TransitionSpec,
    number: int,
    rng: np.random.Generator,
    overlap: bool,
) -> list[Block]:
    """The rows of one episode; none when it did not succeed."""
    obs, info = env.reset(seed=int(rng.integers(1 << 31)))
    task, frames, steps, ended = int(info.get("task", 0)), [_frames(obs)], [], False
    while not ended:
        action = act(rng)
        obs, reward, terminated, truncated, info = env.step(action)
        frames.append(_frames(obs))
        steps.append((action, float(reward), terminated, truncated, frames[-1]))
        ended = terminated or truncated
    if not info["is_success"]:
        return []
    chunk = spec.window if spec.kind == "chunk" else 0
    actions = np.stack([action for action, *_ in steps])
    blocks = []
    for first in range(min(chunk, len(steps)) if overlap and chunk else 1):
        assembler = Assembler(spec)
        assembler.begin(number, frames[first], task)
        for t, step in enumerate(steps[first:], first):
            decided = None
            if chunk and (t - first) % chunk == 0:  # behind the episode's end nobody planned anything: the last action again
                decided = actions[np.minimum(np.arange(t, t + chunk), len(steps) - 1)]
            assembler.step(*step, version=NO_VERSION, decided=decided, source=SOURCE_DEMO)
        block = assembler.take(MAX_ROWS)
        if block is not None:
            block.rows["outcome"] = OUTCOME_SUCCESS
            block.rows["t"] += first
            blocks.append(block)
    return blocks


def _frames(obs: Any) -> dict[str, Array]:
    return {key: np.array(value) for key, value in (obs if isinstance(obs, Mapping) else {PLAIN_KEY: obs}).items()}


def main(record: Callable[[str, int, int, WindowConfig, bool], int]) -> None:
    """The command line of a script of demonstrations; ``record`` takes the arguments of :func:`record`, and gives rows."""
    parser = argparse.ArgumentParser(description="Play demonstrations into a directory that pool.demos takes.")
    parser.add_argument("out", help="a directory that does not exist")
    parser.add_argument("--episodes", type=int, default=50, help="episodes that are kept (count)")
    parser.add_argument("--seed", type=int, default=0, help="of the episodes (int)")
    parser.add_argument("--chunk", type=int, default=1, help="env steps of a decision (count)")
    parser.add_argument("--overlap", action="store_true", help="a decision's row begins with each step")
    asked = parser.parse_args()
    rows = record(asked.out, asked.episodes, asked.seed, WindowConfig(chunk=asked.chunk), asked.overlap)
    print(f"{asked.out}: {rows} rows")
