"""The actor's loop beside a real uplink and pool, without a socket: what it says about episodes."""

import threading
from dataclasses import replace

import numpy as np
import pytest
from helpers.judged import bright
from helpers.weights import mlp_weights

from headrace.actor.config import ActorConfig, EnvConfig, RobotConfig, SuccessConfig, WindowConfig
from headrace.actor.envs import make_lanes
from headrace.actor.joining import ActorSettings
from headrace.actor.loop import ActorLoop
from headrace.actor.minds import OwnMind
from headrace.actor.outbox import Outbox
from headrace.actor.policy import make_policy
from headrace.actor.store import Memory
from headrace.actor.uplink import Uplink
from headrace.buffer import SACReplayPool
from headrace.common.clock import MonotonicClock
from headrace.common.specs import HEALTH_JUDGED, HEALTH_SUCCESS, OUTCOME_FAILURE, OUTCOME_SUCCESS
from headrace.common.wire import messages as m
from headrace.common.wire.codec import decode, parse_block, parse_label
from headrace.common.wire.network import NetworkConfig

SCRIPTED = EnvConfig("headrace.launch.chaos.scripted:make", kwargs={"lengths": [5, 3], "success": True})
ON_SUCCESS = "headrace.actor.rewarding:on_success"


class DirectLink:
    """Carries what the uplink says into a pool, and stops the loop at a number of steps."""

    def __init__(self, uplink, pool, stop, at):
        self.uplink, self.pool, self.stop, self.at = uplink, pool, stop, at
        self.calls = []

    def check(self):
        self.wake()
        while self.calls and self.uplink.steps >= self.calls[0][0]:
            self.calls.pop(0)[1]()
        if self.uplink.steps >= self.at:
            self.stop.set()

    def wake(self):
        for parts in self.uplink.outgoing(1 << 30):
            head = decode(parts[0])
            if isinstance(head, m.BlockHead):
                self.pool.insert(parse_block(head, parts[1:], self.pool.spec), "a", head.stream, head.seq)
                self.uplink.received(m.Ack(head.stream, head.seq + head.rows - 1), [])
            elif isinstance(head, m.LabelHead):
                done = self.pool.amend("a", parse_label(head, parts[1:], self.pool.spec))
                self.uplink.received(m.Labelled(head.number, done.rows), [])


def centred(spec):
    """A policy that always acts in the middle of the box."""
    weights = mlp_weights(spec, scale=0.0)
    weights.tensors["head.bias"][spec.action.dim :] = -20.0
    return weights


class Ahead:
    """Lanes that carry out in each step what was decided in the one before, and rest in an episode's first."""

    def __init__(self, lanes):
        self.lanes, self.next = lanes, None
        self.spec, self.count, self.reset, self.close = lanes.spec, lanes.count, lanes.reset, lanes.close

    def step(self, actions):
        executed = np.zeros_like(actions) if self.next is None else self.next
        step = self.lanes.step(executed)
        self.next = actions.copy() if step.live[0] else None
        return replace(step, executed=executed)


def act(steps, calls=(), lanes=2, most=0, epsilon=None, env=None, ahead=False, **window):
    env = env or replace(SCRIPTED, lanes=lanes)
    settings = ActorSettings(
        *("", "actor-0", env, WindowConfig(**window), ActorConfig(robot=ahead, epsilon=epsilon or 0.0)),
        *(NetworkConfig(), 0, RobotConfig(ahead=ahead)),
    )
    stepped = make_lanes(env, settings.window, run_seed=0, actor="a", epoch=1)
    stepped = Ahead(stepped) if ahead else stepped
    uplink = Uplink(stepped.spec, Outbox(Memory(1 << 20)), 1 << 18)
    pool, stop = SACReplayPool(1000, spec=stepped.spec), threading.Event()
    uplink.welcomed(m.Welcome(1, 5.0, 0.5, 1 << 20, 1 << 18, 1 << 30))
    uplink.received(m.State(granted=2 * steps, random=0 if epsilon else 2 * steps), [])
    uplink.inbox.newest = centred(stepped.spec) if epsilon else None
    link = DirectLink(uplink, pool, stop, steps)
    mind = OwnMind(settings, stepped.spec, uplink, make_policy)
    loop = ActorLoop(settings, stepped.spec, stepped, uplink, link, MonotonicClock(), np.random.default_rng(0), mind)
    link.calls = [(at, lambda call=call: call(loop)) for at, call in calls]
    loop.run(stop)
    stepped.close()
    assert uplink.unacknowledged == 0
    assert pool.counters()["env_steps"] == uplink.steps >= (most or steps)
    assert uplink.pulse().report["epsilon"] == (epsilon or 0.0)
    return pool


def episodes(pool, column):
    found: dict[int, set] = {}
    for row in pool.dump():
        found.setdefault(row["episode"], set()).add(row[column])
    return found


def test_every_row_of_an_ended_episode_knows_its_outcome():
    for window in ({}, {"n_step": 3}):
        pool = act(60, **window)
        found = episodes(pool, "outcome")
        ended = {e: outcomes for e, outcomes in found.items() if outcomes != {0}}
        assert ended == {e: {1 if e % 2 else 2} for e in ended}
        assert len(found) - len(ended) <= 2
        assert pool.check_valid() == (True, "")


def test_each_episode_begins_with_a_decision_of_its_own():
    pool = act(60, chunk=4)
    rows = pool.gather(np.arange(pool.head)).rows
    whole = rows[np.isin(rows["episode"], [e for e, outcomes in episodes(pool, "outcome").items() if outcomes != {0}])]
    assert {(int(r["t"]), int(r["steps"])) for r in whole} == {(0, 4), (4, 1), (0, 3)}  # episodes of 5 and of 3 steps


