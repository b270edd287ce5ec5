"""Messages and arrays on the wire, honest and hostile."""

from __future__ import annotations

import dataclasses
import random

import msgpack
import numpy as np
import pytest

from headrace.common.block import Block
from headrace.common.errors import WireError
from headrace.common.specs import ActionSpec, ObsSpec, TransitionSpec
from headrace.common.statistics import ObsStatistics, ReturnStatistics
from headrace.common.wire import codec, fragments
from headrace.common.wire import messages as m

SPEC = TransitionSpec(
    (ObsSpec("image", (4, 4, 3), "|u1"), ObsSpec("state", (3,), "<f4")), ActionSpec((2,), (-1.0, -2.0), (1.0, 2.0)), stack=2
)


def example(cls):
    values = {"incarnation": b"x" * 16, "host": "h", "role": "actor", "id": "a", "reason": "r", "detail": "d", "what": "status"}
    kinds = {"int": 1, "float": 1.5, "bool": True, "str": "s", "bytes": b"b"}
    return cls(
        **{f.name: values.get(f.name, kinds.get(f.type)) for f in dataclasses.fields(cls) if f.default is dataclasses.MISSING}
    )


@pytest.mark.parametrize("cls", m.MESSAGES.values(), ids=lambda c: c.__name__)
def test_every_message_survives_the_wire(cls):
    message = example(cls)
    assert codec.decode(codec.encode(message)) == message


@pytest.mark.parametrize("cls", m.MESSAGES.values(), ids=lambda c: c.__name__)
def test_no_mutation_of_a_header_does_more_than_raise_a_wire_error(cls):
    rng = random.Random(cls.TAG)
    good = codec.encode(example(cls))
    for _ in range(3000):
        bad = bytearray(good)
        for _ in range(rng.randint(1, 4)):
            how = rng.randrange(4)
            at = rng.randrange(len(bad)) if bad else 0
            if how == 0 and bad:
                bad[at] = rng.randrange(256)
            elif how == 1:
                del bad[at:]
            elif how == 2:
                bad[at:at] = rng.randbytes(rng.randint(1, 9))
            else:
                bad += bad[at:]
        try:
            message = codec.decode(bytes(bad))
        except WireError:
            continue
        assert codec.decode(codec.encode(message)) == message


def header(values, tag=m.Ack.TAG, version=m.PROTOCOL):
    return msgpack.packb([version, tag, values])


@pytest.mark.parametrize(
    "bad",
    [
        b"",
        b"\xc1",
        b"\x91" * 60_000 + b"\xc0",
        b"\x91" * 1000 + b"\xc0",
        bytes.fromhex("ddffffffff"),
        bytes.fromhex("c6ffffffff78"),
        b"\xdd\x00\x10\x00\x00" + b"\x80" * 60_000,
        header({"stream": 1, "seq": 2}) + b"\xc0",
        header({"stream": 1, "seq": 2}, version=255),
        header({"stream": 1, "seq": 2}, tag=200),
        header({"stream": 1, "seq": 2}, tag=True),
        header({"stream": 1}),
        header({"stream": 1, "seq": 2, "extra": 3}),
        header({"stream": 1, "seq": -1}),
        header({"stream": 1, "seq": 1.0}),
        header({"stream": 1, "seq": True}),
        header({"stream": 1, "seq": "1"}),
        msgpack.packb([1, m.Ack.TAG, {"stream": 1}])[:-1],
        bytes([0x93, 1, m.Ack.TAG, 0x82, 0xA6]) + b"stream" + bytes([1, 0xA6]) + b"stream" + bytes([2]),
        msgpack.packb([1, m.Ack.TAG, {1: 2}]),
        msgpack.packb([1, m.Query.TAG, {"what": "x\ny"}]),
        msgpack.packb([1, m.Query.TAG, {"what": "x" * 33}]),
        msgpack.packb([1, m.Pulse.TAG, {"report": {"a": msgpack.ExtType(5, b"x")}}]),
        b"\x00" * ((64 << 10) + 1),
    ],
    ids=range(24),
)
def test_hostile_headers_are_refused(bad):
    with pytest.raises(WireError):
        codec.decode(bad)


def test_plain_values_are_bounded_in_depth_and_count():
    deep = None
    for _ in range(10):
        deep = [deep]
    for bad in (deep, [[0] * 100 for _ in range(100)], {"a": b"bytes"}):
        with pytest.raises(WireError):
            codec.decode(codec.encode(m.Pulse(report=bad)))


