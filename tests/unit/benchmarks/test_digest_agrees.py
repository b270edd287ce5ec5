"""The checker's own digest of a logged step is the one that the pool's dump gives for the row of that step."""

from __future__ import annotations

import numpy as np
from campaign.conservation import read_lives

from headrace.actor.assembler import Assembler
from headrace.buffer import SACReplayPool
from headrace.common.specs import ActionSpec, ObsSpec, TransitionSpec
from headrace.common.weights import Version
from headrace.launch.chaos.scripted import ScriptedEnv


def test_each_row_of_a_pool_has_the_digest_of_its_logged_step(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.argv", ["headrace", "actor", "run", "--id", "actor-0"])
    spec = TransitionSpec((ObsSpec("obs", (3,), "<f4"),), ActionSpec((2,), (-1.0, -1.0), (1.0, 1.0)))
    kwargs = {"lengths": [3, 2], "ends": ["terminated", "truncated"], "action_dim": 2, "bounds": [-1, 1]}
    env, assembler = ScriptedEnv(actor=None, history=str(tmp_path), **kwargs), Assembler(spec)
    rng = np.random.default_rng(0)
    pool = SACReplayPool(100, spec=spec)
    seq = 1
    for episode in range(4):
        env.on_episode(0, episode)
        obs, _ = env.reset()
        assembler.begin(episode, {"obs": obs})
        over = False
        while not over:
            action = rng.uniform(-1, 1, 2).astype(np.float32)
            obs, reward, terminated, truncated, _ = env.step(action)
            assembler.step(action, reward, terminated, truncated, {"obs": obs}, version=Version("a", 1, 1))
            over = terminated or truncated
        while (block := assembler.take(100)) is not None:
            pool.insert(block, "actor-0", 1, seq)
            seq += block.n_rows
    env.close()
    (life,) = read_lives(tmp_path)
    rows = list(pool.dump())
    assert len(rows) == len(life.steps) == 10
    for row, step in zip(rows, life.steps, strict=True):
        assert (row["episode"], row["t"]) == (step.episode, step.t)
        assert row["digest"] in step.digests
