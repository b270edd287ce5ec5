"""What is under way stays bounded over all sessions, for those who keep to their credit and for those who do not."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.serving import NETWORK, SPEC, Buffer, block, first

from headrace.common.config import replace
from headrace.common.wire import messages as m
from headrace.common.wire.codec import MAX_HEADER_BYTES, block_parts, decode, encode
from headrace.common.wire.fragments import size_of, split
from headrace.common.wire.session import ClientSession

CREDIT, FRAGMENT, MESSAGE = 64 << 10, 4096, 160 << 10
SMALL = replace(NETWORK, credit_bytes=CREDIT, fragment_bytes=FRAGMENT, message_bytes=MESSAGE)
LONG = 1200  # rows, of about 70 bytes and a frame of 12


@pytest.fixture
def small(tmp_path):
    made = Buffer(tmp_path, network=SMALL)
    yield made
    made.worker.close()


class Sender:
    """An actor that keeps to its credit, as a link does, with one message in parts."""

    def __init__(self, buffer, peer, identity, rows=LONG):
        self.buffer, self.peer = buffer, peer
        hello = m.Hello(1, "actor", identity, peer, "host", 7, SPEC.to_dict())
        self.session = ClientSession(hello, SMALL, "there", 0.0)
        self.session.receive(first(buffer.actor(peer, identity, peer), m.Welcome), 0.0)
        made = block(range(rows))
        self.parts = list(split(block_parts(m.BlockHead(1, 1, made.n_rows, made.n_frames), made, SPEC), FRAGMENT))

    def step(self):
        """Send a part if there is credit; what the buffer says to anybody."""
        if not self.parts or not self.session.room():
            return []
        parts = self.parts.pop(0)
        self.session.sent(size_of(parts))
        return self.buffer.service.receive(self.peer, parts, self.buffer.now)


def held(buffer):
    """Bytes that are under way, over all sessions."""
    return sum(c.queued + c.joiner.held for c in buffer.service.reception.clients.values())


def run(buffer, senders, *, work=True, rounds=2000):
    """Let all send until nobody can; the most that was under way, and the last ack of each."""
    most, acks, idle = 0, {}, 0
    for _ in range(rounds):
        out = [answer for sender in senders for answer in sender.step()]
        most = max(most, held(buffer))
        idle = 0 if out or any(s.parts and s.session.room() for s in senders) else idle + 1
        if work:
            while todo := buffer.service.take_work():
                out += buffer.service.finish(*buffer.worker.run(todo), buffer.now)
        buffer.now += 0.05
        out += buffer.service.tick(buffer.now)
        for sender in senders:
            out += buffer.service.receive(sender.peer, [encode(m.Pulse())], buffer.now)
        for peer, parts in out:
            message = decode(parts[0])
            for sender in senders:
                if sender.peer == peer:
                    sender.session.receive(message, buffer.now)
            if isinstance(message, m.Ack):
                acks[peer] = message.seq
        if idle > 150:  # longer than a lease
            break
    return most, acks


def test_long_messages_of_many_are_taken_in_turn_and_all_arrive(small):
    senders = [Sender(small, name.encode(), name) for name in ("a", "b")]
    assert all(size_of(p) <= MAX_HEADER_BYTES + FRAGMENT for s in senders for p in s.parts)
    assert sum(size_of(p) for p in senders[0].parts) > CREDIT
    most, acks = run(small, senders)
    assert acks == {b"a": LONG, b"b": LONG}
    assert most <= MESSAGE + 2 * (CREDIT + FRAGMENT)
    assert len(small.service._credits.get_state()) == 0


def test_while_the_pool_is_slow_nobody_holds_more_than_its_credit_beside_those_whose_turn_it_is(small):
    senders = [Sender(small, name.encode(), name) for name in ("a", "b")]
    most, acks = run(small, senders, work=False)
    assert acks == {}
    size = sum(size_of(p) for p in split(block_parts(m.BlockHead(1, 1, LONG, LONG + 1), block(range(LONG)), SPEC), FRAGMENT))
    assert size < most <= size + CREDIT + FRAGMENT  # the first has sent all, the second is held
    assert small.service._credits.check_valid() == (True, "")
    assert run(small, senders)[1] == {b"a": LONG, b"b": LONG}


def test_a_turn_ends_with_the_session_of_who_has_it(small):
    silent, other = Sender(small, b"a", "a"), Sender(small, b"b", "b")
    for _ in range(5):
        silent.step()
    most, acks = run(small, [other])  # past the lease of the silent one
    assert acks == {b"b": LONG}
    assert most <= 5 * FRAGMENT + MESSAGE


def test_a_message_that_is_begun_anew_goes_behind_those_who_wait(small):
    greedy, other = Sender(small, b"a", "a"), Sender(small, b"b", "b")
    greedy.step()
    other.step()
    assert small.service.reception.clients[b"a"].turn
    assert not small.service.reception.clients[b"b"].turn
    small.raw(b"a", [encode(m.Fragment(0, 40, MESSAGE)), bytes(16)])
    small.tick(0.05)
    assert not small.service.reception.clients[b"a"].turn
    assert small.service.reception.clients[b"b"].turn


def test_heartbeats_earn_no_credit(small):
    small.actor()
    for _ in range(500):
        small.say(b"A", m.Pulse(report={"text": "x" * 200}))
    assert not [x for x in small.tick(0.6) if isinstance(x[1], m.Received)]
    small.block(b"A", 1, 0, 1)
    answers = [*small.tick(0.6), *small.tick(0.6)]
    (returned,) = [message.bytes for _, message in answers if isinstance(message, m.Received)]
    assert 0 < returned < 1000


def test_who_sends_more_than_its_credit_is_refused_the_rest(small):
    small.actor()
    made = block(range(40))
    parts = block_parts(m.BlockHead(1, 1, made.n_rows, made.n_frames), made, SPEC)
    for _ in range(200):
        small.service.receive(b"A", parts, small.now)  # the pool's thread does not come to it meanwhile
    assert 100 < small.service.refused.by_reason["credit"] < 200
    assert held(small) <= CREDIT + FRAGMENT + MAX_HEADER_BYTES
    answers = small.raw(b"A", parts)
    while todo := small.service.take_work():
        small.service.finish(*small.worker.run(todo), small.now)
    small.tick(0.6)
    assert first(small.block(b"A", 1, *range(40)), m.Ack).seq == 40
    assert answers is not None


def test_who_only_looks_sends_nothing_in_parts(small):
    small.say(b"O", m.Hello(1, "observer", "o", b"3", "host", 9))
    small.raw(b"O", [encode(m.Fragment(0, 2, 64)), bytes(32)])
    assert small.service.refused.by_reason["direction"] == 1
    assert np.sum([c.joiner.held for c in small.service.reception.clients.values()]) == 0


def test_a_buffer_that_gets_no_more_memory_ends_and_does_not_go_on_with_a_part_of_it(small, monkeypatch):
    small.actor()
    monkeypatch.setattr(small.service.watch, "pulse", lambda *_: bytearray(1 << 62))
    with pytest.raises(MemoryError):
        small.say(b"A", m.Pulse())
