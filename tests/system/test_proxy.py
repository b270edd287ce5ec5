"""The fault proxy between real ZeroMQ sockets: what it does arrives as it should, and is counted."""

from __future__ import annotations

import contextlib
import itertools
import socket
import time

import pytest
import zmq

from headrace.common.wire.codec import encode
from headrace.common.wire.messages import Ack, BlockHead
from headrace.launch.chaos.proxy import SLICE, Proxy
from headrace.launch.chaos.tampering import Act, Faults, Rule, Way

DATA = frozenset({BlockHead.TAG})
SOON_MS = 5000
QUIET_MS = 60


class Wire:
    """A ROUTER, a proxy before it, and DEALERs that dial the proxy."""

    def __init__(self, stack):
        self.context = stack.enter_context(zmq.Context())
        self.router = stack.enter_context(self.context.socket(zmq.ROUTER))
        self.router.linger = 0
        self.port = self.router.bind_to_random_port("tcp://127.0.0.1")
        self.proxy = stack.enter_context(Proxy(f"tcp://127.0.0.1:{self.port}"))
        self._stack, self.sent = stack, itertools.count(1)

    def dealer(self):
        made = self._stack.enter_context(self.context.socket(zmq.DEALER))
        made.linger, made.reconnect_ivl = 0, 10
        made.setsockopt(zmq.IMMEDIATE, 1)
        made.connect(self.proxy.endpoint)
        return made

    def say(self, dealer, payload=b"row"):
        seq = next(self.sent)
        dealer.send_multipart([encode(BlockHead(1, seq, 1, 2)), payload])
        return encode(BlockHead(1, seq, 1, 2)), payload

    def heard(self, timeout_ms=SOON_MS):
        if not self.router.poll(timeout_ms):
            return None
        return tuple(self.router.recv_multipart()[1:])

    def wait(self, what, number=1):
        end = time.monotonic() + SOON_MS / 1000
        while self.proxy.counts()[what] < number:
            assert time.monotonic() < end, self.proxy.counts()
            time.sleep(0.005)


@pytest.fixture
def wire():
    with contextlib.ExitStack() as stack:
        yield Wire(stack)


def test_everything_passes_both_ways(wire):
    dealer = wire.dealer()
    for size in (0, 1, 255, 256, 70_000, 3_000_000):
        said = wire.say(dealer, bytes(size))
        assert wire.heard() == said
    dealer.send(b"again")
    peer, _ = wire.router.recv_multipart()
    wire.router.send_multipart([peer, encode(Ack(1, 1))])
    assert dealer.poll(SOON_MS)
    assert dealer.recv() == encode(Ack(1, 1))


def test_duplicated_dropped_and_replayed_messages(wire):
    dealer = wire.dealer()
    first = wire.say(dealer)
    assert wire.heard() == first
    wire.proxy.set(Faults((Rule(Act.DUPLICATE, Way.UP, DATA, most=1), Rule(Act.REPLAY, Way.UP, DATA, age=1, most=1))))
    second, third = wire.say(dealer), wire.say(dealer)
    assert [wire.heard() for _ in range(4)] == [second, second, third, second]
    wire.proxy.set(Faults((Rule(Act.DROP, Way.UP, DATA, most=1),)))
    wire.say(dealer)
    fifth = wire.say(dealer)
    assert wire.heard() == fifth
    counts = wire.proxy.counts()
    assert (counts["duplicated"], counts["replayed"], counts["dropped"]) == (1, 1, 1)


def test_a_flipped_bit(wire):
    dealer = wire.dealer()
    wire.proxy.set(Faults((Rule(Act.FLIP, Way.UP, DATA),)))
    header, _ = wire.say(dealer, bytes(100))
    heard = wire.heard()
    assert heard[0] == header
    assert sum(byte.bit_count() for byte in heard[1]) == 1


def test_while_the_link_is_held_nothing_passes_and_afterwards_all_of_it(wire):
    dealer = wire.dealer()
    assert wire.say(dealer) == wire.heard()
    wire.proxy.set(Faults(held=True))
    said = [wire.say(dealer) for _ in range(50)]
    assert wire.heard(QUIET_MS) is None
    wire.proxy.set(Faults())
    assert [wire.heard() for _ in said] == said


def test_a_rate_holds_back_what_is_beyond_it_until_it_is_lifted(wire):
    dealer = wire.dealer()
    assert wire.say(dealer) == wire.heard()
    before = wire.proxy.counts()["bytes"]
    wire.proxy.set(Faults(bytes_per_s=1.0))
    said = wire.say(dealer, bytes(4 * SLICE))
    assert wire.heard(QUIET_MS) is None
    assert wire.proxy.counts()["bytes"] - before <= 2 * SLICE
    wire.proxy.set(Faults())
    assert wire.heard() == said


def test_a_half_open_connection_swallows_for_ever_and_others_work(wire):
    first = wire.dealer()
    assert wire.say(first) == wire.heard()
    monitor = first.get_monitor_socket(zmq.EVENT_DISCONNECTED)
    wire.proxy.set(Faults(dead=True))
    wire.say(first)
    wire.wait("swallowed_bytes")
    wire.proxy.set(Faults())
    second = wire.dealer()
    assert wire.say(second) == wire.heard()
    wire.say(first)
    assert wire.heard(QUIET_MS) is None
    assert monitor.poll(0) == 0  # nobody has told it
    assert wire.proxy.counts()["dead"] == 1
    first.disable_monitor()
    monitor.close(0)


@pytest.mark.parametrize("act", [Act.RESET, Act.CUT, Act.HALF_CLOSE])
def test_an_ended_connection_is_made_anew_and_a_cut_message_is_none(wire, act):
    dealer = wire.dealer()
    assert wire.say(dealer) == wire.heard()
    wire.proxy.set(Faults((Rule(act, Way.UP, DATA, most=1),)))
    lost = wire.say(dealer, bytes(100_000))
    wire.wait(act.value)
    wire.wait("connections", 2)
    later = wire.say(dealer)
    heard = [wire.heard()]
    if act is Act.HALF_CLOSE:  # the message came first
        assert heard == [lost]
        heard = [wire.heard()]
    assert heard == [later]


def test_a_reset_by_hand_ends_every_connection(wire):
    dealers = [wire.dealer(), wire.dealer()]
    for dealer in dealers:
        assert wire.say(dealer) == wire.heard()
    wire.proxy.reset()
    wire.wait("connections", 4)
    for dealer in dealers:
        assert wire.say(dealer) == wire.heard()


def dialled(proxy):
    """A plain TCP connection to a proxy."""
    return socket.create_connection(("127.0.0.1", int(proxy.endpoint.rpartition(":")[2])), SOON_MS / 1000)


def test_a_buffer_that_is_down_turns_clients_away():
    with Proxy("tcp://127.0.0.1:1") as proxy:
        with contextlib.suppress(ConnectionResetError), dialled(proxy) as s:  # already while it dials, or when it listens
            assert s.recv(1) == b""
        assert proxy.counts()["unreachable"] == 1


def test_what_is_no_zmtp_is_reset(wire):
    with dialled(wire.proxy) as s:
        s.sendall(bytes(12) + b"NULL".ljust(52, b"\0") + b"\x02" + b"\xff" * 8)
        with pytest.raises(ConnectionResetError):
            while s.recv(64):
                pass
