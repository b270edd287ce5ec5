"""What a conversation takes from its socket, without one: what is refused is counted and costs a line in ten seconds."""

from __future__ import annotations

import logging

import pytest
import zmq

from headrace.common.clock import ManualClock
from headrace.common.wire import messages as m
from headrace.common.wire.codec import encode
from headrace.common.wire.conversation import Conversation
from headrace.common.wire.network import NetworkConfig


class Socket:
    """Holds messages that came."""

    def __init__(self):
        self.messages = []

    def recv_multipart(self, flags, copy):
        if not self.messages:
            raise zmq.Again
        return [zmq.Frame(part) for part in self.messages.pop(0)]


class Role:
    """Notes what it is given."""

    def __init__(self):
        self.heard = []

    def welcomed(self, welcome):
        pass

    def received(self, message, frames):
        self.heard.append(message)


@pytest.fixture
def taking():
    """A clock, a role, and what puts messages into its conversation."""
    clock, role, socket = ManualClock(), Role(), Socket()
    hello = m.Hello(1, "actor", "a", b"1", "host", 1)
    talk = Conversation(hello, role, "tcp://127.0.0.1:1", NetworkConfig(), clock, m.BUFFER, zero_copy=True)

    def take(*messages):
        socket.messages.extend(messages)
        while socket.messages:
            assert talk.hear(socket)

    take([encode(m.Welcome(1, 5.0, 0.5, 1 << 20, 4096, 1 << 20))])
    return clock, role, take


def test_garbage_and_what_no_buffer_sends_reaches_no_role_and_costs_one_line(taking, caplog):
    caplog.set_level(logging.WARNING)
    clock, role, take = taking
    garbage = [
        [b"\xc1"],
        [b""],
        [encode(m.BlockHead(1, 1, 1, 1)), b"", b""],
        [encode(m.Ack(1, 1)), b"x"],
        [encode(m.Compressed())],
    ]
    take(*(garbage * 100), [encode(m.Ack(1, 1))])
    assert role.heard == [m.Ack(1, 1)]
    assert len(caplog.records) == 1
    clock.advance(10.0)
    take(garbage[2])
    assert caplog.records[1].getMessage() == (
        "500 messages of the buffer refused, the last one: direction: BlockHead is not for a buffer to send"
    )


def test_what_the_buffer_declines_is_told_with_its_reason_and_number(taking, caplog):
    caplog.set_level(logging.WARNING)
    clock, role, take = taking
    take(*[[encode(m.Declined("size", "rows: 8 bytes, expected 121"))]] * 50)
    clock.advance(10.0)
    take([encode(m.Declined("malformed", ""))])
    assert [record.getMessage() for record in caplog.records] == [
        "the buffer declined 1 messages, the last one: rows: 8 bytes, expected 121",
        "the buffer declined 50 messages, the last one: malformed",
    ]
    assert len(role.heard) == 51
