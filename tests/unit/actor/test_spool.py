"""The spool as an outbox: what waits outlives its process, in order and once; what has no room is dropped whole and counted."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.actor.config import ActorConfig
from headrace.actor.outbox import Outbox
from headrace.actor.spool import open_outbox
from headrace.actor.store import Memory
from headrace.actor.uplink import Uplink
from headrace.common.block import Block
from headrace.common.clock import ManualClock
from headrace.common.config import load
from headrace.common.errors import ConfigError, OutboxFull, SpecError, SpoolError
from headrace.common.label import Kind, Label
from headrace.common.specs import OUTCOME_SUCCESS, TransitionSpec
from headrace.common.wire import messages as m
from headrace.common.wire.codec import decode, parse_block

SPEC = TransitionSpec.like({"stamp": np.zeros(2, np.float32)}, [-1], [1])
WIDE = TransitionSpec.like({"stamp": np.zeros(3, np.float32)}, [-1], [1])
SMALL = 1 << 20


def block(episode, t, n=2, payload=0):
    """``n`` rows from ``t`` on, whose frames say (episode, t)."""
    rows = np.zeros(n, SPEC.row_dtype)
    rows["episode"], rows["t"], rows["steps"] = episode, np.arange(t, t + n), 1
    rows["obs"][:, 0], rows["next_obs"][:, 0] = np.arange(n), np.arange(n) + 1
    frames = np.stack([np.full(n + 1 + payload, episode), np.arange(t, t + n + 1 + payload)], axis=1)
    return Block(rows, {"stamp": frames.astype(np.float32)})


def spooled(directory, **options):
    return open_outbox(ActorConfig(robot=True, spool=str(directory), **{"spool_bytes": SMALL, **options}), "arm 0/a", SPEC)


def forsake(box):
    """What SIGKILL does to its owner."""
    box._store._file._disown()
    box._store.labels._ring._disown()


class Robot:
    """An uplink on an outbox, and what it would send."""

    def __init__(self, outbox, rate=0.0):
        self.clock, self.outbox = ManualClock(), outbox
        self.uplink = Uplink(SPEC, outbox, 1, self.clock, rate)

    def offer(self, *places, payload=0):
        for episode, t in places:
            assert self.uplink.offer(block(episode, t, payload=payload), 0.0)
            self.uplink.executed(2)

    def welcome(self, epoch, pool="", **streams):
        known = tuple((int(name[1:]), seq) for name, seq in streams.items())
        self.uplink.welcomed(m.Welcome(epoch, 5.0, 0.5, 1 << 20, 100, 1 << 30, streams=known, pool=pool))

    def sent(self, room=1 << 30):
        """(stream, seq, episode, t) of each row that leaves; each proves itself."""
        out = []
        for parts in self.uplink.outgoing(room):
            head = decode(parts[0])
            if isinstance(head, m.BlockHead):
                got = parse_block(head, parts[1:], SPEC)
                stamps = got.frames["stamp"][got.rows["obs"][:, 0]]
                assert stamps.tolist() == [[e, t] for e, t in zip(got.rows["episode"], got.rows["t"], strict=True)]
                rows = zip(got.rows["episode"].tolist(), got.rows["t"].tolist(), strict=True)
                out += [(head.stream, head.seq + i, *row) for i, row in enumerate(rows)]
        return out

    def say(self, episode, first, last):
        assert self.uplink.label(Label(Kind.OUTCOME, 0, first, last, OUTCOME_SUCCESS, episode=episode))

    def labelled(self):
        """(number, stream, first, last, episode) of each label that leaves; rows that leave meanwhile are not told."""
        heads = [decode(parts[0]) for parts in self.uplink.outgoing(1 << 30)]
        return [(h.number, h.stream, h.first, h.last, h.episode) for h in heads if isinstance(h, m.LabelHead)]

    def balance(self):
        counts = self.uplink.counts
        assert self.outbox.check_valid() == (True, "")
        assert counts.unsent == 0
        return counts


def test_the_next_process_sends_what_is_left_in_the_same_stream_and_goes_on_behind_it(tmp_path):
    first = Robot(spooled(tmp_path))
    first.welcome(5)
    first.offer((0, 0), (0, 2), (1, 0), (1, 2))
    assert first.sent() == [(5, 1 + i, i // 4, i % 4) for i in range(8)]
    first.uplink.received(m.Ack(5, 2), [])
    forsake(first.outbox)
    second = Robot(spooled(tmp_path))
    assert second.uplink.next_episode == 2
    second.offer((2, 0))
    second.welcome(9, s5=4)  # two acknowledgements were lost
    assert second.sent() == [(5, 5, 1, 0), (5, 6, 1, 1), (5, 7, 1, 2), (5, 8, 1, 3), (5, 9, 2, 0), (5, 10, 2, 1)]
    second.uplink.received(m.Ack(5, 10), [])
    counts = second.balance()
    assert (counts.executed, counts.acknowledged, counts.waiting) == (2 + 8, 10, 0)
    second.uplink.close()
    third = Robot(spooled(tmp_path))
    third.offer((3, 0))
    third.welcome(11, s5=10)
    assert third.sent() == [(5, 11, 3, 0), (5, 12, 3, 1)]


def test_a_robot_that_never_met_a_buffer_names_its_stream_by_the_first_that_it_meets(tmp_path):
    first = Robot(spooled(tmp_path))
    first.offer((0, 0))
    forsake(first.outbox)
    second = Robot(spooled(tmp_path))
    second.welcome(3)
    forsake(second.outbox)  # before anything was sent
    third = Robot(spooled(tmp_path))
    third.welcome(4)
    assert third.sent() == [(3, 1, 0, 0), (3, 2, 0, 1)]


def test_rows_that_waited_for_another_pool_begin_a_stream_from_one(tmp_path):
    first = Robot(spooled(tmp_path))
    first.welcome(5, pool="old")
    first.offer((0, 0), (0, 2))
    first.sent()
    first.uplink.received(m.Ack(5, 2), [])
    forsake(first.outbox)
    second = Robot(spooled(tmp_path))
    second.welcome(2, pool="new")
    assert [row[:2] for row in second.sent()] == [(2, 1), (2, 2), (2, 3), (2, 4)]  # the old pool's cursor says nothing here
    second.uplink.received(m.Ack(2, 4), [])
    assert second.balance().acknowledged == 4
    second.offer((1, 0))
    assert [row[:2] for row in second.sent()] == [(2, 5), (2, 6)]
    second.uplink.close()
    third = Robot(spooled(tmp_path))
    third.welcome(7, pool="new", s2=4)
    assert [row[:2] for row in third.sent()] == [(2, 5), (2, 6)]


def test_numbers_that_a_damaged_file_would_give_out_twice_are_not(tmp_path):
    first = Robot(spooled(tmp_path))
    first.welcome(5)
    first.offer((0, 0), (0, 2))
    first.sent()
    place = first.outbox._items[1].places[0]
    forsake(first.outbox)
    file = next(tmp_path.glob("*.spool"))
    with file.open("r+b") as raw:
        raw.seek(first.outbox._store._file._data + place.end - 3)
        raw.write(b"\xff\xff")
    second = Robot(spooled(tmp_path))
    second.offer((1, 0))  # by the file's account these are rows 3 and 4
    second.welcome(6, s5=4)
    assert second.sent() == [(6, 1, 1, 0), (6, 2, 1, 1)]


def test_damaged_rows_are_counted_and_those_behind_them_arrive(tmp_path):
    first = Robot(spooled(tmp_path))
    first.offer((0, 0), (0, 2), (0, 4))
    place = first.outbox._waiting[1].places[0]
    with next(tmp_path.glob("*.spool")).open("r+b") as raw:
        raw.seek(first.outbox._store._file._data + place.end - 3)
        raw.write(b"\xff\xff")
    first.welcome(5)
    assert [row[1] for row in first.sent()] == [1, 2, 5, 6]
    assert (first.balance().damaged, first.uplink.pulse().report["damaged_steps"]) == (2, 2)
    forsake(first.outbox)
    second = Robot(spooled(tmp_path))
    second.welcome(6)
    assert [row[1] for row in second.sent()] == [1, 2, 5, 6]
    assert (second.balance().damaged, second.balance().executed) == (2, 6)


def test_labels_outlive_their_process_and_follow_their_rows(tmp_path):
    first = Robot(spooled(tmp_path))
    first.welcome(5)
    first.offer((0, 0), (1, 0))
    first.sent()
    first.uplink.received(m.Ack(5, 2), [])
    first.say(0, 1, 2)
    first.say(1, 3, 4)
    assert [label[0] for label in first.labelled()] == [1, 2]
    first.offer((2, 0))
    first.say(2, 5, 6)
    forsake(first.outbox)
    second = Robot(spooled(tmp_path))
    second.welcome(9, s5=2)
    assert second.uplink.unacknowledged == 2 + 3
    out = [decode(parts[0]) for parts in second.uplink.outgoing(1 << 30)]
    assert [(type(head).__name__, head.seq if isinstance(head, m.BlockHead) else head.last) for head in out] == [
        ("LabelHead", 2),  # its rows are in the pool
        ("BlockHead", 3),
        ("LabelHead", 4),
        ("BlockHead", 5),
        ("LabelHead", 6),
    ]
    for number in (1, 2, 3):
        second.uplink.received(m.Labelled(number, 2), [])
    second.uplink.received(m.Ack(5, 6), [])
    assert second.uplink.unacknowledged == 0
    second.uplink.close()
    third = Robot(spooled(tmp_path))
    third.welcome(11, s5=6)
    assert third.labelled() == []


def test_labels_of_rows_that_went_into_another_pool_are_given_up_and_counted(tmp_path):
    first = Robot(spooled(tmp_path))
    first.welcome(5, pool="old")
    first.offer((0, 0), (1, 0), (1, 2))
    first.sent()
    first.uplink.received(m.Ack(5, 4), [])
    first.say(0, 1, 2)
    first.say(1, 3, 6)  # half of its rows are still here
    first.uplink.close()
    second = Robot(spooled(tmp_path))
    second.welcome(2, pool="new")
    assert second.labelled() == [(2, 2, 1, 2, 1)]
    assert second.uplink.pulse().report["dropped_labels"] == 1


def test_numbers_that_labels_name_are_not_given_out_again(tmp_path):
    first = Robot(spooled(tmp_path))
    first.welcome(5, pool="p")
    first.offer((0, 0), (4, 0))
    first.sent()
    first.uplink.received(m.Ack(5, 4), [])
    first.say(4, 3, 4)
    first.uplink.close()
    next(tmp_path.glob("*.spool")).unlink()  # somebody moved it away, to begin anew
    second = Robot(spooled(tmp_path))
    assert second.uplink.next_episode == 5
    second.offer((5, 0), (5, 2))
    second.welcome(6, pool="p", s5=4)
    assert [row[:2] for row in second.sent()] == [(6, 1), (6, 2), (6, 3), (6, 4)]
    second.outbox.labels.rewind()
    assert second.labelled() == []  # nothing is said of rows that it is not about


def test_a_block_that_is_kept_while_the_last_acknowledgement_comes_is_not_forgotten(tmp_path):
    robot = Robot(spooled(tmp_path))
    robot.welcome(5)
    robot.offer((0, 0))
    robot.sent()
    item = robot.outbox.keep(block(0, 2), 2)
    robot.uplink.received(m.Ack(5, 2), [])
    robot.outbox.add(item)
    robot.uplink.close()
    again = Robot(spooled(tmp_path))
    again.welcome(6, s5=2)
    assert again.sent() == [(5, 3, 0, 2), (5, 4, 0, 3)]


def full(directory, when_full, **options):
    """A robot with four episodes of four rows, as many as there is room for, of which the first block is under way."""
    robot = Robot(spooled(directory, when_full=when_full, **options))
    robot.welcome(5)
    payload = (SMALL // 9 - 600) // 8
    robot.offer((0, 0), payload=payload)
    assert [row[1] for row in robot.sent()] == [1, 2]
    robot.offer((0, 2), (1, 0), (1, 2), (2, 0), (2, 2), (3, 0), (3, 2), payload=payload)
    return robot, payload


def test_a_full_spool_drops_the_oldest_whole_episode_and_what_had_arrived_is_not_counted(tmp_path):
    robot, payload = full(tmp_path, "drop_oldest")
    robot.offer((4, 0), (4, 2), payload=payload)
    assert robot.balance().dropped == 4
    robot.uplink.received(m.Ack(5, 2), [])  # the first block had left
    assert (robot.balance().dropped, robot.balance().acknowledged) == (2, 2)
    assert [row[1] for row in robot.sent()] == list(range(5, 21))
    forsake(robot.outbox)
    again = Robot(spooled(tmp_path))
    again.welcome(6, s5=2)
    assert [row[1] for row in again.sent()][-16:] == list(range(5, 21))


def test_what_a_new_session_says_decides_about_what_was_dropped_under_way(tmp_path):
    robot, payload = full(tmp_path, "drop_oldest")
    robot.offer((4, 0), (4, 2), payload=payload)
    robot.welcome(6, s5=0)
    assert robot.balance().dropped == 4
    robot.uplink.received(m.Ack(5, 2), [])  # late, and of nobody
    assert robot.balance().dropped == 4


def test_a_full_spool_stops_or_blocks_as_told(tmp_path):
    robot, payload = full(tmp_path / "stop", "auto")
    with pytest.raises(OutboxFull, match="actor.spool_bytes"):
        robot.offer((4, 0), (4, 2), (5, 0), payload=payload)
    robot, payload = full(tmp_path / "block", "block")
    while robot.uplink.offer(block(4, 0, payload=payload), 0.0):
        pass
    robot.uplink.received(m.Ack(5, 2), [])
    assert robot.uplink.offer(block(4, 0, payload=payload), 0.0)


def test_a_block_that_would_never_fit_is_told_at_once(tmp_path):
    robot = Robot(spooled(tmp_path))
    with pytest.raises(ConfigError, match="actor.spool_bytes: a block of"):
        robot.uplink.offer(block(0, 0, payload=SMALL // 8), 0.0)


def test_rows_of_another_spec_are_kept_and_named(tmp_path):
    robot = Robot(spooled(tmp_path))
    robot.offer((0, 0))
    robot.uplink.close()
    config = ActorConfig(robot=True, spool=str(tmp_path), spool_bytes=SMALL)
    with pytest.raises(SpecError, match=r"spec.obs\[0\].shape\[0\]: 2 != 3"):
        open_outbox(config, "arm 0/a", WIDE)
    robot = Robot(spooled(tmp_path))
    robot.welcome(5)
    robot.sent()
    robot.uplink.received(m.Ack(5, 2), [])
    robot.uplink.close()
    open_outbox(config, "arm 0/a", WIDE).close()  # an empty file is made anew


def test_a_file_keeps_its_size_until_it_is_empty(tmp_path):
    robot = Robot(spooled(tmp_path))
    robot.offer((0, 0))
    robot.uplink.close()
    file = next(tmp_path.glob("*.spool"))
    assert file.name == "arm%200%2Fa.spool"
    size = file.stat().st_size
    robot = Robot(spooled(tmp_path, spool_bytes=2 * SMALL))
    assert file.stat().st_size == size
    robot.welcome(5)
    assert [row[:2] for row in robot.sent()] == [(5, 1), (5, 2)]
    robot.uplink.received(m.Ack(5, 2), [])
    robot.uplink.close()
    robot = Robot(spooled(tmp_path, spool_bytes=2 * SMALL))
    assert file.stat().st_size == size + SMALL
    robot.offer((1, 0))
    robot.welcome(6, s5=2)
    assert [row[:2] for row in robot.sent()] == [(5, 3), (5, 4)]
    robot.uplink.close()


def test_a_second_process_and_simulators_are_refused(tmp_path):
    box = spooled(tmp_path)
    with pytest.raises(SpoolError, match="in use by this very process"):
        spooled(tmp_path)
    box.close()
    with pytest.raises(ConfigError, match="actor.spool: 'x' with actor.robot false"):
        load(ActorConfig, {"spool": "x"}, "actor")


def test_rows_leave_no_faster_than_allowed_and_in_order():
    robot = Robot(Outbox(Memory(1 << 30)), rate=10_000.0)
    robot.offer(*[(n, 0) for n in range(200)])
    robot.welcome(5)
    nbytes, seqs, times = block(0, 0).nbytes, [], []
    while len(seqs) < 400 and robot.clock.now() < 1000:
        rows = robot.sent()
        seqs += [row[1] for row in rows]
        times.append((robot.clock.now(), len(seqs) // 2 * nbytes))
        robot.clock.advance(0.05)
    assert seqs == list(range(1, 401))
    assert all(sent <= 10_000 * (now + 0.25) + nbytes for now, sent in times)
    assert times[-1][1] >= 10_000 * (times[-1][0] - 0.5)


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_every_step_is_accounted_for_whatever_comes(tmp_path_factory, data):
    """Offers, sends, lost and late acknowledgements, new sessions and kills: rows arrive in order, once, or are counted."""
    place, when_full = tmp_path_factory.mktemp("spool"), data.draw(st.sampled_from(["block", "drop_oldest"]))
    ops = data.draw(st.lists(st.sampled_from(["offer"] * 6 + ["send", "arrive", "cut", "end", "kill"]), max_size=60))
    robot = Robot(spooled(place, when_full=when_full))
    robot.welcome(1)
    offered, under_way, committed = [], [], []
    episode = t = cursor = 0
    for number, op in enumerate([*ops, "cut"]):
        if op == "offer" and robot.uplink.offer(block(episode, t, payload=12_000), 0.0):
            robot.uplink.executed(2)
            offered += [(episode, t), (episode, t + 1)]
            t += 2
        elif op == "end":
            episode, t = episode + 1, 0
        elif op == "send":
            under_way += robot.sent(data.draw(st.sampled_from([1, 1 << 30])))
        elif op == "arrive" and under_way:
            n = 2 * data.draw(st.integers(1, len(under_way) // 2))
            new = [row for row in under_way[:n] if row[1] > cursor]
            under_way, committed = under_way[n:], committed + new
            cursor = committed[-1][1]
            if data.draw(st.booleans()):
                robot.uplink.received(m.Ack(1, cursor), [])
        elif op in ("cut", "kill"):
            under_way = []
            if op == "kill":
                forsake(robot.outbox)
                robot = Robot(spooled(place, when_full=when_full))
                episode, t = max(episode + 1, robot.uplink.next_episode), 0
            robot.welcome(number + 2, s1=cursor)
        robot.balance()
    committed += robot.sent()
    assert [row[1] for row in committed] == sorted({row[1] for row in committed})
    arrived = [row[2:] for row in committed]
    assert arrived == [place for place in offered if place in set(arrived)]
    missing = len(offered) - len(arrived)
    if when_full == "block":
        assert missing == 0
    elif "kill" not in ops:  # what a dead process has dropped went with its counts
        assert missing == robot.balance().dropped
    robot.uplink.close()
