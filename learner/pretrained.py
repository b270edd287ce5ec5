"""Pretrained policies: an exported flow policy out of a local directory, whose tensors are taken by name, all or none."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from headrace.common.errors import CheckpointError, ConfigError, SpecError
from headrace.common.exported import read_export
from headrace.common.prefix_columns import names_of, stored
from headrace.common.specs import TransitionSpec, differences
from headrace.common.weights import MAX_NAMED, WeightSet
from headrace.learner.adam import copy_tensors

if TYPE_CHECKING:
    from headrace.learner.flow_policy import FlowPolicy


def read_pretrained(directory: str, what: str) -> tuple[WeightSet, TransitionSpec]:
    """The policy that ``headrace export`` has written to ``directory``, and what it sees and does.

    Args:
        directory: of this host.
        what: option that names it, for errors.

    Raises:
        ConfigError: nothing is there, or it is damaged.
    """
    if not directory:
        raise ConfigError(f"{what}: empty; name the directory of an exported flow policy (headrace export RUN DIRECTORY)")
    try:
        return read_export(Path(directory).expanduser())
    except CheckpointError as error:
        raise ConfigError(f"{what}: {error}") from error


def take(own: Mapping[str, Tensor], theirs: Mapping[str, Tensor], what: str) -> None:
    """Copy ``theirs`` into ``own``, by name, all or none.

    Raises:
        ConfigError: naming the tensor that is missing, unknown, of another shape or dtype, or not finite.
    """
    for name, tensor in theirs.items():
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            raise ConfigError(f"{what}: tensor {name!r} holds NaN or infinity")
    try:
        copy_tensors(own, theirs, what)
    except CheckpointError as error:
        raise ConfigError(str(error)) from error


def load_frozen(directory: str, spec: TransitionSpec, what: str) -> tuple[FlowPolicy, str]:
    """The flow policy in ``directory`` as it acts, which no gradient reaches, and a digest of it.

    Args:
        directory: an export.
        spec: of the run, in which it must see all that it was trained on, and act alike.
        what: option that names the directory, for errors.

    Raises:
        ConfigError: the directory holds no flow policy, or its tensors do not fit its class; naming the tensor.
        SpecError: it sees what is not there, or acts in another way.
    """
    from headrace.learner.flow_policy import FlowPolicy  # which reads pretrained tensors itself

    weights, own = read_pretrained(directory, what)
    require_fit(own, spec, what)
    name = str(weights.policy.get("class", weights.policy.get("type", "")))
    module, _, attribute = name.partition(":")
    try:
        cls = getattr(importlib.import_module(module), attribute)
    except Exception as error:  # a foreign module may raise anything while it is imported
        raise ConfigError(f"{what}: the class {name!r} of {directory} cannot be imported: {error}") from error
    if not isinstance(cls, type) or not issubclass(cls, FlowPolicy):
        raise ConfigError(
            f"{what}: {directory} holds a policy of {name!r}, which is no flow policy; nearest valid: an export of one"
        )
    model: FlowPolicy = cls(own, **weights.policy.get("options", {}))
    tensors = {name: torch.tensor(np.asarray(tensor)) for name, tensor in weights.tensors.items()}
    take(model.policy_tensors(), tensors, f"{what}: {directory}")
    return model.requires_grad_(False).eval(), weights.digest()


def require_stored(digest: str, spec: TransitionSpec, what: str) -> str:
    """The digest of a policy whose prefix rows of ``spec`` hold.

    Raises:
        SpecError: they hold none, or that of another policy.
    """
    if missing := [name for name in names_of(digest) if name not in {o.key for o in spec.obs}]:
        held = ", ".join(stored(spec)) or "none"
        raise SpecError(
            f"model.options.stored: true, but rows hold no {missing[0]}, which is that of {what}; they hold {held}. Name"
            " the same directory as window.prefix"
        )
    return digest


def require_fit(own: TransitionSpec, spec: TransitionSpec, what: str) -> None:
    """Refuse a run in which a policy of spec ``own`` would not see what it knows, or would act otherwise.

    Raises:
        SpecError: naming each difference, the policy's first.
    """

    def seen(of: TransitionSpec) -> dict[str, Any]:
        return {o.key: {"shape": list(o.shape), "dtype": o.dtype} for o in of.obs if o.role != "critic"}

    mine, here = own.to_dict(), spec.to_dict()
    ours = {"obs": seen(own), "action": mine["action"], "window": own.window, "stack": own.stack}
    theirs = {"obs": {key: seen(spec).get(key) for key in seen(own)}, "action": here["action"]}
    different = differences(ours, {**theirs, "window": spec.window, "stack": spec.stack}, "spec")
    if different:
        raise SpecError(
            f"{what}: the policy is of other observations or actions (the policy's first): {'; '.join(different[:MAX_NAMED])}"
        )
