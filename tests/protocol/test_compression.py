"""Compressed messages, honest and hostile: what arrives is what was sent, and nothing inflates beyond what it should be."""

from __future__ import annotations

import random
import tracemalloc
import zlib
from dataclasses import replace

import numpy as np
import pytest
from helpers import serving
from helpers.serving import SPEC, first, kinds

from headrace.buffer import weight_exchange
from headrace.common.block import Block
from headrace.common.errors import WireError
from headrace.common.specs import ActionSpec, ObsSpec, TransitionSpec
from headrace.common.staging import Staging
from headrace.common.weights import Version, WeightSet
from headrace.common.wire import compression, deflate
from headrace.common.wire import messages as m
from headrace.common.wire.batches import Incoming
from headrace.common.wire.codec import block_parts, decode, encode, parse_block
from headrace.common.wire.fragments import size_of, split

IMAGES = TransitionSpec(
    (ObsSpec("image", (8, 8, 3), "|u1"), ObsSpec("state", (5,), "<f4")), ActionSpec((2,), (-1.0, -2.0), (1.0, 2.0)), stack=2
)
ROOM = 1 << 20


def noise(n):
    return np.random.default_rng(n).bytes(n)


def walk(n):
    """Bytes of float32 numbers as sensors give them."""
    return np.cumsum(np.random.default_rng(n).normal(size=n)).astype("<f4").tobytes()


