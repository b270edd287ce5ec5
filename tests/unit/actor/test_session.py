"""A session that no buffer answers: what its loop is told, what is missed when its thread stands still, stacked frames."""

from __future__ import annotations

import time

import numpy as np
import pytest
from helpers.weights import mlp_weights

from headrace.actor import SOURCE_HUMAN, SOURCE_POLICY, ActorConfig, NetworkConfig, Session, TransitionSpec
from headrace.actor.policy import MlpPolicy
from headrace.common.errors import ConfigError, DeadlineExceeded, EnvError, OutboxFull, SpecError
from headrace.common.specs import OUTCOME_FAILURE
from headrace.common.wire import messages as m

NOBODY = "tcp://127.0.0.1:9"
SPEC = TransitionSpec.like({"obs": np.zeros(2, np.float32)}, [-1], [1])
CHUNKED = TransitionSpec.like({"obs": np.zeros(2, np.float32)}, [-1], [1], chunk=3)
STACKED = TransitionSpec.like({"obs": np.zeros(2, np.float32)}, [-1], [1], stack=3)


def see(*values):
    return {"obs": np.array(values, np.float32)}


class Stalled:
    """A session whose thread does nothing until it is let go."""

    def __init__(self, **options):
        self.session = Session(NOBODY, "arm-0", SPEC, actor=ActorConfig(**options), network=NetworkConfig(connect_s=1))
        self._round = self.session._scribe.round
        self.session._scribe.round = lambda force=False: False
        self.slots = self.session._handover.slots

    def fill(self):
        self.session.begin(see(0, 0))
        for t in range(self.slots - 1):
            self.session.record(see(0, t + 1), [0.0], 0.0, False, False)

    def go(self):
        """Let the thread go on until it has seen all."""
        self.session._scribe.round = self._round
        end = time.monotonic() + 20
        while self.session._handover.taken_count < self.session._handover.put_count:
            assert time.monotonic() < end
            time.sleep(0.005)


def test_calls_out_of_order_are_told_what_is_missing():
    with Session(NOBODY, "arm-0", SPEC) as session:
        with pytest.raises(EnvError, match="begin"):
            session.record(see(0, 0), [0.0], 0.0, False, False)
        session.begin(see(0, 0))
        session.record(see(0, 1), [0.0], 0.0, True, False)
        with pytest.raises(EnvError, match="begin"):
            session.record(see(0, 2), [0.0], 0.0, False, False)
        with pytest.raises(SpecError, match="shape"):
            session.begin({"obs": np.zeros(3)})
        with pytest.raises(DeadlineExceeded, match="waiting for an answer from"):
            session.act(see(0, 0))
        assert session.close(0.0).unsent == 0
    with pytest.raises(SpecError, match="a row is a chunk"):
        Session(NOBODY, "arm-0", TransitionSpec(SPEC.obs, SPEC.action, 1, "chunk"))


def test_a_session_asks_no_policy_server():
    with pytest.raises(ConfigError, match="actor.policy: server, and no policy_server.endpoint to ask"):
        Session(NOBODY, "arm-0", SPEC, actor=ActorConfig(policy="server"))


def test_a_full_handover_stops_the_loop_of_a_robot():
    stalled = Stalled()
    stalled.fill()
    with pytest.raises(OutboxFull, match="steps wait for the session's thread"):
        stalled.session.record(see(0, 0), [0.0], 0.0, False, False)
    stalled.session.close(0.0)


def test_a_full_handover_blocks_the_loop_no_longer_than_it_may():
    stalled = Stalled(when_full="block")
    stalled.fill()
    with pytest.raises(DeadlineExceeded, match="no room for a step within 1 s"):
        stalled.session.record(see(0, 0), [0.0], 0.0, False, False)
    stalled.session.close(0.0)


