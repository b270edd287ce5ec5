"""The actor's side of a session without sockets: outbox, resend, weights."""

from __future__ import annotations

import numpy as np
import pytest

from headrace.actor.outbox import Outbox
from headrace.actor.store import Memory
from headrace.actor.uplink import Uplink
from headrace.common.block import Block
from headrace.common.clock import ManualClock
from headrace.common.errors import LabelRefused, WireError
from headrace.common.label import Kind, Label
from headrace.common.specs import ActionSpec, ObsSpec, TransitionSpec
from headrace.common.weights import Version, WeightSet
from headrace.common.wire import messages as m
from headrace.common.wire.codec import decode, parse_block, parse_label
from headrace.common.wire.weight_fetch import WeightFetch

SPEC = TransitionSpec((ObsSpec("obs", (1,), "<f4"),), ActionSpec((1,), (-1.0,), (1.0,)))


def block(*times, priorities=None):
    rows = np.zeros(len(times), SPEC.row_dtype)
    rows["t"], rows["steps"] = times, 1
    given = None if priorities is None else np.array(priorities, np.float32)
    return Block(rows, {"obs": np.zeros((len(times) + 1, 1), np.float32)}, given)


def uplink(stream=5, part_bytes=100):
    up = Uplink(SPEC, Outbox(Memory(1 << 20)), part_bytes)
    up.welcomed(m.Welcome(stream, 5.0, 0.5, 1 << 20, 100, 1 << 30))
    return up


def sent(up, room=1 << 20):
    heads = [decode(parts[0]) for parts in up.outgoing(room)]
    return [(h.stream, h.seq, h.rows) for h in heads if isinstance(h, m.BlockHead)]


def test_blocks_are_numbered_by_rows_from_one_and_sent_once():
    up = uplink()
    for times in [(0, 1, 2), (3,), (4, 5)]:
        assert up.offer(block(*times), 0)
    assert sent(up) == [(5, 1, 3), (5, 4, 1), (5, 5, 2)]
    assert sent(up) == []


def test_blocks_that_wait_together_leave_as_one_and_stay_one():
    up = uplink(part_bytes=1 << 20)
    for times in [(0, 1, 2), (3,), (4, 5)]:
        up.offer(block(*times), 0)
    assert sent(up) == [(5, 1, 6)]
    up.offer(block(6), 0)
    assert sent(up) == [(5, 7, 1)]
    up.welcomed(m.Welcome(9, 5.0, 0.5, 1 << 20, 100, 1 << 30))
    up.offer(block(7), 0)
    assert sent(up) == [(5, 1, 6), (5, 7, 1), (5, 8, 1)]


def test_joined_blocks_are_bounded_in_bytes_and_rows():
    box = Outbox(Memory(1 << 30))
    for t in range(2000):
        box.add(box.keep(block(t), 1))
    assert box.next_unsent(3 * block(0).nbytes).block.n_rows == 3
    assert box.next_unsent(1).block.n_rows == 1
    assert box.next_unsent(1 << 20).block.n_rows == 512
    assert box.check_valid() == (True, "")
    assert (box.acknowledge(516), box.steps, len(box)) == (516, 1484, 1484)


def test_an_unsound_block_is_not_hidden_among_others():
    box = Outbox(Memory(1 << 30))
    for t in range(3):
        box.add(box.keep(block(t), 1))
    box.add(box.keep(block(3), 1))
    list(box._waiting)[1].places[0].rows["next_obs"] = 2  # beyond its own two frames, but not beyond those of all
    assert [box.next_unsent(1 << 20).block.n_rows for _ in range(3)] == [1, 1, 2]


def sent_priorities(up):
    blocks = [parse_block(decode(parts[0]), parts[1:], SPEC) for parts in up.outgoing(1 << 20)]
    return [None if b.priorities is None else b.priorities.tolist() for b in blocks]


def test_blocks_keep_their_priorities_when_they_are_joined_and_when_they_are_sent_again():
    up = uplink(part_bytes=1 << 20)
    for times, priorities in [((0, 1), (3, 4)), ((2,), (5,)), ((3,), None), ((4,), None)]:
        up.offer(block(*times, priorities=priorities), 0)
    assert sent_priorities(up) == [[3, 4], [5], None]
    up.offer(block(5, 6, priorities=(6, 7)), 0)
    up.offer(block(7, priorities=(8,)), 0)
    assert sent_priorities(up) == [[6, 7, 8]]
    up.welcomed(m.Welcome(9, 5.0, 0.5, 1 << 20, 100, 1 << 30))
    assert sent_priorities(up) == [[3, 4], [5], None, [6, 7, 8]]


