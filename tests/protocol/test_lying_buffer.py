"""A buffer that lies to an actor: forged answers, credit and weights. The actor keeps what it has, counts what it refuses."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.serving import first

from headrace.actor.outbox import Outbox
from headrace.actor.store import Memory
from headrace.actor.uplink import Uplink
from headrace.buffer.shelf import Shelf
from headrace.common.errors import WireError
from headrace.common.specs import ActionSpec, ObsSpec, TransitionSpec
from headrace.common.weights import AVERAGE, Version, WeightSet
from headrace.common.wire import messages as m
from headrace.common.wire.codec import check_sender
from headrace.common.wire.network import NetworkConfig
from headrace.common.wire.session import ClientSession

SPEC = TransitionSpec((ObsSpec("obs", (1,), "<f4"),), ActionSpec((1,), (-1.0,), (1.0,)))
POLICY = {"type": "mlp"}
TENSORS = {"w": np.arange(6, dtype="<f4").reshape(2, 3), "b": np.zeros(2, "<f4")}
PART = 64


def packed(epoch=1, step=1, tensors=TENSORS, policy=POLICY, learner="l"):
    return WeightSet(Version(learner, epoch, step), policy, tensors).pack()


def uplink():
    up = Uplink(SPEC, Outbox(Memory(1 << 20)), PART)
    up.welcomed(m.Welcome(5, 5.0, 0.5, 1 << 20, 100, 1 << 30))
    return up


def deliver(up, blob, epoch=1, step=1, learner="l"):
    """Announce a version and send ``blob`` for it; what was refused on the way."""
    refused = []
    up.received(m.State(learner, epoch, step), [])
    list(up.outgoing(1 << 20))
    for offset in range(0, len(blob), PART):
        try:
            up.received(m.WeightsPart(epoch, step, offset, len(blob)), [blob[offset : offset + PART]])
        except WireError as error:
            refused.append(error.reason)
            break
        list(up.outgoing(1 << 20))
    return refused


def taken(up):
    weights = up.take_weights()
    return None if weights is None else weights.version.order


FORGED = {
    "one tensor missing": packed(1, 2, {"w": TENSORS["w"]}),
    "one tensor more": packed(1, 2, {**TENSORS, "c": TENSORS["b"]}),
    "another shape": packed(1, 2, {**TENSORS, "w": TENSORS["w"].reshape(3, 2)}),
    "another width": packed(1, 2, {**TENSORS, "w": TENSORS["w"].astype("<f2")}),
    "NaN": packed(1, 2, {**TENSORS, "b": np.array([0, np.nan], "<f4")}),
    "infinity": packed(1, 2, {**TENSORS, "b": np.array([0, -np.inf], "<f4")}),
    "another policy": packed(1, 2, policy={"type": "pixels"}),
    "another version inside": packed(1, 3),
    "one bit of the digest": packed(1, 2)[:-1] + bytes([packed(1, 2)[-1] ^ 1]),
    "one bit of a tensor": packed(1, 2)[:-40] + bytes([packed(1, 2)[-40] ^ 1]) + packed(1, 2)[-39:],
    "cut": packed(1, 2)[:-9],
    "no weights at all": b"\x80" * 200,
}


@pytest.mark.parametrize("name", FORGED)
def test_an_actor_keeps_its_weights_for_any_that_are_not_whole_newer_and_of_its_policy(name):
    up = uplink()
    assert deliver(up, packed()) == []
    assert taken(up) == (1, 1)
    deliver(up, FORGED[name], 1, 2)
    assert taken(up) is None
    assert up.pulse().report["refused_weights"] == 1
    assert deliver(up, packed(1, 4), 1, 4) == []
    assert taken(up) == (1, 4)


def test_a_chunk_of_one_version_never_joins_those_of_another():
    up = uplink()
    blob, old = packed(1, 2), packed(1, 1)
    up.received(m.State("l", 1, 1), [])
    list(up.outgoing(1 << 20))
    up.received(m.WeightsPart(1, 1, 0, len(old)), [old[:PART]])
    up.received(m.State("l", 1, 2), [])
    list(up.outgoing(1 << 20))
    up.received(m.WeightsPart(1, 1, PART, len(old)), [old[PART : 2 * PART]])  # late, of the version before
    assert deliver(up, blob, 1, 2) == []
    assert taken(up) == (1, 2)
    np.testing.assert_array_equal(WeightSet.unpack(blob).tensors["w"], TENSORS["w"])


def test_an_older_version_is_not_asked_for_and_a_huge_one_locks_nobody_out():
    up = uplink()
    assert deliver(up, packed(2, 7), 2, 7) == []
    assert taken(up) == (2, 7)
    deliver(up, packed(2, 6), 2, 6)
    assert taken(up) is None
    up.received(m.State("l", (1 << 32) - 1, 1 << 63), [])  # announced, and never sent
    assert deliver(up, packed(2, 8), 2, 8) == []
    assert taken(up) == (2, 8)


def test_a_learner_that_says_a_huge_step_is_outlived_by_the_next_one(buffer):
    buffer.actor()
    buffer.learner(b"L", b"2")
    huge = WeightSet(Version("l", 1, 1 << 63), POLICY, TENSORS).pack()
    assert first(buffer.say(b"L", m.Publish(1, 1 << 63), huge), m.Published).reason == ""
    for _ in range(6):
        buffer.tick(1.0)
        buffer.say(b"A", m.Pulse())
    assert first(buffer.learner(b"M", b"3"), m.Welcome).epoch == 2
    assert first(buffer.say(b"M", m.Publish(2, 1), packed(2, 1)), m.Published).reason == ""
    assert buffer.service.shelf.version.order == (2, 1)


@pytest.mark.parametrize("name", FORGED)
def test_a_shelf_takes_no_such_weights_and_its_thread_lives(buffer, name):
    buffer.actor()
    buffer.learner()
    assert first(buffer.say(b"L", m.Publish(1, 1), packed()), m.Published).reason == ""
    assert first(buffer.say(b"L", m.Publish(1, 2), FORGED[name]), m.Published).reason
    assert buffer.service.shelf.version.order == (1, 1)
    assert sum(buffer.service.refused.by_peer["learner/learner"].values()) == 1


def nested(depth):
    value = "leaf"
    for _ in range(depth):
        value = {"a": value}
    return value


HEADS = {
    "a policy nested so deep that its digest would recurse": {"policy": nested(900)},
    "a policy of other things than values": {"policy": {"a": b"bytes"}},
    "a shape beyond all": {"tensors": [["w", "<f4", [0, (1 << 64) - 1]]]},
    "a shape beyond memory": {"tensors": [["w", "<f4", [0, 1 << 61]]]},
    "10^10 elements": {"tensors": [["w", "<f4", [10**10]]]},
    "a dtype of pointers": {"tensors": [["w", "|O", [1]]]},
    "a dtype of lists": {"tensors": [["w", [["a", "|O"]], [1]]]},
    "a name that is none": {"tensors": [[["w"], "<f4", [0]]]},
    "more than three words": {"tensors": [["w", "<f4", [0], 1]]},
    "a version beyond all": {"version": ["l", 1, 10**18, 4]},
    "a version without end": {"version": ["l", float("inf"), 1]},
    "a version of words": {"version": ["l", "one", "two"]},
    "a later format": {"format": 2},
}


@pytest.mark.parametrize("name", HEADS)
def test_the_head_of_a_weight_set_is_checked_before_anything_is_made_of_it(tmp_path, name):
    import hashlib

    import msgpack

    head = {"format": 1, "version": ["l", 1, 1], "policy": POLICY, "tensors": [["w", "<f4", [1]]]} | HEADS[name]
    data = msgpack.packb(head)
    body = b"HRWT" + len(data).to_bytes(4, "little") + data + b"\0" * 4
    blob = body + hashlib.sha256(body).digest()
    with pytest.raises(WireError):
        Shelf(tmp_path).put(blob, Version("l", 1, 1))


def test_whatever_is_granted_an_actor_sends_no_more_ahead_than_its_own_credit():
    network = NetworkConfig(credit_bytes=1 << 20)
    session = ClientSession(m.Hello(1, "actor", "a", b"1", "host", 1), network, "tcp://x:1", 0.0)
    session.tick(0.0)
    session.receive(m.Welcome(3, 5.0, 0.5, (1 << 64) - 1, 4096, 1 << 30), 0.0)
    assert session.room() == 1 << 20
    session.sent(1 << 20)
    session.receive(m.Received((1 << 64) - 1), 0.1)
    assert session.room() == 1 << 20


def test_only_what_a_buffer_says_is_taken_from_one():
    for message, frames, reason in [
        (m.BlockHead(1, 1, 1, 1), [b"", b""], "direction"),
        (m.Publish(1, 1), [b""], "direction"),
        (m.Ack(1, 1), [b"x"], "arity"),
        (m.WeightsPart(1, 1, 0, 1), [], "arity"),
        (m.Answer("status"), [b"{}", b"{}"], "arity"),
    ]:
        with pytest.raises(WireError, match=reason):
            check_sender(message, frames, m.BUFFER)


def test_an_average_is_part_of_what_a_policy_is():
    up = uplink()
    averaged = {**TENSORS, **{AVERAGE + name: tensor for name, tensor in TENSORS.items()}}
    assert deliver(up, packed(1, 1, averaged)) == []
    assert taken(up) == (1, 1)
    deliver(up, packed(1, 2), 1, 2)
    assert taken(up) is None
