"""What learners ask of the buffer's service, without sockets: batches, ids, other rows, ratings."""

from __future__ import annotations

import json

import numpy as np
import pytest
from helpers.serving import SPEC, Buffer, Busy, first, kinds

from headrace.buffer.config import SamplingConfig, SetConfig
from headrace.buffer.view import PoolView
from headrace.common.boot import kernel
from headrace.common.staging import Staging
from headrace.common.wire import messages as m
from headrace.common.wire.batches import Incoming, parse_drawn, rate_message


def test_batches_follow_the_credit_and_carry_the_rows(buffer):
    buffer.actor()
    buffer.learner()
    assert kinds(buffer.say(b"L", m.Draw(10, 4))) == []
    answers = buffer.block(b"A", 1, *range(7))  # 7 steps, 4 fill: 3 updates
    ((head, frames),) = [(h, f) for _, h, f in answers if isinstance(h, m.BatchHead)]
    assert (head.number, head.batches) == (3, 3)
    batch = Incoming(head, frames, Staging(SPEC, 12).take(), SPEC).batch
    assert [len(set(batch.ids[low : low + 4].tolist())) for low in (0, 4, 8)] == [4, 4, 4]
    assert np.array_equal(batch.obs["obs"][:, 2], batch.rows["t"])
    assert np.array_equal(batch.next_obs["obs"][:, 2], batch.rows["t"] + 1)
    assert kinds(buffer.say(b"L", m.Draw(10, 4))) == []


def test_a_learner_that_is_silent_is_granted_nothing_until_it_speaks(buffer):
    """What dies with a learner is not refunded."""
    buffer.actor()
    buffer.learner()
    buffer.say(b"L", m.Draw(10, 4))
    buffer.tick(1.0)  # two heartbeats
    assert m.BatchHead in kinds(buffer.block(b"A", 1, *range(5)))
    buffer.tick(0.1)
    assert m.BatchHead not in kinds(buffer.block(b"A", 6, 5, 6))
    states = [state for to, state in buffer.tick(0.5) if to == b"A" and isinstance(state, m.State)]
    assert {state.phase for state in states} == {"training"}
    assert m.BatchHead in kinds(buffer.say(b"L", m.Pulse()))
    (session,) = buffer.service.fleet.sessions("learner")
    session.line = Busy()
    buffer.tick(2.0)
    assert m.BatchHead in kinds(buffer.block(b"A", 8, 7, 8))  # a long message of it is on its way


def test_who_has_mapped_the_pool_gets_ids_and_may_ask_for_others(buffer, tmp_path):
    buffer.actor()
    assert first(buffer.actor(b"B", "b"), m.Welcome).directory == ""
    welcome = first(buffer.learner(), m.Welcome)
    assert (welcome.directory, welcome.kernel) == (str(tmp_path), kernel())
    view = PoolView(tmp_path, welcome.nonce)
    buffer.say(b"L", m.Draw(10, 4, mapped=True))
    answers = buffer.block(b"A", 1, *range(9))  # 9 steps, 4 fill: 5 updates
    ((head, frames),) = [(h, f) for _, h, f in answers if isinstance(h, m.DrawnHead)]
    assert (head.number, head.batches, head.rows, head.nonce) == (5, 5, 4, welcome.nonce)
    ids, weights, sets = parse_drawn(head, frames)
    batch, bad = view.gather(ids)
    assert not bad.any()
    assert (weights, sets) == (None, None)
    assert np.array_equal(batch.obs["obs"][:, 2], batch.rows["t"])
    ((_, other, frames),) = buffer.say(b"L", m.Redraw(7, 2))
    assert (type(other), other.ticket, other.rows) == (m.DrawnHead, 7, 2)
    assert len(parse_drawn(other, frames)[0]) == 2
    ((_, whole, frames),) = buffer.say(b"L", m.Redraw(8, 4, gather=True))
    assert (type(whole), whole.ticket, whole.rows, len(frames)) == (m.BatchHead, 8, 4, 4)
    assert buffer.service.totals.updates == 5  # other rows are no grant


