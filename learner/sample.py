"""A sample: one batch of rows as the tensors that the losses take."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from headrace.common.batch import Batch
from headrace.common.errors import SpecError
from headrace.common.specs import SOURCES, TransitionSpec
from headrace.learner.config import LearnerConfig
from headrace.learner.contract import TASK
from headrace.learner.distribution import ActionBox
from headrace.learner.losses import bootstrap
from headrace.learner.normalise import ObsNormaliser
from headrace.learner.rewards import Rewards
from headrace.learner.uploads import Columns, Uploads

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Sample:
    """B rows.

    Attributes:
        obs: key -> ``(B, *shape)`` or ``(B, h, *shape)``, normalised when the learner normalises.
        next_obs: the same for the true last observation of each window.
        action: ``(B, D)`` executed actions in [-1, 1], clipped.
        reward: ``(B,)`` R of :class:`Rewards`.
        weight: ``(B,)`` gamma^m (1 - terminated), the factor of the next value.
        outside: () int64, rows whose executed action lay outside the policy's box.
        importance: ``(B,)`` weights of rows that were not drawn equally likely; None where all were.
        cloned: ``(B, D)`` of 0 and 1, which numbers of the actions the actor is to clone; None where it clones nothing.
        next_action: ``(B, D)`` executed behind each window, NaN where the episode ended; None where the policy's own count.
        kept: ``(n,)`` bool, which of the batch's n rows these B are; None for all of them.
        counts: false where none of the batch's rows can be learned from, and one stands for them, whose losses are no numbers.
    """

    obs: Mapping[str, Tensor]
    next_obs: Mapping[str, Tensor]
    action: Tensor
    reward: Tensor
    weight: Tensor
    outside: Tensor
    importance: Tensor | None = None
    cloned: Tensor | None = None
    next_action: Tensor | None = None
    kept: Array | None = None
    counts: bool = True


class Sampler:
    """Turns batches into samples.

    Args:
        spec: columns of the batches.
        config: whose actions are cloned or followed.
        rewards: what is made of raw rewards.
        normaliser: applied to observations; None leaves them raw.
        device: where the samples go.
        tasks: so many tasks are told apart, and observations hold the row's; 0: they do not.
    """

    def __init__(
        self,
        spec: TransitionSpec,
        config: LearnerConfig,
        rewards: Rewards,
        normaliser: ObsNormaliser | None,
        device: torch.device | None = None,
        tasks: int = 0,
    ) -> None:
        self._spec, self._config, self._rewards, self._tasks = spec, config, rewards, tasks
        self._normaliser, self._device = normaliser, device
        self._box = ActionBox(spec.action, device)
        self._uploads: Uploads | None = None
        if device is not None and device.type == "cuda":
            self._uploads = Uploads(self._load, device)

    def ahead(self, batch: Batch) -> None:
        """Begin to copy a batch to the device, if that is a GPU; :meth:`__call__` takes the copy of this very object."""
        if self._uploads is not None:
            self._uploads.begin(batch)

    def __call__(self, batch: Batch) -> Sample:
        """The batch as tensors.

        Raises:
            SpecError: the batch has other columns or keys than the spec, or is of a task that is not among those told apart.
        """
        sample = self.of(self.columns(batch))
        if not self._spec.latent:
            return sample
        return replace(sample, kept=self._kept(batch.rows), counts=bool(batch.rows["has_latent"].any()))

    def columns(self, batch: Batch) -> Columns:
        """The batch's columns on the device; raises :class:`SpecError` as :meth:`__call__`."""
        return self._load(batch) if self._uploads is None else self._uploads.take(batch)

    def of(self, columns: Columns) -> Sample:
        """What is made of the columns of a batch, by the same steps for all batches of one shape."""
        action, outside = self._decided(columns)
        return Sample(
            self._observe("obs", columns),
            self._observe("next_obs", columns),
            action,
            self._rewards(columns["rewards"], columns["steps"]),
            bootstrap(columns["steps"], columns["terminated"], self._rewards.powers),
            outside,
            columns.get("weights"),
            columns.get("cloned"),
            self._next_action(columns),
        )

    def _load(self, batch: Batch) -> Columns:
        rows, spec = batch.rows, self._spec
        if rows.dtype != spec.row_dtype:
            raise SpecError(f"batch.rows: rows of {rows.dtype.itemsize} bytes, the spec's have {spec.row_dtype.itemsize}")
        if spec.latent:
            batch = batch[self._kept(rows)]
            rows = batch.rows
        decided = ("latent", "has_latent") if spec.latent else ("action",)
        columns = {name: rows[name] for name in (*decided, "rewards", "terminated")}
        columns["steps"] = rows["steps"].astype(np.int64)
        if batch.weights is not None:
            columns["weights"] = batch.weights
        if self._config.bc_weight:
            columns["cloned"] = self._cloned(rows)
        if not self._config.resample_target_action:
            columns["next_action"], columns["ended"] = rows["next_action"], rows["terminated"] | rows["truncated"]
        if self._tasks:
            columns["task"] = self._known(rows["task"])
        for name, obs in (("obs", batch.obs), ("next_obs", batch.next_obs)):
            for o in spec.obs:
                if o.key not in obs:
                    raise SpecError(f"batch.{name}: key {o.key!r} is missing, the batch holds {sorted(obs)}")
                columns[f"{name}.{o.key}"] = obs[o.key]
        return {name: self._tensor(array) for name, array in columns.items()}

    def _cloned(self, rows: Array) -> Array:
        """Which numbers of each action were executed, by those who are cloned: of a chunk that ended early, the first ones."""
        action, window, sources = self._spec.action, self._spec.window, self._config.bc_sources
        steps = np.arange(action.shape[0] if len(action.shape) == 2 else 1)
        counts = steps < rows["steps"][:, None]
        if sources:
            acted = rows["source"][:, np.minimum(steps, window - 1)]
            counts &= np.isin(acted, [SOURCES.index(name) for name in sources])
        return counts.repeat(action.dim, axis=1).astype(np.float32)

    def _known(self, tasks: Array) -> Array:
        if len(tasks) and tasks.max() >= self._tasks:
            raise SpecError(
                f"model.options.critic_tasks: {self._tasks}, but there are rows of task {tasks.max()}; nearest valid:"
                f" {tasks.max() + 1}"
            )
        return tasks.astype(np.int64)

    def _kept(self, rows: Array) -> Array:
        """Rows that critics of latents learn from: those that have one, or, so that there is one at all, the first."""
        kept: Array = rows["has_latent"] > 0
        if not kept.any():
            kept[0] = True
        return kept

    def _decided(self, columns: Columns) -> tuple[Tensor, Tensor]:
        """What critics judge: executed actions, or latents; and how many rows lay outside of the box."""
        if not self._spec.latent:
            return self._box.normalise(columns["action"].flatten(1))
        latent = columns["latent"].masked_fill(columns["has_latent"].unsqueeze(1) == 0, torch.nan)
        return latent, (latent.abs() > 1.0).any(dim=-1).sum()

    def _next_action(self, columns: Columns) -> Tensor | None:
        """What was executed behind each window, NaN where nothing was; None where it is not wanted."""
        if "next_action" not in columns:
            return None
        action, _ = self._box.normalise(columns["next_action"].flatten(1))
        return action.masked_fill(columns["ended"].bool().unsqueeze(1), torch.nan)

    def _observe(self, name: str, columns: Columns) -> dict[str, Tensor]:
        tensors = {o.key: columns[f"{name}.{o.key}"] for o in self._spec.obs}
        seen = tensors if self._normaliser is None else self._normaliser(tensors)
        return {**seen, TASK: columns["task"]} if self._tasks else seen

    def _tensor(self, array: Array) -> Tensor:
        # from_numpy wants memory that may be written and has no gaps; rows are neither packed by column nor ours. A single
        # row counts as packed whatever its stride is.
        whole = not any(stride % array.itemsize for stride in array.strides)
        if not (array.flags.writeable and array.flags.c_contiguous and whole):
            array = array.copy()
        tensor = torch.from_numpy(array)
        if self._uploads is not None:
            tensor = tensor.pin_memory()  # only from there a copy goes on by itself
        return tensor.to(self._device, non_blocking=True)


def of_batch(sample: Sample, values: Tensor) -> Tensor:
    """Values ``(B, ...)`` of a sample's rows as those of its batch ``(n, ...)``; NaN for rows that were left out."""
    if sample.kept is None:
        return values
    out = values.new_full((len(sample.kept), *values.shape[1:]), torch.nan)
    out[torch.from_numpy(sample.kept).to(values.device)] = values
    return out
