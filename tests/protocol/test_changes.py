"""What people change of a running run: pause and resume, words for an actor, and the options that may be set."""

import json

import pytest
from helpers.serving import Buffer, first, kinds

from headrace.buffer.live import LIVE, NAME, Live
from headrace.buffer.pacing import Pacing, PacingConfig
from headrace.common.config import describe
from headrace.common.errors import ConfigError, PoolDamaged
from headrace.common.wire import messages as m


def observer(buffer):
    buffer.say(b"O", m.Hello(1, "observer", "o", b"3", "host", 9))


def change(buffer, *words, peer=b"O"):
    """The messages that a change makes, without the answer, and that."""
    out = buffer.say(peer, m.Change(*words))
    answers = [json.loads(frames[0]) for _, message, frames in out if isinstance(message, m.Answer)]
    return [(to, message) for to, message, _ in out if not isinstance(message, m.Answer)], *answers


def allowance(buffer):
    return buffer.service.pacing.allowances()["a"].granted


def drawn(buffer, wanted):
    answers = buffer.say(b"L", m.Draw(wanted, 2))
    return sum(a[1].batches for a in answers if isinstance(a[1], m.BatchHead))


def test_while_the_run_is_paused_no_update_is_granted_and_no_simulator_steps(buffer):
    buffer.actor()
    buffer.learner()
    observer(buffer)
    buffer.block(b"A", 1, *range(8))
    assert drawn(buffer, 1) == 1
    told, answer = change(buffer, "pause")
    assert answer == {}
    assert {(to, message.phase) for to, message in told} == {(b"A", "paused"), (b"L", "paused")}
    before = allowance(buffer)
    assert drawn(buffer, 4) == 0
    buffer.block(b"A", 9, 8, 9)  # what was granted before still comes
    assert allowance(buffer) == before
    assert drawn(buffer, 4) == 0
    status = buffer.status()
    assert (status["phase"], status["paused_by"]) == ("paused", ["the operator"])
    assert "the run is paused by the operator" in status["waiting"]
    assert change(buffer, "pause") == ([], {})  # nothing new
    told, answer = change(buffer, "resume", 7)
    assert {message.phase for _, message in told if isinstance(message, m.State)} == {"training"}
    assert [message.batches for _, message in told if isinstance(message, m.BatchHead)] == [3]  # what was asked for meanwhile
    assert drawn(buffer, 9) == 2  # what is owed, and no more
    assert allowance(buffer) > before


def test_an_actor_that_joins_a_paused_run_gets_no_step_until_it_goes_on(buffer):
    observer(buffer)
    change(buffer, "pause")
    buffer.actor()
    assert allowance(buffer) == 0
    change(buffer, "resume", 1)
    assert allowance(buffer) > 0


def test_the_people_of_a_robot_may_pause_and_resume_and_nothing_else(buffer):
    buffer.actor()
    told = change(buffer, "pause", peer=b"A")
    assert [message.phase for _, message in told[0]] == ["paused"]
    assert len(told) == 1  # no answer: the state says it
    for what in ("label", "set", "stop"):
        assert kinds(buffer.say(b"A", m.Change(what, 1, "a", "success"))) == [m.Declined]
    change(buffer, "resume", peer=b"A")
    assert not buffer.service.pacing.paused
    buffer.learner()
    assert kinds(buffer.say(b"L", m.Change("pause"))) == [m.Declined]
    assert buffer.service.refused.by_reason == {"change": 3, "direction": 1}


def test_a_run_goes_on_when_everybody_who_paused_it_has_it_go_on(buffer):
    buffer.actor()
    observer(buffer)
    change(buffer, "pause", peer=b"A")
    assert change(buffer, "pause", 1)[0] == []  # it is already
    assert buffer.status()["paused_by"] == ["actor/a", "the operator"]
    told, answer = change(buffer, "resume", 2)
    assert (told, buffer.status()["phase"]) == ([], "paused")
    assert answer["warning"].startswith("still paused by actor/a: by their own key")
    assert change(buffer, "resume", peer=b"A")[0] != []
    assert buffer.status()["paused_by"] == []
    change(buffer, "pause", peer=b"A")
    change(buffer, "resume", 0, "*", peer=b"A")  # nobody at a robot ends the pause of others
    change(buffer, "pause", 3)
    change(buffer, "resume", 0, "*", peer=b"A")
    assert buffer.status()["paused_by"] == ["the operator"]
    change(buffer, "pause", peer=b"A")
    assert change(buffer, "resume", 4, "*")[1] == {}
    assert not buffer.service.pacing.paused