def test_an_episode_that_missed_a_step_ends_before_it_and_what_is_said_of_a_missed_one_is_of_nobody():
    stalled = Stalled(when_full="drop_oldest", outbox_bytes=1 << 30)
    session = stalled.session
    stalled.fill()
    session.record(see(0, 0), [0.0], 0.0, False, False)  # no room
    stalled.go()
    session.record(see(0, 0), [0.0], 0.0, False, False)  # there is room again, and a step is missing
    assert session.counts.dropped == 2
    session._scribe.round = lambda force=False: False
    stalled.fill()
    session.begin(see(1, 0))  # nobody hears of this one
    session.record(see(1, 1), [0.0], 0.0, True, False)
    session.success()
    stalled.go()
    counts = session.close(0.0)
    assert (counts.dropped, counts.waiting) == (3, 2 * (stalled.slots - 1))
    assert len(session.uplink._labels) == 0


def test_stacked_frames_are_those_of_the_rows():
    weights = mlp_weights(STACKED)
    policy, rng = MlpPolicy(weights, STACKED), np.random.default_rng(0)
    with Session(NOBODY, "arm-0", STACKED) as session:
        session.uplink.inbox.newest = weights
        session.policy(10.0)
        for episode in range(2):
            frames = [see(episode, 0)["obs"]] * 3
            session.begin(see(episode, 0))
            for t in range(4):
                action = session.act({"obs": frames[-1]}, deterministic=True)
                expected = policy.act({"obs": np.stack(frames)[None]}, rng, True)[0]
                np.testing.assert_array_equal(action, expected)
                frames = [*frames[1:], see(episode, t + 1)["obs"]]
                session.record(see(episode, t + 1), action, 0.0, t == 3, False)
        with pytest.raises(EnvError, match="no older frames"):
            session.act(see(0, 0))
        session.close(0.0)


def test_a_word_from_elsewhere_is_a_verdict_and_a_pause_is_told():
    with Session(NOBODY, "arm-0", SPEC, actor=ActorConfig(flush_s=0.0)) as session:
        assert not session.paused
        session.begin(see(0, 0))
        session.record(see(0, 1), [0.0], 0.0, True, False)
        session.uplink.received(m.State(phase="paused"), [])
        session.uplink.received(m.Word("failure"), [])
        end = time.monotonic() + 20
        while not len(session.uplink._labels):
            assert time.monotonic() < end
            time.sleep(0.005)
        assert session.paused
        session.uplink.received(m.State(phase="training"), [])
        assert not session.paused
        assert session.uplink._labels._items[0][1].outcome == OUTCOME_FAILURE
        session.close(0.0)


def test_rows_are_chunks_of_what_was_executed_and_of_what_was_planned_behind_it():
    weights = mlp_weights(CHUNKED)
    with Session(NOBODY, "arm-0", CHUNKED) as session:
        session.uplink.inbox.newest = weights
        session.policy(10.0)
        plans = []
        for t, (source, ended) in enumerate([(SOURCE_POLICY, False)] * 3 + [(SOURCE_HUMAN, False)] + [(SOURCE_POLICY, True)]):
            if t == 0:
                session.begin(see(0, 0))
            action = session.act(see(0, t))
            assert action.shape == (1,)
            if t in (0, 3, 4):
                plans.append(session._plan._chunk.copy())
            executed = [0.5] if source == SOURCE_HUMAN else action
            session.record(see(0, t + 1), executed, float(t), ended, False, source=source)
        with pytest.raises(SpecError, match=r"action: shape \(3, 1\), the spec declares \(1,\)"):
            session.begin(see(1, 0))
            session.record(see(1, 1), plans[0], 0.0, False, False, planned=plans[0])
        session.close(0.0)
        rows = np.concatenate([item.places[0].rows for item in session.uplink._outbox._waiting])
    assert rows["t"].tolist() == [0, 3, 4]
    assert rows["steps"].tolist() == [3, 1, 1]
    assert rows["rewards"].tolist() == [[0, 1, 2], [3, 0, 0], [4, 0, 0]]
    assert rows["source"][:, 0].tolist() == [SOURCE_POLICY, SOURCE_HUMAN, SOURCE_POLICY]
    plans[1][0] = 0.5  # what was executed stands in place of what was planned
    np.testing.assert_array_equal(rows["action"], plans)
