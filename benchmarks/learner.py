#!/usr/bin/env python
"""Learner speed: updates a second of ``SAC.update`` on a CPU, beside a plain torch SAC and the machine's own sgemm rate.

    .venv/bin/python benchmarks/learner.py              # about 1 minute
    .venv/bin/python benchmarks/learner.py --quick      # a few seconds, for a look
    .venv/bin/python benchmarks/learner.py --obs 348 --action 17

Both learners get the same synthetic numpy batches and take turns in short windows of one process, so that whatever else
runs on the machine meets both. ``headrace`` is the whole update (numpy batch to tensors, all metrics, guard against
numbers that are not finite); ``autograd`` is the same without the passes by hand of the MLP; ``plain`` is the 60 lines
below. The roofline is the arithmetic of one update at the measured rate of a batch x hidden x hidden product.
``ratio`` compares wall clock, ``cpu_ratio`` processor time, which holds on a machine that is busy with other things (for
one thread; more spin while they wait). The last line on stdout is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from itertools import cycle
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.functional import mse_loss, softplus

from headrace.common.batch import Batch
from headrace.common.specs import ActionSpec, ObsSpec, TransitionSpec
from headrace.learner.config import LearnerConfig
from headrace.learner.mlp import MLP
from headrace.learner.sac import SAC

HIDDEN = 256
WARM_UPDATES = 30
READY_S = 60.0


class PlainSAC:
    """SAC as one writes it on an afternoon: nn.Sequential, torch.optim.Adam, autograd, twin critics, trained alpha."""

    def __init__(self, obs: int, action: int, lr: float = 3e-4, gamma: float = 0.99, tau: float = 0.005) -> None:
        def network(inputs: int, outputs: int) -> nn.Sequential:
            hidden = [nn.Linear(inputs, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN), nn.ReLU()]
            return nn.Sequential(*hidden, nn.Linear(HIDDEN, outputs))

        self.policy = network(obs, 2 * action)
        self.critics = nn.ModuleList(network(obs + action, 1) for _ in range(2))
        self.targets = nn.ModuleList(network(obs + action, 1) for _ in range(2))
        self.targets.load_state_dict(self.critics.state_dict())
        self.log_alpha = torch.zeros((), requires_grad=True)
        self.policy_optimizer = torch.optim.Adam(self.policy.parameters(), lr)
        self.critic_optimizer = torch.optim.Adam(self.critics.parameters(), lr)
        self.alpha_optimizer = torch.optim.Adam([self.log_alpha], lr)
        self.gamma, self.tau, self.target_entropy = gamma, tau, -float(action)

    def act(self, obs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """A sampled action and its log-density."""
        mean, log_std = self.policy(obs).chunk(2, dim=-1)
        normal = torch.distributions.Normal(mean, log_std.clamp(-20, 2).exp(), validate_args=False)
        u = normal.rsample()
        correction = 2 * (np.log(2) - u - softplus(-2 * u))
        return torch.tanh(u), (normal.log_prob(u) - correction).sum(-1)

    def lowest(self, critics: nn.ModuleList, obs: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        """The smaller of both values."""
        x = torch.cat([obs, action], -1)
        return torch.min(critics[0](x), critics[1](x)).squeeze(-1)

    def update(self, batch: Batch) -> None:
        """One step of everything."""
        obs, next_obs = torch.from_numpy(batch.obs["obs"]), torch.from_numpy(batch.next_obs["obs"])
        action = torch.from_numpy(batch.rows["action"].copy())
        reward = torch.from_numpy(batch.rows["rewards"][:, 0].copy())
        done = torch.from_numpy(batch.rows["terminated"].astype(np.float32))
        alpha = self.log_alpha.detach().exp()
        with torch.no_grad():
            next_action, next_log_prob = self.act(next_obs)
            value = self.lowest(self.targets, next_obs, next_action) - alpha * next_log_prob
            target = reward + self.gamma * (1 - done) * value
        x = torch.cat([obs, action], -1)
        critic_loss = sum(mse_loss(critic(x).squeeze(-1), target) for critic in self.critics)
        self.critic_optimizer.zero_grad()
        critic_loss.backward()
        self.critic_optimizer.step()

        self.critics.requires_grad_(False)
        new_action, log_prob = self.act(obs)
        policy_loss = (alpha * log_prob - self.lowest(self.critics, obs, new_action)).mean()
        self.policy_optimizer.zero_grad()
        policy_loss.backward()
        self.policy_optimizer.step()
        self.critics.requires_grad_(True)

        alpha_loss = -(self.log_alpha.exp() * (log_prob.detach() + self.target_entropy)).mean()
        self.alpha_optimizer.zero_grad()
        alpha_loss.backward()
        self.alpha_optimizer.step()
        with torch.no_grad():
            for slow, fast in zip(self.targets.parameters(), self.critics.parameters(), strict=True):
                slow.mul_(1 - self.tau).add_(fast, alpha=self.tau)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few, short windows")
    parser.add_argument("--threads", default="1,2", metavar="N,...", help="torch threads; default: 1,2")
    parser.add_argument("--obs", type=int, default=17, help="observation size; default: 17 (HalfCheetah)")
    parser.add_argument("--action", type=int, default=6, help="action size; default: 6")
    parser.add_argument("--batch", type=int, default=256, help="rows of a batch; default: 256")
    args = parser.parse_args()
    rounds, window_s = (3, 0.4) if args.quick else (12, 1.0)
    batches = make_batches(args.obs, args.action, args.batch, np.random.default_rng(0))
    out: dict[str, Any] = {"obs": args.obs, "action": args.action, "batch": args.batch, "hidden": [HIDDEN, HIDDEN]}
    out |= {"torch": torch.__version__, "gflop_update": round(flop(args.obs, args.action, args.batch) / 1e9, 4)}
    for threads in (int(n) for n in args.threads.split(",")):
        out[f"threads_{threads}"] = measure(threads, args, cycle(batches), rounds, window_s)
    print(json.dumps(out))
    return 0


def measure(threads: int, args: argparse.Namespace, batches: Iterator[Batch], rounds: int, window_s: float) -> dict[str, Any]:
    """Updates a second of each learner at one number of threads, and what they are worth."""
    learners, model = make_learners(args.obs, args.action, args.batch, threads)
    for update in learners.values():
        for _ in range(WARM_UPDATES):
            update(next(batches))
    if not model._crew.wait_ready(READY_S):
        raise SystemExit("the learner's crew did not come up")
    rates: dict[str, list[float]] = {name: [] for name in learners}
    cpu_rates: dict[str, list[float]] = {name: [] for name in learners}
    sgemm: list[float] = []
    for _ in range(rounds):
        for name, update in learners.items():
            torch.set_num_threads(1 if name == "headrace" else threads)  # headrace's are a crew of processes
            wall, cpu = rate(update, batches, window_s)
            rates[name].append(wall)
            cpu_rates[name].append(cpu)
        sgemm.append(sgemm_rate(args.batch, window_s / 4))
    model.close()
    ideal = statistics.median(sgemm) / flop(args.obs, args.action, args.batch)
    found: dict[str, Any] = {name: round(statistics.median(values), 1) for name, values in rates.items()}
    found |= {
        **ratio("ratio", rates),
        **(ratio("cpu_ratio", cpu_rates) if threads == 1 else {}),  # the crew's other processes keep their own time
        "sgemm_gflop_s": round(statistics.median(sgemm) / 1e9, 1),
        "roofline_updates_s": round(ideal, 1),
        "roofline_percent": round(100 * found["headrace"] / ideal, 1),
    }
    print(
        f"{threads} thread{'s' if threads > 1 else ' '}  "
        + "  ".join(f"{name} {found[name]:6.1f}/s" for name in learners)
        + f"  headrace / plain {found['ratio']:.2f} {found['ratio_range']}"
        f"  sgemm {found['sgemm_gflop_s']:.0f} GFLOP/s, {found['roofline_percent']:.0f} % of its roofline",
        flush=True,
    )
    return found


def make_learners(obs: int, action: int, batch: int, threads: int) -> tuple[dict[str, Callable[[Batch], object]], MLP]:
    """Name -> update, and headrace's model."""
    torch.manual_seed(0)
    spec, config = make_spec(obs, action), LearnerConfig(batch_size=batch)
    models = [MLP(spec) for _ in range(2)]
    models[0].use_threads(threads)
    ours, generic = (SAC(model, spec, config, 0) for model in models)
    models[1]._by_hand = lambda x: None  # type: ignore[method-assign]  # the contract's own steps, as any other model gets them
    return {"headrace": ours.update, "plain": PlainSAC(obs, action).update, "autograd": generic.update}, models[0]


