"""What the log is told of a session: that it began, why it is waited for, that it was lost and is back, and how often."""

from __future__ import annotations

import pytest

from headrace.common.errors import DeadlineExceeded
from headrace.common.wire.absence import Absence
from headrace.common.wire.messages import Hello, Received, Refused, Welcome
from headrace.common.wire.network import NetworkConfig
from headrace.common.wire.session import ClientSession

NETWORK = NetworkConfig(lease_s=5.0, heartbeat_s=0.5, connect_s=100_000.0)
WELCOME = Welcome(3, 5.0, 0.5, 1000, 4096, 1 << 30, pool="p")


class Story:
    """A session in time that is moved on by hand; ``told`` has each line with its second."""

    def __init__(self, **changes):
        network = NetworkConfig(**{**vars(NETWORK), **changes}) if changes else NETWORK
        self.session = ClientSession(Hello(1, "actor", "a", b"i" * 16, "host", 7), network, "tcp://x:1", 0.0)
        self.session.advice = "is the buffer running?"
        self.absence, self.told, self.now = Absence(self.session, "tcp://x:1"), [], 0.0
        self.look()

    def look(self):
        if said := self.absence.look(self.now):
            self.told.append((self.now, said))

    def until(self, end, *, hears=False):
        while self.now < end:
            self.now += 0.5
            self.session.tick(self.now)
            if hears:
                self.hear(Received(0))
            self.look()

    def hear(self, message):
        self.session.receive(message, self.now)
        self.look()


def test_a_wait_is_told_with_its_time_and_what_to_look_at_ever_more_rarely():
    story = Story()
    story.until(2000)
    why = "waiting for an answer from tcp://x:1"
    assert story.told == [(0.5, f"waiting: {why}")] + [
        (second, f"waiting for {second:.0f} s: {why}; is the buffer running?") for second in (10.0, 60.0, 660.0, 1260.0, 1860.0)
    ]


def test_a_new_reason_is_told_at_once_and_needs_no_advice():
    story = Story()
    story.until(3)
    story.hear(Refused("no-spec", "no actor has declared its spec", 0.2))
    story.until(10)
    assert story.told[1:] == [
        (3.0, "waiting: no actor has declared its spec"),
        (10.0, "waiting for 10 s: no actor has declared its spec"),
    ]
    for number in range(100):
        story.hear(Refused("opening", f"reason {number}", 0.2))
    assert len(story.told) < 12


def test_a_session_that_begins_is_lost_and_is_back_is_told_with_the_time_that_it_was_away():
    story = Story()
    story.hear(WELCOME)
    story.until(20, hears=True)
    story.until(46)
    story.hear(WELCOME)
    silent = "tcp://x:1 has been silent for 5 s"
    assert story.told == [
        (0.0, "has a session with tcp://x:1 as 'a'"),
        (25.5, f"has lost its session: {silent}"),
        (30.0, f"waiting for 10 s: {silent}; is the buffer running?"),
        (46.0, "is back at tcp://x:1 as 'a' after 26.0 s"),
    ]


def test_a_link_that_comes_and_goes_is_told_of_ever_more_rarely_and_a_long_loss_always():
    story = Story()
    story.hear(WELCOME)
    for _ in range(2000):
        story.hear(Refused("hello-first", "no session here", 0.2))
        story.until(story.now + 1)
        story.hear(WELCOME)
    assert 10 <= len(story.told) <= 25
    story.hear(Refused("hello-first", "no session here", 0.2))
    count = len(story.told)
    story.until(story.now + 11)
    story.hear(WELCOME)
    assert [said.split(" ")[0] for _, said in story.told[count:]] == ["waiting", "is"]


def test_the_end_of_a_wait_says_what_to_look_at():
    story = Story(connect_s=60.0)
    story.until(61)
    assert isinstance(story.session.failure, DeadlineExceeded)
    assert str(story.session.failure).endswith("waiting for an answer from tcp://x:1; is the buffer running?")
    assert story.told[-1][0] == pytest.approx(60.0)
