"""A weight set: one version of a policy's tensors, packed with a manifest and a digest, unpacked whole or not at all."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import msgpack
import numpy as np

from headrace.common.errors import SpecError, WireError
from headrace.common.specs import differences, fingerprint
from headrace.common.wire.fields import check_plain

Array = np.ndarray[Any, Any]
Raw = bytes | memoryview
WEIGHT_FORMAT = 1
DIGEST_BYTES = 32  # behind a packed set
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

    def digest(self) -> str:
        """SHA-256 in hex of version, description and tensors, whatever their order."""
        return hashlib.sha256(replace(self, tensors=dict(sorted(self.tensors.items()))).pack()).hexdigest()

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
        pieces = [_MAGIC, len(head).to_bytes(4, "little"), head, *(a.reshape(-1).view(np.uint8).data for a in arrays.values())]
        digest = hashlib.sha256()
        for piece in pieces:
            digest.update(piece)
        return b"".join([*pieces, digest.digest()])  # the one copy: a set may be as large as memory allows one

    @classmethod
    def unpack(cls, blob: Raw, digest: bytes | None = None) -> WeightSet:
        """Rebuild a weight set; arrays are read-only views of ``blob``, as far as they travelled whole.

        Args:
            blob: as :meth:`pack` has made it.
            digest: SHA-256 of all of it but the last :data:`DIGEST_BYTES`, where somebody has it already.

        Raises:
            WireError: reason ``weights``; nothing is half taken.
        """
        blob = memoryview(blob).toreadonly()
        if digest is None:
            digest = hashlib.sha256(blob[:-DIGEST_BYTES]).digest()
        if len(blob) < DIGEST_BYTES or digest != blob[-DIGEST_BYTES:]:
            raise WireError("weights", "digest does not match")
        head = read_head(blob, len(blob))
        if head is None:
            raise WireError("weights", "head is too long")
        return cls(head.version, head.policy, {entry.name: _tensor(blob, entry) for entry in head.entries})


class Entry(NamedTuple):
    """One tensor of a packed set: ``dtype`` as it travels, and where its bytes begin and end."""

    name: str
    dtype: str
    shape: list[int]
    begin: int
    end: int


class Head(NamedTuple):
    """What stands in front of a packed set's tensors."""

    version: Version
    policy: dict[str, Any]
    entries: list[Entry]


def read_head(blob: memoryview, total: int) -> Head | None:
    """The head of a packed set of ``total`` bytes, checked against them; none while not all of it is among its first, ``blob``.

    Raises:
        WireError: reason ``weights``.
    """
    if len(blob) < 8:
        return None
    size = int.from_bytes(blob[4:8], "little")
    if blob[:4] != _MAGIC or size > min(MAX_HEAD_BYTES, total - 8 - DIGEST_BYTES):
        raise WireError("weights", "no weights, or their head is too long")
    if len(blob) < 8 + size:
        return None
    try:
        head = msgpack.unpackb(blob[8 : 8 + size])
        learner, epoch, step = head["version"]
        version = Version(str(learner), int(epoch), int(step))
        if head["format"] != WEIGHT_FORMAT or not isinstance(head["policy"], dict):
            raise WireError("weights", f"format {str(head['format'])[:16]!r}, this build reads {WEIGHT_FORMAT}")
        check_plain(head["policy"], MAX_POLICY_ELEMENTS)
        return Head(version, head["policy"], _entries(head["tensors"], 8 + size, total - DIGEST_BYTES))
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


def _entries(manifest: Any, start: int, end: int) -> list[Entry]:
    if not isinstance(manifest, list) or len(manifest) > MAX_TENSORS:
        raise WireError("weights", "bad tensor list")
    out: dict[str, Entry] = {}
    for name, dtype, shape in manifest:
        sound = type(name) is str and dtype in (*TENSOR_DTYPES, HALF) and type(shape) is list and len(shape) <= 8
        if not sound or any(type(n) is not int or n < 0 for n in shape):
            raise WireError("weights", "bad tensor entry")
        size = math.prod(shape) * stored_as(dtype).itemsize
        if size > end - start or name in out:
            raise WireError("weights", "tensor data is cut or named twice")
        out[name] = Entry(name, dtype, shape, start, start + size)
        start += size
    if start != end:
        raise WireError("weights", "bytes left over after the last tensor")
    return list(out.values())


def stored_as(dtype: str) -> np.dtype[Any]:
    """Of what numbers a packed tensor's bytes are."""
    return np.dtype("<u2" if dtype == HALF else dtype)


def _tensor(blob: memoryview, entry: Entry) -> Array:
    array = np.frombuffer(blob, stored_as(entry.dtype), math.prod(entry.shape), entry.begin)
    if entry.dtype == HALF:
        array = (array.astype("<u4") << np.uint32(16)).view("<f4")
    return array.reshape(entry.shape)


def _halves(array: Array) -> Array:
    """The upper halves of float32 numbers, ``<u2``, rounded to the nearest bfloat16, ties to the even one."""
    bits = array.view("<u4")
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    return np.where(np.isnan(array), np.uint32(0x7FC0), rounded).astype("<u2")  # rounded up, a NaN could look like a number
