"""How long no byte has come by a connection, as the kernel says, of which ZeroMQ tells whole frames alone."""

from __future__ import annotations

import math
import time

import pytest
import zmq
from helpers import strangers

from headrace.common.wire.line import Line

WORD = b"\x00\x01x"  # a whole frame
PART = b"\x02\x00\x00\x00\x00\x00\x01\x00\x00"  # the head of one of 64 KiB


def until(holds):
    end = time.monotonic() + 10
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.fixture
def router():
    with zmq.Context() as context, context.socket(zmq.ROUTER) as socket:
        socket.linger = 0
        socket.rcvtimeo = 10_000
        yield socket


def test_bytes_of_a_frame_that_is_not_complete_are_heard(router):
    router.bind("tcp://127.0.0.1:0")
    with strangers.join(router.last_endpoint.decode()) as peer:
        peer.sendall(WORD)
        line = Line.of(router.recv_multipart(copy=False)[0])
        until(lambda: line.quiet_s() >= 0.1)
        peer.sendall(PART)
        until(lambda: line.quiet_s() < 0.1)
        assert not router.poll(0)
    until(lambda: line.quiet_s() == math.inf)


def test_of_another_connection_under_the_same_number_nothing_is_told_nor_done(router):
    router.bind("tcp://127.0.0.1:0")
    with strangers.join(router.last_endpoint.decode()) as peer:
        peer.sendall(WORD)
        line = Line.of(router.recv_multipart(copy=False)[0])
        assert line.quiet_s() < 10
        line._names = (("127.0.0.1", 1), ("127.0.0.1", 2))  # as if another had been there when the message came
        assert line.quiet_s() == math.inf
        line.hang_up()
        peer.sendall(WORD)
        assert router.recv_multipart()[1] == b"x"  # nor is it done to


def test_of_no_connection_and_of_one_that_is_not_tcp_nothing_is_told(router, tmp_path):
    assert Line().quiet_s() == math.inf
    router.bind(f"ipc://{tmp_path}/s")
    with router.context.socket(zmq.DEALER) as peer:
        peer.connect(router.last_endpoint.decode())
        peer.send(b"x")
        assert Line.of(router.recv_multipart(copy=False)[0]).quiet_s() == math.inf