def block(n=3, frames=5):
    rows = np.zeros(n, SPEC.row_dtype)
    rows["t"], rows["steps"] = np.arange(n), 1
    images = np.arange(frames * 48, dtype=np.uint8).reshape(frames, 4, 4, 3)
    return Block(rows, {"image": images, "state": np.arange(frames * 3, dtype=np.float32).reshape(frames, 3)})


def test_a_block_survives_the_wire_in_parts_of_any_size():
    sent = block()
    parts = codec.block_parts(m.BlockHead(1, 1, 3, 5), sent, SPEC)
    for limit in (16, 100, 10_000):
        joiner = fragments.Joiner(1 << 20)
        got = None
        for piece in fragments.split(parts, limit):
            head = codec.decode(piece[0])
            got = joiner.add(head, piece[1]) if isinstance(head, m.Fragment) else piece
        head = codec.decode(got[0])
        back = codec.parse_block(head, got[1:], SPEC)
        assert back.rows.tobytes() == sent.rows.tobytes()
        assert all(np.array_equal(back.frames[k], sent.frames[k]) for k in sent.frames)


@pytest.mark.parametrize("edit", ["cut", "missing", "extra", "longer", "more-rows"])
def test_a_block_whose_frames_do_not_fit_is_refused(edit):
    parts = codec.block_parts(m.BlockHead(1, 1, 3, 5), block(), SPEC)
    head, frames = codec.decode(parts[0]), list(parts[1:])
    if edit == "cut":
        frames[1] = frames[1][:-1]
    elif edit == "missing":
        frames.pop()
    elif edit == "extra":
        frames.append(b"")
    elif edit == "longer":
        frames[0] = bytes(frames[0]) + b"\0"
    else:
        head = dataclasses.replace(head, rows=(1 << 32) - 1)
    with pytest.raises(WireError):
        codec.parse_block(head, frames, SPEC)


def test_fragments_out_of_order_or_too_large_are_refused_and_forgotten():
    parts = codec.block_parts(m.BlockHead(1, 1, 3, 5), block(), SPEC)
    pieces = [(codec.decode(p[0]), p[1]) for p in fragments.split(parts, 64)]
    for order in ([0, 2], [1], [0, 0, 2], [0, 1, 1]):
        joiner = fragments.Joiner(1 << 20)
        with pytest.raises(WireError):
            for i in order:
                joiner.add(*pieces[i])
    with pytest.raises(WireError):
        fragments.Joiner(64).add(*pieces[0])
    joiner = fragments.Joiner(1 << 20)
    with pytest.raises(WireError):
        joiner.add(m.Fragment(0, 1, 40), b"\xff" * 40)
    assert [joiner.add(*p) is not None for p in pieces][-1]


@pytest.mark.parametrize("returns", [None, ReturnStatistics(1 << 40, 0.1), ReturnStatistics()])
def test_statistics_survive_the_wire(returns):
    mean, var = {"state": np.array([1, 2, 3], "<f4")}, {"state": np.array([4, 5, 6], "<f4")}
    sent = ObsStatistics(7, mean, var, returns)
    frames = codec.statistics_frames(sent, SPEC)
    assert len(frames) == (2 if returns is None else 3)  # who knows of no returns gets what it always got
    found = codec.parse_statistics(7, frames, SPEC)
    assert (found.count, found.returns) == (7, returns)
    np.testing.assert_array_equal(found.mean["state"], mean["state"])
    np.testing.assert_array_equal(found.var["state"], var["state"])


@pytest.mark.parametrize("bad", [(-1.0, 1.0), (5.0, -1.0), (5.0, np.inf), (np.nan, 1.0), (1e300, 1.0)])
def test_returns_that_are_no_statistics_are_refused(bad):
    frames = [b"\0" * 12] * 2
    with pytest.raises(WireError, match="returns: variance"):
        codec.parse_statistics(1, [*frames, np.array(bad, "<f8").tobytes()], SPEC)
    for wrong in ([*frames, b"\0" * 8], frames[:1], [*frames, b"\0" * 16, b""]):
        with pytest.raises(WireError):
            codec.parse_statistics(1, wrong, SPEC)


@pytest.mark.parametrize("data", [b"", b"{", b"[1]", b"7", b"\xff", b"[" * 100_000])
def test_what_is_no_json_object_is_refused(data):
    with pytest.raises(WireError, match="the answer is not"):
        codec.take_object(data, "the answer")


def test_an_answer_is_an_object():
    assert codec.take_object(memoryview(b'{"rows": 7}'), "the answer") == {"rows": 7}
