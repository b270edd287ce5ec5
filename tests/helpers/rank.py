"""One rank of a group that learns from fixed rows: ``python -m helpers.rank JSON``, under the variables of torchrun.

The policy's noise is a column of the rows, so that ranks draw what one process would. Prints a line of JSON an update.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from helpers.learner import OwnModel, OwnOptions, make_batch, make_spec
from torch import Tensor, nn

from headrace.common.batch import Batch
from headrace.common.config import option
from headrace.common.specs import ObsSpec, TransitionSpec
from headrace.learner.config import LearnerConfig
from headrace.learner.group import Group
from headrace.learner.sac import SAC

NOISE = 2
SHOWN = ("critic/loss", "critic/qvalue_mean", "critic/grad_norm", "actor/loss", "actor/logprob_mean", "sac/alpha")


@dataclass(frozen=True)
class TiedOptions(OwnOptions):
    """Options of :class:`TiedNoise`."""

    critics: int = option(2, help="number of critics", low=1, high=8)


class TiedNoise(OwnModel):
    """The policy's noise comes with the observation; no batch norm, whose statistics are of one rank's rows."""

    Options: ClassVar[type[Any]] = TiedOptions

    def __init__(self, spec: TransitionSpec, **options: Any) -> None:
        super().__init__(spec, **options)
        width, critics = self.options.width, self.options.critics
        heads = [
            nn.Sequential(nn.Linear(width + self.action_dim, width), nn.Tanh(), nn.Linear(width, 1)) for _ in range(2 * critics)
        ]
        self.q, self.q_target = nn.ModuleList(heads[:critics]), nn.ModuleList(heads[critics:]).requires_grad_(False)

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


def digest(sac: SAC) -> str:
    """Of all tensors but the noise's state."""
    tensors = sac.get_state()["tensors"]
    data = [tensors[name].numpy().tobytes() for name in sorted(tensors) if name != "generator"]
    return hashlib.sha256(b"".join(data)).hexdigest()


def make_tied(group: Group, critics: int, options: Mapping[str, Any]) -> SAC:
    """A learner that begins alike in every rank, whatever a further one has before it hears of rank 0."""
    torch.manual_seed(group.rank)  # what a rank begins with must not matter
    sac = SAC(TiedNoise(spec(), critics=critics), spec(), LearnerConfig(**{"batch_size": 8, **options}), 0, group)
    if group.leads:
        torch.manual_seed(0)
        sac.model.load_state_dict(TiedNoise(spec(), critics=critics).state_dict())
        sac.model.sac_update_target_network(1.0)
    sac.copy_first()
    return sac


def batch_of(group: Group, rows: int, update: int) -> Batch:
    """This rank's part of an update's rows, which all ranks share."""
    whole = make_batch(spec(), rows, seed=update, rewards=np.linspace(-1, 1, rows)[:, None])
    edges = [rank * rows // group.size for rank in range(group.size + 1)]
    return whole[edges[group.rank] : edges[group.rank + 1]]


def learn(
    group: Group,
    case: str,
    *,
    rows: int = 24,
    updates: int = 4,
    hungry: list[list[int]] | None = None,
    critics: int = 2,
    options: Mapping[str, Any] | None = None,
) -> None:
    """Updates on ``rows`` rows that the ranks share; ``hungry``: pairs of update and rank at which that rank has none."""
    sac = make_tied(group, critics, options or {})
    for update in range(updates):
        counts = [update, group.rank] not in (hungry or [])
        metrics = sac.update(batch_of(group, rows, update), counts=counts)
        shown = {name: float(metrics[name]) for name in SHOWN}
        shown["skipped"] = float(metrics["sac/updates_skipped"])
        print(json.dumps({"case": case, **shown, "digest": digest(sac)}), flush=True)


def main() -> int:
    told = json.loads(sys.argv[1])
    torch.set_num_threads(1)
    with Group.join(told["timeout_s"]) as group:
        for case, how in told["cases"].items():
            learn(group, case, **how)
    return 0


if __name__ == "__main__":
    sys.exit(main())
