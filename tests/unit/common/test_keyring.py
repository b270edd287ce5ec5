"""The keyring: who may connect, and which sessions a key opens."""

from __future__ import annotations

import pytest
from zmq.utils import z85

from headrace.common.wire.keyring import Keyring
from headrace.common.wire.keys import Key, new_pair
from headrace.common.wire.messages import ROLES, Hello

NAMES = {"arm": "actor", "eve": "evaluator", "learner": "learner", "shard": "shard", "operator": "operator", "buffer": "buffer"}
HALVES = {name: new_pair()[0] for name in NAMES}
ALLOWED = {
    ("arm", "actor", "arm"),
    ("eve", "evaluator", "eve"),
    ("learner", "learner", "arm"),
    ("learner", "learner", "eve"),
    ("learner", "rank", "arm"),
    ("learner", "rank", "eve"),
    ("shard", "shard", "arm"),
    ("shard", "shard", "eve"),
    ("operator", "observer", "arm"),
    ("operator", "observer", "eve"),
}


@pytest.fixture
def ring():
    made = Keyring(b"here")
    made.replace(keys(), [])
    return made


def keys(**others):
    return [Key(name, role, HALVES[name]) for name, role in (NAMES | others).items()]


def ask(ring, public, domain=b"here", mechanism=b"CURVE", version=b"1.0", credentials=None):
    raw = [z85.decode(public)] if credentials is None else credentials
    reply = ring.admit([version, b"7", domain, b"10.0.0.9", b"", mechanism, *raw])
    assert (reply[0], reply[1], len(reply)) == (b"1.0", b"7", 6)
    assert (reply[2] == b"200") == bool(reply[4])
    return reply[4].decode() or reply[2].decode()


def test_known_keys_may_connect_and_are_called_by_their_public_half(ring):
    for name in ("arm", "eve", "learner", "operator"):
        assert ask(ring, HALVES[name]) == HALVES[name]
    assert ring.refused.by_reason == {}


@pytest.mark.parametrize(
    ("question", "reason"),
    [
        ({"public": new_pair()[0]}, "key-unknown"),
        ({"public": HALVES["buffer"]}, "key-unknown"),  # everybody has its public half, and who has its secret is the buffer
        ({"domain": b"there"}, "key-none"),
        ({"domain": b""}, "key-none"),
        ({"mechanism": b"NULL", "credentials": []}, "key-none"),
        ({"mechanism": b"PLAIN", "credentials": [b"arm", b"secret"]}, "key-none"),
        ({"mechanism": b"NULL"}, "key-none"),
        ({"version": b"2.0"}, "key-none"),
        ({"credentials": []}, "key-none"),
        ({"credentials": [b"x" * 31]}, "key-none"),
        ({"credentials": [b"x" * 32, b"y"]}, "key-none"),
        ({"credentials": [b""]}, "key-none"),
    ],
)
def test_everybody_else_is_turned_away_and_counted(ring, question, reason):
    assert ask(ring, **{"public": HALVES["arm"], **question}) == "400"
    assert ring.refused.by_reason == {reason: 1}
    assert ring.report()["turned_away"] == {"10.0.0.9": {reason: 1}}


@pytest.mark.parametrize("frames", [[], [b"1.0"], [b"1.0", b"7"], [b"1.0", b"7", b"here", b"", b"", b"CURVE"]])
def test_a_question_that_is_none_is_answered_no(ring, frames):
    assert ring.admit(frames)[2] == b"400"


def test_before_any_keys_are_known_nobody_gets_in():
    assert ask(Keyring(b"here"), HALVES["arm"]) == "400"


def test_every_key_opens_the_sessions_of_its_role_and_no_others(ring):
    for name in NAMES:
        for role in (*ROLES, "buffer", "", "root"):
            for identity in ("arm", "eve"):
                told = ring.refuse(HALVES[name], Hello(1, role, identity, b"1", "host", 7))
                assert (told is None) == ((name, role, identity) in ALLOWED), (name, role, identity)
                assert told is None or told.retry_s == 0


@pytest.mark.parametrize(
    ("name", "role", "identity", "reason", "words"),
    [
        ("arm", "actor", "leg", "key-id", "the key of 'arm' is not for actor id 'leg'"),
        ("arm", "learner", "arm", "key-role", "the key of actor 'arm' opens no session of role 'learner'"),
        ("learner", "actor", "arm", "key-role", "the key of learner 'learner' opens no session of role 'actor'"),
        ("arm", "observer", "arm", "key-role", "the key of actor 'arm' opens no session of role 'observer'"),
        ("buffer", "observer", "arm", "key-unknown", "this key is not known here"),
    ],
)
def test_a_refusal_says_whose_key_it_is_and_what_was_asked(ring, name, role, identity, reason, words):
    told = ring.refuse(HALVES[name], Hello(1, role, identity, b"1", "host", 7))
    assert (told.reason, words in told.detail) == (reason, True), told


def test_a_key_that_two_claim_is_nobodys(ring):
    twins = [Key("leg", "actor", HALVES["arm"]), Key("eve", "evaluator", HALVES["eve"])]  # the second says the same again
    ring.replace([*keys(), *twins], ["arm.9.public: damaged"])
    assert ring.who(HALVES["arm"]) is None
    assert ring.who(HALVES["eve"]).name == "eve"
    first, second = ring.report()["problems"]
    assert first == "arm.9.public: damaged"
    assert "arm/leg" in second


def test_new_keys_replace_all_those_before(ring):
    ring.replace([Key("eve", "evaluator", HALVES["eve"])], [])
    assert ring.who(HALVES["arm"]) is None
    assert not ring.allows(HALVES["arm"], "actor", "arm")
    assert ask(ring, HALVES["arm"]) == "400"
    assert ask(ring, HALVES["eve"]) == HALVES["eve"]


def test_when_the_keys_cannot_be_told_nobody_comes_in_and_who_is_in_stays(ring):
    ring.close("no such directory")
    assert ask(ring, HALVES["arm"]) == "400"
    assert ring.allows(HALVES["arm"], "actor", "arm")
    assert ring.report()["problems"] == ["no such directory"]
    ring.replace(keys(), [])
    assert ask(ring, HALVES["arm"]) == HALVES["arm"]
    assert ring.report()["problems"] == []
