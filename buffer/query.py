"""Asking a running buffer: an observer's questions, and the changes that an operator asks for."""

from __future__ import annotations

import time
from typing import Any

import zmq

from headrace.common.errors import ConfigError, DeadlineExceeded, HeadraceError, SessionRefused
from headrace.common.wire import sockets
from headrace.common.wire.codec import decode, encode, take_object
from headrace.common.wire.key_files import KeyFiles, own_secret
from headrace.common.wire.link import new_hello
from headrace.common.wire.messages import Answer, Change, Declined, Goodbye, Query, Refused, Welcome
from headrace.common.wire.network import NetworkConfig

LOCAL = NetworkConfig()  # of this host, without keys


class Observer:
    """A connection that asks for the status as often as it likes.

    Raises:
        ConfigError: ``endpoint`` is none, or needs a key that ``network.keys`` does not hold.
    """

    def __init__(self, endpoint: str, network: NetworkConfig = LOCAL) -> None:
        self._endpoint = endpoint
        self._hello = new_hello("observer", f"observer-{time.time_ns()}")
        secret = own_secret(network, self._hello.role, self._hello.id)
        key = (
            f"know the key of {KeyFiles.of(network).secret_path(secret.name)}"
            if secret
            else "want no keys (--network.keys DIR)"
        )
        self._silent = f"is a buffer listening there, and does it {key}?"
        self._context = zmq.Context()
        try:
            self._socket = sockets.dealer(self._context, endpoint, network, secret)
        except HeadraceError:
            self._context.term()
            raise
        self._known = False  # to the buffer, as far as we have heard
        self._number = 0

    def status(self, deadline_s: float) -> dict[str, Any]:
        """The buffer's status; raises as :meth:`ask`."""
        return self.ask("status", deadline_s)

    def ask(self, what: str, deadline_s: float) -> dict[str, Any]:
        """What the buffer answers to a query.

        Raises:
            SessionRefused: the buffer turned this key away.
            DeadlineExceeded: no answer within ``deadline_s`` (s).
        """
        return self._answer(Query(what), deadline_s)

    def change(self, what: str, deadline_s: float, target: str = "", value: Any = None) -> str:
        """Have the run changed, see :class:`headrace.common.wire.messages.Change`; a warning, or nothing.

        Raises:
            ConfigError: the buffer does not do that; its text says why, and what it does.
            SessionRefused, DeadlineExceeded: as :meth:`ask`.
        """
        self._number += 1
        answer = self._answer(Change(what, self._number, target, value), deadline_s)
        if "refused" in answer:
            raise ConfigError(str(answer["refused"]))
        return str(answer.get("warning", ""))

    def _answer(self, asked: Query | Change, deadline_s: float) -> dict[str, Any]:
        end, why, what = time.monotonic() + deadline_s, self._silent, asked.what
        self._ask(asked)
        while (left := end - time.monotonic()) > 0:
            if not self._socket.poll(int(min(left, 0.1) * 1000) + 1):
                self._ask(asked)
                continue
            frames = self._socket.recv_multipart()
            message = decode(frames[0])
            if isinstance(message, Answer) and message.what == what and len(frames) == 2:
                return take_object(frames[1], what)
            if isinstance(message, Refused):
                if message.retry_s <= 0:
                    raise SessionRefused(message.reason, message.detail)
                time.sleep(min(message.retry_s, 0.05))
                self._known, why = False, message.detail
                self._ask(asked)
            elif isinstance(message, Declined):
                raise ConfigError(f"the buffer declines: {message.detail or message.reason}")
            elif isinstance(message, Welcome):
                self._known = True
                self._ask(asked)
        raise DeadlineExceeded(f"no {what} from {self._endpoint} within {deadline_s:g} s; {why}")

    def close(self) -> None:
        """Leave."""
        self._send(Goodbye(False))
        self._socket.close(200)
        self._context.term()

    def _ask(self, asked: Query | Change) -> None:
        self._send(asked if self._known else self._hello)

    def _send(self, message: Any) -> None:
        try:
            self._socket.send(encode(message), zmq.NOBLOCK)
        except zmq.Again:
            time.sleep(0.02)  # not connected yet; asked again until the deadline


def status(endpoint: str, deadline_s: float, network: NetworkConfig = LOCAL) -> dict[str, Any]:
    """One status of the buffer at ``endpoint``; raises as :class:`Observer` and its :meth:`~Observer.ask`."""
    observer = Observer(endpoint, network)
    try:
        return observer.status(deadline_s)
    finally:
        observer.close()
