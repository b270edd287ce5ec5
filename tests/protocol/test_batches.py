"""Batches as messages: together when small, in pieces when large, refused when they do not fit the spec."""

from __future__ import annotations

import gc

import numpy as np
import pytest

from headrace.common.batch import Batch
from headrace.common.errors import WireError
from headrace.common.specs import ActionSpec, ObsSpec, TransitionSpec
from headrace.common.staging import Staging, batch_nbytes
from headrace.common.wire import batches
from headrace.common.wire import messages as m
from headrace.common.wire.codec import decode

SMALL = TransitionSpec((ObsSpec("state", (3,), "<f4"),), ActionSpec((2,), (-1.0, -1.0), (1.0, 1.0)), stack=2)
LARGE = TransitionSpec(
    (ObsSpec("image", (64, 64, 3), "|u1"), ObsSpec("state", (3,), "<f4")), ActionSpec((2,), (-1.0, -1.0), (1.0, 1.0))
)


def numbered(spec, rows, *, weights=True):
    """A batch in which every column of row i holds i."""
    batch = Staging(spec, rows).take()
    numbers = np.arange(rows)
    batch.ids[:], batch.rows["t"] = numbers, numbers
    for side in (batch.obs, batch.next_obs):
        for values in side.values():
            values.T[:] = numbers
    extra = (numbers.astype("<f4"), numbers.astype("|u1")) if weights else (None, None)
    return Batch(batch.ids, batch.rows, batch.obs, batch.next_obs, *extra)


def same(a, b):
    columns = [(a.ids, b.ids), (a.rows, b.rows), (a.weights, b.weights), (a.sets, b.sets)]
    columns += [(x[key], y[key]) for x, y in ((a.obs, b.obs), (a.next_obs, b.next_obs)) for key in x]
    return all((x is None and y is None) or np.array_equal(x, y) for x, y in columns)


def receive(messages, spec, rows):
    incoming = batches.Incoming(decode(messages[0][0]), messages[0][1:], Staging(spec, rows).take()[:rows], spec)
    for parts in messages[1:]:
        incoming.add(decode(parts[0]), parts[1:])
    return incoming


@pytest.mark.parametrize("weights", [True, False])
@pytest.mark.parametrize(("spec", "rows", "count"), [(SMALL, 12, 1), (LARGE, 128, 6)])
def test_a_batch_survives_the_wire_and_may_be_written(spec, rows, count, weights):
    sent = numbered(spec, rows, weights=weights)
    messages = batches.batch_messages(m.BatchHead(9, rows), sent, spec)
    assert len(messages) >= count
    assert max(sum(map(len, parts[1:])) for parts in messages) <= batches.PIECE_BYTES
    back = receive(messages, spec, rows)
    assert back.complete
    assert same(back.batch, sent)
    back.batch.obs["state"][0] = 7


def test_pieces_out_of_order_or_of_another_size_are_refused():
    messages = batches.batch_messages(m.BatchHead(9, 128), numbered(LARGE, 128), LARGE)
    for wrong in (messages[:2] + messages[3:], messages[:3] + messages[2:]):
        with pytest.raises(WireError, match="piece: column .* expected"):
            receive(wrong, LARGE, 128)
    for frame in (b"", bytes(9)):
        incoming = receive(messages[:1], LARGE, 128)
        assert not incoming.complete
        with pytest.raises(WireError, match="piece"):
            incoming.add(m.BatchPiece(0, 0), [frame * 129])


def test_frames_that_do_not_fit_the_spec_are_refused():
    (parts,) = batches.batch_messages(m.BatchHead(9, 12), numbered(SMALL, 12), SMALL)
    with pytest.raises(WireError, match="arity"):
        receive([parts[:-1]], SMALL, 12)
    with pytest.raises(WireError, match="size"):
        receive([[*parts[:-1], bytes(5)]], SMALL, 12)


def test_ids_alone_with_what_the_sampler_says():
    ids = np.arange(8)
    for weights, sets in ((None, None), (np.ones(8, "<f4"), None), (None, np.ones(8, "|u1")), (np.ones(8, "<f4"),) * 2):
        sets = sets if sets is None else sets.astype("|u1")
        parts = batches.drawn_message(m.DrawnHead(2, 4, 2, nonce=5), ids, weights, sets)
        head = decode(parts[0])
        back = batches.parse_drawn(head, parts[1:])
        for a, b in zip(back, (ids, weights, sets), strict=True):
            assert (a is None) == (b is None)
            assert a is None or np.array_equal(a, b)
        with pytest.raises(WireError, match="arity"):
            batches.parse_drawn(head, [*parts[1:], b""])
        with pytest.raises(WireError, match="size"):
            batches.parse_drawn(head, [bytes(3), *parts[2:]])


def test_many_small_batches_make_a_message_and_one_large_one():
    assert batches.batches_a_message(SMALL, 4) == batches.MOST_BATCHES
    assert batches.batches_a_message(LARGE, 256) == batches.batches_a_message(LARGE, 256, mapped=True) == 1
    rows = batches.PIECE_BYTES // batch_nbytes(SMALL, 1) // 3
    assert batches.batches_a_message(SMALL, rows) == 3


def test_lent_memory_is_used_again_once_its_last_view_is_gone_and_never_before():
    staging = Staging(LARGE, 16)
    batch = staging.take()
    batch.obs["image"][:] = 1
    kept = memoryview(batch[2:5].obs["image"][1:]).cast("B")
    place = batch.ids.ctypes.data
    del batch
    gc.collect()
    other = staging.take()
    other.obs["image"][:] = 2
    assert other.ids.ctypes.data != place
    assert set(kept) == {1}
    del kept
    gc.collect()
    assert staging.take().ids.ctypes.data == place
