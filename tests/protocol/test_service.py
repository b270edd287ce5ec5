"""The buffer's service without sockets: sessions, garbage, observers and the end of a run."""

from __future__ import annotations

import json

import pytest
from helpers.serving import SPEC, Buffer, Busy, first

from headrace.buffer import service
from headrace.buffer.backups import Backups, wait_for
from headrace.buffer.pool import SACReplayPool
from headrace.common.specs import ActionSpec, ObsSpec, TransitionSpec
from headrace.common.wire import messages as m
from headrace.common.wire.codec import encode

OTHER = TransitionSpec((ObsSpec("obs", (4,), "<f4"),), ActionSpec((1,), (-1.0,), (1.0,)))


def test_the_first_actor_declares_the_spec_and_others_must_agree(buffer):
    assert first(buffer.learner(), m.Refused).reason == "no-spec"
    assert first(buffer.actor(), m.Welcome).epoch == 1
    refused = first(buffer.actor(b"B", "b", spec=OTHER), m.Refused)
    assert (refused.reason, refused.retry_s) == ("spec", 0.0)
    assert "spec.obs[0].shape[0]: 3 != 4" in refused.detail
    welcome = first(buffer.learner(), m.Welcome)
    assert TransitionSpec.from_dict(welcome.spec) == SPEC


def test_where_many_are_there_allowances_are_told_after_several_pieces_of_work_and_on_a_tick(buffer, monkeypatch):
    monkeypatch.setattr(service, "SHARED_BY", 1)
    buffer.actor()
    buffer.learner()
    made, shared = buffer.service.pacing.allowances, []
    monkeypatch.setattr(buffer.service.pacing, "allowances", lambda: shared.append(1) or made())
    for seq, told in ((1, 0), (2, 1), (3, 1)):
        buffer.block(b"A", seq, seq)
        assert len(shared) == told
    buffer.tick(0.05)
    assert len(shared) == 2
    buffer.block(b"A", 4, 4)
    assert len(shared) == 2  # counted anew since then


def test_only_an_actor_with_a_session_inserts(buffer):
    buffer.actor()
    buffer.learner()
    assert first(buffer.block(b"L", 1, 0), m.Declined).reason == "direction"
    assert first(buffer.block(b"X", 1, 0), m.Refused).reason == "hello-first"
    assert buffer.service.totals.size == 0


def test_garbage_is_counted_and_answered_with_its_reason_to_whoever_has_a_session(buffer):
    buffer.actor()
    for parts, reason in [
        ([], "arity"),
        ([b""], "malformed"),
        ([b"\xc1"], "malformed"),
        ([encode(m.BlockHead(1, 1, 1, 1))], "arity"),
        ([encode(m.Welcome(1, 1.0, 1.0, 1, 1, 1))], "direction"),
    ]:
        assert first(buffer.raw(b"A", parts), m.Declined).reason == reason
    assert buffer.service.refused.by_reason == {"arity": 2, "malformed": 2, "direction": 1}
    assert first(buffer.block(b"A", 1, 0), m.Ack) == m.Ack(1, 1)


def test_a_defect_that_a_message_finds_stops_nobody(buffer, monkeypatch):
    buffer.actor()
    monkeypatch.setattr(buffer.service.watch, "pulse", lambda *_: 1 / 0)
    assert first(buffer.say(b"A", m.Pulse()), m.Declined).reason == "defect"
    assert buffer.service.refused.by_reason["defect"] == 1
    assert first(buffer.block(b"A", 1, 0), m.Ack) == m.Ack(1, 1)


def test_one_id_has_one_writer_and_the_zombie_is_fenced(buffer):
    buffer.actor(b"A", incarnation=b"1")
    assert first(buffer.actor(b"B", incarnation=b"9"), m.Refused).reason == "held"
    buffer.tick(5.1)
    assert first(buffer.actor(b"B", incarnation=b"9"), m.Welcome).epoch == 2
    assert first(buffer.block(b"A", 1, 0), m.Refused).reason == "hello-first"
    assert first(buffer.block(b"B", 1, 5, stream=1), m.Ack) == m.Ack(1, 1)  # it may go on with its predecessor's stream


