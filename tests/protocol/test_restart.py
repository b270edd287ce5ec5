"""A buffer that was killed and started again, without sockets: what it remembers of learners and actors."""

from __future__ import annotations

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
