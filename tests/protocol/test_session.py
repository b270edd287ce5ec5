"""The client session's table, and the fleet's."""

from __future__ import annotations

import math
import os
from dataclasses import replace

import pytest

from headrace.buffer.epochs import Epochs
from headrace.common.errors import DeadlineExceeded, PoolDamaged, SessionRefused
from headrace.common.wire.fleet import Fleet
from headrace.common.wire.messages import Ack, Hello, Received, Refused, Welcome
from headrace.common.wire.network import NetworkConfig
from headrace.common.wire.session import ClientSession, Phase

NETWORK = NetworkConfig(lease_s=5.0, heartbeat_s=0.5, connect_s=60.0)
HELLO = Hello(1, "actor", "a", b"i" * 16, "host", 7)
WELCOME = Welcome(3, 5.0, 0.5, 1000, 4096, 1 << 30, pool="p")
AGAIN = replace(HELLO, pool="p")  # of a process that has had a session


def live(now=0.0):
    session = ClientSession(HELLO, NETWORK, "tcp://x:1", now)
    assert session.tick(now) is HELLO
    assert session.receive(WELCOME, now)
    return session


def test_hello_is_repeated_until_it_is_answered():
    session = ClientSession(HELLO, NETWORK, "tcp://x:1", 0.0)
    assert [t for t in range(20) if session.tick(t / 10)] == [0, 10]
    assert session.waiting == "waiting for an answer from tcp://x:1"


def test_a_hello_that_met_no_connection_is_said_as_soon_as_there_may_be_one():
    session = ClientSession(HELLO, NETWORK, "tcp://x:1", 0.0)
    assert session.tick(0.0) is HELLO
    assert session.hello_in(0.0) == 1.0
    session.unsent(0.0)
    assert [t for t in range(4) if session.tick(t / 100)] == [2]
    assert session.hello_in(0.5) == pytest.approx(0.52)


def test_a_session_that_never_comes_ends_with_its_reason():
    session = ClientSession(HELLO, NETWORK, "tcp://x:1", 0.0)
    session.receive(Refused("no-spec", "no actor yet", 0.2), 1.0)
    session.tick(60.5)
    assert session.phase is Phase.ENDED
    assert isinstance(session.failure, DeadlineExceeded)
    assert "no actor yet" in str(session.failure)


def test_silence_for_a_lease_makes_the_socket_anew_and_says_hello_again():
    session = live()
    assert session.receive(Ack(1, 1), 3.0)
    assert session.tick(7.9) is None
    assert session.tick(8.1) == AGAIN
    assert session.reconnect
    assert session.room() == 0


def test_a_connection_on_which_nobody_answers_a_hello_is_given_up_too():
    session = ClientSession(HELLO, NETWORK, "tcp://x:1", 0.0)
    made_anew = []
    for tenth in range(300):
        session.tick(tenth / 10)
        if session.reconnect:
            made_anew.append(tenth / 10)
            session.reconnect = False
        if tenth == 200:
            session.receive(Refused("opening", "the buffer is reserving the pool", 0.2), 20.0)
    assert made_anew == [5.1, 10.2, 15.3, 25.1]  # not while it answers


def test_bytes_of_a_message_that_is_long_on_its_way_are_no_silence():
    session = live()
    assert not session.overdue(5.0)
    assert session.overdue(5.1)
    session.arriving(3.0)
    assert not session.overdue(5.1)
    assert session.tick(7.9) is None
    session.arriving(-math.inf)
    assert session.tick(8.1) == AGAIN
    assert not session.overdue(20.0)  # there is no session any more


def test_a_held_id_is_waited_for_two_leases_then_given_up_naming_the_holder():
    session = ClientSession(HELLO, NETWORK, "tcp://x:1", 0.0)
    refused = Refused("held", "held by pid 9 on arm-pc", 0.5)
    session.receive(refused, 0.0)
    session.receive(refused, 9.9)
    assert session.phase is Phase.SEEKING
    session.receive(refused, 10.1)
    assert isinstance(session.failure, SessionRefused)
    assert "pid 9 on arm-pc" in str(session.failure)


def test_a_refusal_without_retry_ends_at_once():
    session = live()
    session.receive(Refused("spec", "spec.obs: 3 != 4", 0.0), 1.0)
    assert (session.phase, str(session.failure)) == (Phase.ENDED, "spec.obs: 3 != 4")


