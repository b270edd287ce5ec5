"""Rules 10 and 11 on the actor's side: a decision is a chunk of actions, and its row holds what was executed of it."""

import numpy as np
import pytest
from helpers.driving import VERSION, unroll
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.actor.assembler import Assembler
from headrace.actor.config import EnvConfig, WindowConfig
from headrace.actor.deciding import Decider
from headrace.actor.envs import make_lanes
from headrace.actor.evaluate import evaluate
from headrace.buffer import SACReplayPool
from headrace.common.errors import ConfigError, EnvError, SpecError
from headrace.common.specs import SOURCE_HUMAN, SOURCE_POLICY, ActionSpec, ObsSpec
from headrace.launch.chaos import scripted
from headrace.launch.sync_actor import SyncActor

OBS, ACTION = (ObsSpec("obs", (2,), "<f4"),), ActionSpec((2,), (-1.0, -1.0), (1.0, 1.0))


def spec_for(chunk, stack=1):
    return WindowConfig(chunk=chunk, stack=stack).spec(OBS, ACTION)


def frame(episode, t):
    return {"obs": np.array([episode, t], np.float32)}


def planned(episode, t, chunk):
    """The decision at ``t``: its i-th action says (t, i), so that what was executed can be told from what was not."""
    return np.array([[t / 100, i / 100] for i in range(chunk)], np.float32)


def executed(t):
    return np.array([t / 100, -0.5], np.float32)


def play(assembler, episodes, chunk, replan, cut):
    """Whole episodes (length, end), deciding each ``replan`` steps; blocks of ``cut`` rows."""
    blocks = []
    for episode, (length, end) in enumerate(episodes):
        assembler.begin(episode, frame(episode, 0))
        for t in range(length):
            flags = t == length - 1 and end == "terminated", t == length - 1 and end == "truncated"
            decided = planned(episode, t, chunk) if t % replan == 0 else None
            source = SOURCE_HUMAN if t % 3 == 1 else SOURCE_POLICY
            step = (executed(t), float(t), *flags, frame(episode, t + 1))
            assembler.step(*step, version=VERSION, decided=decided, source=source)
            while assembler.ready >= cut:
                blocks.append(assembler.take(cut))
        if end == "crash":
            assembler.abort()
    while (block := assembler.take(cut)) is not None:
        blocks.append(block)
    return blocks


def table(episodes, chunk, replan, stack):
    out = []
    for episode, (length, end) in enumerate(episodes):
        for t in range(0, length, replan):
            m = min(replan, length - t)
            action = planned(episode, t, chunk)
            for i in range(m):
                action[i] = executed(t + i)
            rewards = [float(t + i) if i < m else 0.0 for i in range(chunk)]
            sources = [SOURCE_HUMAN if i < m and (t + i) % 3 == 1 else SOURCE_POLICY for i in range(chunk)]
            last = t + m == length
            flags = int(last and end == "terminated"), int(last and end in ("truncated", "crash"))
            sides = [[[episode, max(0, s - back)] for back in range(stack - 1, -1, -1)] for s in (t, t + m)]
            out.append((episode, t, m, action.tolist(), rewards, sources, *flags, *sides))
    return out


def seen(blocks):
    names = ("episode", "t", "steps", "action", "rewards", "source", "terminated", "truncated")
    return [(*(r[name] for name in names), r.obs["obs"], r.next_obs["obs"]) for block in blocks for r in unroll(block)]


@settings(max_examples=80, deadline=None)
@given(
    episodes=st.lists(st.tuples(st.integers(1, 11), st.sampled_from(["terminated", "truncated", "crash"])), max_size=12),
    chunk=st.integers(2, 5),
    early=st.integers(0, 3),
    stack=st.integers(1, 3),
    cut=st.integers(1, 9),
)
def test_each_decision_is_a_row_of_what_was_executed_and_planned(episodes, chunk, early, stack, cut):
    replan = max(1, chunk - early)
    spec = spec_for(chunk, stack)
    assembler = Assembler(spec)
    blocks = play(assembler, episodes, chunk, replan, cut)
    assert seen(blocks) == table(episodes, chunk, replan, stack)
    assert assembler.check_valid() == (True, "")
    for block in blocks:
        block.check(spec)
    assert sum(spec.fresh_steps(block.rows) for block in blocks) == sum(length for length, _ in episodes)


def test_a_refused_step_does_not_begin_the_decision_that_came_with_it():
    assembler = Assembler(spec_for(2))
    assembler.begin(0, frame(0, 0))
    for t in range(2):
        assembler.step(
            executed(t), 0.0, False, False, frame(0, t + 1), version=VERSION, decided=planned(0, 0, 2) if t == 0 else None
        )
    assert not assembler.may_go_on
    with pytest.raises(ValueError, match="could not convert"):
        assembler.step(executed(2), "much", False, False, frame(0, 3), version=VERSION, decided=planned(0, 2, 2))
    assert not assembler.may_go_on
    with pytest.raises(EnvError, match="step 2 of episode 0 needs a decision"):
        assembler.step(executed(2), 0.0, False, False, frame(0, 3), version=VERSION)


def test_the_newest_chunk_is_held_back_until_the_next_decision_so_that_a_crash_can_end_it():
    assembler = Assembler(spec_for(2))
    assembler.begin(0, frame(0, 0))
    for t in range(4):
        assembler.step(
            executed(t), 0.0, False, False, frame(0, t + 1), version=VERSION, decided=planned(0, t, 2) if t % 2 == 0 else None
        )
    assert assembler.ready == 1
    assembler.abort()
    assert [(r["steps"], r["truncated"]) for r in unroll(assembler.take(9))] == [(2, 0), (2, 1)]