def test_a_new_session_resends_what_was_not_acknowledged_in_the_same_stream():
    up = uplink()
    for times in [(0, 1, 2), (3,), (4, 5)]:
        up.offer(block(*times), 0)
    sent(up)
    up.received(m.Ack(5, 3), [])
    up.welcomed(m.Welcome(9, 5.0, 0.5, 1 << 20, 100, 1 << 30, streams=((5, 4),)))  # the ack of row 4 was lost
    assert sent(up) == [(5, 5, 2)]
    assert up.position() == (0, 0)


def test_a_buffer_with_a_fresh_pool_gets_the_rest():
    up = uplink()
    up.offer(block(0), 0)
    sent(up)
    up.welcomed(m.Welcome(1, 5.0, 0.5, 1 << 20, 100, 1 << 30))
    assert sent(up) == [(5, 1, 1)]


def test_a_forged_ack_of_unsent_or_foreign_rows_settles_nothing():
    up = uplink()
    up.offer(block(0, 1), 0)
    for forged in (m.Ack(5, 1), m.Ack(5, 10**9), m.Reject(5, 1, 10**9, "non-finite", "")):
        with pytest.raises(WireError, match="ack: rows up to"):
            up.received(forged, [])
    up.received(m.Ack(6, 2), [])
    assert up.unacknowledged == 1
    assert sent(up) == [(5, 1, 2)]
    with pytest.raises(WireError, match="ack: rows up to 3 are answered, 2 were sent"):
        up.received(m.Ack(5, 3), [])  # not even what was sent is given up for it
    assert (up.unacknowledged, up.pulse().report["rejected"]) == (1, 0)


def test_a_welcome_that_knows_rows_that_never_left_gets_all_again():
    up = uplink()
    up.offer(block(0, 1), 0)
    assert sent(up) == [(5, 1, 2)]
    with pytest.raises(WireError, match="ack: rows up to 9 are answered, 2 were sent"):
        up.welcomed(m.Welcome(9, 5.0, 0.5, 1 << 20, 100, 1 << 30, streams=((5, 9),)))
    assert sent(up) == [(5, 1, 2)]


def test_a_poison_block_does_not_block_those_behind_it():
    up = uplink()
    for t in range(3):
        up.offer(block(t), 0)
    sent(up)
    up.received(m.Reject(5, 1, 1, "non-finite", "action"), [])
    up.received(m.Ack(5, 3), [])
    assert up.unacknowledged == 0
    assert up.pulse().report["rejected"] == 1


def test_room_bounds_what_leaves_at_once():
    up = uplink()
    for t in range(100):
        up.offer(block(t), 0)
    first = sent(up, room=500)
    assert 0 < len(first) < 10
    assert first + sent(up) == [(5, 1 + i, 1) for i in range(100)]


def test_a_full_outbox_takes_nothing_and_frees_on_ack():
    box = Outbox(Memory(1))
    box.add(box.keep(block(0), 1))
    assert not box.make_room(1)
    box.next_unsent()
    assert box.acknowledge(1) == 1
    assert box.make_room(1)
    assert box.check_valid() == (True, "")


def order(up, room=1 << 20):
    """What leaves, in order: blocks by their last seq, labels by number."""
    heads = [decode(parts[0]) for parts in up.outgoing(room)]
    return [("rows", h.seq + h.rows - 1) if isinstance(h, m.BlockHead) else ("label", h.number) for h in heads]


def test_a_label_never_overtakes_its_rows():
    up = uplink()
    assert [up.offer(block(*times), 0) for times in [(0, 1, 2), (3,), (4, 5)]] == [1, 4, 5]
    for first, last in [(1, 3), (2, 4), (1, 1), (5, 6)]:
        assert up.label(Label(Kind.OUTCOME, 0, first, last, 1))
    assert order(up, room=10) == [("rows", 3)]
    assert order(up) == [("label", 1), ("rows", 4), ("label", 2), ("label", 3), ("rows", 6), ("label", 4)]
    assert order(up) == []
    assert up.unacknowledged == 3 + 4


def test_labels_that_were_not_answered_are_sent_again_behind_their_rows():
    up = uplink()
    up.offer(block(0, 1), 0)
    up.offer(block(2, 3), 0)
    for first, last in [(1, 2), (3, 4), (1, 4)]:
        up.label(Label(Kind.DISCARD, 0, first, last))
    order(up)
    up.received(m.Ack(5, 2), [])
    up.received(m.Labelled(2, 2), [])
    up.received(m.Labelled(99, 2, 0, "ahead"), [])  # forged
    up.welcomed(m.Welcome(9, 5.0, 0.5, 1 << 20, 100, 1 << 30, streams=((5, 2),)))
    assert order(up) == [("label", 1), ("rows", 4), ("label", 3)]
    up.received(m.Ack(5, 4), [])
    up.received(m.Labelled(1, 2), [])
    up.received(m.Labelled(3, 0, 0, "ahead", "later"), [])
    assert (up.unacknowledged, up.refused_labels) == (0, 1)
    assert order(up) == []