def test_an_actor_that_waits_for_an_ack_is_told_it_again_at_its_heartbeat(buffer):
    buffer.actor()
    buffer.block(b"A", 1, 0, 1)
    buffer.block(b"A", 1, 5, stream=2)
    again = buffer.say(b"A", m.Pulse(executed=3, settled=2))
    assert [message for _, message, _ in again if isinstance(message, m.Ack)] == [m.Ack(1, 2), m.Ack(2, 1)]
    assert buffer.say(b"A", m.Pulse(executed=3, settled=3)) == []
    buffer.tick(6.0)
    buffer.actor(b"B")  # a new session knows by its welcome
    assert buffer.say(b"B", m.Pulse(executed=3, settled=2)) == []


def test_acks_are_remembered_of_as_many_streams_as_an_actor_may_have_open(buffer):
    buffer.actor()
    for stream in range(1, 11):
        buffer.block(b"A", 1, stream, stream=stream)
    again = [
        message.stream for _, message, _ in buffer.say(b"A", m.Pulse(executed=11, settled=2)) if isinstance(message, m.Ack)
    ]
    assert again == list(range(3, 11))


def test_the_run_ends_when_steps_and_updates_are_reached(tmp_path):
    buffer = Buffer(tmp_path, env_steps=10, min_fill=4, lead_steps=64)
    buffer.actor()
    buffer.learner()
    buffer.say(b"L", m.Draw(100, 4))
    buffer.block(b"A", 1, *range(10))
    assert buffer.service.totals.updates == 6
    assert buffer.service.phase == "finishing"
    assert (b"L", m.Stop(True, "the run has reached its env steps and updates")) in buffer.tick(0.6)
    buffer.say(b"L", m.Goodbye(True))
    assert buffer.service.phase == "done"
    buffer.worker.close()


def test_more_actors_than_declared_are_refused_by_name(buffer):
    for i in range(2):
        buffer.actor(bytes([i]), f"a{i}")
    refused = first(buffer.actor(b"C", "a2"), m.Refused)
    assert (refused.reason, refused.retry_s) == ("actor-limit", 0.0)
    assert "pool.max_actors 2" in refused.detail
    assert first(buffer.actor(bytes([0]), "a0"), m.Welcome).epoch == 1


def test_a_silent_client_loses_its_session(buffer):
    buffer.actor()
    buffer.tick(5.1)
    assert buffer.service.fleet.sessions() == []
    assert first(buffer.block(b"A", 1, 0), m.Refused).reason == "hello-first"


def test_bytes_under_way_keep_a_session_and_garbage_does_not(buffer):
    buffer.actor()
    (session,) = buffer.service.fleet.sessions()
    session.line = Busy()
    buffer.tick(60.0)
    assert buffer.service.fleet.sessions() == [session]
    buffer.raw(b"A", [b"\xc1"])
    buffer.tick(4.9)
    buffer.block(b"A", 1, 0)
    buffer.tick(60.0)
    assert buffer.service.fleet.sessions() == [session]
    buffer.raw(b"A", [b"\xc1"])
    buffer.tick(5.1)
    assert buffer.service.fleet.sessions() == []


def test_who_is_asked_to_greet_is_counted_apart_and_not_refused(buffer):
    buffer.actor()
    buffer.block(b"X", 1, 0)
    counters = buffer.status()["counters"]
    assert (counters["asked_to_greet"], buffer.service.refused.by_reason.total()) == (1, 0)


def test_no_restart_of_the_buffer_lets_in_who_was_replaced_before_it(buffer, tmp_path):
    zombie = first(buffer.actor(b"A"), m.Welcome)
    buffer.tick(5.1)
    assert first(buffer.actor(b"B", incarnation=b"2"), m.Welcome).epoch == zombie.epoch + 1
    buffer.worker.close()
    again = type(buffer)(tmp_path)
    assert first(again.actor(b"C", pool=zombie.pool), m.Refused).reason == "fenced"
    assert first(again.actor(b"C", pool="another"), m.Welcome)  # what it had with another pool says nothing here
    again.tick(5.1)
    assert first(again.actor(b"D", incarnation=b"2", pool=zombie.pool), m.Refused).reason == "fenced"
    again.worker.close()


