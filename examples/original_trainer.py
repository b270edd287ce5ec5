"""The training loop of the system that headrace replaces, on Pendulum-v1, in one process, without any server.

Run:  python examples/original_trainer.py
Prints the reward per env step of each rollout, and the mean return of ten episodes before and after. It takes a minute or two
on one core; a return above -200 means that the pole stays up. For the same algorithm with checkpoints, resume and
metrics use ``headrace train examples/pendulum.yaml --mode sync``.
"""

from __future__ import annotations

import logging

import gymnasium as gym

from headrace.actor.config import EnvConfig, WindowConfig
from headrace.actor.envs import make_lanes
from headrace.launch.original import EnvLoop, RobDataParallelSACActor, RobRaySACTrainer, SACActorConfig
from headrace.learner.config import ModelConfig
from headrace.learner.models import make_model

ENV = EnvConfig(id="Pendulum-v1", autoreset="same_step")


def main(total_steps: int = 30, episodes: int = 10, seed: int = 0) -> float:
    """Train for ``total_steps`` rollouts of one episode each; the mean return afterwards."""
    lanes = make_lanes(ENV, WindowConfig(), run_seed=seed, actor="rollout", epoch=1)
    model = make_model(lanes.spec, ModelConfig(), seed)  # a SupportSACTraining
    config = SACActorConfig(action_dim=1, actor_lr=1e-3, critic_lr=1e-3, alpha_lr=1e-3, replay_pool_size=100_000)
    actor = RobDataParallelSACActor(model, config)
    trainer = RobRaySACTrainer(
        EnvLoop(lanes, actor.act, rollout_steps=200), actor, total_steps=total_steps, gradient_steps_per_env_step=1
    )
    print(f"before: mean return {judge(actor, episodes):.1f}")
    trainer.fit()
    after = judge(actor, episodes)
    print(f"after {trainer.env_steps} env steps and {trainer.updates} updates: mean return {after:.1f}")
    lanes.close()
    return after


def judge(actor: RobDataParallelSACActor, episodes: int) -> float:
    """Mean return of the deterministic policy."""
    env, total = gym.make(ENV.id), 0.0
    for episode in range(episodes):
        state, _ = env.reset(seed=1000 + episode)
        over = False
        while not over:
            state, reward, terminated, truncated, _ = env.step(actor.act(state[None], deterministic=True)[0])
            total += float(reward)
            over = terminated or truncated
    env.close()
    return total / episodes


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    main()
