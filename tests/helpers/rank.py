"""One rank of a group that learns from fixed rows: ``python -m helpers.rank JSON``, under the variables of torchrun.

The policy's noise is a column of the rows, so that ranks draw what one process would. Prints a line of JSON an update.
"""

from __future__ import annotations

import hashlib
import json
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from helpers.learner import OwnModel, OwnOptions, make_batch, make_spec
from torch import Tensor, nn

from headrace.common.batch import Batch
from headrace.common.config import option
from headrace.common.process import stop_on_signal
from headrace.common.specs import ObsSpec, TransitionSpec
from headrace.common.statistics import ObsStatistics, ReturnStatistics
from headrace.common.weights import NO_VERSION
from headrace.learner import checkpoint, flow
from headrace.learner.config import LearnerConfig, ModelConfig
from headrace.learner.flow_policy import FlowPolicy
from headrace.learner.group import Group
from headrace.learner.models import make_model
from headrace.learner.prefix import Prefix
from headrace.learner.sac import SAC
from headrace.learner.shards import held

NOISE = 2
SHOWN = ("critic/loss", "critic/qvalue_mean", "critic/grad_norm", "actor/loss", "actor/logprob_mean", "sac/alpha")
TIED = "helpers.rank:TiedNoise"
TIED_FLOW = {  # its noise and times come of the rows; where only one action looks at itself, queries have no gradient either
    "model": "helpers.rank:TiedFlow",
    "model_options": {
        "channels": [4],
        "strides": [4],
        "width": 16,
        "heads": 2,
        "expert_layers": 1,
        "critic_hidden": [16],
        "steps": 2,
        "horizon": 2,
    },
    "options": {"bc_weight": 0.5, "actor_lr": 1e-3},
}
CAMERA = ObsSpec("camera", (13, 13, 3), "|u1")


@dataclass(frozen=True)
class TiedOptions(OwnOptions):
    """Options of :class:`TiedNoise`."""

    critics: int = option(2, help="number of critics", low=1, high=8)
    nested: bool = option(False, help="whether the layers of a critic are gathered one by one")


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

    def shard_units(self) -> Sequence[nn.Module]:
        inner = [layer for head in (*self.q, *self.q_target) for layer in (head[0], head[2])]
        return [*(inner if self.options.nested else []), *super().shard_units()]


class TiedFlow(FlowPolicy):
    """A flow policy whose noise, and whose times of cloning, come of the observation, in every rank as in one process."""

    def draw(self, shape: tuple[int, ...], generator: torch.Generator | None, features: Prefix) -> Tensor:
        places = torch.arange(shape[1] * shape[2]).view(1, *shape[1:])
        return 1.4 * torch.sin(7.0 * (places + 1) * features.state[:, :1, None] + places)

    def bc_loss(self, features: Prefix, action: Tensor, counts: Tensor) -> Tensor:
        behind = action.new_zeros((len(action), 1, action.shape[1]))  # of two actions one is executed
        target, counted = (torch.cat((part.view_as(behind), behind), dim=1) for part in (action, counts))
        noise, time = self.draw(tuple(target.shape), None, features), torch.sigmoid(features.state[:, 0])
        velocity, _ = self._expert(flow.noisy(target, noise, time), time, features)
        return flow.matching_loss(velocity, target, noise, counted) * 2.0


def spec(model: str = TIED) -> TransitionSpec:
    """Observation and noise; for cameras an image too."""
    images = (CAMERA,) if model in ("pixels", "flow", TIED_FLOW["model"]) else ()
    return make_spec(obs=(*images, ObsSpec("noise", (NOISE,), "<f4"), ObsSpec("obs", (3,), "<f4")))


def numbers(tensors: Mapping[str, Tensor]) -> dict[str, list[float]]:
    """Name -> all its numbers."""
    return {name: t.double().flatten().tolist() for name, t in tensors.items() if name != "generator"}


def digest(sac: SAC) -> str:
    """Of all tensors but the noise's state."""
    tensors = sac.get_state()["tensors"]
    data = [tensors[name].numpy().tobytes() for name in sorted(tensors) if name != "generator"]
    return hashlib.sha256(b"".join(data)).hexdigest()


