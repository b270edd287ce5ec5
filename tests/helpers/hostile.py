"""Hostile messages by name: bytes that no part of the buffer may take, for a peer with a session and for one without.

Each payload is put wherever the wire takes bytes: as a header, as a nested value in one, and as any frame.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import msgpack
import numpy as np
from helpers.serving import SPEC, block

from headrace.common.wire import messages as m
from headrace.common.wire.codec import block_parts, encode
from headrace.common.wire.network import NetworkConfig

Parts = list[bytes]
LARGEST = NetworkConfig().fragment_bytes  # of a frame; from 64 KiB more on, the socket closes the connection
GOOD = {b"nd": True, b"type": "<f4", b"kind": b"", b"shape": [1], b"data": b"\0\0\0\0"}


class Opens:
    """Unpickled, it makes the file ``marker``."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Callable[..., object], tuple[str, str]]:
        return open, (str(self.marker), "w")


def nd(**changes: object) -> bytes:
    """The map that a common extension writes for an array, with other fields."""
    return msgpack.packb({**GOOD, **{key.encode(): value for key, value in changes.items()}})


def nested(depth: int) -> bytes:
    """An array map whose dtype is nested so deep."""
    dtype = msgpack.packb("<f4")
    for _ in range(depth):
        dtype = b"\x91\x92\xa1a" + dtype
    whole = msgpack.packb({**GOOD, b"type": 0})
    return whole.replace(b"\xc4\x04type\x00", b"\xc4\x04type" + dtype)


def payloads(marker: Path) -> dict[str, list[bytes]]:
    """Bytes by the kind of harm that they are to do."""
    return {
        "pickle": [nd(kind=b"O", data=pickle.dumps(Opens(marker))), pickle.dumps(Opens(marker))],
        "object pointers": [nd(type="|O", data=b"A" * 8), nd(type=[["a", "|O"]], kind=b"V", data=b"A" * 8)],
        "memory that nobody wrote": [nd(type="<f8", shape=[1 << 27], data=None), nd(type="<f8", shape=[8], data=None)],
        "items of no size": [nd(type="V0", shape=[1 << 40], data=b"")],
        "shapes beyond all": [
            *(nd(shape=shape) for shape in ([1 << 40], [1 << 32, 1 << 32], [1 << 63], [0, 1 << 61])),
            *(nd(shape=shape, data=b"\0" * 16) for shape in ([-1], 1, [True], [1.0])),
        ],
        "hidden bytes": [nd(shape=[1], data=b"\0" * 4096)],
        "other dtypes": [
            *(nd(type=kind, data=b"\0" * 8) for kind in ("<M8[s]", ">f4", "<c16", "f4,i4", "(1073741823,)u1")),
            nd(type=",".join(["u1"] * 200_000)),
        ],
        "depth": [
            *(nested(490), nested(505)),
            *(b"\x91" * 1_000_000 + b"\xc0", b"\x91" * 1000 + b"\xc0", b"\x81\xa1a" * 900 + b"\xc0"),
        ],
        "lengths that are not there": [
            *map(bytes.fromhex, ("ddffffffff", "c6ffffffff78", "c97fffffff0578")),
            (b"\xdd" + struct.pack(">I", (1 << 20) - 8)) * 1000 + b"\xc0" * ((1 << 20) - 5000),
        ],
        "counts": [b"\xdd\x00\x10\x00\x00" + b"\x80" * (1 << 20)],
        "cut or followed": [b"", b"\xc1", nd() + b"\xc0", *(nd()[:-n] for n in range(1, len(nd())))],
        "ambiguous maps": [
            bytes.fromhex("82a16101a16102"),
            bytes.fromhex("810102"),
            msgpack.packb({"k" * 65536: 1}),
            bytes.fromhex("a2fffe"),
            msgpack.packb({"obs": 1, b"obs": 2}),
        ],
        "an array for a map": [msgpack.packb({**GOOD, "user": 1})],
        "numbers as text": [
            msgpack.packb({b"complex": True, b"data": "1" * 1_000_000}),
            msgpack.packb({b"complex": True, b"data": b"\xff"}),
        ],
    }


