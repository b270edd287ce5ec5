"""Hostile messages at the buffer's service: counted by reason and peer, told to a session, never acknowledged, harmless."""

from __future__ import annotations

import logging

import numpy as np
import pytest
from helpers import hostile
from helpers.serving import NETWORK, SPEC, block, first, kinds

from headrace.common.wire import messages as m
from headrace.common.wire.codec import block_parts, decode, encode
from headrace.common.wire.fleet import WRITERS

HARMLESS = {m.State, m.Received, m.Welcome}  # what the buffer says of itself


@pytest.fixture
def besieged(buffer):
    """A buffer with an honest actor A, a peer M with a session of its own, and room for strangers."""
    buffer.actor()
    buffer.actor(b"M", "m", b"7")
    buffer.block(b"A", 1, 0, 1, 2)
    return buffer


def rows(buffer):
    return [(row["actor"], row["stream"], row["seq"], row["t"]) for row in buffer.worker.pool.dump()]


def check_refused(buffer, parts, name):
    """Sent by a session and by a stranger: told to the one, silence to the other, counted for each, and nothing changes."""
    before, refused = rows(buffer), buffer.service.refused
    buffer.now += NETWORK.heartbeat_s  # of the answers to garbage there is only so much in one
    for peer, who in ((b"M", "actor/m"), (b"X", "strangers")):
        told, asked = (
            (refused.by_reason.total(), sum(refused.by_peer.get(who, {}).values())),
            buffer.service.reception.asked_to_greet,
        )
        answers = [(to, kind) for to, kind, _ in buffer.raw(peer, list(parts)) if type(kind) not in HARMLESS]
        assert {to for to, _ in answers} <= {peer}, name
        assert m.Ack not in [type(kind) for _, kind in answers], name
        greets = any(isinstance(kind, m.Refused) and kind.reason == "hello-first" for _, kind in answers)
        assert buffer.service.reception.asked_to_greet == asked + greets, name
        counted = refused.by_reason.total(), sum(refused.by_peer.get(who, {}).values())
        assert counted == (told[0] + (not greets), told[1] + (not greets)), name
        if peer == b"M":
            assert [type(kind) for _, kind in answers] in ([m.Declined], [m.Labelled], [m.Refused]), name
            assert answers[0][1].reason, name
        else:  # only what would be well-formed with a session is asked to get one
            assert [(type(kind), kind.reason) for _, kind in answers] in ([], [(m.Refused, "hello-first")]), name
    assert refused.by_reason["defect"] == 0, name
    assert rows(buffer) == before, name


def check_alive(buffer):
    """The honest actor and the pool are as they were."""
    seq = 1 + max(seq for actor, _, seq, _ in rows(buffer) if actor == "a")
    assert first(buffer.block(b"A", seq, 7), m.Ack) == m.Ack(1, seq)
    assert buffer.service.fleet.check_valid() == (True, "")
    assert buffer.worker.pool.check_valid() == (True, "")


@pytest.mark.parametrize("kind", hostile.payloads(None))
def test_no_bytes_anywhere_are_more_than_refused(besieged, tmp_path, kind):
    marker = tmp_path / "marker"
    for number, payload in enumerate(hostile.payloads(marker)[kind]):
        for place, parts in hostile.placed(payload):
            check_refused(besieged, parts, f"{kind} {number} as {place}")
    assert not marker.exists()
    check_alive(besieged)


@pytest.mark.parametrize("name", hostile.misshapen())
def test_a_message_has_exactly_its_frames(besieged, name):
    check_refused(besieged, hostile.misshapen()[name], name)
    check_alive(besieged)


def test_a_message_of_more_frames_than_any_has_is_not_even_asked_for_its_session(besieged):
    assert besieged.raw(b"X", hostile.misshapen()["10,000 empty frames"]) == []
    assert besieged.service.refused.by_peer == {"strangers": {"arity": 1}}


@pytest.mark.parametrize("name", hostile.fields())
def test_a_field_is_what_it_is_declared_as(besieged, name):
    frames = hostile.honest(1)[1:] if "seq" in name or "rows" in name or "extra" in name else []
    check_refused(besieged, [hostile.fields()[name], *frames], name)
    check_alive(besieged)


