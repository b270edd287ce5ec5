"""A weight set: one version of a policy's tensors, packed with a manifest and a digest, unpacked whole or not at all."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

import msgpack
import numpy as np

from headrace.common.errors import SpecError, WireError
from headrace.common.specs import differences, fingerprint
from headrace.common.wire.fields import check_plain

Array = np.ndarray[Any, Any]
WEIGHT_FORMAT = 1
HALF = "bf16"  # in a head: float32 numbers of which only the upper halves travel
TENSOR_DTYPES = ("<f4", "<f8", "<f2", "<i8", "<i4", "|u1", "|b1")
MAX_TENSORS = 65536
MAX_HEAD_BYTES = 8 << 20
MAX_POLICY_ELEMENTS = 1 << 20
MAX_NAMED = 8  # differences in one text
AVERAGE = "average/"  # before the name of a tensor: that of the averaged policy
_MAGIC = b"HRWT"


@dataclass(frozen=True)
class Version:
    """Which weights: ``(epoch, step)`` orders the versions of one learner; epoch 0 means no weights yet."""

    learner: str
    epoch: int
    step: int

    @property
    def order(self) -> tuple[int, int]:
        """What versions of one learner are compared by."""
        return (self.epoch, self.step)

    @property
    def learner_hash(self) -> int:
        """64-bit number of the learner id, as stored in each row."""
        return int.from_bytes(hashlib.sha256(self.learner.encode()).digest()[:8], "little")


NO_VERSION = Version("", 0, 0)


@dataclass(frozen=True)
class WeightSet:
    """Tensors of one policy at one version.

    Attributes:
        version: who published it and when.
        policy: plain description from which an actor builds the policy (``type`` and its options).
        tensors: name -> array, in the order that the learner gives; includes buffers and normaliser statistics, and once more
            with ``average/`` before their names those of the averaged policy, where the learner makes one.
    """

    version: Version
    policy: Mapping[str, Any]
    tensors: Mapping[str, Array]

    def fingerprint(self) -> str:
        """Identity of class, tensor names, shapes and dtypes (not of values), in hex."""
        return policy_fingerprint(self.policy, self.tensors)

    def chosen(self, *, ema: bool = False) -> WeightSet:
        """The policy alone, or its average alone.

        Raises:
            SpecError: there is no average.
        """
        plain = {name: tensor for name, tensor in self.tensors.items() if not name.startswith(AVERAGE)}
        if ema and len(plain) == len(self.tensors):
            raise SpecError(
                f"the policy of update {self.version.step} comes without an average: its learner made none"
                " (learner.ema_decay), or one of the two was chosen before"
            )
        prefix = AVERAGE if ema else ""  # observation statistics are those of both
        return replace(self, tensors={name: self.tensors.get(prefix + name, tensor) for name, tensor in plain.items()})

    def first_non_finite(self) -> str | None:
        """Name of the first tensor that holds NaN or infinity, if any does."""
        floats = ((name, t) for name, t in self.tensors.items() if t.dtype.kind == "f")
        return next((name for name, t in floats if not np.isfinite(t).all()), None)

    def pack(self, halved: Collection[str] = ()) -> bytes:
        """One self-contained blob: magic, head length, msgpack head, raw tensors, SHA-256 of all before.

        Args:
            halved: names of float32 tensors whose numbers travel in bfloat16; unpacked they are float32 again, rounded.
        """
        arrays = {name: np.ascontiguousarray(t).reshape(t.shape) for name, t in self.tensors.items()}
        dtypes = {name: a.dtype.str for name, a in arrays.items()}
        for name in halved:
            arrays[name], dtypes[name] = _halves(arrays[name]), HALF
        head = msgpack.packb(
            {
                "format": WEIGHT_FORMAT,
                "version": [self.version.learner, self.version.epoch, self.version.step],
                "policy": dict(self.policy),
                "tensors": [[name, dtypes[name], list(a.shape)] for name, a in arrays.items()],
            }
        )
        body = b"".join([_MAGIC, len(head).to_bytes(4, "little"), head, *(a.tobytes() for a in arrays.values())])
        return body + hashlib.sha256(body).digest()

    @classmethod
    def unpack(cls, blob: bytes) -> WeightSet:
        """Rebuild a weight set; arrays are read-only views of ``blob``, as far as they travelled whole.

        Raises:
            WireError: reason ``weights``; nothing is half taken.
        """
        if len(blob) < 40 or blob[:4] != _MAGIC or hashlib.sha256(blob[:-32]).digest() != blob[-32:]:
            raise WireError("weights", "digest does not match")
        size = int.from_bytes(blob[4:8], "little")
        if size > min(MAX_HEAD_BYTES, len(blob) - 40):
            raise WireError("weights", "head is too long")
        try:
            head = msgpack.unpackb(blob[8 : 8 + size])
            learner, epoch, step = head["version"]
            version = Version(str(learner), int(epoch), int(step))
            if head["format"] != WEIGHT_FORMAT or not isinstance(head["policy"], dict):
                raise WireError("weights", f"format {str(head['format'])[:16]!r}, this build reads {WEIGHT_FORMAT}")
            check_plain(head["policy"], MAX_POLICY_ELEMENTS)
            return cls(version, head["policy"], _tensors(head["tensors"], blob, 8 + size))
        except (KeyError, TypeError, ValueError, ArithmeticError, msgpack.UnpackException) as error:
            raise WireError("weights", f"malformed head: {type(error).__name__}") from error


def require_policy(weights: WeightSet, policy: Mapping[str, Any], fix: str) -> None:
    """Refuse weights of another policy than ``policy``, the description that this process holds.

    Raises:
        SpecError: naming the fields that differ, ours first, and ``fix``, what to do about it.
    """
    different = differences(dict(policy), dict(weights.policy), "policy")
    if different:
        raise SpecError(f"the weights are of another policy (ours first): {'; '.join(different[:MAX_NAMED])}; {fix}")


def policy_fingerprint(policy: Mapping[str, Any], tensors: Mapping[str, Array]) -> str:
    """SHA-256 over the policy description and each tensor's name, dtype and shape, in hex."""
    shapes = [[name, np.dtype(t.dtype).str, list(t.shape)] for name, t in sorted(tensors.items())]
    return fingerprint({"policy": dict(policy), "tensors": shapes})