def test_state_goes_on_in_the_middle_of_a_chunk():
    whole, first, second = (Assembler(spec_for(3)) for _ in range(3))

    def go(assembler, t):
        decided = planned(0, t, 3) if t % 3 == 0 else None
        assembler.step(executed(t), float(t), t == 7, False, frame(0, t + 1), version=VERSION, decided=decided)

    for assembler in (whole, first):
        assembler.begin(0, frame(0, 0))
        for t in range(5):
            go(assembler, t)
    second.set_state(first.get_state())
    for t in range(5, 8):
        go(whole, t)
        go(second, t)
    assert seen([whole.take(9)]) == seen([second.take(9)])


def test_a_step_that_nobody_decided_is_refused():
    assembler = Assembler(spec_for(2))
    assembler.begin(3, frame(3, 0))

    def go(decided=None):
        assembler.step(executed(0), 0.0, False, False, frame(3, 1), version=VERSION, decided=decided)

    with pytest.raises(EnvError, match="step 0 of episode 3 needs a decision"):
        go()
    go(planned(3, 0, 2))
    go()
    with pytest.raises(EnvError, match="step 2 of episode 3 needs a decision"):
        go()


def test_only_lanes_that_need_one_are_asked_for_a_decision():
    asked = []

    def choose(obs):
        asked.append(obs["obs"][:, 0].tolist())
        n = len(obs["obs"])
        return np.stack([np.stack([np.full(2, 10 * obs["obs"][i, 0] + k) for k in range(3)]) for i in range(n)])

    decider, obs = Decider(spec_for(3), 2), {"obs": np.array([[1.0, 0.0], [2.0, 0.0]])}
    first = decider.act(obs, choose)
    assert first.actions[:, 0].tolist() == [10, 20]
    assert first.begins.all()
    decider.restart(np.array([False, True]))
    second = decider.act({"obs": np.array([[3.0, 0.0], [4.0, 0.0]])}, choose)
    assert second.actions[:, 0].tolist() == [11, 40]
    assert second.begins.tolist() == [False, True]
    assert second.decided[:, 2, 0].tolist() == [12, 42]
    assert [decider.act(obs, choose).actions[:, 0].tolist() for _ in range(2)] == [[12, 41], [10, 42]]
    assert asked == [[1, 2], [4], [1]]


@pytest.mark.parametrize("autoreset", ["next_step", "same_step", "disabled"])
def test_chunks_of_real_lanes_reach_the_pool_as_they_were_executed(tmp_path, autoreset):
    env = EnvConfig(
        id=scripted.ENV,
        kwargs={"lengths": [3, 5, 1, 4], "ends": ["terminated", "truncated", "terminated", "raise"], "history": str(tmp_path)},
        lanes=2,
        autoreset=autoreset,
        max_restarts=100,
    )
    lanes = make_lanes(env, WindowConfig(chunk=3), run_seed=0, actor="a", epoch=1)
    pool = SACReplayPool(1000, spec=lanes.spec)
    actor = SyncActor("a", lanes, pool, np.random.default_rng(0))
    actor.begin()
    for _ in range(60):
        actor.step(None, VERSION)
    actor.cut()
    actor.close()
    acted = {(episode, t): action for (_, episode, t), action in scripted.executed(tmp_path).items()}
    rows = pool.gather(np.arange(pool.tail, pool.head)).rows
    assert int(rows["steps"].sum()) == actor.executed == pool.counters()["env_steps"]
    assert {int(m) for m in rows["steps"]} == {1, 2, 3}
    told = 0
    for row in rows:
        for i in range(row["steps"]):
            if (key := (int(row["episode"]), int(row["t"]) + i)) in acted:
                np.testing.assert_allclose(row["action"][i], acted[key], rtol=1e-6)
                told += 1
    assert told > 60


class Counting:
    """Acts (lane's t, i)."""

    def __init__(self):
        self.asked = 0

    def act(self, obs, rng, deterministic):
        self.asked += len(obs["obs"])
        return np.zeros((len(obs["obs"]), 4, 1), np.float32)


def test_an_evaluation_asks_once_a_chunk():
    env = EnvConfig(id=scripted.ENV, kwargs={"lengths": [9]})
    policy = Counting()
    result = evaluate(policy, env, WindowConfig(chunk=4), 2, seed=0)
    assert result.lengths.tolist() == [9, 9]
    assert policy.asked == 2 * 3


@pytest.mark.parametrize(
    ("window", "message"),
    [
        ({"chunk": 2, "n_step": 3}, r"window\.n_step: 3, but with window\.chunk 2"),
        ({"chunk": 2, "next_action": True}, r"window\.next_action: true"),
    ],
)
def test_windows_that_chunks_cannot_have_are_refused(window, message):
    with pytest.raises(ConfigError, match=message):
        WindowConfig(**window).check()


def test_a_window_is_read_back_from_its_spec_and_chunks_of_chunks_are_refused():
    for window in (WindowConfig(chunk=4, stack=2), WindowConfig(n_step=3, next_action=True), WindowConfig()):
        assert WindowConfig.of(window.spec(OBS, ACTION)) == window
    with pytest.raises(SpecError, match=r"window\.chunk: 2 actions of shape \(3, 2\)"):
        WindowConfig(chunk=2).spec(OBS, ActionSpec((3, 2), (-1.0, -1.0), (1.0, 1.0)))
