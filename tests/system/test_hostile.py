"""Hostile messages over real sockets to a real buffer, of a peer with a session and of a stranger, beside an honest actor."""

from __future__ import annotations

import contextlib
import json
from dataclasses import replace

import zmq
from helpers import hostile
from helpers.peer import Peer
from helpers.roles import roles, scripted

from headrace.common.wire import messages as m
from headrace.common.wire.codec import encode
from headrace.common.wire.key_files import KeyFiles

FREE = {"hold_actors": False, "random_steps": 1_000_000_000, "env_steps": 0}  # no learner is needed
NETWORK = {"heartbeat_s": 0.1, "lease_s": 30.0, "connect_s": 60}  # a peer of a few lines has no heartbeat
ENV = {"kwargs": {"lengths": [7], "ends": ["terminated"], "delay_s": 0.001}}


def counts(status, who):
    return sum(status["refused_of"].get(who, {}).values())


def check_unharmed(run, before, last):
    """The honest actor goes on, the pool holds its rows alone, and the log has a few lines."""
    after = run.wait(lambda s: s["env_steps"] > last["env_steps"] + 500, 60, watch=("buffer", "honest"))
    assert {actor["id"]: bool(actor["acked"]) for actor in after["actors"]} == {"honest": True, "m": False}
    assert "actor/honest" not in after["refused_of"]
    assert after["lost_sessions"] == []
    assert after["counters"]["rows_rejected"] == after["counters"].get("refused_defect", 0) == 0
    assert after["memory"]["peak_bytes"] < before["memory"]["peak_bytes"] + (64 << 20)
    assert run.stop() == {"honest": 0, "buffer": 0}
    log = run.log("buffer")
    assert "Traceback" not in log
    assert sum(" refused: " in line for line in log.splitlines()) < 6
    assert len(log) < 10_000, json.dumps(log[-2000:])


def check_declined(run, known, small):
    """All of ``small`` was refused to a peer with a session, each counted, and some told; the status then."""
    last = run.wait(lambda s: counts(s, "actor/m") >= len(small), 30, watch=("buffer", "honest"))
    assert counts(last, "actor/m") == len(small)
    reasons = set(last["refused_of"]["actor/m"])
    assert {"malformed", "arity", "size", "direction", "fragment", "too-large"} <= reasons
    assert {"malformed"} <= known.reasons(m.Declined, 1) <= reasons
    assert not [message for message in known.heard if isinstance(message, (m.Ack, m.Reject))]
    return last


def test_no_message_harms_the_buffer_or_its_honest_actor(tmp_path):
    marker = tmp_path / "marker"
    small, large = hostile.all_of(marker)
    assert (len(small) > 500, len(large) > 4) == (True, True)
    with (
        roles(tmp_path, scripted(pacing=FREE, env=ENV, network=NETWORK)) as run,
        zmq.Context() as context,
        contextlib.ExitStack() as stack,
    ):
        run.buffer()
        run.actor("honest")
        before = run.wait(lambda s: s["env_steps"] > 100, 60)
        known, stranger = (stack.enter_context(Peer(context, run.endpoint)) for _ in range(2))
        known.greet("m")
        for parts in small:
            known.send(parts)
            stranger.send(parts)
        last = check_declined(run, known, small)
        assert stranger.reasons(m.Refused, 1) == {"hello-first"}
        assert {type(message) for message in stranger.heard} == {m.Refused}
        for parts in large:  # the buffer's socket itself closes such a connection
            known.send(parts)
            stranger.send(parts)
        known.greet("m")
        assert not marker.exists()
        check_unharmed(run, before, last)


def test_a_known_key_that_lies_harms_nobody_and_an_unknown_one_is_not_even_heard(tmp_path):
    marker = tmp_path / "marker"
    small, _ = hostile.all_of(marker)
    ours, theirs = KeyFiles(tmp_path / "keys"), KeyFiles(tmp_path / "foreign")
    for name, role in [("honest", "actor"), ("m", "actor"), ("operator", "operator")]:
        ours.new(name, role)
    theirs.new("m", "actor")
    own = ours.secret("m", "actor")
    foreign = replace(theirs.secret("m", "actor"), buffer=own.buffer)  # it knows the buffer, and the buffer does not know it
    config = scripted(pacing=FREE, env=ENV, network={**NETWORK, "keys": str(ours.path)})
    with roles(tmp_path, config) as run, zmq.Context() as context, contextlib.ExitStack() as stack:
        run.buffer()
        run.actor("honest")
        before = run.wait(lambda s: s["env_steps"] > 100, 60)
        known, stranger, keyless = (stack.enter_context(Peer(context, run.endpoint, key)) for key in (own, foreign, None))
        known.greet("m")
        for parts in small:
            known.send(parts)
        assert not stranger.is_let_in(1000)
        assert not keyless.is_let_in(0)
        last = check_declined(run, known, small)
        assert counts(last, "strangers") == 0
        known.heard.clear()
        known.send([encode(m.Hello(m.PROTOCOL, "actor", "honest", b"7", "host", 1))])  # another's id
        known.send([encode(m.Hello(m.PROTOCOL, "learner", "m", b"7", "host", 1))])  # another's role
        assert known.reasons(m.Refused, 2) == {"key-id", "key-role"}
        known.greet("m")
        assert (stranger.heard, keyless.heard, marker.exists()) == ([], [], False)
        check_unharmed(run, before, last)