def make_learner(group: Group, model: ModelConfig, options: Mapping[str, Any], load: str | None) -> SAC:
    """A learner that begins alike in every rank, whatever a further one has before it hears of rank 0."""
    config = LearnerConfig(**{"batch_size": 8, **options})
    made = make_model(spec(model.type), model, 17 * group.rank)  # what a rank begins with must not matter
    sac = SAC(made, spec(model.type), config, 0, group)
    if group.leads and load is not None:
        found = checkpoint.resume(Path(load))
        if found is not None:
            sac.set_state(found.state)
    sac.begin()
    return sac


def batch_of(group: Group, model: str, rows: int, update: int, *, poisoned: bool) -> Batch:
    """This rank's part of an update's rows, which all ranks share."""
    whole = make_batch(spec(model), rows, seed=update, rewards=np.linspace(-1, 1, rows)[:, None])
    edges = [rank * rows // group.size for rank in range(group.size + 1)]
    mine = whole[edges[group.rank] : edges[group.rank + 1]]
    if poisoned:
        mine.obs["obs"][:] = math.nan
    return mine


def watch_gradients(sac: SAC) -> dict[str, list[float]]:
    """Fills with all gradients of each update, whole, as the optimisers get them."""
    seen: dict[str, list[float]] = {}
    reduce = sac._reduce

    def look(sample: Any, gradients: list[Tensor], *means: Tensor) -> None:
        reduce(sample, gradients, *means)
        for part in (sac.model.actor_params, sac.model.critic_params):
            named = list(part())
            if [tuple(held(p).shape) for _, p in named] == [tuple(g.shape) for g in gradients]:
                seen.update(numbers({name: _whole(g, p) for (name, p), g in zip(named, gradients, strict=True)}))

    sac._reduce = look  # type: ignore[method-assign]
    return seen


def _whole(gradient: Tensor, like: Any) -> Tensor:
    if not is_shard(like):
        return gradient
    from torch.distributed.tensor import DTensor

    made: Any = DTensor
    dressed = made.from_local(
        gradient, like.device_mesh, like.placements, run_check=False, shape=like.shape, stride=like.stride()
    )
    found: Tensor = dressed.full_tensor()
    return found


def is_shard(tensor: Any) -> bool:
    """Whether a rank holds some of its rows only."""
    return hasattr(tensor, "full_tensor")


def learn(
    group: Group,
    *,
    model: str = TIED,
    model_options: Mapping[str, Any] | None = None,
    options: Mapping[str, Any] | None = None,
    rows: int = 24,
    updates: int = 4,
    hungry: Sequence[list[int]] = (),
    poisoned: Sequence[list[int]] = (),
    load: str | None = None,
    save: str | None = None,
) -> Iterator[dict[str, Any]]:
    """Updates on ``rows`` rows that the ranks share, up to number ``updates``; what each shows, and what they lead to.

    The pool's statistics come to rank 0 alone.

    ``hungry`` and ``poisoned`` are pairs of update and rank at which that rank has no rows, or rows that are no numbers.
    ``load`` and ``save`` are directories of checkpoints to go on from, and to write one to.
    """
    sac = make_learner(group, ModelConfig(model, dict(model_options or {})), options or {}, load)
    gradients = watch_gradients(sac)
    for update in range(sac.step, updates):
        here = [update, group.rank]
        mine = batch_of(group, model, rows, update, poisoned=here in poisoned)
        told = ObsStatistics(returns=ReturnStatistics(rows, 4.0 + update)) if group.leads else None
        metrics = sac.update(mine, told, counts=here not in hungry)
        shown = {name: float(metrics[name]) for name in SHOWN} | {"skipped": float(metrics["sac/updates_skipped"])}
        yield {**shown, "digest": digest(sac), "gradients": dict(gradients)}
    state, policy = sac.get_state(), sac.weights(NO_VERSION)
    if save is not None and group.leads:
        checkpoint.write(Path(save), sac.step, state, keep=1)
    yield {"ends": numbers(state["tensors"]), "policy": policy.fingerprint()}


def main() -> int:
    told = json.loads(sys.argv[1])
    torch.set_num_threads(1)
    stop_on_signal()  # as a learner does before it meets the others
    with Group.join(told["timeout_s"]) as group:
        for case, how in told["cases"].items():
            for line in learn(group, **how):
                print(json.dumps({"case": case, **line}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
