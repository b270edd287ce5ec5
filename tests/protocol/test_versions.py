"""A buffer that speaks two protocol versions: older clients beside newer ones, and what it tells all others."""

from __future__ import annotations

import msgpack
import pytest
from helpers.serving import SPEC, block

from headrace.common.errors import WireError
from headrace.common.wire import compression, versions
from headrace.common.wire import messages as m
from headrace.common.wire.codec import block_parts, decode, encode, in_version

OLD = m.PROTOCOL - 1
LACKING = frozenset({"Declined", "Welcome.compression", "Hello.compression", "State.report", "BlockHead.priorities"})


@pytest.fixture
def two(monkeypatch):
    """The version before this one, as it might have been."""
    monkeypatch.setitem(versions.LACKS, OLD, LACKING)


def old_header(message):
    """As a client of the older version packs it, which knows nothing of the newer one."""
    kind = type(message).__name__
    fields = {name: value for name, value in vars(message).items() if f"{kind}.{name}" not in LACKING}
    return msgpack.packb([OLD, message.TAG, fields])


def said(out, peer):
    """What a peer is sent, as [version, tag, fields]."""
    return [msgpack.unpackb(parts[0]) for to, parts in out if to == peer]


def exchange(buffer, peer, *parts):
    out = buffer.service.receive(peer, list(parts), buffer.now) + buffer.service.reception.admit()
    while work := buffer.service.take_work():
        out += buffer.service.finish(*buffer.worker.run(work), buffer.now)
    return said(out, peer)


def join(buffer, peer, identity, version):
    hello = m.Hello(version, "actor", identity, identity.encode(), "host", 7, SPEC.to_dict())
    header = old_header(hello) if version == OLD else encode(hello)
    answers = exchange(buffer, peer, header)
    return answers if answers[0][1] == m.Welcome.TAG else exchange(buffer, peer, header)


def rows(seq):
    made = block((seq,))
    return block_parts(m.BlockHead(1, seq, 1, made.n_frames), made, SPEC)


def test_an_older_client_works_beside_a_newer_one_and_hears_only_its_own_version(buffer, two):
    old, new = join(buffer, b"O", "old", OLD), join(buffer, b"N", "new", m.PROTOCOL)
    assert [version for version, *_ in old] == [OLD] * len(old)
    assert "compression" not in old[0][2]
    assert [version for version, *_ in new] == [m.PROTOCOL] * len(new)
    assert new[0][2]["compression"] == "none"
    head, *frames = rows(1)
    acks = exchange(buffer, b"O", old_header(decode(head)), *frames)
    assert [OLD, m.Ack.TAG, {"stream": 1, "seq": 1}] in acks
    assert [m.PROTOCOL, m.Ack.TAG, {"stream": 1, "seq": 1}] in exchange(buffer, b"N", *rows(1))
    states = said(buffer.service.tick(buffer.now + 1.0), b"O")
    assert [(version, "report" in fields) for version, tag, fields in states if tag == m.State.TAG] == [(OLD, False)]
    assert {actor["id"]: actor["protocol"] for actor in buffer.status()["actors"]} == {"old": OLD, "new": m.PROTOCOL}
    assert said(buffer.service.stop("over"), b"O") == [[OLD, m.Stop.TAG, {"done": False, "reason": "the buffer stops: over"}]]


def test_what_an_older_version_lacks_is_neither_sent_to_it_nor_taken_from_it(buffer, two):
    join(buffer, b"O", "old", OLD)
    assert exchange(buffer, b"O", b"\xc1") == []  # it knows no Declined
    too_new = msgpack.packb([OLD, m.BlockHead.TAG, {"stream": 1, "seq": 1, "rows": 1, "frames": 2, "priorities": False}])
    assert exchange(buffer, b"O", too_new, *rows(1)[1:]) == []
    assert buffer.service.refused.by_peer["actor/old"] == {"malformed": 2}
    with pytest.raises(WireError, match="unknown kind"):
        decode(msgpack.packb([OLD, m.Declined.TAG, {"reason": "x", "detail": ""}]), versions.LACKS)


def test_a_message_that_is_compressed_is_in_the_older_version_inside_too(two):
    parts = compression.compress([encode(m.BatchHead(1, 1)), b"\0" * 4096], (1,))
    worded = in_version(parts, OLD)
    assert [msgpack.unpackb(part)[0] for part in worded[:2]] == [OLD, OLD]
    assert worded[2:] == parts[2:]


def test_after_a_restart_an_older_client_is_asked_to_say_hello_in_its_version(buffer, two):
    head, *frames = rows(1)
    ((version, tag, fields),) = exchange(buffer, b"O", old_header(decode(head)), *frames)
    assert (version, tag, fields["reason"]) == (OLD, m.Refused.TAG, "hello-first")


@pytest.mark.parametrize(("version", "fix"), [(m.PROTOCOL + 3, "upgrade the buffer"), (-4, "upgrade this process")])
def test_any_other_version_is_told_both_and_what_to_do_in_its_own(buffer, two, version, fix):
    future = msgpack.packb([version, m.Hello.TAG, {"protocol": version, "role": "actor", "wings": 2}])
    (answer,) = exchange(buffer, b"F", future)
    assert answer[:2] == [version, m.Refused.TAG]
    expected = f"this process speaks protocol version {version}, the buffer {OLD} to {m.PROTOCOL}; {fix}"
    assert answer[2] == {"reason": "protocol", "detail": expected, "retry_s": 0.0}
    assert exchange(buffer, b"F", msgpack.packb([version, m.Pulse.TAG, {}])) == []  # all else of a stranger is garbage
    assert buffer.service.refused.by_peer == {"strangers": {"protocol": 1, "version": 1}}


def test_a_hello_whose_field_and_header_differ_is_none(buffer, two):
    hello = m.Hello(m.PROTOCOL, "actor", "a", b"1", "host", 7, SPEC.to_dict())
    assert exchange(buffer, b"A", old_header(hello)) == []
    assert buffer.service.refused.by_reason == {"malformed": 1}


def test_a_client_takes_the_newest_version_alone(two):
    with pytest.raises(WireError, match="version"):
        decode(old_header(m.Ack(1, 1)))
    assert decode(old_header(m.Ack(1, 1)), versions.LACKS) == m.Ack(1, 1)
