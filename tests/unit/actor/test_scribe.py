"""The scribe beside a real uplink, without threads or sockets: rows, verdicts about episodes, and what a full outbox does."""

import numpy as np
import pytest

from headrace.actor.config import ActorConfig
from headrace.actor.handover import Handover, Step
from headrace.actor.outbox import Outbox
from headrace.actor.scribe import Scribe, Verdict
from headrace.actor.store import Memory
from headrace.actor.uplink import Uplink
from headrace.common.clock import ManualClock
from headrace.common.errors import OutboxFull, SpecError
from headrace.common.specs import OUTCOME_FAILURE, OUTCOME_SUCCESS, SOURCE_HUMAN, TransitionSpec
from headrace.common.wire import messages as m
from headrace.common.wire.codec import decode, parse_block, parse_label

SPEC = TransitionSpec.like({"stamp": np.zeros(2, np.float32)}, [-1], [1])


class Loop:
    """A control loop whose observations say (episode, t), and what its uplink would send."""

    def __init__(self, limit=1 << 20, **options):
        self.clock = ManualClock()
        config = ActorConfig(robot=True, **options)
        self.uplink = Uplink(SPEC, Outbox(Memory(limit), config.chosen_when_full), 1, self.clock)
        self.uplink.welcomed(m.Welcome(7, 5.0, 0.5, 1 << 20, 100, 1 << 30))
        self.handover = Handover(SPEC)
        self.scribe = Scribe(SPEC, self.handover, self.uplink, config, self.clock)
        self.episode, self.t = -1, 0
        self.rows, self.labels = [], []

    def begin(self):
        self.episode, self.t = self.episode + 1, 0
        assert self.handover.put(None, {"stamp": np.array([self.episode, 0], np.float32)})

    def step(self, n=1, end=False):
        for i in range(n):
            self.t += 1
            last = end and i == n - 1
            assert self.handover.put(
                Step(1.0, last, False), {"stamp": np.array([self.episode, self.t], np.float32)}, [self.t / 100]
            )

    def episodes(self, *lengths):
        for length in lengths:
            self.begin()
            self.step(length, end=True)
            self.scribe.round()

    def send(self):
        """What leaves now: rows as (episode, t), and labels as (kind, outcome, first, last, episode)."""
        for parts in self.uplink.outgoing(1 << 30):
            head = decode(parts[0])
            if isinstance(head, m.BlockHead):
                block = parse_block(head, parts[1:], SPEC)
                assert (block.frames["stamp"][block.rows["next_obs"][:, 0], 1] == block.rows["t"] + 1).all()
                assert len(set(block.rows["episode"].tolist())) == 1
                self.rows += list(zip(block.rows["episode"].tolist(), block.rows["t"].tolist(), strict=True))
            elif isinstance(head, m.LabelHead):
                label = parse_label(head, parts[1:], SPEC)
                self.labels.append((label.kind.name, label.outcome, label.first, label.last, label.episode))

    def acknowledge(self, seq):
        self.uplink.received(m.Ack(7, seq), [])


def test_every_step_becomes_one_row_in_order():
    loop = Loop(block_rows=4)
    loop.episodes(5, 1, 9)
    loop.send()
    assert loop.rows == [(e, t) for e, n in enumerate((5, 1, 9)) for t in range(n)]
    assert loop.uplink.counts.waiting == loop.uplink.counts.executed == 15


def test_a_new_episode_cuts_the_one_that_runs_and_so_does_the_end():
    loop = Loop()
    loop.begin()
    loop.step(3)
    loop.begin()
    loop.step(2)
    loop.scribe.round(force=True)
    assert not loop.scribe.at_rest or loop.uplink.counts.waiting < 5  # the newest window of the running one is held back
    loop.scribe.cut()
    loop.scribe.round(force=True)
    loop.send()
    assert loop.rows == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1)]
    assert loop.scribe.at_rest


def test_rows_wait_for_company_and_no_longer_than_flush_s():
    loop = Loop(flush_s=0.05, block_rows=32)
    loop.begin()
    loop.scribe.round()
    loop.step(4)
    assert not loop.scribe.round()
    loop.clock.advance(0.05)
    assert loop.scribe.round()
    loop.send()
    assert loop.rows == [(0, 0), (0, 1), (0, 2)]


def test_verdicts_are_about_the_episode_of_the_last_step_whenever_the_thread_hears_them():
    loop = Loop()
    loop.begin()
    loop.step(3)
    loop.scribe.say(Verdict(OUTCOME_FAILURE))  # while it runs
    loop.step(1, end=True)
    loop.begin()
    loop.step(2, end=True)
    loop.scribe.say(Verdict(OUTCOME_SUCCESS))  # after its end
    loop.begin()
    loop.scribe.say(Verdict())  # no step yet: the one before
    loop.step(1, end=True)
    loop.scribe.round(force=True)  # and only now the thread runs
    loop.send()
    assert loop.labels == [("OUTCOME", 2, 1, 4, 0), ("OUTCOME", 1, 5, 6, 1), ("DISCARD", 0, 5, 6, 1)]


