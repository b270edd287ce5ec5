"""Honest messages made dishonest: bits flipped, pieces spliced, cut and repeated, lengths and fields edited, frames lost."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import msgpack

Parts = list[bytes]
LENGTHS = tuple(
    n.to_bytes(size, "big") for size in (1, 2, 4, 8) for n in (0, 1, (1 << (8 * size - 1)) - 1, (1 << 8 * size) - 1)
)
MARKS = bytes(
    [0x80, 0x90, 0x8F, 0x9F, 0xC4, 0xC5, 0xC6, 0xC7, 0xC9, 0xD9, 0xDB, 0xDC, 0xDD, 0xDE, 0xDF, 0xC0, 0xC1, 0xCB, 0xCF]
)
MOST_BYTES = 1 << 20
NUMBERS = (b"\0\0\xc0\x7f", b"\0\0\x80\x7f", b"\0\0\x80\xff", b"\xff\xff\x7f\x7f", b"\1\0\0\0")  # NaN, infinities, extremes
VALUES: tuple[Any, ...] = (
    *(n + d for n in (0, 1 << 8, 1 << 16, 1 << 31, 1 << 32, 1 << 48, 1 << 53, 1 << 63) for d in (-1, 0, 1)),
    *(
        (1 << 64) - 1,
        True,
        None,
        "",
        "x" * 300,
        "\u202e",
        b"",
        b"9",
        0.5,
        float("nan"),
        float("inf"),
        [],
        [[1, 2]],
        {},
        {"a": []},
    ),
)


def mutate(parts: Sequence[bytes], others: Sequence[Sequence[bytes]], rng: random.Random) -> Parts:
    """``parts`` with one change, or some more; what is spliced in comes from ``others``."""
    out = list(parts)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        if not out or rng.random() < 0.1:
            _change_frames(out, others, rng)
        elif len(out) > 1 and rng.random() < 0.5:
            at = rng.randrange(1, len(out))
            out[at] = _change_bytes(out[at], others, rng)[:MOST_BYTES]
        else:
            out[0] = _change_field(out[0], rng) if rng.random() < 0.6 else _change_bytes(out[0], others, rng)[:MOST_BYTES]
    return out


def _change_field(header: bytes, rng: random.Random) -> bytes:
    """The header with another value in one field, somewhat more or less, or one that is none."""
    try:
        version, tag, fields = msgpack.unpackb(header)
        name = rng.choice(list(fields))
        near = type(fields[name]) is int and rng.random() < 0.5
        fields[name] = fields[name] + rng.choice((-1, 1, 2, 7)) if near else rng.choice(VALUES)
        changed: bytes = msgpack.packb([version, tag, fields])
    except (ValueError, TypeError, IndexError, OverflowError, msgpack.UnpackException):
        return header[:-1]  # it was changed before
    return changed


def _change_bytes(data: bytes, others: Sequence[Sequence[bytes]], rng: random.Random) -> bytes:
    at = rng.randrange(len(data) + 1)
    how = rng.randrange(7)
    if how == 0 and data:  # a bit
        changed = bytearray(data)
        changed[at % len(data)] ^= 1 << rng.randrange(8)
        return bytes(changed)
    if how == 1:  # cut
        return data[:at]
    if how == 2:  # a piece again
        end = min(len(data), at + rng.randint(1, 64))
        return data[:end] + data[at:end] * rng.randint(1, 8) + data[end:]
    if how == 3:  # the tail of another
        other = rng.choice(rng.choice(others))
        return data[:at] + other[rng.randrange(len(other) + 1) :]
    if how == 4:  # a length, with a mark before it or without
        new = (bytes([rng.choice(MARKS)]) if rng.random() < 0.5 else b"") + rng.choice(LENGTHS)
        return data[:at] + new + data[at + len(new) :]
    if how == 5:  # a number without value
        new = rng.choice(NUMBERS)
        at -= at % 4
        return data[:at] + new + data[at + 4 :]
    return data[:at] + rng.randbytes(rng.randint(1, 8)) + data[at:]


def _change_frames(out: Parts, others: Sequence[Sequence[bytes]], rng: random.Random) -> None:
    at = rng.randrange(len(out) + 1)
    how = rng.randrange(4)
    if how == 0 and out:
        del out[at % len(out)]
    elif how == 1 and out:
        out.insert(at, out[rng.randrange(len(out))])
    elif how == 2 and len(out) > 1:
        other = rng.randrange(len(out))
        out[at % len(out)], out[other] = out[other], out[at % len(out)]
    else:
        out[at:at] = list(rng.choice(others))[: rng.randint(1, 3)]