def _tensors(manifest: Any, blob: bytes, start: int) -> dict[str, Array]:
    if not isinstance(manifest, list) or len(manifest) > MAX_TENSORS:
        raise WireError("weights", "bad tensor list")
    out: dict[str, Array] = {}
    end = len(blob) - 32
    for name, dtype, shape in manifest:
        sound = type(name) is str and dtype in (*TENSOR_DTYPES, HALF) and type(shape) is list and len(shape) <= 8
        if not sound or any(type(n) is not int or n < 0 for n in shape):
            raise WireError("weights", "bad tensor entry")
        count = math.prod(shape)
        stored = "<u2" if dtype == HALF else dtype
        size = count * np.dtype(stored).itemsize
        if size > end - start or name in out:
            raise WireError("weights", "tensor data is cut or named twice")
        array = np.frombuffer(blob, stored, count, start)
        if dtype == HALF:
            array = (array.astype("<u4") << np.uint32(16)).view("<f4")
        out[name] = array.reshape(shape)
        start += size
    if start != end:
        raise WireError("weights", "bytes left over after the last tensor")
    return out


def _halves(array: Array) -> Array:
    """The upper halves of float32 numbers, ``<u2``, rounded to the nearest bfloat16, ties to the even one."""
    bits = array.view("<u4")
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    return np.where(np.isnan(array), np.uint32(0x7FC0), rounded).astype("<u2")  # rounded up, a NaN could look like a number