def test_a_restarted_buffer_is_greeted_at_once_by_a_process_that_knows_its_pool():
    session = live()
    session.receive(Refused("hello-first", "no session", 0.2), 1.0)
    assert session.tick(1.0) == AGAIN


def test_credit_is_what_was_sent_and_not_yet_taken():
    session = live()
    session.sent(900)
    assert session.room() == 100
    session.receive(Received(500), 0.1)
    assert session.room() == 600


@pytest.mark.parametrize("forged", [10**12, 901])
def test_a_forged_receipt_gives_no_more_than_was_sent(forged):
    session = live()
    session.sent(900)
    session.receive(Received(forged), 0.1)
    assert session.room() == 1000


class Written(Fleet):
    """Has each hello written down at once."""

    def hello(self, *args, **kwargs):
        answer = super().hello(*args, **kwargs)
        refused = self.write_down()
        if refused is not None and not isinstance(answer, Refused) and not answer[0].kept:
            self.forget(answer[0])
            return refused
        return answer


def fleet(tmp_path, most=8):
    return Written(Epochs(tmp_path), lease_s=5.0, heartbeat_s=0.5, most=most)


def hello(incarnation, pid=1, identity="a", role="actor"):
    return Hello(1, role, identity, incarnation, "host", pid)


def test_one_id_one_holder_while_the_lease_lives(tmp_path):
    f = fleet(tmp_path)
    first, _ = f.hello(b"p1", hello(b"1", 11), 0.0)
    refused = f.hello(b"p2", hello(b"2", 22), 4.0)
    assert isinstance(refused, Refused)
    assert "pid 11 on host" in refused.detail
    assert f.find(b"p1", 4.5) is first
    assert f.find(b"p2", 4.5) is None
    assert isinstance(f.hello(b"p2", hello(b"2", 22), 9.0), Refused)  # the incumbent was heard at 4.5
    second, old = f.hello(b"p2", hello(b"2", 22), 9.6)
    assert (first.epoch, second.epoch, old) == (1, 2, first)
    assert f.find(b"p1", 9.7) is None  # the zombie is fenced
    assert f.fenced == 1
    assert f.check_valid() == (True, "")


def test_a_process_that_was_replaced_is_told_so_for_good_whoever_holds_its_id_then(tmp_path):
    f = fleet(tmp_path)
    first, _ = f.hello(b"p1", hello(b"1", 11), 0.0)
    f.forget(first)  # its lease ran out, and nobody was there
    again, _ = f.hello(b"p2", hello(b"1", 11), 6.0, returns=True)  # a partition is over: it goes on
    f.forget(again)
    heir, _ = f.hello(b"p3", hello(b"2", 22), 12.0)
    woken = f.hello(b"p4", hello(b"1", 11), 13.0, returns=True)
    assert (woken.reason, woken.retry_s) == ("fenced", 0.0)
    assert "pid 22 on host" in woken.detail
    f.forget(heir)
    assert f.hello(b"p5", hello(b"1", 11), 20.0, returns=True).reason == "fenced"
    restarted = fleet(tmp_path)
    assert restarted.hello(b"p6", hello(b"1", 11), 21.0, returns=True).reason == "fenced"
    assert restarted.hello(b"p7", hello(b"1", 11, identity="b"), 21.0, returns=True)[0].epoch == 1  # of its own id
    assert restarted.hello(b"p8", hello(b"2", 22), 22.0, returns=True)[0].epoch == heir.epoch  # who is not replaced goes on
    assert restarted.hello(b"p9", hello(b"3", 33), 30.0)[0].epoch == heir.epoch + 1  # and a newcomer takes over