def test_a_set_is_waited_for_with_its_name_and_nobody_is_held(tmp_path):
    sets = {"demo": SetConfig(0.5, source=("demo",), when_small="replace", min_fill=2), "online": SetConfig(0.5)}
    buffer = Buffer(tmp_path, SamplingConfig(sets=sets))
    buffer.actor()
    buffer.learner()
    buffer.say(b"L", m.Draw(10, 4))
    sent = 0
    while sent < 60:  # far more than min_fill and lead_steps: the actor may go on
        granted = max(s.granted for to, s in buffer.tick(1.0) if to == b"A" and isinstance(s, m.State))
        assert granted > sent
        buffer.say(b"L", m.Pulse())
        assert m.BatchHead not in kinds(buffer.block(b"A", sent + 1, *range(sent, granted)))
        sent = granted
    assert buffer.service.phase == "filling"
    why = "set 'demo' holds 0 rows of the 2 that it must hold before the first batch"
    assert why in buffer.status()["waiting"]
    answers = buffer.block(b"A", sent + 1, 90, 91, source=2)
    heads = [h for _, h, _ in answers if isinstance(h, m.BatchHead)]
    assert sum(h.batches for h in heads) == 10
    status = buffer.status()
    assert why not in status["waiting"]
    assert status["phase"] == "training"
    assert status["sampling"]["sets"] == {"demo": 2, "online": 64}
    assert status["sampling"]["mixes"]["critic"]["demo"]["realised"] == 0.5
    assert buffer.service.watch.summary(buffer.service, buffer.now)["critic_share/demo"] == 0.5
    buffer.worker.close()


def test_sets_that_overlap_too_much_are_tried_again_each_tick_and_no_more(tmp_path):
    buffer = Buffer(tmp_path, SamplingConfig(sets={"all": SetConfig(0.5), "same": SetConfig(0.5)}))
    buffer.actor()
    buffer.learner()
    buffer.say(b"L", m.Draw(2, 12))
    buffer.block(b"A", 1, *range(8))  # 16 rows by their sizes, 8 in truth
    assert not buffer.service.pacing.drawable
    assert buffer.service.take_work() == []
    assert m.BatchHead not in kinds(buffer.block(b"A", 9, *range(8, 12)))
    buffer.tick(0.05)
    assert m.BatchHead in kinds(buffer.say(b"L", m.Draw(2, 12)))
    assert buffer.service.pacing.drawable
    buffer.worker.close()


def test_a_learner_is_told_how_many_batches_an_update_takes(tmp_path):
    sets = {"a": SetConfig(0.5, actor_share=0.25), "b": SetConfig(0.5, actor_share=0.75)}
    buffer = Buffer(tmp_path, SamplingConfig(sets=sets))
    buffer.actor()
    assert first(buffer.learner(), m.Welcome).mixes == 2
    buffer.say(b"L", m.Draw(3, 4))
    answers = buffer.block(b"A", 1, *range(8))
    head = first(answers, m.BatchHead)
    assert (head.rows, head.batches, head.sets) == (8, 3, True)
    assert buffer.service.totals.updates == 3
    buffer.worker.close()


def test_a_redraw_that_the_pool_cannot_serve_yet_is_served_later(buffer):
    buffer.actor()
    buffer.learner()
    buffer.block(b"A", 1, 0, 1)
    assert kinds(buffer.say(b"L", m.Redraw(1, 3))) == []
    assert m.DrawnHead not in kinds(buffer.block(b"A", 3, 2))
    buffer.tick(0.1)
    answers = buffer.block(b"A", 4, 3)
    assert first(answers, m.DrawnHead).ticket == 1


def rate(buffer, ids, errors, epoch=None, peer=b"L"):
    epoch = buffer.worker._pool.epoch if epoch is None else epoch
    return buffer.raw(peer, rate_message(epoch, np.array(ids, "<i8"), np.array(errors, "<f4")))


def drawn(answers):
    ((head, frames),) = [(h, f) for _, h, f in answers if isinstance(h, (m.DrawnHead, m.BatchHead))]
    return head, frames


