"""A policy as two files side by side: ``policy.hrw``, its description and tensors, and ``spec.json``, what it sees and does."""

from __future__ import annotations

import json

from headrace.common.errors import SpecError
from headrace.common.specs import TransitionSpec
from headrace.common.weights import WeightSet

POLICY, SPEC = "policy.hrw", "spec.json"


def policy_files(weights: WeightSet, spec: TransitionSpec) -> dict[str, bytes]:
    """Name -> content of both."""
    told = {"spec": spec.to_dict(), "sha256": spec.fingerprint()}
    return {POLICY: weights.pack(), SPEC: json.dumps(told, indent=1).encode()}


def parse_spec(data: bytes) -> TransitionSpec:
    """The spec in the content of a ``spec.json``.

    Raises:
        SpecError: it is none, or does not match its digest.
    """
    try:
        told = json.loads(data)
        spec, digest = TransitionSpec.from_dict(told["spec"]), told["sha256"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise SpecError(f"not a spec: {type(error).__name__}") from error
    if digest != spec.fingerprint():
        raise SpecError("the spec does not match its digest")
    return spec