def test_who_could_not_be_written_down_has_replaced_nobody(tmp_path, monkeypatch):
    f = fleet(tmp_path)
    f.forget(f.hello(b"p1", hello(b"1", 11), 0.0)[0])
    monkeypatch.setattr(os, "fsync", lambda fd: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    assert f.hello(b"p2", hello(b"2", 22), 1.0).reason == "disk"
    monkeypatch.undo()
    assert f.hello(b"p3", hello(b"1", 11), 2.0, returns=True)[0].epoch == 1


class Bytes:
    """A line on which bytes came at one time."""

    def __init__(self, at):
        self.at, self.now = at, 0.0

    def quiet_s(self):
        return self.now - self.at


@pytest.mark.parametrize(
    ("bytes_at", "now", "garbled", "lives"),
    [
        (0.0, 5.1, False, False),
        (4.0, 5.1, False, True),
        (4.0, 8.9, False, True),
        (4.0, 9.1, False, False),
        (4.0, 5.1, True, False),
    ],
)
def test_a_lease_does_not_end_while_bytes_of_a_long_message_come_in(tmp_path, bytes_at, now, garbled, lives):
    f = fleet(tmp_path)
    session, _ = f.hello(b"p1", hello(b"1", 11), 0.0)
    session.line, session.garbled = Bytes(bytes_at), garbled
    session.line.now = now
    assert (f.expired(now) == []) is lives
    assert isinstance(f.hello(b"p2", hello(b"2", 22), now), Refused) is lives


def test_observers_leave_nothing_behind(tmp_path):
    f = fleet(tmp_path)
    f.forget(f.hello(b"p1", hello(b"1", identity="observer-1", role="observer"), 0.0)[0])
    assert not (tmp_path / "epochs.json").exists()
    assert f.get_state() == {"sessions": [], "fenced": 0}


def test_a_reconnect_of_the_same_process_keeps_its_epoch(tmp_path):
    f = fleet(tmp_path)
    first, _ = f.hello(b"p1", hello(b"1"), 0.0)
    again, _ = f.hello(b"p9", hello(b"1"), 1.0)
    assert again.epoch == first.epoch
    assert f.find(b"p1", 1.1) is None
    assert f.fenced == 0


def test_epochs_rise_over_restarts_of_the_buffer(tmp_path):
    assert fleet(tmp_path).hello(b"p", hello(b"1"), 0.0)[0].epoch == 1
    assert fleet(tmp_path).hello(b"p", hello(b"1"), 0.0)[0].epoch == 2


def test_who_returns_to_a_restarted_buffer_costs_its_disk_nothing_unless_it_publishes(tmp_path, monkeypatch):
    f = fleet(tmp_path)
    for n, role in enumerate(("actor", "learner")):
        f.hello(b"p%d" % n, hello(b"1", role=role), 0.0)
    synced = []
    monkeypatch.setattr(os, "fsync", synced.append)
    again = fleet(tmp_path)
    assert again.hello(b"q0", hello(b"1"), 1.0, returns=True)[0].epoch == 1
    assert synced == []
    assert again.hello(b"q1", hello(b"1", role="learner"), 1.0, returns=True)[0].epoch == 2
    again.forget(again.find(b"q0", 2.0))
    Epochs(tmp_path).raise_all(1000)
    restored = fleet(tmp_path)
    assert restored.hello(b"q0", hello(b"1"), 3.0, returns=True)[0].epoch == 1001  # it was numbered before the loss


def test_more_sessions_than_declared_are_refused(tmp_path):
    f = fleet(tmp_path, most=1)
    f.hello(b"p1", hello(b"1"), 0.0)
    assert f.hello(b"p2", hello(b"2", identity="b"), 0.0).reason == "full"


def test_epochs_begin_above_a_floor_after_a_loss(tmp_path):
    epochs = Epochs(tmp_path)
    epochs.raise_epoch("actor/a", b"1")
    epochs.raise_all(1000)
    again = Epochs(tmp_path)
    assert [again.raise_epoch(who, b"2") for who in ("actor/a", "actor/b", "actor/a")] == [1001, 1001, 1002]
    assert again.check_valid() == (True, "")


def test_an_epoch_is_on_disk_with_its_name_before_it_is_given_out(tmp_path, monkeypatch):
    synced = []
    fsync = os.fsync

    def note(fd):
        fsync(fd)
        synced.append((os.readlink(f"/proc/self/fd/{fd}"), (tmp_path / "epochs.json").exists()))

    monkeypatch.setattr(os, "fsync", note)
    epochs = Epochs(tmp_path)
    epochs.raise_epoch("actor/a", b"1")
    epochs.raise_epoch("actor/b", b"1")
    assert synced == []
    epochs.write()
    epochs.write()  # nothing was raised since
    assert synced == [(str(tmp_path / "epochs.tmp"), False), (str(tmp_path), True)]


@pytest.mark.parametrize(
    ("old", "new"), [('"actor/a": [1', '"actor/a": [9'), ('"31"', '"32"'), ('"31"', "31"), ("[1, ", "["), ("sha", "")]
)
def test_a_damaged_epoch_file_is_named(tmp_path, old, new):
    epochs = Epochs(tmp_path)
    epochs.raise_epoch("actor/a", b"1")
    epochs.write()
    path = tmp_path / "epochs.json"
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(PoolDamaged, match="epochs.json"):
        Epochs(tmp_path)
