"""An exported policy: a directory that programs without headrace can read, and that headrace takes back.

``policy.safetensors`` holds the tensors and ``policy.json`` all else: what the policy sees and does, its description, its
version, the normaliser's statistics, and size and SHA-256 of every other file. ``policy.pt`` (TorchScript) and ``policy.onnx``
are the same policy as one module, where they were asked for.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from headrace.common.directories import write_directory
from headrace.common.errors import CheckpointError, SpecError
from headrace.common.specs import TransitionSpec, fingerprint
from headrace.common.statistics import NORMAL_LIMIT, VAR_FLOOR
from headrace.common.weights import TENSOR_DTYPES, Version, WeightSet

FORMAT = 1
TENSORS, ABOUT = "policy.safetensors", "policy.json"
MAX_ABOUT_BYTES = 64 << 20


def inputs_of(spec: TransitionSpec) -> list[str]:
    """The observations that a policy may see, in the order in which its module takes them."""
    return [o.key for o in spec.obs if o.role != "critic"]


def write_export(out: Path, weights: WeightSet, spec: TransitionSpec, modules: Mapping[str, bytes]) -> None:
    """Make the directory ``out``.

    Args:
        out: does not exist.
        weights: the policy.
        spec: its observations and actions.
        modules: further files, name -> content.

    Raises:
        OSError: it could not be written; then nothing is there.
    """
    import safetensors.numpy

    tensors = {name: np.array(tensor, order="C") for name, tensor in weights.tensors.items()}
    files = {TENSORS: safetensors.numpy.save(tensors), **modules}
    body = {
        "format": FORMAT,
        "version": {"learner": weights.version.learner, "epoch": weights.version.epoch, "step": weights.version.step},
        "policy": dict(weights.policy),
        "spec": spec.to_dict(),
        "inputs": inputs_of(spec),
        "normaliser": _normaliser(weights, spec),
        "files": {name: _digest(data) for name, data in files.items()},
    }
    about = json.dumps({"sha256": fingerprint(body), **body}, indent=1, allow_nan=False)
    write_directory(out, {**files, ABOUT: about.encode()})


def read_export(directory: Path) -> tuple[WeightSet, TransitionSpec]:
    """The policy in an exported directory, with its spec.

    Raises:
        CheckpointError: something is missing, damaged or of another format; the text names it.
    """
    import safetensors.numpy
    from safetensors import SafetensorError

    about = _read_about(directory / ABOUT)
    try:
        version = Version(str(about["version"]["learner"]), int(about["version"]["epoch"]), int(about["version"]["step"]))
        policy, spec, told = dict(about["policy"]), TransitionSpec.from_dict(about["spec"]), about["files"][TENSORS]
    except (KeyError, TypeError, ValueError, SpecError) as error:
        raise CheckpointError(f"{directory / ABOUT}: not an exported policy: {type(error).__name__}: {error}") from error
    try:
        data = (directory / TENSORS).read_bytes()
        if _digest(data) != told:
            raise CheckpointError(f"{directory / TENSORS}: does not match its digest")
        tensors = safetensors.numpy.load(data)
    except (OSError, SafetensorError, ValueError, TypeError) as error:
        raise CheckpointError(f"{directory / TENSORS}: cannot be read: {error}") from error
    for name, tensor in tensors.items():
        if tensor.dtype.str not in TENSOR_DTYPES:
            raise CheckpointError(f"{directory / TENSORS}: tensor {name!r} is {tensor.dtype}, which no policy has")
    return WeightSet(version, policy, tensors), spec


def _read_about(path: Path) -> dict[str, Any]:
    try:
        if path.stat().st_size > MAX_ABOUT_BYTES:
            raise CheckpointError(f"{path}: {path.stat().st_size} bytes, at most {MAX_ABOUT_BYTES}")
        about = json.loads(path.read_bytes())
        digest, version = about.pop("sha256"), about["format"]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CheckpointError(f"{path}: not an exported policy: {type(error).__name__}: {error}") from error
    if version != FORMAT:
        raise CheckpointError(f"{path}: format {version!r}, this build reads {FORMAT}")
    if digest != fingerprint(about):
        raise CheckpointError(f"{path}: does not match its digest")
    return dict(about)


def _normaliser(weights: WeightSet, spec: TransitionSpec) -> dict[str, Any] | None:
    """``clip((x - mean) / sqrt(var + floor), -limit, limit)`` of each key: the numbers; None where nothing is normalised."""
    keys = [key for key in inputs_of(spec) if f"mean.{key}" in weights.tensors]
    if not keys:
        return None
    statistics = {key: {name: weights.tensors[f"{name}.{key}"].tolist() for name in ("mean", "var")} for key in keys}
    return {"floor": VAR_FLOOR, "limit": NORMAL_LIMIT, "statistics": statistics}


def _digest(data: bytes) -> dict[str, Any]:
    return {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
