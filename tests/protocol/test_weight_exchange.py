"""Weights from a learner to the shelf and from there to actors, without sockets."""

from __future__ import annotations

import numpy as np
from helpers.serving import first

from headrace.common.weights import Version, WeightSet
from headrace.common.wire import messages as m


def publish(buffer, peer, epoch, step):
    weights = WeightSet(Version("l", epoch, step), {"type": "mlp"}, {"w": np.full(3, step, np.float32)})
    return buffer.say(peer, m.Publish(epoch, step), weights.pack())


def test_weights_go_to_the_shelf_and_every_actor_hears_of_them(buffer):
    buffer.actor()
    buffer.learner()
    answers = publish(buffer, b"L", 1, 7)
    assert first(answers, m.Published) == m.Published(1, 7)
    assert {(to, s.step) for to, s, _ in answers if isinstance(s, m.State)} == {(b"A", 7)}
    _, part, frames = buffer.say(b"A", m.WeightsGet(1, 7, 0, 1 << 20))[0]
    assert WeightSet.unpack(bytes(frames[0])).tensors["w"].tolist() == [7, 7, 7]
    assert part.total == len(frames[0])
    late = buffer.actor(b"B", "b")
    assert first(late, m.State).step == 7


def test_a_fenced_learner_publishes_nothing(buffer):
    buffer.actor()
    buffer.learner(b"L", b"2")
    publish(buffer, b"L", 1, 7)
    for _ in range(6):
        buffer.tick(1.0)
        buffer.say(b"A", m.Pulse())
    assert first(buffer.learner(b"M", b"3"), m.Welcome).epoch == 2
    assert first(publish(buffer, b"L", 1, 8), m.Refused).reason == "hello-first"
    assert first(publish(buffer, b"M", 1, 9), m.Published).reason == "stale"
    assert first(publish(buffer, b"M", 2, 1), m.Published) == m.Published(2, 1)
    assert buffer.service.shelf.version == Version("l", 2, 1)


def test_an_actor_may_not_publish(buffer):
    buffer.actor()
    assert first(publish(buffer, b"A", 1, 1), m.Declined).reason == "direction"