@pytest.mark.parametrize("width", [1, 2, 4, 8, 121, 5000])
@pytest.mark.parametrize("size", [512, 513, 5001, 100_003])
def test_a_frame_that_travels_deflated_is_what_it_was(size, width):
    data = (walk(size)[: size // 2] + b"abc" * size)[:size]
    made = deflate.deflate(memoryview(data), (width,))
    assert (len(made), made.width) == (size, width)
    assert deflate.travelled([made]) < size
    assert bytes(made.inflate()) == bytes(deflate.plain(made)) == data


def test_the_width_that_suits_is_found_and_noise_travels_as_it_is():
    rows = np.zeros(400, SPEC.row_dtype)
    rows["t"], rows["seq"], rows["action"] = np.arange(400), np.arange(400), np.frombuffer(walk(400), "<f4")[:, None]
    assert deflate.deflate(walk(20_000), (1, 4, 111)).width == 4
    assert deflate.deflate(b"words and words and " * 1000, (1, 4, 111)).width == 1
    assert deflate.deflate(rows.tobytes(), (1, 4, rows.itemsize)).width == rows.itemsize
    assert deflate.deflate(noise(100_000), (1, 4)) is None
    assert deflate.deflate(b"0" * 511, (1, 4)) is None
    assert deflate.deflate(b"0" * 512, (1, 4)) is not None


def block(n=64):
    rng = np.random.default_rng(n)
    rows = np.zeros(n, IMAGES.row_dtype)
    rows["t"], rows["steps"] = np.arange(n), 1
    images = np.repeat(rng.integers(0, 9, (n + 1, 8, 1, 1), np.uint8), 8, axis=2).repeat(3, axis=3)
    frames = {"image": images, "state": rng.normal(size=(n + 1, 5)).astype(np.float32)}
    return Block(rows, frames, rng.random(n).astype(np.float32))


def parts_of(made, spec=IMAGES):
    return block_parts(m.BlockHead(1, 1, made.n_rows, made.n_frames), made, spec)


def test_a_block_travels_compressed_and_what_does_not_shrink_as_it_is():
    sent = block()
    sent.frames["state"][:] = np.frombuffer(noise(65 * 5 * 4), "<f4").reshape(65, 5)
    parts = parts_of(sent)
    packed = compression.compress(parts, compression.widths(IMAGES))
    assert size_of(packed) < 0.5 * size_of(parts)
    head = decode(packed[0])
    assert [size for size, _ in head.frames] == [sent.rows.nbytes, sent.frames["image"].nbytes, 0, 0]
    inner, frames = compression.expand(head, packed[1:], ROOM)
    assert inner == decode(parts[0])
    back = parse_block(inner, frames, IMAGES)
    assert back.rows.tobytes() == sent.rows.tobytes()
    assert all(back.frames[key].tobytes() == sent.frames[key].tobytes() for key in sent.frames)
    assert back.priorities.tolist() == sent.priorities.tolist()


def test_a_message_that_does_not_shrink_or_is_of_another_kind_stays_as_it_is():
    weights = [encode(m.WeightsPart(1, 1, 0, 1000)), noise(1000)]
    assert compression.compress(weights, (1, 4)) is weights
    other = [encode(m.Rate(1, 1000)), bytes(8000), bytes(4000)]
    assert compression.compress(other, (1, 4)) is other
    large = [encode(m.Publish(1, 1)), bytes(compression.LARGEST)]
    assert compression.compress(large, (1, 4)) is large
    assert decode(compression.compress([large[0], large[1][1000:]], (1, 4))[0]).frames == ((compression.LARGEST - 1000, 1),)


HEAD = encode(m.WeightsPart(1, 1, 0, 10_000))
ZEROS = zlib.compress(bytes(10_000))


def opened(data, size, width=1, most=ROOM):
    message, (frame,) = compression.expand(m.Compressed(((size, width),)), [HEAD, data], most)
    assert isinstance(message, m.WeightsPart)
    assert len(frame) == size
    return deflate.plain(frame)


def damaged(at):
    data = bytearray(zlib.compress(walk(2500)))
    data[at] ^= 16
    return bytes(data)


@pytest.mark.parametrize(
    ("data", "size"),
    [
        (ZEROS, 9_999),
        (ZEROS, 10_001),
        (ZEROS + b"x", 10_000),
        (ZEROS + ZEROS, 10_000),
        (ZEROS[:-1], 10_000),
        (ZEROS[:-4], 10_000),
        (b"", 10_000),
        (b"x" * 100, 10_000),
        (zlib.compress(bytes(10_000), wbits=31), 10_000),
        (zlib.compress(bytes(10_000), wbits=-15), 10_000),
        (damaged(100), 10_000),
        (damaged(-1), 10_000),
        (damaged(0), 10_000),
    ],
    ids=["longer", "shorter", "trailing", "twice", "cut", "no sum", "empty", "garbage", "gzip", "raw", "flip", "sum", "head"],
)
def test_what_does_not_inflate_to_exactly_what_was_declared_is_refused(data, size):
    assert bytes(opened(ZEROS, 10_000)) == bytes(10_000)
    with pytest.raises(WireError) as error:
        opened(data, size)
    assert error.value.reason == "inflate"


def test_a_bomb_is_stopped_at_its_declared_size():
    bomb = zlib.compress(bytes(100 << 20), 9)
    tracemalloc.start()
    try:
        with pytest.raises(WireError, match="inflate"):
            opened(bomb, 10_000)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("frames", "count", "reason"),
    [
        (((ROOM + 1, 1),), 1, "size"),
        (((ROOM, 1), (ROOM, 1)), 2, "size"),
        ((((1 << 64) - 1, 1),), 1, "size"),
        (((0, 0), (ROOM, 1)), 2, "size"),
        (((10, 11),), 1, "compressed"),
        (((10, 0),), 1, "compressed"),
        (((0, 1),), 1, "compressed"),
        (((10, 1),), 2, "arity"),
        (((10, 1), (10, 1)), 1, "arity"),
        ((), 1, "arity"),
    ],
)
def test_declarations_without_sense_or_bound_are_refused(frames, count, reason):
    with pytest.raises(WireError) as error:
        compression.expand(m.Compressed(frames), [HEAD, *[b"123456789"] * count], ROOM)
    assert error.value.reason == reason


@pytest.mark.parametrize("kind", [m.Compressed(), m.Fragment(0, 1, 10), m.Query("status"), m.Rate(1, 1), m.Goodbye(True)])
def test_only_what_is_large_travels_compressed(kind):
    with pytest.raises(WireError, match="does not travel compressed"):
        compression.expand(m.Compressed(), [encode(kind)], ROOM)
    with pytest.raises(WireError, match="arity"):
        compression.expand(m.Compressed(), [], ROOM)


def test_nothing_is_inflated_whose_size_is_not_that_of_the_spec(monkeypatch):
    parts = parts_of(block())
    packed = compression.compress(parts, compression.widths(IMAGES))
    monkeypatch.setattr(deflate.Deflated, "inflate", lambda self: pytest.fail("it was inflated"))
    for change in ((1, 0), (-1, 0), (0, 1)):
        head, inner = decode(packed[0]), decode(packed[1])
        frames = list(head.frames)
        frames[0] = (frames[0][0] + change[0], frames[0][1])
        inner = replace(inner, rows=inner.rows + change[1])
        with pytest.raises(WireError, match="size: rows"):
            parse_block(*compression.expand(replace(head, frames=tuple(frames)), [encode(inner), *packed[2:]], ROOM), IMAGES)


# --- in a session ---------------------------------------------------------------------------------------------------


def agreed(buffer):
    """An actor and a learner whose links are slow."""
    for peer, role, spec in ((b"A", "actor", SPEC.to_dict()), (b"A", "actor", SPEC.to_dict()), (b"L", "learner", None)):
        hello = m.Hello(1, role, role[0], peer * 16, "host", 7, spec, compression="zlib")
        answers = buffer.say(peer, hello)
    assert first(answers, m.Welcome).compression == "zlib"


def rows_parts(seq, times):
    made = serving.block(times)
    return block_parts(m.BlockHead(1, seq, made.n_rows, made.n_frames), made, SPEC)


def packed_rows(seq, times):
    packed = compression.compress(rows_parts(seq, times), compression.widths(SPEC))
    assert isinstance(decode(packed[0]), m.Compressed)
    return packed


def test_what_was_agreed_holds_and_is_counted(buffer):
    agreed(buffer)
    packed = packed_rows(1, range(40))
    assert first(buffer.raw(b"A", packed), m.Ack) == m.Ack(1, 40)
    assert first(buffer.raw(b"A", rows_parts(41, range(40, 42))), m.Ack) == m.Ack(1, 42)  # plain is never wrong
    assert [row["t"] for row in buffer.worker.pool.dump()] == list(range(42))
    plain = size_of(rows_parts(1, range(40))[1:]) + size_of(rows_parts(1, range(2))[1:])
    wire = size_of(packed[2:]) + size_of(rows_parts(1, range(2))[1:])
    assert buffer.status()["compression"] == {"rows": {"plain_bytes": plain, "wire_bytes": wire}}
    assert buffer.status()["actors"][0]["compression"] == "zlib"
    assert wire < 0.6 * plain


def test_fragments_join_to_a_compressed_message(buffer):
    agreed(buffer)
    pieces = list(split(packed_rows(1, range(40)), 300))
    assert len(pieces) > 2
    answers = [a for piece in pieces for a in buffer.raw(b"A", piece)]
    assert first(answers, m.Ack) == m.Ack(1, 40)


def inside(answers, kind):
    """Messages of a kind and their frames, some of which came compressed."""
    out = []
    for _, message, frames in answers:
        if isinstance(message, m.Compressed):
            message, frames = compression.expand(message, frames, ROOM)
        if isinstance(message, kind):
            out.append((message, frames))
    return out


def test_batches_come_compressed_and_are_the_same(buffer):
    agreed(buffer)
    buffer.say(b"L", m.Draw(2, 32))
    answers = buffer.raw(b"A", packed_rows(1, range(60)))
    assert m.BatchHead not in kinds(answers)
    ((head, frames),) = inside(answers, m.BatchHead)
    batch = Incoming(head, frames, Staging(SPEC, 64).take(), SPEC).batch
    assert len(batch) == 64
    assert np.array_equal(batch.obs["obs"][:, 2], batch.rows["t"])
    assert np.array_equal(batch.next_obs["obs"][:, 2], batch.rows["t"] + 1)
    counted = buffer.status()["compression"]["batches"]
    assert 0 < counted["wire_bytes"] < 0.6 * counted["plain_bytes"]
    ((other, frames),) = inside(buffer.say(b"L", m.Redraw(8, 32, gather=True)), m.BatchHead)
    assert (other.ticket, len(Incoming(other, frames, Staging(SPEC, 32).take(), SPEC).batch)) == (8, 32)
    assert m.DrawnHead in kinds(buffer.say(b"L", m.Draw(4, 32, mapped=True)))  # what a mapped reader gets is not worth it


def test_weights_are_compressed_once_for_all_who_ask(buffer, monkeypatch):
    agreed(buffer)
    weights = WeightSet(Version("l", 1, 7), {"type": "mlp"}, {"w": np.frombuffer(walk(5000), "<f4")})
    buffer.say(b"L", m.Publish(1, 7), weights.pack())
    made = []
    monkeypatch.setattr(weight_exchange, "compress", lambda *what: made.append(what) or compression.compress(*what))
    answers = [buffer.say(b"A", m.WeightsGet(1, 7, 0, 1 << 20)) for _ in range(2)]
    for answer in answers:
        ((part, (frame,)),) = inside(answer, m.WeightsPart)
        assert (part.total, isinstance(frame, deflate.Deflated)) == (len(weights.pack()), True)
        assert bytes(deflate.plain(frame)) == weights.pack()
    assert answers[0] == answers[1]
    assert len(made) == 1
    counted = buffer.status()["compression"]["weights"]
    assert counted["wire_bytes"] < 0.9 * counted["plain_bytes"]
    plain = buffer.actor(b"B", "b")
    assert first(plain, m.Welcome).compression == "none"
    ((_, part, (frame,)),) = buffer.say(b"B", m.WeightsGet(1, 7, 0, 1 << 20))
    assert (type(part), bytes(frame)) == (m.WeightsPart, weights.pack())


def test_kept_ranges_of_weights_are_bounded(buffer):
    agreed(buffer)
    weights = WeightSet(Version("l", 1, 7), {"type": "mlp"}, {"w": np.frombuffer(walk(1 << 20), "<f4")})
    buffer.say(b"L", m.Publish(1, 7), weights.pack())
    exchange = buffer.service._weights
    for offset in range(100):
        buffer.service.receive(b"A", [encode(m.WeightsGet(1, 7, offset, 1 << 20))], buffer.now)
    assert exchange._kept == sum(map(size_of, exchange._compressed.values()))
    assert 15 << 20 < exchange._kept <= 16 << 20


def test_a_publish_travels_compressed(buffer):
    agreed(buffer)
    weights = WeightSet(Version("l", 1, 7), {"type": "mlp"}, {"w": np.frombuffer(walk(5000), "<f4")})
    packed = compression.compress([encode(m.Publish(1, 7)), weights.pack()], compression.WEIGHTS)
    assert isinstance(decode(packed[0]), m.Compressed)
    assert first(buffer.raw(b"L", packed), m.Published) == m.Published(1, 7)
    head = decode(packed[0])
    packed[0] = encode(replace(head, frames=((head.frames[0][0] + 1, head.frames[0][1]),)))
    assert first(buffer.raw(b"L", packed), m.Published).reason == "inflate"
    assert buffer.service.refused.by_reason == {"publish-inflate": 1}


def test_without_an_agreement_nothing_is_inflated(buffer):
    buffer.actor()
    assert kinds(buffer.raw(b"A", packed_rows(1, range(40)))) == [m.Declined]
    assert buffer.service.refused.by_reason == {"compressed": 1}
    unknown = m.Hello(1, "actor", "b", b"2" * 16, "host", 7, SPEC.to_dict(), compression="lz77")
    assert first(buffer.say(b"B", unknown), m.Welcome).compression == "none"
    assert buffer.status()["compression"] == {}


def test_no_damage_to_a_compressed_block_does_more_than_refuse_it(buffer):
    agreed(buffer)
    rng = random.Random(5)
    good = [bytes(part) for part in packed_rows(1, range(60))]
    for _ in range(2000):
        bad = list(good)
        for _ in range(rng.randint(1, 3)):
            i = rng.randrange(len(bad))
            data, how = bytearray(bad[i]), rng.randrange(5)
            at = rng.randrange(len(data)) if data else 0
            if how == 0 and data:
                data[at] = rng.randrange(256)
            elif how == 1:
                del data[at:]
            elif how == 2:
                data[at:at] = rng.randbytes(rng.randint(1, 9))
            elif how == 3:
                data += data[at:]
            else:
                bad.insert(i, bad[rng.randrange(len(bad))])
                continue
            bad[i] = bytes(data)
        buffer.raw(b"A", bad)
    refused = buffer.service.refused.by_reason
    assert refused["defect"] == 0
    assert min(refused["inflate"], refused["size"], refused["arity"], refused["malformed"]) > 5
    assert buffer.worker.pool.check_valid() == (True, "")
    assert m.Ack in kinds(buffer.raw(b"A", packed_rows(1000, range(60))))
