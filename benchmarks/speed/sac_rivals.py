"""stable-baselines3 or SBX, each in its own virtual environment: bursts of its own ``train`` on its own filled buffer.

Needs the library and what it brings, and nothing of headrace; ``children.py`` says how it is asked.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from peer_sb3 import set_threads, versions

from speed.children import answer_windows, repeat

OBS, ACTION, BATCH, HIDDEN = 17, 6, 256, 256
BURSTS = (1, 32)
TRIED_S = 1.0


def make_model(options: dict[str, Any]) -> Any:
    """The library's SAC with default settings at HalfCheetah's sizes, and ``rows`` rows of noise in its buffer."""
    import gymnasium
    import numpy as np
    from stable_baselines3.common.logger import Logger

    if options["role"] == "sbx":
        from sbx import SAC
    else:
        from stable_baselines3 import SAC

    class Spaces(gymnasium.Env):  # type: ignore[misc]  # the library is not installed where types are checked
        """Says what there would be to see and to do."""

        observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (OBS,), np.float32)
        action_space = gymnasium.spaces.Box(-1.0, 1.0, (ACTION,), np.float32)

    rows = options["rows"]
    model = SAC("MlpPolicy", Spaces(), buffer_size=rows, batch_size=BATCH, policy_kwargs={"net_arch": [HIDDEN, HIDDEN]}, seed=0)
    model.set_logger(Logger(folder=None, output_formats=[]))
    rng, buffer = np.random.default_rng(0), model.replay_buffer
    for stored in (buffer.observations, buffer.next_observations, buffer.rewards):
        stored[:] = rng.standard_normal(stored.shape, np.float32)
    buffer.actions[:] = rng.uniform(-1, 1, buffer.actions.shape)
    buffer.full = True
    return model


def best_burst(model: Any) -> int:
    """How many updates a call of ``train`` makes fastest; a run makes one a call, and SBX compiles what is in a call."""
    rates = {}
    for steps in BURSTS:
        model.train(steps, BATCH)  # compiles
        rates[steps] = repeat(lambda steps=steps: model.train(steps, BATCH), TRIED_S, steps)["rate"]
    return max(rates, key=lambda steps: rates[steps])


if __name__ == "__main__":
    chosen = json.loads(sys.argv[1])
    set_threads(chosen["role"], chosen["threads"])
    said = os.dup(1)
    os.dup2(2, 1)  # the libraries talk on stdout, which is for answers
    sys.stdout = os.fdopen(said, "w")
    made = make_model(chosen)
    burst = best_burst(made)
    own = {"sb3": "stable-baselines3", "sbx": "sbx-rl"}[chosen["role"]]
    known = {k: v for k, v in versions().items() if k in (own, "torch", "jax")}
    ready = {f"{chosen['role']}: {name}": v for name, v in known.items()} | {f"{chosen['role']}: gradient_steps": str(burst)}
    answer_windows(lambda seconds: repeat(lambda: made.train(burst, BATCH), seconds, burst), ready)
    sys.stdout.flush()
    os._exit(0)