def test_a_verdict_may_say_what_the_last_step_earns():
    loop, amended = Loop(), []
    loop.uplink.label = lambda label: amended.append(label) or True
    loop.begin()
    loop.step(2)
    loop.scribe.say(Verdict(OUTCOME_SUCCESS, 5.0))
    loop.step(1, end=True)
    loop.scribe.round(force=True)
    loop.scribe.say(Verdict(OUTCOME_FAILURE))  # which says nothing of it
    loop.scribe.round()
    kinds = [(label.kind.name, label.first, label.last) for label in amended]
    assert kinds == [("OUTCOME", 1, 3), ("REWARDS", 3, 3), ("OUTCOME", 1, 3)]
    assert amended[1].rewards.tolist() == [[5.0]]
    for reward in (float("nan"), 1e39):
        with pytest.raises(SpecError, match="expected a finite number, or none"):
            Verdict(OUTCOME_SUCCESS, reward)


def test_a_verdict_about_a_running_episode_waits_for_its_last_row():
    loop = Loop()
    loop.begin()
    loop.step(3)
    loop.scribe.say(Verdict(OUTCOME_SUCCESS))
    loop.scribe.round(force=True)
    loop.send()
    assert loop.labels == []
    loop.step(1, end=True)
    loop.scribe.round()
    loop.send()
    assert loop.labels == [("OUTCOME", 1, 1, 4, 0)]


def test_a_verdict_before_any_step_is_about_nothing():
    loop = Loop()
    loop.scribe.say(Verdict())
    loop.scribe.round(force=True)
    assert loop.scribe.at_rest


def test_a_full_outbox_that_blocks_leaves_the_rest_with_the_loop():
    loop = Loop(limit=1, when_full="block", block_rows=2)
    loop.begin()
    loop.step(9, end=True)
    loop.begin()
    for done in range(0, 9, 2):
        loop.scribe.round(force=True)
        loop.send()
        assert len(loop.rows) == min(9, done + 2)
        loop.acknowledge(min(9, done + 2))
    assert loop.rows == [(0, t) for t in range(9)]


def test_a_full_outbox_that_stops_says_so_and_goes_on_once_there_is_room():
    loop = Loop(limit=1)
    loop.episodes(2)
    loop.begin()
    loop.step(3, end=True)
    with pytest.raises(OutboxFull, match="actor.when_full"):
        loop.scribe.round(force=True)
    loop.send()
    loop.acknowledge(2)
    loop.scribe.round(force=True)
    loop.send()
    assert loop.rows == [(0, 0), (0, 1), (1, 0), (1, 1), (1, 2)]


def test_a_full_outbox_that_drops_gives_up_whole_episodes_and_counts_them():
    loop = Loop(limit=2000, when_full="drop_oldest", block_rows=2)
    loop.episodes(*[5] * 20)
    loop.send()
    kept = {episode for episode, _ in loop.rows}
    assert sorted(loop.rows) == loop.rows == [(e, t) for e in sorted(kept) for t in range(5)]
    assert max(kept) == 19
    counts = loop.uplink.counts
    assert counts.dropped == 100 - len(loop.rows) > 0
    assert counts.waiting == len(loop.rows)
    assert loop.uplink.pulse().report["dropped_steps"] == counts.dropped


def test_of_an_episode_that_is_larger_than_the_outbox_nothing_is_kept():
    loop = Loop(limit=1000, when_full="drop_oldest", block_rows=2)
    loop.begin()
    for _ in range(60):
        loop.step()
        loop.scribe.round(force=True)
    loop.step(1, end=True)
    loop.scribe.say(Verdict(OUTCOME_SUCCESS))
    loop.scribe.round(force=True)
    loop.send()
    assert loop.rows == []  # nor what came when there was room again
    loop.episodes(2)
    loop.scribe.round(force=True)
    loop.send()
    assert loop.rows == [(1, 0), (1, 1)]
    assert loop.uplink.counts.dropped == 61


def test_what_the_policy_wanted_is_kept_where_it_was_told():
    spec, clock = TransitionSpec.like({"stamp": np.zeros(2, np.float32)}, [-1], [1], planned=True), ManualClock()
    uplink, handover = Uplink(spec, Outbox(Memory(1 << 20)), 1, clock), Handover(spec)
    uplink.welcomed(m.Welcome(7, 5.0, 0.5, 1 << 20, 100, 1 << 30))
    scribe = Scribe(spec, handover, uplink, ActorConfig(robot=True), clock)
    see = {"stamp": np.zeros(2, np.float32)}
    handover.put(None, see)
    steps = [(Step(0.0, False, False, source=SOURCE_HUMAN, decided=True), 0.5), (Step(0.0, True, False), None)]
    for step, planned in steps:
        handover.put(step, see, [0.25], None if planned is None else [planned])
    scribe.round(force=True)
    heads = [(decode(parts[0]), parts[1:]) for parts in uplink.outgoing(1 << 20)]
    rows = np.concatenate([parse_block(head, frames, spec).rows for head, frames in heads if isinstance(head, m.BlockHead)])
    assert rows[["planned", "has_planned", "source"]].tolist() == [([0.5], 1, [SOURCE_HUMAN]), ([0.0], 0, [0])]
