"""What a buffer refuses to start with: keys that are not safe, an open port without any, a socket that lets strangers in."""

from __future__ import annotations

import pytest

from headrace.buffer import server
from headrace.buffer.config import PoolConfig
from headrace.buffer.pacing import PacingConfig
from headrace.buffer.server import serve
from headrace.buffer.settings import BufferSettings
from headrace.common.errors import ConfigError
from headrace.common.wire import sockets
from headrace.common.wire.key_files import KeyFiles
from headrace.common.wire.network import NetworkConfig


@pytest.fixture
def files(tmp_path):
    made = KeyFiles(tmp_path / "keys")
    made.new("arm", "actor")
    return made


@pytest.fixture
def begin(tmp_path, monkeypatch):
    def never(*words):
        raise AssertionError("it serves")

    monkeypatch.setattr(server, "_run", never)
    return lambda **network: serve(
        BufferSettings(NetworkConfig(**network), PoolConfig(capacity=64), tmp_path / "pool", PacingConfig(), "run", 0)
    )


UNSAFE = {
    "a secret that others read": (lambda files: files.secret_path("buffer").chmod(0o640), "chmod 600"),
    "no secret": (lambda files: files.secret_path("buffer").unlink(), "buffer.secret is missing.*headrace keys new"),
    "a directory that others write": (lambda files: files.path.chmod(0o777), "chmod go-w"),
    "a damaged secret": (lambda files: files.secret_path("buffer").write_text("{}"), "buffer.secret: name: required"),
}


@pytest.mark.parametrize("what", UNSAFE)
def test_keys_that_are_not_safe(files, begin, what):
    spoil, words = UNSAFE[what]
    spoil(files)
    with pytest.raises(ConfigError, match=words):
        begin(keys=str(files.path))


def test_no_keys_where_there_should_be(tmp_path, begin):
    with pytest.raises(ConfigError, match="headrace keys new"):
        begin(keys=str(tmp_path / "nothing"))


def test_a_port_that_others_reach_without_keys_names_the_two_ways_out(begin):
    with pytest.raises(ConfigError, match=r"--network.keys DIR; or.*--network.insecure true"):
        begin(endpoint="tcp://0.0.0.0:0")


def test_a_socket_whose_options_came_too_late(files, begin, monkeypatch):
    router = sockets.router

    def late(context, network, secret):
        socket = router(context, network)
        socket.curve_server, socket.curve_secretkey = True, secret.secret.encode()
        return socket

    monkeypatch.setattr(sockets, "router", late)
    with pytest.raises(ConfigError, match="lets clients in without a key"):
        begin(keys=str(files.path))


@pytest.mark.parametrize("network", [{}, {"endpoint": "tcp://0.0.0.0:0", "insecure": True}])
def test_what_is_safe_or_said_to_be_is_served(begin, network):
    with pytest.raises(AssertionError, match="it serves"):
        begin(**network)


def test_a_port_that_others_reach_with_keys_is_served(files, begin):
    with pytest.raises(AssertionError, match="it serves"):
        begin(endpoint="tcp://0.0.0.0:0", keys=str(files.path))