def test_a_run_has_one_learner_whatever_it_calls_itself(buffer):
    buffer.actor()
    buffer.learner()
    newcomer = m.Hello(1, "learner", "other", b"8", "elsewhere", 77)
    refused = first(buffer.say(b"M", newcomer), m.Refused)
    assert (refused.reason, refused.retry_s > 0) == ("held", True)
    assert refused.detail.startswith("a run has one learner, and learner id 'l' is held by pid")
    buffer.tick(5.1)
    assert first(buffer.say(b"M", newcomer), m.Welcome).epoch == 2  # its weights are newer than all of the first one's
    assert first(buffer.say(b"L", m.Draw(100, 4)), m.Refused).reason == "hello-first"


def test_who_is_lost_or_cannot_go_on_is_in_the_warnings_until_it_is_back(buffer):
    buffer.actor(b"A", "a0")
    buffer.actor(b"B", "a1")
    buffer.say(b"B", m.Goodbye(False, "EnvError: the arm does not answer"))
    buffer.tick(5.1)
    assert buffer.status()["warnings"] == [
        "actor/a0 has not come back: silent",
        "actor/a1 has not come back: EnvError: the arm does not answer",
    ]
    buffer.actor(b"C", "a1", incarnation=b"7")
    assert buffer.status()["warnings"] == ["actor/a0 has not come back: silent"]
    buffer.say(b"C", m.Goodbye(False))
    assert len(buffer.status()["lost_sessions"]) == 2


@pytest.mark.parametrize("first_seen", ["by the clock", "by its heir"])
def test_who_is_taken_over_was_lost_whoever_sees_it_first(buffer, first_seen):
    buffer.actor(b"A", "a0")
    if first_seen == "by the clock":
        buffer.tick(5.1)
    else:
        buffer.now += 5.1
    buffer.actor(b"B", "a0", incarnation=b"7")
    buffer.actor(b"C", "a0", incarnation=b"7")
    lost = buffer.status()["lost_sessions"]
    assert [(who["id"], who["why"]) for who in lost] == [("a0", "silent")]


def test_a_snapshot_is_made_for_an_observer_that_asks(buffer, tmp_path):
    buffer.say(b"O", m.Hello(1, "observer", "o", b"3", "host", 9))
    buffer.say(b"O", m.Query("snapshot"))
    assert buffer.service.refused.by_reason["query"] == 1  # no place for one
    backups = buffer.service.backups = Backups(tmp_path / "snapshots", 0.0, 2, buffer.now)
    assert json.loads(buffer.say(b"O", m.Query("snapshot"))[-1][2][0]) == {"number": 1}
    buffer.actor()
    buffer.block(b"A", 1, 0, 1)
    backups.tick(buffer.worker.pool, buffer.now)
    wait_for(backups.report, 1, 20.0, lambda done, total: None)
    assert SACReplayPool.from_path(tmp_path / "snapshots").size == 2
    assert json.loads(buffer.say(b"O", m.Query("status"))[-1][2][0])["snapshots"]["written"] == 1


def test_status_is_one_json_object_that_says_what_is_missing(buffer):
    hello = m.Hello(1, "observer", "o", b"3", "host", 9)
    buffer.say(b"O", hello)
    status = json.loads(buffer.say(b"O", m.Query("status"))[-1][2][0])
    assert status["phase"] == "waiting"
    assert "no learner is connected" in status["waiting"]
    buffer.actor()
    buffer.block(b"A", 1, 0, 1)
    status = json.loads(buffer.say(b"O", m.Query("status"))[-1][2][0])
    assert status["env_steps"] == 2
    assert status["actors"][0]["acked"] == {"1": 2}
    assert status["pool"]["rows"] == 2


