"""The gate with real sockets: who gets in and who does not, that a mishap locks nobody out, that an open socket is noticed."""

from __future__ import annotations

import contextlib
import socket as stdlib_socket
import time
from dataclasses import replace

import pytest
import zmq

from headrace.common.errors import ConfigError, DeadlineExceeded
from headrace.common.wire import gate as gates
from headrace.common.wire import sockets
from headrace.common.wire.gate import IN, OUT, Gate
from headrace.common.wire.key_files import KeyFiles
from headrace.common.wire.keys import new_pair
from headrace.common.wire.line import Line
from headrace.common.wire.network import NetworkConfig

WAIT_S = 10.0
LOST = int(zmq.EVENT_DISCONNECTED)


@pytest.fixture
def files(tmp_path):
    made = KeyFiles(tmp_path / "keys")
    for name, role in (("arm", "actor"), ("learner", "learner")):
        made.new(name, role)
    return made


@pytest.fixture
def context():
    made = zmq.Context()
    yield made
    made.destroy(0)


class Door:
    """A guarded socket and its clients, all moved by hand."""

    def __init__(self, context, files):
        self.context, self.files = context, files
        self.secret = files.secret("buffer", "buffer")
        self.gate = Gate(context, files)
        self.socket = sockets.router(context, NetworkConfig(), self.secret)
        self.endpoint = self.socket.getsockopt_string(zmq.LAST_ENDPOINT)
        self.gate.guard(self.socket, self.secret.buffer)

    @contextlib.contextmanager
    def client(self, secret):
        dialled, told = sockets.watched_dealer(self.context, self.endpoint, secret, IN | OUT | LOST)
        try:
            yield dialled, lambda: self.wait(lambda: sockets.next_event(told))[0]
        finally:
            sockets.unwatch(dialled, told)
            dialled.close(0)

    def wait(self, what):
        end = time.monotonic() + WAIT_S
        while time.monotonic() < end:
            self.gate.serve()
            if (found := what()) is not None:
                return found
            time.sleep(0.001)
        raise AssertionError("it did not come")

    def heard(self):
        try:
            return self.socket.recv_multipart(zmq.NOBLOCK, copy=False)
        except zmq.Again:
            return None

    def lets_in(self, secret):
        """Whether the client gets in; when it does, what it says arrives under its name."""
        with self.client(secret) as (dialled, becomes):
            if becomes() & OUT:
                assert not dialled.poll(0)
                assert self.heard() is None
                return False
            dialled.send(b"hello")
            frames = self.wait(self.heard)
            assert frames[1].bytes == b"hello"
            assert frames[0].get("User-Id") == secret.public.decode()
            return True

    def close(self):
        self.gate.release()
        self.socket.close(0)
        self.gate.close()


@pytest.fixture
def door(context, files):
    made = Door(context, files)
    yield made
    made.close()


def arm(door):
    return door.files.secret("arm", "actor")


def stranger(door):
    return replace(arm(door), secret=new_pair()[1])


STRANGERS = {
    "an unknown key": (stranger, "key-unknown"),
    "no key": (lambda door: None, "key-none"),
    "another buffer's key": (lambda door: replace(arm(door), buffer=new_pair()[0]), "key-buffer"),
    "the buffer's own key": (lambda door: door.secret, "key-unknown"),
}


def test_known_keys_get_in_and_their_messages_bear_them(door):
    assert all(door.lets_in(door.files.secret(*who)) for who in (("arm", "actor"), ("learner", "learner")))
    assert door.gate.keyring.refused.by_reason == {}  # nor are the two strangers of the proof counted
    assert door.gate.keyring.report()["turned_away"] == {}


