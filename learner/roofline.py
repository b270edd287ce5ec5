"""The roofline: the updates a second if an update were its matrix products alone, at the rate that this machine has."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn

from headrace.common.clock import Clock
from headrace.learner.config import LearnerConfig
from headrace.learner.contract import SupportSACTraining
from headrace.learner.mlp import MLP

MEASURE_S = 0.1
MOST_PRODUCTS = 1000
GPU_EDGE = 4096  # of products that are long enough to fill a GPU


def roofline(model: SupportSACTraining, config: LearnerConfig, clock: Clock) -> float | None:
    """Updates a second at the measured rate of float32 products, in all the model's processes; None if it is not the MLP."""
    if not isinstance(model, MLP):
        return None
    weight = next(p for _, p in model.actor_params() if p.ndim == 2)
    return gemm_rate(weight.device, config.batch_size, len(weight), clock) * model.processes / update_flop(model, config)


def update_flop(model: MLP, config: LearnerConfig) -> float:
    """Arithmetic of the products of one update: 2 for each row and each time that it meets a weight.

    With A and C the weights of the actor and of all critics, and A1 and C1 those of their first layers: the target takes
    A + C, the critics' step 3 C - C1, since nobody asks for the gradient of its inputs, and the actor's 2 C + 3 A - A1.
    """
    actor, first = _weights([model.actor])
    critics, firsts = _weights(model.critic_network_heads)
    macs = actor + critics + (3 * critics - firsts) + (2 * critics + 3 * actor - first) / config.actor_update_interval
    return 2.0 * config.batch_size * macs


def _weights(networks: Iterable[nn.Module]) -> tuple[int, int]:
    """Weights of all layers, and of the first ones."""
    layers = [[p.numel() for p in network.parameters() if p.ndim == 2] for network in networks]
    return sum(map(sum, layers)), sum(sizes[0] for sizes in layers)


def gemm_rate(device: torch.device, rows: int, width: int, clock: Clock) -> float:
    """FLOP/s of this process's products ``(rows, width) x (width, width)`` in float32, on a GPU of large ones; for 0.1 s."""
    if device.type != "cpu":
        rows = width = GPU_EDGE
    a, b = torch.ones(rows, width, device=device), torch.ones(width, width, device=device)
    out = torch.mm(a, b)
    _wait(device)
    begun = now = clock.now()
    count = 0
    while count < MOST_PRODUCTS and now < begun + MEASURE_S:
        count += 1
        torch.mm(a, b, out=out)
        _wait(device)
        now = clock.now()
    return 2.0 * rows * width * width * count / max(now - begun, 1e-9)


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