def test_a_learner_that_falls_behind_the_ratio_is_in_the_warnings(tmp_path):
    buffer = Buffer(tmp_path, hold_actors=False)
    buffer.actor()
    buffer.block(b"A", 1, *range(20))
    assert buffer.status()["warnings"] == []
    buffer.block(b"A", 21, *range(20, 40))
    assert buffer.status()["warnings"] == ["0.000 updates per env step, 1 asked for: off by 100%"]
    assert buffer.service.watch.summary(buffer.service, buffer.now)["ratio_alarm"] == 1
    assert buffer.service.watch.summary(buffer.service, buffer.now)["rows_accepted"] == 40
    buffer.worker.close()


def test_who_only_looked_is_nobody_that_has_to_come_back(buffer):
    buffer.actor()
    for number in range(3):
        buffer.say(b"O%d" % number, m.Hello(1, "observer", f"o{number}", b"3", "host", 9))
    buffer.say(b"O0", m.Goodbye(False))
    buffer.say(b"O1", m.Goodbye(False, "observed"))
    buffer.tick(4.0)
    buffer.actor()
    buffer.tick(1.5)  # the third has been silent for its lease
    assert [session.role for session in buffer.service.fleet.sessions()] == ["actor"]
    assert buffer.status()["warnings"] == []
    assert buffer.status()["lost_sessions"] == []


def test_an_actor_whose_env_hangs_is_named_with_its_wait(buffer):
    buffer.actor()
    for waited in (9.0, "long", None, True):
        buffer.say(b"A", m.Pulse(report={"in_step_s": waited}))
        assert not [why for why in buffer.status()["waiting"] if "env" in why]
    buffer.say(b"A", m.Pulse(report={"in_step_s": 55.2}))
    assert "actor 'a' has waited for its env for 55 s" in buffer.status()["waiting"]


def test_a_robot_that_waits_for_people_is_named_with_what_it_waits_for(buffer):
    buffer.actor()
    for station in ("disarmed", None, [], {}, {"phase": ["disarmed"]}, {"phase": "running", "why": ""}):
        buffer.say(b"A", m.Pulse(report={"station": station}))
        assert not [why for why in buffer.status()["waiting"] if "robot" in why]
    buffer.say(b"A", m.Pulse(report={"station": {"phase": "disarmed", "why": "fault: " + "x" * 999}}))
    assert [why for why in buffer.status()["waiting"] if "robot" in why] == [f"robot 'a' is disarmed: fault: {'x' * 193}"]


def test_the_status_tells_what_a_robot_has_lost(buffer):
    buffer.actor()
    for dropped in ("many", None, 0):
        buffer.say(b"A", m.Pulse(report={"dropped_steps": dropped}))
        assert not [text for text in buffer.status()["warnings"] if "lost" in text]
    buffer.say(b"A", m.Pulse(report={"dropped_steps": 120, "damaged_steps": 0, "spooled_steps": 7}))
    assert "actor 'a' has lost 120 steps for want of room (actor.when_full)" in buffer.status()["warnings"]
    assert buffer.status()["actors"][0]["spooled_steps"] == 7


def test_an_actor_may_ask_what_the_buffer_is_and_nothing_else(buffer):
    buffer.actor()
    buffer.service.about = lambda: {"headrace": "1.2", "at_s": 5.0}
    for frames in ((), (b"x" * 1000,)):
        ((_, answer, told),) = [
            found for found in buffer.say(b"A", m.Query("about"), *frames) if isinstance(found[1], m.Answer)
        ]
        assert answer.what == "about"
        assert json.loads(told[0]) == {"headrace": "1.2", "at_s": 5.0}
    for what, frames, reason in (("status", (), "direction"), ("snapshot", (), "direction"), ("about", (b"x", b"y"), "arity")):
        answers = [found[1] for found in buffer.say(b"A", m.Query(what), *frames)]
        assert [answer.reason for answer in answers if isinstance(answer, m.Declined)] == [reason]
        assert not any(isinstance(answer, m.Answer) for answer in answers)