@pytest.mark.parametrize("mapped", [True, False])
def test_batches_by_priority_carry_weights_and_the_epoch_of_their_ids(prioritised, mapped):
    head, frames = drawn(prioritised.say(b"L", m.Draw(2, 4, mapped=mapped)))
    assert (type(head), head.weights, head.pool_epoch) == (m.DrawnHead if mapped else m.BatchHead, True, 1)
    if mapped:
        ids, weights, _ = parse_drawn(head, frames)
    else:
        batch = Incoming(head, frames, Staging(SPEC, 8).take(), SPEC).batch
        ids, weights = batch.ids, batch.weights
        assert batch.epoch == 1
    assert weights.tolist() == [1.0] * 8
    rate(prioritised, ids, np.full(8, 0.5))
    assert prioritised.service.totals.sampling["priority_mean"] < 1.0


def test_ratings_change_what_is_drawn_and_stale_ones_are_counted(prioritised):
    rate(prioritised, [0, 1, 2, 3, 4, 5], [0, 0, 0, 9, 0, 0])
    head, frames = drawn(prioritised.say(b"L", m.Draw(2, 4, mapped=True)))
    assert set(parse_drawn(head, frames)[0].tolist()) == {3}
    rate(prioritised, [3, 3], [1, 2], epoch=7)
    rate(prioritised, [-5, 3], [1, 2])
    prioritised.tick(0.1)
    status = json.loads(prioritised.service.watch.status_json(prioritised.service, prioritised.now))
    assert status["counters"]["stale_updates"] == 3
    assert status["sampling"]["method"] == "prioritised"
    assert status["sampling"]["priority_mean"] == pytest.approx(2 / 6)
    assert status["sampling"]["priority_max"] == pytest.approx(9)


def test_ratings_that_are_none_are_refused_by_reason(prioritised):
    before = prioritised.worker._pool.sampling_info()
    for errors in ([np.nan, 1], [-1, 1], [np.inf, 1]):
        rate(prioritised, [0, 1], errors)
    rate(prioritised, [0, 6], [1, 1])
    whole = rate_message(1, np.zeros(2, "<i8"), np.zeros(2, "<f4"))
    for parts in (whole[:2], [*whole, b""], [whole[0], whole[1][:-1], whole[2]], [whole[0], whole[1], whole[1]]):
        prioritised.raw(b"L", parts)
    prioritised.raw(b"A", whole)
    refused = prioritised.service.refused.by_reason
    expected = {"priority-value": 3, "priority-id": 1, "arity": 2, "size": 2, "direction": 1}
    assert {reason: refused[reason] for reason in expected} == expected
    assert prioritised.worker._pool.sampling_info() == before


def test_nobody_rates_rows_of_a_pool_without_priorities(buffer):
    buffer.actor()
    buffer.learner()
    buffer.block(b"A", 1, 0, 1)
    rate(buffer, [0], [1.0])
    assert buffer.service.refused.by_reason["priority-unwanted"] == 1


def test_demands_without_bounds_are_refused(buffer):
    buffer.actor()
    buffer.learner()
    for message in (m.Draw(257, 4), m.Draw(1, 0), m.Draw(1, 1 << 21), m.Redraw(1, 0), m.Redraw(1, 1 << 21)):
        assert kinds(buffer.say(b"L", message)) == [m.Declined]
    assert buffer.service.refused.by_reason["malformed"] == 5
    assert kinds(buffer.say(b"A", m.Redraw(1, 1))) == [m.Declined]
    assert buffer.service.refused.by_reason["direction"] == 1


def test_a_further_rank_draws_what_is_not_granted_once_the_learner_was_granted_something(buffer):
    buffer.actor()
    buffer.learner()
    rank = m.Hello(1, "rank", "l-1", b"5", "host", 9)
    assert first(buffer.say(b"R", rank), m.Welcome).epoch == 1
    buffer.block(b"A", 1, *range(10))
    assert kinds(buffer.say(b"R", m.Draw(3, 4))) == []
    drawn = buffer.say(b"L", m.Draw(2, 4))
    assert {to for to, message, _ in drawn if isinstance(message, m.BatchHead)} == {b"L", b"R"}
    assert buffer.worker.pool.updates == 2
    heads = [message for _, message, _ in buffer.say(b"R", m.Draw(40, 4)) if isinstance(message, m.BatchHead)]
    assert sum(head.batches for head in heads) == 37
    assert buffer.worker.pool.updates == 2
    assert [who["id"] for who in buffer.status()["ranks"]] == ["l-1"]
    assert buffer.status()["learner"]["id"] == "l"
