"""A buffer that was killed and started again, without sockets: what it remembers of learners and actors."""

from __future__ import annotations

import pytest
from helpers.serving import SPEC, Buffer, first

from headrace.common.wire import messages as m


def test_updates_lost_with_a_learner_are_not_refunded(tmp_path):
    buffer = Buffer(tmp_path)
    buffer.actor()
    buffer.learner()
    buffer.say(b"L", m.Draw(3, 4))
    buffer.block(b"A", 1, *range(9))
    assert buffer.service.totals.updates == 3
    buffer.worker.close()
    again = Buffer(tmp_path)  # the buffer was killed too
    again.learner()
    answers = again.say(b"L", m.Draw(50, 4))
    assert [(h.number, h.batches) for _, h, _ in answers if isinstance(h, m.BatchHead)] == [(5, 2)]
    again.worker.close()


def test_a_restarted_buffer_tells_each_actor_where_it_stands(tmp_path):
    buffer = Buffer(tmp_path)
    buffer.actor()
    buffer.block(b"A", 1, 0, 1)
    buffer.worker.close()
    again = Buffer(tmp_path)
    assert first(again.actor(), m.Welcome).streams == ((1, 2),)
    assert first(again.block(b"A", 1, 0, 1), m.Ack) == m.Ack(1, 2)
    assert again.service.totals.size == 2
    again.worker.close()


def restarted_near_the_goal(directory):
    """A buffer that knows two actors, 16 env steps before the end, with a lead of 16."""
    options = {"env_steps": 20, "hold_actors": False, "lead_steps": 16}
    buffer = Buffer(directory, **options)
    buffer.actor()
    buffer.actor(b"B", "b", b"3")
    buffer.block(b"A", 1, 0, 1)
    buffer.block(b"B", 1, 0, 1)
    buffer.worker.close()
    return Buffer(directory, **options)


def test_a_restarted_buffer_keeps_steps_for_actors_that_have_not_come_back(tmp_path):
    again = restarted_near_the_goal(tmp_path)
    hello = m.Hello(1, "actor", "a", b"1", "host", 7, SPEC.to_dict(), executed=2)
    again.say(b"A", hello)
    granted = {to: state.granted for to, state in again.tick(0.6) if isinstance(state, m.State)}
    assert granted == {b"A": 2}  # 16 steps are left, and b may have as many under way
    hello = m.Hello(1, "actor", "b", b"3", "host", 7, SPEC.to_dict(), executed=9, pending=7)
    again.say(b"B", hello)
    granted = {to: state.granted for to, state in again.tick(0.6) if isinstance(state, m.State)}
    assert granted[b"A"] - 2 + granted[b"B"] - 2 == 16
    again.worker.close()


def test_an_actor_that_stays_away_is_waited_for_one_lease(tmp_path):
    again = restarted_near_the_goal(tmp_path)
    again.say(b"A", m.Hello(1, "actor", "a", b"1", "host", 7, SPEC.to_dict(), executed=2))
    again.tick(0.6)
    again.say(b"A", m.Pulse(2, 2))
    again.tick(4.0)
    again.say(b"A", m.Pulse(2, 2))
    granted = {to: state.granted for to, state in again.tick(1.5) if isinstance(state, m.State)}
    assert granted[b"A"] == 2 + 16
    again.worker.close()


SHORT = {"env_steps": 10, "min_fill": 4, "lead_steps": 64}
STOP = m.Stop(True, "the run has reached its env steps and updates")


def at_its_end(directory):
    """A buffer of a short run that waits only for its learner to leave."""
    buffer = Buffer(directory, **SHORT)
    buffer.actor()
    buffer.learner()
    buffer.say(b"L", m.Draw(100, 4))
    buffer.block(b"A", 1, *range(10))
    assert buffer.service.phase == "finishing"
    return buffer


@pytest.mark.parametrize(("done", "phase"), [(True, "done"), (False, "finishing")])
def test_a_restarted_buffer_knows_whether_the_learner_has_left_for_good(tmp_path, done, phase):
    buffer = at_its_end(tmp_path)
    buffer.say(b"L", m.Goodbye(done))
    buffer.worker.close()
    again = Buffer(tmp_path, **SHORT)
    assert again.service.phase == phase
    again.actor()
    assert ((b"A", STOP) in [*again.tick(0.6), *again.tick(0.6)]) == done
    again.worker.close()


def test_a_run_that_goes_on_waits_for_its_learner_again(tmp_path):
    buffer = at_its_end(tmp_path)
    buffer.say(b"L", m.Goodbye(True))
    buffer.worker.close()
    longer = Buffer(tmp_path, **{**SHORT, "env_steps": 12})
    assert longer.service.phase == "training"
    longer.actor()
    longer.learner()
    longer.say(b"L", m.Draw(100, 4))
    longer.block(b"A", 11, 10, 11)
    assert longer.service.totals.updates == 8
    assert longer.service.phase == "finishing"
    longer.say(b"L", m.Goodbye(True))
    assert longer.service.phase == "done"
    longer.worker.close()