def labelled(column, value):
    made = block((0, 1, 2))
    if column in ("obs", "priorities"):
        made.frames["obs"][1] = value  # of two of the three rows
    else:
        made.rows[column][1] = value
    return [bytes(part) for part in block_parts(m.BlockHead(1, 1, 3, made.n_frames), made, SPEC)]


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize(("column", "poisoned"), [("obs", 2), ("action", 1), ("rewards", 1), ("action_age", 1)])
def test_numbers_without_value_are_rejected_as_many_as_were_sent(besieged, column, poisoned, value):
    answers = besieged.raw(b"M", labelled(column, value))
    rejected = sum(a.last - a.first + 1 for _, a, _ in answers if isinstance(a, m.Reject) and a.reason == "non-finite")
    assert rejected == besieged.service.rejected.by_peer["actor/m"]["non-finite"] == poisoned
    assert besieged.service.totals.counters["rows_rejected"] == poisoned
    assert first(answers, m.Ack) == m.Ack(1, 3)  # behind the rejects: nothing of the block is to be sent again
    assert sum(actor == "m" for actor, *_ in rows(besieged)) == 3 - poisoned
    check_alive(besieged)


@pytest.mark.parametrize("value", [1e38, -1e38, 1e-45])
@pytest.mark.parametrize("column", ["obs", "action", "rewards"])
def test_any_number_with_a_value_is_data_and_breaks_no_batch(besieged, column, value):
    besieged.learner()
    assert first(besieged.raw(b"M", labelled(column, value)), m.Ack) == m.Ack(1, 3)
    answers = besieged.say(b"L", m.Draw(2, 4, statistics=True))
    assert sum(a.batches for _, a, _ in answers if isinstance(a, m.BatchHead)) == 2
    frames = next(frames for _, a, frames in answers if isinstance(a, m.StatisticsHead))
    assert all(np.isfinite(np.frombuffer(frame, "<f4")).all() for frame in frames)


def test_seq_has_one_rule_whatever_it_jumps_to(besieged):
    def last(seq, *times):
        return [(type(a).__name__, getattr(a, "seq", getattr(a, "last", None))) for a in answers(besieged, seq, *times)]

    assert last(1, 0, 1) == [("Ack", 2)]
    assert last((1 << 40) + 1, 2) == [("Ack", (1 << 40) + 1)]  # a gap is taken and counted
    assert besieged.service.totals.counters["lost_before"] == (1 << 40) - 2
    assert last(2, 3) == [("Ack", (1 << 40) + 1)] or last(2, 3) == [("Ack", 2)]  # known for ever
    assert last(1 << 48, 4)[0][0] == "Reject"  # gaps must add up in 63 bits
    assert last((1 << 40) + 2, 5)[-1][0] == "Ack"
    assert [(seq, t) for actor, _, seq, t in rows(besieged) if actor == "m"] == [
        (1, 0),
        (2, 1),
        ((1 << 40) + 1, 2),
        ((1 << 40) + 2, 5),
    ]
    check_alive(besieged)


def answers(buffer, seq, *times, peer=b"M"):
    return [a for _, a, _ in buffer.block(peer, seq, *times) if type(a) not in HARMLESS]


@pytest.mark.parametrize("identity", ["", "\u00e9" * 100], ids=["empty", "200 bytes"])
def test_an_id_that_no_ledger_holds_gets_no_session(buffer, identity):
    assert first(buffer.say(b"A", m.Hello(1, "actor", identity, b"1", "host", 7, SPEC.to_dict())), m.Refused).reason == "id"


@pytest.mark.parametrize("identity", ["../../x", "/etc/passwd", "a b", "%2e%2e", "con"])
def test_an_id_is_a_name_and_never_a_path(tmp_path, buffer, identity):
    before = set(tmp_path.parent.iterdir())
    assert first(buffer.actor(b"A", identity), m.Welcome)
    assert first(buffer.block(b"A", 1, 0), m.Ack) == m.Ack(1, 1)
    assert set(tmp_path.parent.iterdir()) == before
    assert [actor["id"] for actor in buffer.status()["actors"]] == [identity]


def test_a_replayed_session_adds_nothing_and_the_honest_actor_goes_on(besieged):
    hello = m.Hello(1, "actor", "a", b"1", "host", 7, SPEC.to_dict())
    recorded = [[encode(hello)], *(hostile.honest(seq, times=(seq,)) for seq in (1, 2, 3))]
    recorded = [recorded[0], hostile.honest(1, times=(0, 1)), hostile.honest(3, times=(2, 2))]
    before = rows(besieged)
    for peer in (b"A", b"R"):
        for parts in recorded[:2]:
            besieged.raw(peer, parts)
        assert rows(besieged) == before
    besieged.actor()  # it is asked to say hello, and does
    assert rows(besieged) == before
    check_alive(besieged)


def test_a_peer_is_one_client(besieged):
    assert first(besieged.actor(b"M", "a", b"8"), m.Refused).reason == "held"
    assert [session.id for session in besieged.service.fleet.sessions()] == ["a"]
    assert first(besieged.learner(b"M"), m.Welcome)
    besieged.tick(4.0)
    besieged.say(b"A", m.Pulse())
    assert [session.role for session in besieged.service.fleet.sessions()] == ["actor", "learner"]
    check_alive(besieged)


