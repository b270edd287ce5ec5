"""Rows and labels of actors at the buffer's service, without sockets: acks, rejects, credit."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.serving import NETWORK, SPEC, block, first, kinds

from headrace.common.wire import messages as m
from headrace.common.wire.batches import rate_message
from headrace.common.wire.codec import block_parts, decode, encode


def test_rows_are_acknowledged_after_commit_and_counted_once(buffer):
    buffer.actor()
    assert first(buffer.block(b"A", 1, 0, 1, 2), m.Ack) == m.Ack(1, 3)
    assert first(buffer.block(b"A", 1, 0, 1, 2), m.Ack) == m.Ack(1, 3)  # a lost ack: sent again
    assert first(buffer.block(b"A", 4, 3), m.Ack) == m.Ack(1, 4)
    assert buffer.service.totals.size == 4
    assert buffer.service.totals.counters["rows_duplicate"] == 3


def test_nothing_is_acknowledged_while_the_block_waits(buffer):
    buffer.actor()
    made = block((0,))
    parts = block_parts(m.BlockHead(1, 1, made.n_rows, made.n_frames), made, SPEC)
    waiting = buffer.service.receive(b"A", parts, buffer.now)
    assert m.Ack not in [type(decode(answer[0])) for _, answer in waiting]
    done = buffer.service.finish(*buffer.worker.run(buffer.service.take_work()), buffer.now)
    assert m.Ack(1, 1) in [decode(answer[0]) for _, answer in done]


def test_a_gap_is_taken_and_counted(buffer):
    buffer.actor()
    assert first(buffer.block(b"A", 11, 0), m.Ack) == m.Ack(1, 11)
    assert buffer.service.totals.counters["lost_before"] == 10


def test_a_poison_block_is_rejected_and_blocks_nothing(buffer):
    buffer.actor()
    assert first(buffer.block(b"A", 1, 0, 1, value=float("nan")), m.Reject) == m.Reject(
        1, 1, 2, "non-finite", "non-finite: rewards holds NaN or infinity"
    )
    assert first(buffer.block(b"A", 3, 2), m.Ack) == m.Ack(1, 3)
    assert buffer.service.totals.size == 1
    assert buffer.service.rejected.by_reason == {"non-finite": 2}
    assert buffer.service.totals.counters["lost_before"] == 0


def test_of_a_long_block_only_the_poison_rows_are_rejected(buffer):
    buffer.actor()
    made = block(range(10))
    made.rows["rewards"][[3, 4]] = np.nan
    made.frames["obs"][9, 0] = np.inf  # the last frame but one: of row 8 as next_obs, and of row 9 as obs
    answers = buffer.raw(b"A", block_parts(m.BlockHead(1, 1, 10, 11), made, SPEC))
    rejects = [(a[1].first, a[1].last, a[1].reason) for a in answers if isinstance(a[1], m.Reject)]
    assert rejects == [(4, 5, "non-finite"), (9, 10, "non-finite")]
    assert first(answers, m.Ack) == m.Ack(1, 10)
    assert buffer.service.totals.counters["rows_accepted"] == 6
    assert buffer.service.totals.counters["rows_rejected"] == 4
    assert buffer.service.totals.counters["lost_before"] == 0
    assert first(buffer.block(b"A", 11, 10), m.Ack) == m.Ack(1, 11)


def test_byte_credit_is_given_back_only_for_what_no_longer_waits(buffer):
    buffer.actor()
    made = block(range(40))
    size, out = 0, []
    for i in range(400):
        head = m.BlockHead(1, 1 + 40 * i, 40, 41)
        size += len(encode(head)) + made.nbytes
        out += buffer.service.receive(b"A", block_parts(head, made, SPEC), buffer.now)
    assert size >= NETWORK.credit_bytes // 8
    assert sum(decode(parts[0]).bytes for _, parts in out if isinstance(decode(parts[0]), m.Received)) < size // 10
    out = buffer.service.finish(*buffer.worker.run(buffer.service.take_work()), buffer.now)
    out += buffer.service.tick(buffer.now + 1.0)
    received = [decode(parts[0]).bytes for _, parts in out if isinstance(decode(parts[0]), m.Received)]
    assert received == sorted(received)
    assert received[-1] == size


def answers(out):
    return [message for _, message, _ in out if isinstance(message, m.Labelled)]


def test_an_actor_labels_its_own_rows_and_is_answered(buffer):
    buffer.actor()
    buffer.actor(b"B", "b", b"2")
    buffer.block(b"A", 1, 0, 1, 2)
    buffer.block(b"B", 1, 0, 1, 2)
    assert answers(buffer.say(b"A", m.LabelHead(1, 1, 1, 1, 2, 1))) == [m.Labelled(1, 2)]
    rewards = np.array([5, 6], "<f4").tobytes()
    assert answers(buffer.say(b"A", m.LabelHead(2, 2, 1, 2, 3), rewards)) == [m.Labelled(2, 2)]
    assert answers(buffer.say(b"B", m.LabelHead(1, 3, 1, 3, 3))) == [m.Labelled(1, 1)]
    assert answers(buffer.say(b"B", m.LabelHead(1, 3, 1, 3, 3))) == [m.Labelled(1, 0)]  # sent again
    pool = buffer.worker.pool
    rows = pool.gather(np.arange(6)).rows
    assert rows["outcome"].tolist() == [1, 1, 0, 0, 0, 0]
    assert rows["rewards"][:, 0].tolist() == [1, 5, 6, 1, 1, 1]
    assert [row["discarded"] for row in pool.dump()] == [False] * 5 + [True]
    assert buffer.service.totals.size == 5
    assert buffer.service.totals.env_steps == 6
    assert buffer.service.totals.counters["rows_discarded"] == 1


def test_only_rows_of_the_named_episode_are_labelled(buffer):
    buffer.actor()
    made = block((0, 1, 2, 3))
    made.rows["episode"] = (7, 8, 7, 8)
    buffer.raw(b"A", block_parts(m.BlockHead(1, 1, 4, made.n_frames), made, SPEC))
    assert answers(buffer.say(b"A", m.LabelHead(1, 1, 1, 1, 4, 2, 8))) == [m.Labelled(1, 2)]
    assert [row["outcome"] for row in buffer.worker.pool.dump()] == [0, 2, 0, 2]


def test_labels_that_cannot_be_true_are_refused_and_counted(buffer):
    buffer.actor()
    buffer.block(b"A", 1, 0, 1, 2)
    infinite = np.array([np.inf], "<f4").tobytes()
    for reason, head, frames in [
        ("ahead", m.LabelHead(4, 1, 1, 1, 4, 1), ()),
        ("stream", m.LabelHead(4, 1, 9, 1, 4, 1), ()),
        ("stream", m.LabelHead(4, 1, (1 << 64) - 1, 1, 4, 1), ()),
        ("sequence", m.LabelHead(4, 3, 1, 0, 2), ()),
        ("sequence", m.LabelHead(4, 3, 1, 1, (1 << 64) - 1), ()),
        ("non-finite", m.LabelHead(4, 2, 1, 1, 1), (infinite,)),
    ]:
        (answer,) = answers(buffer.say(b"A", head, *frames))
        assert (answer.number, answer.reason) == (4, reason)
    assert buffer.service.refused.by_reason["label-stream"] == 2
    assert [row["outcome"] for row in buffer.worker.pool.dump()] == [0, 0, 0]


def test_labels_that_are_no_labels_are_counted_and_declined(buffer):
    buffer.actor()
    buffer.block(b"A", 1, 0, 1, 2)
    buffer.learner()
    for reason, peer, head, frames in [
        ("malformed", b"A", m.LabelHead(1, 0, 1, 1, 2), ()),
        ("arity", b"A", m.LabelHead(1, 2, 1, 1, 2), ()),
        ("arity", b"A", m.LabelHead(1, 1, 1, 1, 2), (b"1234",)),
        ("size", b"A", m.LabelHead(1, 2, 1, 1, 1 << 40), (b"1234",)),
        ("direction", b"L", m.LabelHead(1, 1, 1, 1, 2), ()),
    ]:
        before = buffer.service.refused.by_reason[reason]
        assert kinds(buffer.say(peer, head, *frames)) == [m.Declined]
        assert buffer.service.refused.by_reason[reason] == before + 1


def priorities_of(buffer):
    pool = buffer.worker.pool
    column = pool._store.files.columns["priority"]
    return [float(column[i % len(column)]) for i in range(pool.tail, pool.head)]


def test_an_actor_supplies_the_priorities_that_its_rows_begin_with(prioritised):
    assert first(prioritised.block(b"A", 7, 6, 7, 8, priorities=[3, 0.5, 2]), m.Ack) == m.Ack(1, 9)
    prioritised.block(b"A", 10, 9)  # none: the largest so far
    assert priorities_of(prioritised)[6:] == pytest.approx([3, 0.5, 2, 3])
    prioritised.raw(b"L", rate_message(1, np.array([6], "<i8"), np.array([0.25], "<f4")))
    prioritised.block(b"A", 7, 6, 7, 8, priorities=[3, 0.5, 2])  # a lost ack: sent again
    assert priorities_of(prioritised)[6:] == pytest.approx([0.25, 0.5, 2, 3])
    prioritised.block(b"A", 10, 9, 10, priorities=[8, 5])  # the first is known
    assert priorities_of(prioritised)[8:] == pytest.approx([2, 3, 5])
    assert prioritised.service.refused.by_reason == {}


@pytest.mark.parametrize("value", [np.nan, np.inf, -1.0, -np.inf])
def test_priorities_that_are_none_are_refused_and_no_row_is_lost_for_them(prioritised, value):
    assert first(prioritised.block(b"A", 7, 6, 7, priorities=[2, value]), m.Ack) == m.Ack(1, 8)
    assert priorities_of(prioritised)[6:] == [1, 1]
    assert prioritised.service.refused.by_reason == {"priority-value": 1}
    assert "1 messages with priorities refused: priority-value" in prioritised.status()["warnings"]


def test_priorities_for_a_pool_without_any_are_refused_and_its_rows_are_not(buffer):
    buffer.actor()
    assert first(buffer.block(b"A", 1, 0, 1, priorities=[2, 3]), m.Ack) == m.Ack(1, 2)
    assert buffer.service.totals.size == 2
    assert buffer.service.refused.by_reason == {"priority-unwanted": 1}


def test_of_a_block_with_poison_rows_the_others_keep_their_priorities(prioritised):
    made = block(range(6, 12), priorities=range(1, 7))
    made.rows["rewards"][2] = np.nan
    prioritised.raw(b"A", block_parts(m.BlockHead(1, 7, 6, 7), made, SPEC))
    assert priorities_of(prioritised)[6:] == pytest.approx([1, 2, 4, 5, 6])


def test_a_block_whose_priorities_do_not_fit_is_refused(prioritised):
    parts = block_parts(m.BlockHead(1, 7, 2, 3), block((6, 7), priorities=[1, 2]), SPEC)
    bare = block_parts(m.BlockHead(1, 7, 2, 3), block((6, 7)), SPEC)
    for bad, reason in [
        ([*parts[:-1], parts[-1][:-1]], "size"),
        ([*parts[:-1], bytes(parts[-1]) + b"1234"], "size"),
        (parts[:-1], "arity"),
        ([*bare, parts[-1]], "arity"),
    ]:
        before = prioritised.service.refused.by_reason[reason]
        assert {m.Ack, m.Reject}.isdisjoint(kinds(prioritised.raw(b"A", bad)))
        assert prioritised.service.refused.by_reason[reason] == before + 1
    assert prioritised.service.totals.size == 6
