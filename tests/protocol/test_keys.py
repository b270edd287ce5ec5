"""Keys and sessions, without sockets: roles and ids are bound to keys, and a revoked key ends its session at once."""

from __future__ import annotations

from dataclasses import replace

import pytest
from helpers.serving import SPEC, Buffer, first, kinds

from headrace.common.wire import messages as m
from headrace.common.wire.codec import decode
from headrace.common.wire.keyring import Keyring
from headrace.common.wire.keys import Key, new_pair

PEERS = {b"A": ("a", "actor"), b"E": ("e", "evaluator"), b"L": ("learner", "learner"), b"O": ("operator", "operator")}
HALVES = {peer: new_pair()[0] for peer in PEERS}


def keys(*without):
    return [Key(*PEERS[peer], HALVES[peer]) for peer in PEERS if peer not in without]


@pytest.fixture
def buffer(tmp_path):
    made = Buffer(tmp_path)
    made.service.reception.keyring = Keyring(b"here")
    made.service.reception.keyring.replace(keys(), [])
    made.users = dict(HALVES)
    return made


def hello(buffer, peer, role, identity):
    return buffer.say(peer, m.Hello(1, role, identity, peer, "host", 7, SPEC.to_dict() if role == "actor" else None))


def refused(answers):
    assert kinds(answers) == [m.Refused]
    return answers[0][1]


def test_everybody_works_with_a_key_of_his_own(buffer):
    buffer.actor(b"A", "a")
    assert m.Welcome in kinds(hello(buffer, b"E", "evaluator", "e"))
    assert m.Welcome in kinds(hello(buffer, b"L", "learner", "l"))
    assert m.Welcome in kinds(hello(buffer, b"O", "observer", "someone"))
    assert m.Ack in kinds(buffer.block(b"A", 1, 0, 1, 2, 3))
    assert buffer.service.refused.by_reason == {}
    assert buffer.status()["security"]["mode"] == "keys"


@pytest.mark.parametrize(
    ("peer", "role", "identity", "reason"),
    [
        (b"A", "learner", "a", "key-role"),
        (b"A", "rank", "a", "key-role"),
        (b"A", "evaluator", "a", "key-role"),
        (b"A", "observer", "a", "key-role"),
        (b"A", "actor", "b", "key-id"),
        (b"E", "actor", "e", "key-role"),
        (b"E", "evaluator", "a", "key-id"),
        (b"L", "actor", "a", "key-role"),
        (b"L", "observer", "a", "key-role"),
        (b"O", "actor", "a", "key-role"),
        (b"O", "learner", "l", "key-role"),
    ],
)
def test_a_key_opens_no_session_but_its_own(buffer, peer, role, identity, reason):
    buffer.actor(b"A", "a")
    before = buffer.status()["actors"]
    told = refused(hello(buffer, peer, role, identity))
    assert (told.reason, told.retry_s) == (reason, 0.0)
    assert buffer.status()["counters"][f"refused_{reason}"] == 1
    assert buffer.status()["actors"] == before  # nobody was replaced


def test_who_has_no_key_or_no_longer_one_is_not_answered(buffer):
    buffer.users[b"X"] = new_pair()[0]
    assert hello(buffer, b"X", "actor", "a") == []
    assert buffer.say(b"X", m.Pulse()) == []
    assert buffer.raw(b"X", [b"garbage"]) == []
    assert buffer.service.refused.by_reason == {"key-revoked": 3}


def test_a_message_under_another_key_is_not_the_sessions(buffer):
    buffer.actor(b"A", "a")
    buffer.users[b"A"] = HALVES[b"L"]  # the address was given to another connection
    answers = buffer.block(b"A", 1, 0, 1, 2, 3)
    assert refused(answers).reason == "hello-first"
    assert buffer.status()["env_steps"] == 0


def test_a_revoked_key_ends_its_session_at_once_and_no_other(buffer):
    buffer.actor(b"A", "a")
    hello(buffer, b"L", "learner", "l")
    buffer.block(b"A", 1, 0, 1, 2, 3)
    buffer.service.reception.keyring.replace(keys(b"A"), [])
    ((to, parts),) = buffer.service.reception.rekeyed(buffer.now)
    assert to == b"A"
    assert decode(parts[0]) == m.Refused("key-revoked", "its key was revoked", 0.0)
    assert buffer.block(b"A", 5, 4, 5) == []
    assert buffer.status()["env_steps"] == 4
    assert buffer.status()["actors"] == []
    assert buffer.service.refused.by_reason == {"key-revoked": 2}
    assert "actor/a has not come back: its key was revoked" in buffer.status()["warnings"]
    assert buffer.service.reception.rekeyed(buffer.now) == []
    assert kinds(buffer.say(b"L", m.WeightsGet(0, 0, 0, 1))) != []


def test_a_key_that_changes_its_role_or_owner_ends_what_it_opened(buffer):
    buffer.actor(b"A", "a")
    hello(buffer, b"L", "learner", "l")
    buffer.service.reception.keyring.replace([Key("b", "actor", HALVES[b"A"]), Key("learner", "operator", HALVES[b"L"])], [])
    assert sorted(to for to, _ in buffer.service.reception.rekeyed(buffer.now)) == [b"A", b"L"]


def test_a_new_key_of_an_actor_takes_up_where_the_old_one_was(buffer):
    buffer.actor(b"A", "a")
    buffer.block(b"A", 1, 0, 1, 2, 3)
    both = [*keys(), Key("a", "actor", new := new_pair()[0])]
    buffer.service.reception.keyring.replace(both, [])
    assert buffer.service.reception.rekeyed(buffer.now) == []
    buffer.users[b"N"] = new
    buffer.say(b"A", m.Goodbye(False))
    welcome = first(buffer.actor(b"N", "a", incarnation=b"next"), m.Welcome)
    assert welcome.streams == ((1, 4),)


def test_without_keys_the_status_says_what_keeps_strangers_out(tmp_path):
    buffer = Buffer(tmp_path)
    assert buffer.status()["security"] == {"mode": "loopback"}
    assert not [w for w in buffer.status()["warnings"] if "insecure" in w]


def test_an_insecure_buffer_says_so_for_as_long_as_it_runs(tmp_path, monkeypatch):
    buffer = Buffer(tmp_path)
    monkeypatch.setattr(buffer.service.reception, "_network", replace(buffer.service.reception._network, insecure=True))
    assert buffer.status()["security"] == {"mode": "insecure"}
    assert "network.insecure: anybody who reaches the port may read, write and publish" in buffer.status()["warnings"]


def test_what_was_turned_away_stands_in_the_status(buffer):
    buffer.service.reception.keyring.admit([b"1.0", b"1", b"here", b"10.0.0.9", b"", b"NULL"])
    status = buffer.status()
    assert status["counters"]["turned_away_key-none"] == 1
    assert status["security"]["turned_away"] == {"10.0.0.9": {"key-none": 1}}
    assert "1 connections from 10.0.0.9 turned away: key-none" in status["warnings"]