@pytest.mark.parametrize("who", STRANGERS)
def test_a_stranger_gets_nothing_and_is_counted_and_the_next_one_gets_in(door, who, caplog):
    make, reason = STRANGERS[who]
    assert not door.lets_in(make(door))
    door.wait(lambda: door.gate.keyring.refused.by_reason[reason] or None)
    assert set(door.gate.keyring.refused.by_reason) == {reason}
    door.gate.keyring.refused.tick(0.0)
    assert gates.MEANINGS.get(reason, "public half") in caplog.text
    assert door.lets_in(arm(door))


def test_a_revoked_key_gets_in_no_more_and_its_replacement_does(door):
    old = arm(door)
    door.files.new("arm", "actor")
    assert door.gate.keys.look(0.0)
    assert door.lets_in(old)
    assert door.lets_in(arm(door))
    door.files.revoke("arm", old=True)
    assert door.gate.keys.look(1.0)
    assert not door.lets_in(old)
    assert door.lets_in(arm(door))


def test_a_question_that_raises_refuses_its_own_client_and_locks_out_nobody(door, monkeypatch):
    admit, left = door.gate.keyring.admit, [2]

    def fail(request):
        if left[0] == 0:
            return admit(request)
        left[0] -= 1
        raise RuntimeError("planted")

    monkeypatch.setattr(door.gate.keyring, "admit", fail)
    with door.client(arm(door)) as (_, becomes):
        assert becomes() & OUT
    monkeypatch.setattr(door.gate.keyring, "admit", admit)
    assert door.gate.keyring.refused.by_reason["defect"] >= 1
    assert [door.lets_in(arm(door)) for _ in range(3)] == [True] * 3


def plain(gate, socket, secret):
    """No options at all."""


def unasked(gate, socket, secret):
    """Encrypted, and nobody is asked who may come in."""
    gate._asked.unbind(gates.PLACE)
    socket.setsockopt(zmq.CURVE_SERVER, 1)
    socket.setsockopt(zmq.CURVE_SECRETKEY, secret.secret.encode())


def late(gate, socket, secret):
    """All options, behind the bind."""
    bind(socket)
    for option, value in ((zmq.CURVE_SERVER, 1), (zmq.ZAP_DOMAIN, sockets.DOMAIN), (zmq.ZAP_ENFORCE_DOMAIN, 1)):
        socket.setsockopt(option, value)
    socket.setsockopt(zmq.CURVE_SECRETKEY, secret.secret.encode())


def bind(socket):
    if not socket.getsockopt_string(zmq.LAST_ENDPOINT):
        socket.bind("tcp://127.0.0.1:0")


@pytest.mark.parametrize(
    ("prepare", "who"), [(plain, "without a key"), (unasked, "with an unknown key"), (late, "without a key")]
)
def test_a_socket_that_lets_strangers_in_is_noticed_before_it_serves(context, files, prepare, who):
    secret = files.secret("buffer", "buffer")
    gate, socket = Gate(context, files), context.socket(zmq.ROUTER)
    prepare(gate, socket, secret)
    bind(socket)
    with pytest.raises(ConfigError, match=f"lets clients in {who}"):
        gate.guard(socket, secret.buffer)
    socket.close(0)
    gate.close()


def test_what_cannot_be_proved_is_no_start_either(context, files, monkeypatch):
    monkeypatch.setattr(gates, "PROOF_S", 0.05)
    gate = Gate(context, files)
    with stdlib_socket.create_server(("127.0.0.1", 0)) as mute:
        endpoint = f"tcp://127.0.0.1:{mute.getsockname()[1]}"
        with pytest.raises(DeadlineExceeded, match="has not refused a client without a key"):
            gate._prove_closed(endpoint, files.secret("buffer", "buffer").buffer)
    gate.close()


def test_one_connection_can_be_cut_and_the_others_stay(door):
    with door.client(arm(door)) as (dialled, becomes), door.client(arm(door)) as (other, others):
        assert becomes() & IN
        assert others() & IN
        dialled.send(b"hello")
        Line.of(door.wait(door.heard)[0]).hang_up()
        assert becomes() & LOST
        other.send(b"still here")
        assert door.wait(door.heard)[1].bytes == b"still here"
