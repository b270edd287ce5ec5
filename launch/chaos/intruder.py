"""An intruder: who has no key, or another's, and tries to open a session and to write rows in it; each try in its history."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import zmq

from headrace.common.block import Block
from headrace.common.specs import TransitionSpec
from headrace.common.wire import messages as m
from headrace.common.wire import sockets
from headrace.common.wire.codec import block_parts, decode, encode
from headrace.common.wire.key_files import KeyFiles
from headrace.common.wire.keys import Secret, new_pair
from headrace.common.wire.link import new_hello
from headrace.common.wire.network import NetworkConfig
from headrace.launch.chaos.checker import OPENED
from headrace.launch.chaos.history import History

INTRUDER = "intruder"  # kind of its histories
REFUSED, SILENT = "refused", "silent"
ANSWER_S, ROWS_S = 1.0, 0.5


class Intruder:
    """Tries; belongs to one thread.

    Args:
        endpoint: of the buffer.
        network: names the keys of the job.
        spec: of its rows.
        history: is told of each try how it was answered: ``opened``, ``refused`` or ``silent``.
    """

    def __init__(self, endpoint: str, network: NetworkConfig, spec: TransitionSpec, history: History) -> None:
        self._endpoint, self._network, self._spec, self._history = endpoint, network, spec, history

    def try_all(self, victim: str, other: str) -> None:
        """Try to be the actor ``victim``: without a key, with an unknown one, with that of another actor; and to publish."""
        files = KeyFiles.of(self._network)
        own, others = files.secret(victim, "actor"), files.secret(other, "actor")
        tries: Mapping[str, tuple[Secret | None, str, str]] = {
            f"{victim} without a key": (None, "actor", victim),
            f"{victim} by an unknown key": (replace(own, secret=new_pair()[1]), "actor", victim),
            f"{victim} by the key of {other}": (others, "actor", victim),
            f"the learner by the key of {victim}": (own, "learner", "learner"),
        }
        for way, (secret, role, identity) in tries.items():
            self.attempt(way, secret, role, identity)

    def attempt(self, way: str, secret: Secret | None, role: str, identity: str) -> None:
        """One try; in a session that opens it writes one row."""
        with zmq.Context() as context:
            socket = sockets.dealer(context, self._endpoint, self._network, secret)
            try:
                self._history.write("tried", way, self._open(socket, role, identity))
            finally:
                socket.close(0)

    def _open(self, socket: zmq.Socket[bytes], role: str, identity: str) -> str:
        spec = self._spec.to_dict() if role == "actor" else None
        hello, end = [encode(new_hello(role, identity, spec=spec))], time.monotonic() + ANSWER_S
        answered = SILENT
        while (left := end - time.monotonic()) > 0:
            if not socket.poll(int(1000 * left), zmq.POLLOUT):  # nobody has let us in
                break
            socket.send_multipart(hello)
            if not socket.poll(int(1000 * left)):
                break
            answer = decode(socket.recv_multipart()[0])
            if isinstance(answer, m.Welcome):
                self._write(socket, answer.epoch)
                return OPENED
            answered = REFUSED
            if not isinstance(answer, m.Refused) or answer.retry_s <= 0:
                break
            time.sleep(min(answer.retry_s, max(0.0, left)))
        return answered

    def _write(self, socket: zmq.Socket[bytes], stream: int) -> None:
        rows = np.zeros(1, self._spec.row_dtype)
        rows["steps"], rows["next_obs"] = 1, 1
        block = Block(rows, {o.key: np.zeros((2, *o.shape), o.dtype) for o in self._spec.obs})
        socket.send_multipart(block_parts(m.BlockHead(stream, 1, 1, 2), block, self._spec))
        socket.poll(int(1000 * ROWS_S))
        socket.send(encode(m.Goodbye(False)))
