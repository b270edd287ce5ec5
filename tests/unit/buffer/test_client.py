"""What one client is owed: bytes back, and its allowance in whole portions."""

import pytest

from headrace.buffer.client import Client
from headrace.buffer.pacing import UNBOUNDED, Allowance
from headrace.common.wire.fragments import Joiner
from headrace.common.wire.messages import Received


def make():
    return Client(None, Joiner(1 << 20))


def test_bytes_come_back_once_and_only_when_they_no_longer_wait():
    client = make()
    client.taken, client.queued = 100, 70
    assert client.credit(31) is None
    assert client.credit(30) == Received(30)
    assert client.credit(1) is None
    client.queued = 0
    assert client.credit(1) == Received(100)


@pytest.mark.parametrize(
    ("before", "after", "least", "told"),
    [
        ((10, 0, False), (10, 0, False), -UNBOUNDED, False),  # nothing new
        ((10, 0, False), (13, 0, False), 4, False),  # too little to say
        ((10, 0, False), (14, 0, False), 4, True),
        ((10, 0, False), (11, 0, False), -UNBOUNDED, True),
        ((10, 5, False), (10, 8, False), -UNBOUNDED, True),
        ((10, 0, False), (10, 0, True), 4, True),  # nothing will follow
        ((UNBOUNDED, 0, False), (0, 0, True), 4, True),  # a robot's run ends
    ],
)
def test_an_allowance_is_told_in_portions(before, after, least, told):
    client = make()
    client.allowance = Allowance(*before)
    assert client.allow(Allowance(*after), least) is told
    assert client.allowance == Allowance(*(after if told else before))
