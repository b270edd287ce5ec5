#!/usr/bin/env python
"""One SAC run of stable-baselines3 or SBX, timed from inside; started with that library's interpreter by peers.py and gates.py.

Needs only the library and what it brings. It takes one JSON object as its only argument, see :data:`FIELDS`, and prints one as
its last line: ``begun`` (all imports done), ``marks`` (env steps -> time at which they were done), ``end`` (last env step and
update done), ``updates``, ``evaluations`` ([env steps, mean return, standard deviation, time without evaluations] of each),
``final`` ([mean return, standard deviation] of the last policy, none without ``final_episodes``), and ``versions``. Times are
seconds since the epoch, so that the caller can count from the start of this process.

How long: as long as the run; 10,000 env steps of Pendulum-v1 at one update a step take about two minutes on one core.
"""

from __future__ import annotations

import json
import os
import sys
import time
from statistics import mean, pstdev
from typing import Any

FINAL_SEED = 1_000_000  # of the final evaluation, whose episodes none before has seen
FIELDS = {
    "library": "sb3 or sbx",
    "threads": "of the numeric library",
    "env": "gymnasium id",
    "env_steps": "length of the run",
    "warmup": "env steps with random actions before the first update",
    "lr": "of actor, critics and temperature",
    "batch": "rows of one update",
    "gamma": "discount of one env step",
    "tau": "share of the critics that one update moves into the targets",
    "hidden": "units of each hidden layer",
    "buffer": "rows kept",
    "seed": "of the run",
    "evaluate_every": "env steps between evaluations; 0 for none",
    "episodes": "of one evaluation, deterministic",
    "final_episodes": "of the evaluation at the end; 0 for none",
    "until": "end once an evaluation's mean return reaches this; none to go on",
    "marks": "env steps whose times are wanted",
}


def main() -> int:
    options = json.loads(sys.argv[1])
    missing = FIELDS.keys() - options.keys()
    if missing:
        print(f"peer_sb3: the argument lacks {', '.join(sorted(missing))}", file=sys.stderr)
        return 2
    set_threads(options["library"], options["threads"])
    print(json.dumps(train(options)))
    return 0


def set_threads(library: str, threads: int) -> None:
    """Bind the numeric libraries before they are imported."""
    os.environ["OMP_NUM_THREADS"] = str(threads)
    if library == "sbx":
        os.environ["JAX_PLATFORMS"] = "cpu"
        if threads == 1:
            os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    import torch

    torch.set_num_threads(threads)


def train(options: dict[str, Any]) -> dict[str, Any]:
    """Train as the options say; see the module for what comes back."""
    import gymnasium
    from stable_baselines3.common.callbacks import BaseCallback

    if options["library"] == "sbx":
        from sbx import SAC
    else:
        from stable_baselines3 import SAC
    begun = time.time()
    marks: dict[int, float] = {}
    judged: list[tuple[int, float, float, float]] = []
    judge_env = gymnasium.make(options["env"])

    class Stopwatch(BaseCallback):  # type: ignore[misc]  # the library is not installed where types are checked
        """Notes times, and keeps evaluations out of them."""

        excluded = 0.0

        def _on_step(self) -> bool:
            steps, now = self.num_timesteps, time.time()
            if steps in options["marks"]:
                marks[steps] = now - self.excluded
            if not options["evaluate_every"] or steps % options["evaluate_every"]:
                return True
            value, std = evaluate(self.model, judge_env, options["episodes"])
            judged.append((steps, value, std, now - self.excluded))
            print(f"env steps {steps:,}, return {value:.1f}", flush=True)
            self.excluded += time.time() - now
            return options["until"] is None or value < options["until"]

    network = {"net_arch": options["hidden"]}
    model = SAC(
        "MlpPolicy",
        gymnasium.make(options["env"]),
        learning_rate=options["lr"],
        gamma=options["gamma"],
        tau=options["tau"],
        batch_size=options["batch"],
        buffer_size=options["buffer"],
        learning_starts=options["warmup"],
        train_freq=1,
        gradient_steps=1,
        policy_kwargs=network,
        seed=options["seed"],
        verbose=0,
    )
    watch = Stopwatch()
    model.learn(options["env_steps"], callback=watch)
    end = time.time() - watch.excluded
    last = options["final_episodes"]
    final = evaluate(model, gymnasium.make(options["env"]), last, seed=FINAL_SEED) if last else None
    said = {"begun": begun, "marks": marks, "end": end, "evaluations": judged, "final": final}
    return {**said, "env_steps": model.num_timesteps, "updates": int(model._n_updates), "versions": versions()}


def evaluate(model: Any, env: Any, episodes: int, seed: int = 1000) -> tuple[float, float]:
    """Mean and standard deviation of the returns of ``episodes`` deterministic episodes, seeded from ``seed`` on."""
    returns = []
    for episode in range(episodes):
        obs, _ = env.reset(seed=seed + episode)
        total, over = 0.0, False
        while not over:
            action, _ = model.predict(obs, deterministic=True)
            obs, reward, terminated, truncated, _ = env.step(action)
            total += float(reward)
            over = terminated or truncated
        returns.append(total)
    return mean(returns), pstdev(returns)


def versions() -> dict[str, str]:
    """Versions of what decides numbers, where installed."""
    from importlib.metadata import PackageNotFoundError, version

    out = {}
    for name in ("stable-baselines3", "sbx-rl", "torch", "jax", "numpy", "gymnasium", "mujoco"):
        try:
            out[name] = version(name)
        except PackageNotFoundError:
            continue
    return out


if __name__ == "__main__":
    sys.exit(main())
