"""One rank of a group that learns from fixed rows: ``python -m helpers.rank JSON``, under the variables of torchrun.

The policy's noise is a column of the rows, so that ranks draw what one process would. Prints a line of JSON an update.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from helpers.learner import OwnModel, make_batch, make_spec
from torch import Tensor, nn

from headrace.common.batch import Batch
from headrace.common.specs import ObsSpec, TransitionSpec
from headrace.learner.config import LearnerConfig
from headrace.learner.group import Group
from headrace.learner.sac import SAC

NOISE = 2


class TiedNoise(OwnModel):
    """The policy's noise comes with the observation; no batch norm, whose statistics are of one rank's rows."""

    def __init__(self, spec: TransitionSpec, **options: Any) -> None:
        super().__init__(spec, **options)
        width = self.options.width
        heads = [nn.Sequential(nn.Linear(width + self.action_dim, width), nn.Tanh(), nn.Linear(width, 1)) for _ in range(4)]
        self.q, self.q_target = nn.ModuleList(heads[:2]), nn.ModuleList(heads[2:]).requires_grad_(False)

    def sac_state_features(self, obs: Mapping[str, Tensor], role: str) -> Tensor:
        features = super().sac_state_features(obs, role)
        return features if role == "critic" else torch.cat((features, obs["noise"]), 1)

    def sac_forward_actor(
        self, features: Tensor, generator: torch.Generator | None, deterministic: bool
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        features, noise = features.split([features.shape[1] - NOISE, NOISE], 1)
        u = self.mean(features) + self.log_std.exp() * noise
        log_prob = (-0.5 * noise.square() - self.log_std - torch.log(1 - torch.tanh(u).square() + 1e-6)).sum(1)
        return torch.tanh(u), log_prob, None


def spec() -> TransitionSpec:
    """Observation and noise."""
    return make_spec(obs=(ObsSpec("noise", (NOISE,), "<f4"), ObsSpec("obs", (3,), "<f4")))


def part(batch: Batch, low: int, high: int) -> Batch:
    """Rows ``low .. high - 1``."""
    sides = [{key: values[low:high] for key, values in side.items()} for side in (batch.obs, batch.next_obs)]
    return Batch(batch.ids[low:high], batch.rows[low:high], *sides)


def digest(sac: SAC) -> str:
    """Of all tensors but the noise's state."""
    tensors = sac.get_state()["tensors"]
    data = [tensors[name].numpy().tobytes() for name in sorted(tensors) if name != "generator"]
    return hashlib.sha256(b"".join(data)).hexdigest()


def learn(group: Group, *, rows: int, updates: int, hungry: list[list[int]]) -> None:
    """Updates on ``rows`` rows that the ranks share; ``hungry``: pairs of update and rank at which that rank has none."""
    torch.set_num_threads(1)
    torch.manual_seed(group.rank)  # what a rank begins with must not matter
    sac = SAC(TiedNoise(spec()), spec(), LearnerConfig(batch_size=8), 0, group)
    if group.leads:
        torch.manual_seed(0)
        sac.model.load_state_dict(TiedNoise(spec()).state_dict())
        sac.model.sac_update_target_network(1.0)
    sac.copy_first()
    for update in range(updates):
        whole = make_batch(spec(), rows, seed=update, rewards=np.linspace(-1, 1, rows)[:, None])
        edges = [rank * rows // group.size for rank in range(group.size + 1)]
        mine = part(whole, *edges[group.rank : group.rank + 2])
        counts = [update, group.rank] not in hungry
        metrics = sac.update(mine, counts=counts)
        shown = {name: float(metrics[name]) for name in ("critic/loss", "actor/loss", "sac/alpha", "critic/grad_norm")}
        print(json.dumps({**shown, "skipped": float(metrics["sac/updates_skipped"]), "digest": digest(sac)}), flush=True)


def main() -> int:
    options = json.loads(sys.argv[1])
    with Group.join(options.pop("timeout_s", 30.0)) as group:
        learn(group, **options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