def test_labels_are_checked_and_bounded():
    up = uplink()
    with pytest.raises(LabelRefused):
        up.label(Label(Kind.OUTCOME, 0, 2, 1, 1))
    taken = [up.label(Label(Kind.OUTCOME, 0, 1, 1, 1)) for _ in range(1100)]
    assert sum(taken) == up.unacknowledged == 1024
    assert up.pulse().report["dropped_labels"] == 76


def test_a_label_that_is_not_answered_cannot_be_answered_before_it_is_sent():
    up = uplink()
    up.offer(block(0), 0)
    up.label(Label(Kind.OUTCOME, 0, 1, 1, 1))
    up.received(m.Labelled(1, 1), [])
    assert order(up) == [("rows", 1), ("label", 1)]


def test_rewards_travel_as_one_frame():
    up = uplink()
    up.offer(block(0, 1), 0)
    up.label(Label(Kind.REWARDS, 0, 1, 2, rewards=np.array([[3], [4]], "<f4")))
    *_, parts = up.outgoing(1 << 20)
    label = parse_label(decode(parts[0]), parts[1:], SPEC)
    assert (label.kind, label.stream, label.rewards.tolist()) == (Kind.REWARDS, 5, [[3], [4]])


def test_position_counts_executed_steps_until_they_are_settled():
    up = uplink()
    up.executed(4)
    up.offer(block(0, 1, 2), 0)
    sent(up)
    assert up.position() == (4, 4)
    up.received(m.Ack(5, 3), [])
    assert up.position() == (4, 1)
    assert (up.pulse().executed, up.pulse().settled) == (4, 3)


def weights(step, value=1.0):
    return WeightSet(Version("l", 1, step), {"type": "mlp"}, {"w": np.full(200, value, np.float32)})


def feed(fetch, blob, gets, flip=None):
    out = None
    for get in gets:
        data = bytearray(blob[get.offset : get.offset + get.length])
        if flip is not None:
            data[flip % len(data)] ^= 1
        out = fetch.take(m.WeightsPart(get.epoch, get.step, get.offset, len(blob)), data) or out
    return out


def fetch_all(fetch, blob, flip=None):
    while gets := fetch.requests():
        out = feed(fetch, blob, gets, flip)
        if out is not None:
            return out
    return None


def test_weights_come_whole_in_ranges():
    fetch = WeightFetch(100)
    fetch.announced(m.State("l", 1, 7))
    got = fetch_all(fetch, weights(7).pack())
    assert got.version.step == 7
    assert fetch.requests() == []
    fetch.announced(m.State("l", 1, 7))
    assert fetch.requests() == []


def test_ranges_of_two_versions_never_mix():
    fetch = WeightFetch(100)
    fetch.announced(m.State("l", 1, 7))
    old = fetch.requests()
    feed(fetch, weights(7, 7.0).pack(), old)
    fetch.announced(m.State("l", 1, 8))
    late = m.WeightsPart(1, 7, 100, len(weights(7).pack()))
    assert fetch.take(late, b"x" * 100) is None
    got = fetch_all(fetch, weights(8, 8.0).pack())
    assert set(got.tensors["w"]) == {8.0}


def test_one_flipped_bit_is_refused_and_the_set_is_asked_for_again():
    fetch = WeightFetch(100)
    fetch.announced(m.State("l", 1, 7))
    with pytest.raises(WireError):
        fetch_all(fetch, weights(7).pack(), flip=55)
    assert fetch.requests() == []
    fetch.announced(m.State("l", 1, 7))
    assert fetch_all(fetch, weights(7).pack()).version.step == 7


def test_a_range_of_another_length_than_was_asked_for_is_refused_and_the_set_is_asked_for_again():
    blob = weights(7).pack()
    for offset, size in [(0, 101), (0, 0), (len(blob) - 50, 51), (len(blob), 1), (1 << 60, 1)]:
        fetch = WeightFetch(100)
        fetch.announced(m.State("l", 1, 7))
        fetch.requests()
        with pytest.raises(WireError, match="size"):
            fetch.take(m.WeightsPart(1, 7, offset, len(blob)), bytes(size))
        assert fetch.requests() == []
        fetch.announced(m.State("l", 1, 7))
        assert fetch_all(fetch, blob).version.step == 7


def test_a_range_before_which_another_is_missing_is_refused():
    blob = weights(7).pack()
    fetch = WeightFetch(100)
    fetch.announced(m.State("l", 1, 7))
    with pytest.raises(WireError, match="a range at 100, and what is before it is not here from 0 on"):
        fetch.take(m.WeightsPart(1, 7, 100, len(blob)), blob[100:200])


