"""What a network sees of an observation: the keys that its role may see, and their numbers in one row."""

from __future__ import annotations

from torch import Tensor

from headrace.common.errors import SpecError
from headrace.common.specs import ObsSpec, TransitionSpec


def keys_of(spec: TransitionSpec, role: str) -> tuple[ObsSpec, ...]:
    """The keys that ``actor`` or ``critic`` may see, sorted.

    Raises:
        SpecError: there is none.
    """
    keys = tuple(o for o in spec.obs if o.role in ("both", role))
    if not keys:
        raise SpecError(f"spec.obs: no key that the {role} may see; roles are {[o.role for o in spec.obs]}")
    return keys


def flat(x: Tensor, spec: ObsSpec) -> Tensor:
    """``(B, *shape)`` or ``(B, h, *shape)`` as ``(B, F)`` float32; uint8 as x / 255."""
    numbers = x.reshape(x.shape[0], -1).float()
    return numbers / 255 if spec.dtype == "|u1" else numbers