def placed(payload: bytes) -> Iterator[tuple[str, Parts]]:
    """A payload wherever the wire takes bytes."""
    yield "header", [payload]
    yield "report", [bytes([0x93, m.PROTOCOL, m.Pulse.TAG]) + b"\x81\xa6report" + payload]
    yield "spec", [_spliced(encode(m.Hello(m.PROTOCOL, "actor", "z", b"9", "host", 1)), b"\xa4spec\xc0", b"\xa4spec" + payload)]
    for at in (1, 2):
        parts = honest(1 << 20)
        if len(payload) != len(parts[at]):  # else it is numbers like any other
            parts[at] = payload
            yield f"frame {at} of rows", parts
    yield "label", [encode(m.LabelHead(1, 2, 1, 1, 1)), payload]
    yield "fragment", [encode(m.Fragment(0, 1, len(payload))), payload]


def honest(seq: int, stream: int = 1, times: tuple[int, ...] = (0, 1)) -> Parts:
    """A block that is taken."""
    made = block(times)
    return [bytes(part) for part in block_parts(m.BlockHead(stream, seq, made.n_rows, made.n_frames), made, SPEC)]


def misshapen() -> dict[str, Parts]:
    """Messages with parts that are missing, doubled, swapped, of another length or another version."""
    good = honest(1 << 20)
    header, rows, obs = good
    many = encode(m.BlockHead(1, 1 << 20, (1 << 32) - 1, (1 << 32) - 1))
    return {
        "no frame": [],
        "header alone": [header],
        "17 frames": [header, rows, obs, *[b""] * 14],
        "10,000 empty frames": [header, *[b""] * 9999],
        "10,000 empty frames, no header": [b""] * 10_000,
        "rows missing": [header, obs],
        "observations missing": [header, rows],
        "rows doubled": [header, rows, rows, obs],
        "swapped": [header, obs, rows],
        "header doubled": [header, header, rows, obs],
        "version 255": [_versioned(header, 255), rows, obs],
        "observation one element short": [header, rows, obs[:-4]],
        "bytes for floats": [header, rows, np.frombuffer(obs, "<f4").astype("|u1").tobytes()],
        "more rows than bytes": [many, rows, obs],
        "frames behind a heartbeat": [encode(m.Pulse()), b"x"],
        "frames behind a hello": [encode(m.Hello(m.PROTOCOL, "actor", "z", b"9", "host", 1, SPEC.to_dict())), b"x"],
        "a buffer's message": [encode(m.Ack(1, 1 << 30))],
        "another role's message": [encode(m.Draw(1, 1))],
    }


def fields() -> dict[str, bytes]:
    """Headers of rows whose seq, and of hellos whose id, is no such thing."""

    def head(**changes: object) -> bytes:
        return msgpack.packb([1, m.BlockHead.TAG, {"stream": 1, "seq": 1, "rows": 2, "frames": 3, **changes}])

    def hello(**changes: object) -> bytes:
        values = {"protocol": 1, "role": "actor", "id": "z", "incarnation": b"9", "host": "host", "pid": 1}
        return msgpack.packb([1, m.Hello.TAG, {**values, **changes}])

    ext = msgpack.ExtType(5, (1 << 64).to_bytes(9, "big"))
    return {
        **{f"seq {seq!r}": head(seq=seq) for seq in (0, 1.0, True, "1", -1, ext, None, (1 << 64) - 1)},
        "no rows": head(rows=0),
        "an extra field": head(obs=1),
        "id of 1 MiB": hello(id="i" * (1 << 20)),
        "id with NUL": hello(id="a\0b"),
        "id with a line of its own": hello(id="a\n2026-01-01 ERROR buffer: gone"),
        "id that turns the line": hello(id="a\u202eb"),
        "id of bytes": hello(id=b"a"),
        "steps beyond all": hello(executed=(1 << 64) - 1),
        "lanes beyond all": hello(lanes=(1 << 32) - 1),
        "a role that is none": hello(role="admin"),
    }


def _spliced(whole: bytes, old: bytes, new: bytes) -> bytes:
    if whole.count(old) != 1:
        raise ValueError(f"{old!r} is not in the message once")
    return whole.replace(old, new)


def _versioned(header: bytes, version: int) -> bytes:
    outer = msgpack.unpackb(header)
    return msgpack.packb([version, *outer[1:]])


def all_of(marker: Path) -> tuple[list[Parts], list[Parts]]:
    """Every message of this file: those that a socket lets through, and some of those for which it closes the connection."""
    every = [parts for kind in payloads(marker).values() for payload in kind for _, parts in placed(payload)]
    every += [*misshapen().values(), *([header] for header in fields().values())]
    small = [parts or [b""] for parts in every if all(len(part) <= LARGEST for part in parts) and len(parts) < 1000]
    large = [parts for parts in every if any(len(part) > LARGEST + (64 << 10) for part in parts)]
    return small, large[::6]
