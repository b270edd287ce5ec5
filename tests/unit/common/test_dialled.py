"""One connection after the other, each ended by itself: in the middle of a message, while the peer hangs up, and at the end."""

from __future__ import annotations

import math
import os
import socket
import subprocess
import sys
import time

import pytest
from helpers import strangers
from helpers.roles import TESTS

from headrace.common.errors import ConfigError
from headrace.common.wire.dialled import Dialled
from headrace.common.wire.network import NetworkConfig

NETWORK = NetworkConfig()
LONG = [b"head", *[bytes(100_000)] * 40]  # more than a connection holds


@pytest.fixture
def server():
    with socket.create_server(("127.0.0.1", 0)) as made:
        made.settimeout(10)
        yield made


def dialled(server):
    return Dialled(f"tcp://127.0.0.1:{server.getsockname()[1]}", NETWORK, None)


def taken(server):
    """The next connection, as ZeroMQ's router takes it."""
    peer, _ = server.accept()
    peer.settimeout(10)
    strangers.answer(peer)
    return peer


def send(connection, parts):
    assert connection.socket.poll(10_000, 2)  # there is a connection
    connection.socket.send_multipart(parts)


ROUNDS = """
import random, socket, struct, threading, time
from helpers import strangers
from unit.common.test_dialled import LONG, dialled, send, taken
rng = random.Random(1)
for _ in range(100):
    with socket.create_server(("127.0.0.1", 0)) as server:
        connection = dialled(server)
        peer = taken(server)
        send(connection, LONG)
        send(connection, LONG)
        time.sleep(rng.uniform(0.0, 0.01))  # now it is stuck in the middle of one
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        early = rng.uniform(-0.0005, 0.0005)
        reset = threading.Thread(target=lambda: (time.sleep(max(0.0, -early)), peer.close()))
        reset.start()
        time.sleep(max(0.0, early))
        connection.close(0.0)
        reset.join()
"""


def test_a_process_lives_though_its_peer_hangs_up_while_it_closes_in_the_middle_of_a_message():
    """Were the socket just closed, ZeroMQ would abort in one of about 20 rounds."""
    found = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", ROUNDS], env={**os.environ, "PYTHONPATH": found}, capture_output=True, timeout=100, check=False
    )
    assert (done.returncode, done.stderr) == (0, b"")


def test_who_hangs_up_dials_anew_and_begins_with_a_whole_message(server):
    connection = dialled(server)
    with taken(server):
        send(connection, LONG)
        first = connection.line
        assert first.quiet_s() < 10
        connection.hang_up()
    assert connection.line is not first
    with taken(server) as peer:
        send(connection, [b"hello"])
        assert strangers.exactly(peer, 7) == b"\x00\x05hello"
        assert connection.line.quiet_s() < 10
        connection.close(0.0)
        assert peer.recv(1) == b""


def test_what_was_sent_leaves_before_the_end_and_a_deaf_peer_is_not_waited_for(server):
    connection = dialled(server)
    with taken(server) as peer:
        send(connection, [b"goodbye"])
        connection.close(10.0)
        assert strangers.exactly(peer, 9) == b"\x00\x07goodbye"
    connection = dialled(server)
    with taken(server):
        send(connection, LONG)
        begun = time.monotonic()
        connection.close(0.2)
        assert 0.2 <= time.monotonic() - begun < 5.0


def test_without_a_connection_there_is_nothing_to_wait_for():
    connection = Dialled("tcp://127.0.0.1:1", NETWORK, None)
    assert connection.line.quiet_s() == math.inf
    connection.hang_up()
    connection.close(60.0)
    with pytest.raises(ConfigError, match="cannot dial 'tcp://no such host:1'"):
        Dialled("tcp://no such host:1", NetworkConfig(insecure=True), None)