def make_spec(obs: int, action: int) -> TransitionSpec:
    return TransitionSpec((ObsSpec("obs", (obs,), "<f4"),), ActionSpec((action,), (-1.0,) * action, (1.0,) * action))


def make_batches(obs: int, action: int, size: int, rng: np.random.Generator) -> list[Batch]:
    batches = []
    for _ in range(64):
        rows = np.zeros(size, make_spec(obs, action).row_dtype)
        rows["action"], rows["rewards"] = rng.uniform(-1, 1, (size, action)), rng.standard_normal((size, 1))
        rows["steps"], rows["terminated"] = 1, rng.random(size) < 0.01
        seen = [{"obs": rng.standard_normal((size, obs)).astype(np.float32)} for _ in range(2)]
        batches.append(Batch(np.arange(size), rows, *seen))
    return batches


def ratio(name: str, rates: dict[str, list[float]]) -> dict[str, Any]:
    pairs = sorted(ours / plain for ours, plain in zip(rates["headrace"], rates["plain"], strict=True))
    return {name: round(statistics.median(pairs), 3), f"{name}_range": [round(pairs[0], 3), round(pairs[-1], 3)]}


def rate(update: Callable[[Batch], object], batches: Iterator[Batch], window_s: float) -> tuple[float, float]:
    """Updates per second of wall clock, and of processor time."""
    count, start, cpu = 0, time.perf_counter(), time.process_time()
    while (elapsed := time.perf_counter() - start) < window_s:
        update(next(batches))
        count += 1
    return count / elapsed, count / (time.process_time() - cpu)


def sgemm_rate(batch: int, window_s: float) -> float:
    """FLOP/s of a (batch, hidden) x (hidden, hidden) product."""
    a, b, out = torch.randn(batch, HIDDEN), torch.randn(HIDDEN, HIDDEN), torch.empty(batch, HIDDEN)
    count, start = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - start) < window_s:
        torch.mm(a, b, out=out)
        count += 1
    return 2 * batch * HIDDEN * HIDDEN * count / elapsed


def flop(obs: int, action: int, batch: int) -> int:
    """Arithmetic of one update, without critic weight gradients in the actor's step."""
    square = HIDDEN * HIDDEN
    critic, actor = (obs + action) * HIDDEN + square + HIDDEN, obs * HIDDEN + square + 2 * action * HIDDEN
    target = actor + 2 * critic
    critic_step = 2 * (2 * critic + square + HIDDEN)  # forward, weight gradients, input gradients of two layers
    actor_step = actor + 2 * critic + 2 * critic + actor + square + 2 * action * HIDDEN
    return 2 * batch * (target + critic_step + actor_step)


if __name__ == "__main__":
    sys.exit(main())