def test_an_older_version_is_never_fetched():
    fetch = WeightFetch(100)
    fetch.announced(m.State("l", 2, 1))
    fetch_all(fetch, WeightSet(Version("l", 2, 1), {}, {"w": np.zeros(3, np.float32)}).pack())
    fetch.announced(m.State("l", 1, 10**6))
    assert fetch.requests() == []


def test_non_finite_weights_are_never_handed_over():
    up = uplink()
    up.received(m.State("l", 1, 7), [])
    blob = weights(7, float("nan")).pack()
    with pytest.raises(WireError, match="non-finite: tensor w"):
        while gets := [g for parts in up.outgoing(10**6) if isinstance(g := decode(parts[0]), m.WeightsGet)]:
            for get in gets:
                up.received(m.WeightsPart(1, 7, get.offset, len(blob)), [blob[get.offset : get.offset + get.length]])
    assert up.take_weights() is None
    assert up.inbox.refused == 1
    up.received(m.State("l", 1, 7), [])
    assert list(up.outgoing(10**6)) == []


def test_heartbeats_say_how_long_the_control_loop_has_waited_for_its_envs():
    clock = ManualClock()
    up = Uplink(SPEC, Outbox(Memory(1 << 20)), 100, clock)
    with up.in_step():
        clock.advance(12.3)
        assert up.pulse().report["in_step_s"] == 12.3
    clock.advance(5.0)
    assert up.pulse().report["in_step_s"] == 0.0


@pytest.mark.parametrize(
    ("due_steps", "told"),
    [
        (0, [("waiting", 0, 0, 0), ("training", 0, 5, 5), ("training", 0, 10, 10), ("filling", 0, 15, 0)]),  # without a ratio
        # Newer weights are owed 40 steps of the run behind those that came at step 20, and not before.
        (40, [("training", 7, 20, 0), ("training", 7, 59, 0), ("training", 7, 60, 5), ("training", 7, 65, 10)]),
        # As soon as there are newer ones, they count though this actor cannot fetch them; with them it begins anew.
        (40, [("training", 7, 20, 0), ("training", 9, 25, 5), ("training", 9, 30, 10), ("training", "takes 9", 35, 0)]),
    ],
)
def test_steps_by_the_same_weights_count_while_newer_ones_are_there_or_due(due_steps, told):
    up = uplink()
    up.due_steps = due_steps
    up.applied(Version("learner", 1, 7 if due_steps else 0))
    newest = counted = None
    for phase, version, env_steps, expected in told:
        newest = version if isinstance(version, int) else newest
        if version == "takes 9":
            up.applied(Version("learner", 1, 9))
        up.received(m.State("learner", 1, newest, granted=99, phase=phase, env_steps=env_steps), [])
        up.executed(5)
        counted = up.acted
        assert counted == expected, (phase, version, env_steps)


def test_a_robot_that_stands_still_for_old_weights_goes_on_when_none_are_owed():
    up = uplink()
    for phase, acted in (("training", 0), ("training", 5), ("paused", 0)):
        up.received(m.State("learner", 1, 3, granted=99, phase=phase), [])
        assert up.acted == acted  # nothing was executed since
        up.executed(5 if phase == "training" and not acted else 0)


def test_whatever_a_buffer_says_shows_that_the_link_lives():
    clock = ManualClock(7.0)
    up = Uplink(SPEC, Outbox(Memory(1 << 20)), 100, clock)
    assert up.heard_at == 7.0
    clock.advance(2.0)
    up.received(m.Ack(1, 1), [])
    assert up.heard_at == 9.0
    clock.advance(2.0)
    up.welcomed(m.Welcome(1, 5.0, 0.5, 1 << 20, 1 << 18, 1 << 30))
    assert up.heard_at == 11.0


def test_words_from_elsewhere_are_verdicts_bounded_and_taken_once_and_none_arms_a_robot():
    up = uplink()
    for word in ("success", "discard"):
        up.received(m.Word(word), [])
    assert (up.take_words(), up.take_words()) == (["success", "discard"], [])
    for word in ("arm", "ready", "halt", "quit", "resume", ""):
        with pytest.raises(WireError, match="is none of success, failure, discard"):
            up.received(m.Word(word), [])
    for _ in range(1000):
        up.received(m.Word("failure"), [])
    assert len(up.take_words()) <= 64


def test_a_run_is_paused_by_its_phase():
    up = uplink()
    for phase in ("training", "paused", "filling"):
        up.received(m.State(phase=phase), [])
        assert up.paused == (phase == "paused")
