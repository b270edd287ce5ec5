"""Message <-> frames: a bounded msgpack header, then raw frames; and arrays <-> frames, checked against the spec.

A header is ``[version, tag, {field: value}]``, at most 64 KiB. No frame is ever unpickled, and no array type
comes from the wire: dtype and shape are known from the agreed spec before a byte is looked at.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Container, Sequence
from typing import Any

import msgpack
import numpy as np

from headrace.common.block import Array, Block
from headrace.common.errors import WireError
from headrace.common.label import Kind, Label
from headrace.common.specs import TransitionSpec
from headrace.common.statistics import ObsStatistics, ReturnStatistics
from headrace.common.wire import deflate
from headrace.common.wire.messages import MESSAGES, PROTOCOL, BlockHead, Compressed, Hello, LabelHead, Message
from headrace.common.wire.versions import LACKS, spoken

MAX_HEADER_BYTES = 64 << 10
MAX_PARTS = 2 + 2 * 64
MAX_COUNT = 1 << 53
Raw = deflate.Raw  # a frame to send
Frame = deflate.Frame  # a frame that came, maybe still deflated
Parts = list[Raw]

_UNPACK = {"raw": False, "strict_map_key": True, "max_ext_len": 0, "max_array_len": 8192, "max_map_len": 8192}
_FIELDS = {cls: {f.name: f.metadata["take"] for f in dataclasses.fields(cls)} for cls in MESSAGES.values()}
_REQUIRED = {
    cls: frozenset(f.name for f in dataclasses.fields(cls) if f.default is dataclasses.MISSING) for cls in MESSAGES.values()
}


def encode(message: Message, version: int = PROTOCOL) -> bytes:
    """The header frame of a message, without what ``version`` lacks; raises :class:`WireError` when it is too large."""
    kind, lacks = type(message), LACKS.get(version)
    values = {name: getattr(message, name) for name in _FIELDS[kind] if not lacks or f"{kind.__name__}.{name}" not in lacks}
    header: bytes = msgpack.packb([version, message.TAG, values])
    if len(header) > MAX_HEADER_BYTES:
        raise WireError("too-large", f"header of {len(header)} bytes, at most {MAX_HEADER_BYTES}")
    return header


def decode(header: Raw, versions: Container[int] = (PROTOCOL,)) -> Message:
    """The message in a header frame; a field that its version lacks has its default.

    Args:
        header: the frame.
        versions: of the protocol, that are understood.

    Raises:
        WireError: ``too-large``, ``version`` or ``malformed``; never anything else, whatever the bytes.
    """
    version, tag, values = _outer(header)
    if version not in versions:
        raise WireError("version", f"protocol version {version}, this build speaks {spoken()}")
    cls, lacks = MESSAGES.get(tag), LACKS[version]
    if cls is None or (lacks and cls.__name__ in lacks):
        raise WireError("malformed", "unknown kind of message")
    takers = _FIELDS[cls]
    if not (values.keys() <= takers.keys() and _REQUIRED[cls] <= values.keys()):
        raise WireError("malformed", f"{cls.__name__}: fields missing or unknown")
    if lacks and any(f"{cls.__name__}.{name}" in lacks for name in values):
        raise WireError("malformed", f"{cls.__name__}: a field that version {version} has not")
    if cls is Hello and values["protocol"] != version:
        raise WireError("malformed", "Hello: its version is not that of its header")
    try:
        return cls(**{name: takers[name](value) for name, value in values.items()})
    except WireError as error:
        raise WireError(error.reason, f"{cls.__name__}: {error}") from None


def unspoken_hello(header: Raw) -> int | None:
    """The version of a hello that :func:`decode` refuses for its version alone; none of anything else."""
    try:
        version, tag, values = _outer(header)
    except WireError:
        return None
    return version if tag == Hello.TAG and version not in LACKS and values.get("protocol") == version else None


def version_of(header: Raw) -> int:
    """The protocol version of a header that :func:`decode` has taken."""
    return _outer(header)[0]


def in_version(parts: Parts, version: int) -> Parts:
    """A message as ``version`` has it; empty when that has none like it."""
    message = decode(parts[0], LACKS)
    if type(message).__name__ in LACKS[version]:
        return []
    inside = [encode(decode(parts[1], LACKS), version)] if isinstance(message, Compressed) else []
    return [encode(message, version), *inside, *parts[1 + len(inside) :]]


def check_sender(message: Message, frames: Sequence[Frame], sender: str) -> None:
    """Refuse what ``sender``, a role or the buffer, may not send, and what has another number of frames than its kind.

    Raises:
        WireError: ``direction`` or ``arity``.
    """
    if sender not in message.SENDERS:
        raise WireError("direction", f"{type(message).__name__} is not for a {sender} to send")
    if message.FRAMES is not None and len(frames) != message.FRAMES:
        raise WireError("arity", f"{type(message).__name__} with {len(frames)} frames, it has {message.FRAMES}")


def _outer(header: Raw) -> tuple[int, int, dict[Any, Any]]:
    """Version, tag and fields of a header, of which nothing else is known yet."""
    if len(header) > MAX_HEADER_BYTES:
        raise WireError("too-large", f"header of {len(header)} bytes, at most {MAX_HEADER_BYTES}")
    try:
        outer = msgpack.unpackb(header, object_pairs_hook=_unique, **_UNPACK)
    except WireError:
        raise
    except (ValueError, TypeError, msgpack.UnpackException, RecursionError, UnicodeDecodeError) as error:
        raise WireError("malformed", f"not msgpack: {type(error).__name__}") from None
    if type(outer) is not list or len(outer) != 3:
        raise WireError("malformed", "header is not [version, tag, fields]")
    version, tag, values = outer
    if type(version) is not int or type(tag) is not int or type(values) is not dict:
        raise WireError("malformed", "header is not [version, tag, fields]")
    return version, tag, values


def _unique(pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:
    out = dict(pairs)
    if len(out) != len(pairs):
        raise WireError("malformed", "a key appears twice")
    return out


def block_parts(head: BlockHead, block: Block, spec: TransitionSpec) -> Parts:
    """A block as frames: header, packed rows, one frame per observation key, and priorities where it has them."""
    columns = [block.rows, *(block.frames[o.key] for o in spec.obs)]
    if block.priorities is not None:
        head = dataclasses.replace(head, priorities=True)
        columns.append(block.priorities.astype("<f4", copy=False))
    return [encode(head), *(raw_bytes(column) for column in columns)]


def parse_block(head: BlockHead, frames: Sequence[Frame], spec: TransitionSpec) -> Block:
    """The block in the frames after a :class:`BlockHead`; arrays are read-only views of the frames.

    Raises:
        WireError: ``arity`` or ``size`` when frames do not match the header and the spec.
    """
    count = 1 + len(spec.obs) + head.priorities
    if len(frames) != count:
        raise WireError("arity", f"{len(frames)} frames, this block of this spec has {count}")
    rows = _array(frames[0], spec.row_dtype, (head.rows,), "rows")
    obs = {
        o.key: _array(f, np.dtype(o.dtype), (head.frames, *o.shape), o.key)
        for o, f in zip(spec.obs, frames[1 : 1 + len(spec.obs)], strict=True)
    }
    priorities = _array(frames[-1], np.dtype("<f4"), (head.rows,), "priorities") if head.priorities else None
    return Block(rows, obs, priorities)


def label_parts(number: int, label: Label) -> Parts:
    """A label as frames."""
    head = LabelHead(number, label.kind, label.stream, label.first, label.last, label.outcome, label.episode)
    return [encode(head), *([] if label.rewards is None else [raw_bytes(label.rewards)])]


def parse_label(head: LabelHead, frames: Sequence[Frame], spec: TransitionSpec) -> Label:
    """The label in a :class:`LabelHead` and its frames.

    Raises:
        WireError: ``malformed``, ``arity`` or ``size``.
    """
    rewards = head.kind == Kind.REWARDS
    if head.kind == 0 or len(frames) != rewards:
        raise WireError("arity" if head.kind else "malformed", f"label of kind {head.kind} with {len(frames)} frames")
    count = max(0, head.last - head.first + 1)
    values = np.array(take_array(frames[0], "<f4", (count, spec.window), "rewards")) if rewards else None
    return Label(Kind(head.kind), head.stream, head.first, head.last, head.outcome, values, head.episode)


def statistics_frames(statistics: ObsStatistics, spec: TransitionSpec) -> Parts:
    """Mean and variance per float key as frames, in spec order; then count and variance of returns, if these are followed."""
    keys = [o.key for o in spec.obs if o.dtype == "<f4"]
    parts: Parts = [raw_bytes(np.asarray(side[k], "<f4")) for k in keys for side in (statistics.mean, statistics.var)]
    returns = statistics.returns
    return parts if returns is None else [*parts, raw_bytes(np.array([returns.count, returns.var], "<f8"))]


def parse_statistics(count: int, frames: Sequence[Frame], spec: TransitionSpec) -> ObsStatistics:
    """The statistics in the frames of :func:`statistics_frames`."""
    floats = [o for o in spec.obs if o.dtype == "<f4"]
    if len(frames) not in (2 * len(floats), 2 * len(floats) + 1):
        raise WireError("arity", f"{len(frames)} frames, statistics of this spec have {2 * len(floats)}, and one of returns")
    mean = {o.key: _array(frames[2 * i], np.dtype("<f4"), o.shape, o.key).copy() for i, o in enumerate(floats)}
    var = {o.key: _array(frames[2 * i + 1], np.dtype("<f4"), o.shape, o.key).copy() for i, o in enumerate(floats)}
    if len(frames) == 2 * len(floats):
        return ObsStatistics(count, mean, var)
    steps, spread = _array(frames[-1], np.dtype("<f8"), (2,), "returns").tolist()
    if not (0 <= steps <= MAX_COUNT and 0 <= spread < math.inf):
        raise WireError("malformed", f"returns: variance {spread:g} over {steps:g} steps")
    return ObsStatistics(count, mean, var, ReturnStatistics(int(steps), spread))


def take_array(frame: Frame, dtype: str, shape: tuple[int, ...], name: str) -> Array:
    """One frame as an array of exactly this dtype and shape, else :class:`WireError`."""
    return _array(frame, np.dtype(dtype), shape, name)


def take_object(frame: Frame, name: str) -> dict[str, Any]:
    """One frame as a JSON object, else :class:`WireError`."""
    try:
        found = json.loads(bytes(deflate.plain(frame)))
    except (ValueError, RecursionError) as error:
        raise WireError("malformed", f"{name} is not JSON") from error
    if not isinstance(found, dict):
        raise WireError("malformed", f"{name} is not an object")
    return found


def raw_bytes(array: Array) -> memoryview:
    """The bytes of an array without a copy, or of a contiguous copy where it has gaps."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def _array(frame: Frame, dtype: np.dtype[Any], shape: tuple[int, ...], name: str) -> Array:
    need = math.prod(shape) * dtype.itemsize
    if len(frame) != need:
        raise WireError("size", f"{name}: {len(frame)} bytes, expected {need}")
    return np.frombuffer(deflate.plain(frame), dtype).reshape(shape)