def test_a_word_goes_to_its_actor_once(buffer):
    buffer.actor()
    observer(buffer)
    assert change(buffer, "label", 1, "a", "success") == ([(b"A", m.Word("success"))], {})
    assert change(buffer, "label", 1, "a", "success") == ([], {})  # the answer was lost, and it is asked again
    assert change(buffer, "label", 2, "a", "discard") == ([(b"A", m.Word("discard"))], {})
    for target, value, why in (
        ("b", "success", "actor 'b' is not connected; there are: a"),
        ("a", "arm", "'arm' is none of success, failure, discard"),
        ("a", ["success"], "['success'] is none of success, failure, discard"),
        ("a", None, "None is none of success, failure, discard"),
    ):
        assert change(buffer, "label", 0, target, value) == ([], {"refused": why})
    observer(buffer)
    assert kinds(buffer.say(b"O", m.Change("arm", 9, "a"))) == [m.Declined]


def test_an_option_that_may_be_set_is_set_and_any_other_is_refused_with_those_that_may(buffer):
    buffer.actor()
    observer(buffer)
    assert change(buffer, "set", 1, "pacing.lead_steps", 64)[1] == {}
    assert buffer.service.pacing.config.lead_steps == 64
    assert allowance(buffer) > 16
    assert buffer.status()["set"] == {"pacing.lead_steps": 64}
    for number, (key, value, why) in enumerate(
        (
            ("pacing.ratio", 2, f"pacing.ratio: cannot be set while a run goes on; these can: {', '.join(LIVE)}"),
            ("robot.guard.max_delta", 9, "these can: pacing.env_steps, pacing.lead_steps, pacing.robot_share"),
            ("pacing.lead_steps", 0, "nearest valid: 1"),
            ("pacing.lead_steps", "many", "expected an integer"),
            ("pacing.lead_steps", {"a": [1]}, "expected an integer"),
            ("pacing.env_steps", 1, "nearest valid: 2"),
        ),
        2,
    ):
        assert why in change(buffer, "set", number, key, value)[1]["refused"]
    assert buffer.service.pacing.config.lead_steps == 64
    change(buffer, "set", 9, "pacing.env_steps", 6)
    buffer.block(b"A", 1, *range(6))
    assert buffer.service.pacing.collected


def test_every_option_that_may_be_set_may_be_changed_by_a_resume_too():
    docs = {doc.key: doc for doc in describe(PacingConfig, "pacing")}
    assert all(docs[key].resume for key in LIVE)


def test_a_share_for_robots_that_is_set_holds_for_those_that_are_connected(tmp_path):
    buffer = Buffer(tmp_path)
    buffer.actor()
    buffer.say(b"R", m.Hello(1, "actor", "r", b"5", "host", 9, buffer.service.totals.spec.to_dict(), robot=True))
    observer(buffer)
    assert not buffer.service.pacing.quota.active
    change(buffer, "set", 1, "pacing.robot_share", 0.5)
    assert buffer.service.pacing.quota.active
    buffer.worker.close()


def pacing(**options):
    return Pacing(PacingConfig(**options))


def test_a_restart_of_the_buffer_undoes_nothing_and_a_change_of_the_config_has_the_last_word(tmp_path):
    live = Live(pacing(), tmp_path)
    live.pause("actor/a")
    live.pause("the operator")
    live.resume("the operator")
    live.set("pacing.lead_steps", 64)
    live.set("pacing.lead_steps", 65)
    live.set("pacing.robot_share", 0.5)
    with pytest.raises(ConfigError, match="above the largest allowed value"):
        live.set("pacing.robot_share", 2)
    again = pacing()
    found = Live(again, tmp_path)
    assert found.paused_by == ["actor/a"]
    assert found.changed == {"pacing.lead_steps": 65, "pacing.robot_share": 0.5}
    assert (again.paused, again.config.lead_steps, again.config.robot_share) == (True, 65, 0.5)
    other = pacing(lead_steps=200)
    assert Live(other, tmp_path).changed == {"pacing.robot_share": 0.5}
    assert (other.config.lead_steps, other.config.robot_share) == (200, 0.5)
    (tmp_path / NAME).write_text("{}")
    with pytest.raises(PoolDamaged, match=NAME):
        Live(pacing(), tmp_path)


def test_a_change_that_the_disk_does_not_take_holds_and_is_told(buffer, tmp_path):
    place = tmp_path / "gone"
    place.mkdir()
    buffer.service.live._directory = place
    place.rmdir()
    buffer.actor()
    observer(buffer)
    answer = change(buffer, "pause")[1]
    assert "a restart of the buffer undoes it" in answer["warning"]
    assert buffer.service.pacing.paused
    assert any(text.startswith("not written: changes") for text in buffer.status()["warnings"])
    assert first(buffer.say(b"O", m.Query("status")), m.Answer).what == "status"