def say(word):
    return lambda loop: loop.people.say(word)


def heard(word):
    return lambda loop: loop._uplink.received(m.Word(word), [])


@pytest.mark.parametrize("through", [say, heard])
def test_the_newest_episode_of_the_first_lane_is_discarded_whole_and_no_other(through):
    pool = act(60, calls=[(30, through("discard"))])
    found = episodes(pool, "discarded")
    gone = [e for e, discarded in found.items() if discarded == {True}]
    assert len(gone) == 1
    assert gone[0] % 2 == 0  # of lane 0
    assert all(discarded == {False} for e, discarded in found.items() if e != gone[0])
    assert pool.counters()["rows_discarded"] == pool.head - pool.size > 0


@pytest.mark.parametrize("epsilon", [0.3, 1.0])
def test_an_actor_takes_its_share_of_actions_at_random_and_they_are_stored_as_executed(epsilon):
    pool = act(400, epsilon=epsilon)
    rows = pool.gather(np.arange(pool.head)).rows
    assert (rows["learner_epoch"] == 1).all()  # acting by weights all the same
    assert (np.abs(rows["action"]) > 1e-3).mean() == pytest.approx(epsilon, abs=0.09)  # four standard deviations of 400


def test_a_verdict_on_a_running_episode_waits_for_its_end_and_one_on_an_ended_one_amends_it():
    for at in range(20, 32):  # everywhere in an episode of lane 0, which are 5 and 3 steps long in turn, and in between
        pool = act(60, calls=[(at, say("success"))])
        found = episodes(pool, "outcome")
        even = [e for e in found if e % 2 == 0 and found[e] == {1}]
        assert len(even) == 1, (at, found)  # those of lane 0 fail by themselves
        (row,) = [r for r in pool.dump() if r["episode"] == even[0] and r["t"] == 0]
        assert row["actor"] == "a"
    assert act(10, calls=[(0, say("success"))]).size  # before any step there is nothing to say it of


@pytest.mark.parametrize("window", [{}, {"n_step": 3}])
def test_people_take_back_what_a_classifier_gave_and_both_labels_are_kept(tmp_path, window):
    (tmp_path / "cube.hrw").write_bytes(bright(hold=2).pack())
    env = EnvConfig("helpers.judged:Bright", success=SuccessConfig(str(tmp_path / "cube.hrw")))
    pool = act(30, calls=[(4, say("failure"))], lanes=1, env=env, **window)  # between the first two episodes
    rows = pool.gather(np.arange(pool.tail, pool.head)).rows
    first, third = (rows[rows["episode"] == e] for e in (0, 2))
    assert [set(e["outcome"]) for e in (first, third)] == [{OUTCOME_FAILURE}, {OUTCOME_SUCCESS}]
    assert (first["rewards"].sum(), third["rewards"].max()) == (0, 1)
    assert [e["health"][-1] for e in (first, third)] == [HEALTH_JUDGED | HEALTH_SUCCESS] * 2


@pytest.mark.parametrize("window", [{}, {"n_step": 3}, {"chunk": 4}])
def test_what_people_say_late_is_worth_what_it_would_have_been_at_the_end(window):
    changed = set()
    for at in range(20, 28):  # everywhere in an episode, and between two; episodes fail and succeed in turn
        word = "success" if at % 2 else "failure"
        pool = act(60, calls=[(at, say(word))], lanes=1, env=replace(SCRIPTED, reward=ON_SUCCESS), **window)
        rows = pool.gather(np.arange(pool.tail, pool.head)).rows
        expected = np.zeros_like(rows["rewards"])
        won = (rows["outcome"] == OUTCOME_SUCCESS) & ((rows["terminated"] | rows["truncated"]) != 0)
        expected[won, rows["steps"][won] - 1] = 1
        assert (rows["rewards"] == expected).all(), at
        changed |= {(word, e) for e, n in zip(rows["episode"], rows["outcome"], strict=True) if n and n != 2 - e % 2}
    assert {word for word, _ in changed} == {"success", "failure"}


def test_of_a_robot_that_decides_ahead_rows_hold_the_decision_that_was_executed():
    pool = act(60, lanes=1, ahead=True, planned=True)
    rows = pool.gather(np.arange(pool.tail, pool.head)).rows
    assert (rows["action"] == rows["planned"]).all()
    assert not rows["action"][rows["t"] == 0].any()
    assert rows["action"][rows["t"] > 0].all()


def test_somebody_who_says_quit_has_the_actor_leave_in_order_with_all_handed_over():
    pool = act(1 << 20, calls=[(30, say("quit"))], most=30)
    assert 30 <= pool.counters()["env_steps"] <= 32


def test_a_pause_is_asked_of_the_buffer_and_an_actor_of_envs_waits_while_the_run_is_paused():
    asked, held = [], []

    def pause(loop):
        uplink, hold, event = loop._uplink, loop._hold, loop._uplink.event

        def heard(message, *frames):
            asked.extend([message] if isinstance(message, m.Change) else [])
            if asked and not held:
                uplink.received(m.State(granted=1000, random=1000, phase="paused"), [])
            event(message, *frames)

        def waits(why):
            held.append((why, uplink.steps))
            hold(why)
            if len(held) == 3:
                uplink.received(m.State(granted=1000, random=1000, phase="training"), [])

        loop._hold, uplink.event = waits, heard
        loop.people.say("pause")

    pool = act(60, calls=[(30, pause)])
    assert asked == [m.Change("pause")]
    assert len({steps for _, steps in held}) == 1
    assert [why for why, _ in held] == ["the run is paused"] * 3
    assert pool.counters()["env_steps"] >= 60
