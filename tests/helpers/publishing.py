"""Puts weights on the shelf of a running buffer, as a learner that leaves again."""

from __future__ import annotations

import time

import zmq

from headrace.common.weights import WeightSet
from headrace.common.wire import messages as m
from headrace.common.wire import sockets
from headrace.common.wire.codec import decode, encode
from headrace.common.wire.key_files import own_secret
from headrace.common.wire.link import new_hello
from headrace.common.wire.network import NetworkConfig

DEADLINE_S = 20.0
LOCAL = NetworkConfig()


def publish(endpoint: str, weights: WeightSet, network: NetworkConfig = LOCAL) -> WeightSet:
    """Publish, and wait for the answer; the weights, with the version that they have there."""
    context = zmq.Context()
    socket = sockets.dealer(context, endpoint, network, own_secret(network, "learner", "learner"))
    end = time.monotonic() + DEADLINE_S
    try:
        while time.monotonic() < end:
            if not socket.poll(200):
                if socket.poll(0, zmq.POLLOUT):
                    socket.send(encode(new_hello("learner", weights.version.learner)))
                continue
            message = decode(socket.recv_multipart()[0])
            if isinstance(message, m.Welcome):
                version = type(weights.version)(weights.version.learner, message.epoch, weights.version.step)
                weights = WeightSet(version, weights.policy, weights.tensors)
                socket.send_multipart([encode(m.Publish(*version.order)), weights.pack()])
            elif isinstance(message, m.Published):
                assert not message.reason, message
                socket.send(encode(m.Goodbye(False)))
                return weights
        raise AssertionError("not published")
    finally:
        socket.close(200)
        context.term()
