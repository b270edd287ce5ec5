"""Ways in which other learners and their services went wrong, each as a check of this one (docs/cases.md)."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.serving import Buffer, first

from headrace.actor.outbox import Outbox
from headrace.actor.store import Memory
from headrace.actor.uplink import Uplink
from headrace.common.block import Block
from headrace.common.clock import ManualClock
from headrace.common.errors import ConfigError
from headrace.common.specs import ActionSpec, ObsSpec, TransitionSpec
from headrace.common.wire import messages as m
from headrace.common.wire.codec import block_parts, decode, parse_block
from headrace.common.wire.conversation import Conversation
from headrace.common.wire.fragments import Joiner, size_of, split
from headrace.common.wire.network import NetworkConfig


def updates_of(buffer):
    buffer.learner()
    before = buffer.service.totals.updates
    for wanted in range(32, 100_000, 32):
        answers = buffer.say(b"L", m.Draw(wanted, 4))
        if not any(isinstance(answer, m.BatchHead) for _, answer, _ in answers):
            break
    return buffer.service.totals.updates - before


def test_pacing_of_a_restarted_buffer_is_that_of_its_config_and_nothing_waits_for_an_older_one(tmp_path):
    slow = Buffer(tmp_path, ratio=8, min_fill=1000, lead_steps=16)
    slow.actor()
    slow.block(b"A", 1, *range(20))
    assert updates_of(slow) == 0
    assert "filling: 20 of 1000 env steps before the first update" in slow.status()["waiting"]
    slow.worker.close()
    again = Buffer(tmp_path, ratio=1, min_fill=10, lead_steps=16)
    again.actor()
    assert first(again.block(b"A", 21, *range(20, 30)), m.Ack) == m.Ack(1, 30)
    assert updates_of(again) == 20
    assert again.status()["target_ratio"] == 1
    again.worker.close()


def test_after_a_restart_there_is_no_burst_of_updates(tmp_path):
    before = Buffer(tmp_path, ratio=1, min_fill=10, env_steps=0)
    before.actor()
    for seq in range(1, 501, 50):
        before.block(b"A", seq, *range(50))
    assert updates_of(before) == 490
    before.worker.close()
    again = Buffer(tmp_path, ratio=1, min_fill=10, env_steps=0)
    again.actor()
    assert updates_of(again) == 0
    for seq in range(501, 601, 50):
        again.block(b"A", seq, *range(50))
    updates_of(again)
    assert again.service.totals.updates == 590
    again.worker.close()


def large(nbytes):
    spec = TransitionSpec((ObsSpec("camera", (nbytes,), "|u1"),), ActionSpec((1,), (-1.0,), (1.0,)))
    rows = np.zeros(1, spec.row_dtype)
    rows["steps"], rows["next_obs"] = 1, 1
    frames = np.zeros((2, nbytes), np.uint8)
    frames[1] = 5
    return spec, block_parts(m.BlockHead(1, 1, 1, 2), Block(rows, {"camera": frames}), spec)


@pytest.mark.parametrize("nbytes", [18 << 20, 101 << 20])
def test_a_large_row_travels_in_parts_up_to_the_documented_bound(nbytes):
    network = NetworkConfig()
    spec, parts = large(nbytes)
    joiner, joined = Joiner(network.message_bytes), None
    for piece in split(parts, network.fragment_bytes):
        assert max(map(len, piece)) <= network.fragment_bytes + (64 << 10)  # what the socket lets through
        joined = joiner.add(decode(piece[0]), piece[1])
    assert int(parse_block(decode(joined[0]), joined[1:], spec).frames["camera"][1].min()) == 5


def test_a_row_beyond_the_bound_is_told_with_the_bound_before_any_of_it_is_sent():
    network = NetworkConfig()
    hello = m.Hello(1, "actor", "a", b"1", "host", 1)
    talk = Conversation(hello, None, "tcp://127.0.0.1:1", network, ManualClock(), m.BUFFER, zero_copy=True)
    talk.session.receive(m.Welcome(1, 5.0, 0.5, 1 << 20, 4096, 1 << 20), 0.0)
    _, parts = large(1 << 20)
    with pytest.raises(ConfigError, match=rf"message_bytes: 1048576 at the buffer .* nearest valid: {size_of(parts)}"):
        talk.check_size(parts)


def test_what_is_not_confirmed_never_takes_more_than_the_outbox_has_room_for():
    rows = np.zeros(4, IMAGES.row_dtype)
    rows["steps"], rows["obs"][:, 0], rows["next_obs"][:, 0] = 1, np.arange(4), np.arange(1, 5)
    block = Block(rows, {"image": np.zeros((5, 160, 160, 4), np.uint8)})  # of half a megabyte
    uplink = Uplink(IMAGES, Outbox(Memory(4 << 20)), 1 << 18)
    taken = sum(bool(uplink.offer(block, 0.0)) for _ in range(1000))  # nobody listens
    held = uplink.pulse().report
    assert held["spooled_steps"] == 4 * taken
    assert (4 << 20) - block.nbytes < held["spooled_bytes"] < (4 << 20) + block.nbytes
    for number in range(5000):
        uplink.event(m.EpisodeEnd(number, 1.0, 3, 0), bytes(4096))
    assert sum(size_of(parts) for parts in uplink.outgoing(0)) <= 4 << 20


IMAGES = TransitionSpec((ObsSpec("image", (160, 160, 4), "|u1"),), ActionSpec((1,), (-1.0,), (1.0,)))