def test_who_only_looks_leaves_no_trace_on_disk(besieged, tmp_path):
    before = (tmp_path / "epochs.json").read_bytes()
    for number in range(3):
        besieged.say(b"O", m.Hello(1, "observer", f"o{number}", b"3", "host", 9))
    assert (tmp_path / "epochs.json").read_bytes() == before
    assert WRITERS == ("actor", "learner")


def test_peers_beyond_the_table_are_counted_together(besieged):
    for number in range(200):
        besieged.service.refused.add(f"actor/{number}", "malformed")
    table = besieged.status()["refused_of"]
    assert len(table) == 65
    assert table["actor/0"] == {"malformed": 1}
    assert table["others"]["malformed"] == 136
    assert besieged.status()["counters"]["refused_malformed"] == 200


def test_a_flood_is_a_line_in_the_log_and_a_few_answers(besieged, caplog):
    caplog.set_level(logging.INFO)
    told = 0
    for step in range(2000):
        told += kinds(besieged.raw(b"M", [b"\xc1"])).count(m.Declined)
        besieged.raw(b"X", [b"\xc1"])
        if step % 100 == 0:
            besieged.tick(0.01)
    assert told == 32
    assert [record.getMessage() for record in caplog.records] == [
        "2 messages refused: actor/m malformed 1, strangers malformed 1; the last one: malformed: not msgpack: FormatError"
    ]
    besieged.tick(10.0)
    assert "3998 messages refused: actor/m malformed 1999, strangers malformed 1999" in caplog.text


def test_what_a_client_says_of_itself_can_neither_pose_nor_write_to_a_terminal(besieged):
    posing = {"id": "a", "host": "\x1b[2J", "sac/updates_skipped": "x"}
    report = {**posing, "waits\n": float("nan"), "parts": [float("inf"), "\u202e"]}
    besieged.say(b"M", m.Pulse(report=report))
    besieged.learner()
    besieged.say(b"L", m.Pulse(report=report))
    actor = besieged.status()["actors"][1]
    assert (actor["id"], actor["host"]) == ("m", "host")
    assert (actor["waits?"], actor["parts"]) == (None, [None, "?"])
    assert besieged.status()["learner"]["id"] == "l"


def test_a_spec_that_is_none_names_what_is_wrong(buffer):
    good = SPEC.to_dict()
    for change, words in [
        ({"window": float("inf")}, "OverflowError"),
        ({"obs": [{**good["obs"][0], "shape": [float("nan")]}]}, "ValueError"),
        ({"obs": [{**good["obs"][0], "key": "a\nb", "dtype": "|O"}]}, "a?b"),
        ({"obs": []}, "spec.obs: 0 keys"),
        ({"action": {**good["action"], "high": [float("nan")]}}, "must be finite"),
    ]:
        refused = first(buffer.say(b"A", m.Hello(1, "actor", "a", b"1", "host", 7, {**good, **change})), m.Refused)
        assert (refused.reason, refused.retry_s) == ("spec", 0.0)
        assert words in refused.detail
        assert decode(encode(refused)) == refused  # its peer can read it
    assert buffer.service.refused.by_reason == {"spec": 5}
    assert first(buffer.actor(), m.Welcome)


@pytest.mark.parametrize("returns", [[np.nan, 1.0], [1.0, np.inf], [1e308, 1e308], []])
def test_an_evaluation_without_a_finite_mean_is_refused_and_counted(besieged, returns):
    besieged.say(b"E", m.Hello(1, "evaluator", "e", b"5", "host", 9))
    n = len(returns)
    columns = np.array(returns, "<f8"), np.ones(n, "<i8"), np.zeros(n, "|u1")
    answers = besieged.say(b"E", m.Evaluation(1, 2, 10, n), *(column.tobytes() for column in columns))
    assert first(answers, m.Declined).reason == ("non-finite" if n else "malformed")
    assert besieged.service.refused.by_peer["evaluator/e"].total() == 1
    assert besieged.status()["evaluations"] == []


def test_an_actor_that_says_that_all_steps_are_under_way_takes_none_from_the_others(besieged):
    most = 1 << 53
    lying = m.Hello(1, "actor", "m", b"7", "host", 7, SPEC.to_dict(), executed=most, pending=most)
    assert first(besieged.say(b"M", lying), m.Welcome)
    granted = []
    for seq in range(4, 40, 4):
        besieged.block(b"A", seq, *range(4))
        granted += [state for to, state in besieged.tick(0.1) if to == b"A" and isinstance(state, m.State)]
    assert granted[-1].granted > 0
    assert not any(state.final for state in granted)
