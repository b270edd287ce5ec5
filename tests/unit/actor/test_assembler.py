"""Rules 5, 8, 9 and B03, B27: windows and blocks, judged row by row against a brute-force table."""

from dataclasses import replace

import numpy as np
import pytest
from helpers.driving import VERSION, drive, drive_config, unroll
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.actor.assembler import Assembler
from headrace.actor.config import EnvConfig, WindowConfig
from headrace.actor.envs import make_lanes
from headrace.actor.stacking import FrameStack
from headrace.common.errors import EnvError
from headrace.common.specs import ActionSpec, ObsSpec, TransitionSpec
from headrace.common.weights import Version

GAMMA = 0.9


def spec_for(window=1, stack=1):
    return TransitionSpec((ObsSpec("obs", (2,), "<f4"),), ActionSpec((1,), (-1.0,), (1.0,)), window, "steps", stack)


def frame(episode, t):
    return {"obs": np.array([episode, t], np.float32)}


def play(assembler, episodes, cut=None, rewards=lambda t: float(t)):
    """Feed whole episodes given as (length, end); take blocks of ``cut`` rows whenever one is ready."""
    blocks = []
    for episode, (length, end) in enumerate(episodes):
        assembler.begin(episode, frame(episode, 0))
        for t in range(length):
            done = t == length - 1
            flags = done and end in ("terminated", "both"), done and end in ("truncated", "both")
            assembler.step(np.array([t / 100]), rewards(t), *flags, frame(episode, t + 1), version=VERSION)
            while cut and assembler.ready >= cut:
                blocks.append(assembler.take(cut))
        if end in ("crash", "running"):
            assembler.abort()
    while (block := assembler.take(cut or 1 << 20)) is not None:
        blocks.append(block)
    return blocks


def table(episodes, n, stack):
    """What the rows must be, computed step by step: (episode, t, m, rewards, terminated, truncated, obs, next_obs)."""
    out = []
    for episode, (length, end) in enumerate(episodes):
        for t in range(length):
            m = min(n, length - t)
            last = t + m == length
            rewards = [float(t + i) if i < m else 0.0 for i in range(n)]
            flags = int(last and end in ("terminated", "both")), int(last and end in ("truncated", "both", "crash"))
            sides = [[[episode, max(0, s - back)] for back in range(stack - 1, -1, -1)] for s in (t, t + m)]
            out.append((episode, t, m, rewards, *flags, *sides))
    return out


def seen(blocks):
    return [
        (r["episode"], r["t"], r["steps"], r["rewards"], r["terminated"], r["truncated"], r.obs["obs"], r.next_obs["obs"])
        for block in blocks
        for r in unroll(block)
    ]


def target(row, n):
    """(R, discount) as the learner computes them."""
    m = row["steps"]
    reward = sum(GAMMA**i * r for i, r in enumerate(row["rewards"][:n]))
    return reward, GAMMA**m * (1 - row["terminated"])


@pytest.mark.parametrize(
    ("length", "end", "expected"),
    [(4, "truncated", (5.23, 0.729)), (2, "terminated", (2.8, 0.0)), (2, "truncated", (2.8, 0.81)), (2, "both", (2.8, 0.0))],
)
def test_rule_8_constants(length, end, expected):
    blocks = play(Assembler(spec_for(window=3)), [(length, end)], rewards=lambda t: t + 1.0)
    first = unroll(blocks[0])[0]
    assert target(first, 3) == pytest.approx(expected)
    assert first.next_obs["obs"] == [[0, min(3, length)]]  # that step's own observation
    assert first["rewards"][first["steps"] :] == [0.0] * (3 - first["steps"])


EPISODES = [(1, "terminated"), (5, "truncated"), (2, "both"), (4, "crash"), (0, "crash"), (7, "terminated"), (3, "crash")]


@pytest.mark.parametrize("n", [1, 2, 3, 5])
@pytest.mark.parametrize("stack", [1, 3])
def test_rule_9_every_start_has_a_row_and_none_crosses_an_end(n, stack):
    assert seen(play(Assembler(spec_for(n, stack)), EPISODES)) == table(EPISODES, n, stack)


@pytest.mark.parametrize("stack", [1, 2, 4])
@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("cut", range(1, 23))
def test_blocks_are_self_contained_wherever_they_are_cut(cut, n, stack):
    blocks = play(Assembler(spec_for(n, stack)), EPISODES, cut=cut)
    assert seen(blocks) == table(EPISODES, n, stack)
    for block in blocks:
        block.check(spec_for(n, stack))
        assert len(np.unique(block.frames["obs"], axis=0)) == block.n_frames, "a frame is there twice"
        used = np.union1d(block.rows["obs"], block.rows["next_obs"])
        assert used.tolist() == list(range(block.n_frames)), "a frame that no row needs"


@settings(max_examples=60, deadline=None)
@given(
    episodes=st.lists(st.tuples(st.integers(1, 9), st.sampled_from(["terminated", "truncated", "both", "crash"])), max_size=30),
    n=st.integers(1, 6),
    stack=st.integers(1, 5),
    cut=st.integers(1, 70),
)
def test_any_episodes_and_any_cuts(episodes, n, stack, cut):
    assembler = Assembler(spec_for(n, stack))
    assert seen(play(assembler, episodes, cut=cut)) == table(episodes, n, stack)
    assert assembler.check_valid() == (True, "")


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("cut", [None, 1, 4])
def test_the_next_action_is_that_of_the_step_behind_the_window(cut, n):
    spec, ends = replace(spec_for(n), next_action=True), []
    for block in play(Assembler(spec), EPISODES, cut=cut):
        block.check(spec)
        for row in block.rows:
            ends.append(bool(row["terminated"] or row["truncated"]))
            assert row["next_action"].tolist() == [0 if ends[-1] else np.float32((row["t"] + row["steps"]) / 100)]
    assert set(ends) == {False, True}


@pytest.mark.parametrize("n", [1, 3])
def test_the_newest_window_is_held_back_until_the_next_step(n):
    assembler = Assembler(spec_for(n))
    assembler.begin(0, frame(0, 0))
    ready = []
    for t in range(6):
        assembler.step(np.zeros(1), 0.0, False, False, frame(0, t + 1), version=VERSION)
        ready.append(assembler.ready)
    assert ready == [max(0, t + 1 - n) for t in range(6)]
    assembler.abort()
    assert assembler.ready == 6
    rows = unroll(assembler.take(100))
    assert [r["truncated"] for r in rows] == [0] * (6 - n) + [1] * n
    assert assembler.take(1) is None


def test_rule_5_crash_at_t_2():
    rows = unroll(play(Assembler(spec_for()), [(2, "crash")])[0])
    assert [(r["t"], r["truncated"], r["terminated"]) for r in rows] == [(0, 0, 0), (1, 1, 0)]
    assert rows[-1].next_obs["obs"] == [[0, 2]]


def test_a_crash_before_the_first_step_leaves_nothing():
    assembler = Assembler(spec_for())
    assembler.begin(0, frame(0, 0))
    assembler.abort()
    assembler.abort()
    assert assembler.take(10) is None
    assembler.begin(1, frame(1, 0))


def test_columns_of_a_row():
    assembler = Assembler(spec_for(2))
    assembler.begin(9, frame(9, 0))
    first, second = Version("a", 1, 10), Version("b", 2, 20)
    assembler.step(np.array([0.5]), 1.0, False, False, frame(9, 1), version=first, source=1, health=3, action_age=0.25)
    assembler.step(np.array([0.7]), 2.0, True, False, frame(9, 2), version=second)
    rows = unroll(assembler.take(2))
    assert [(r["learner"], r["learner_epoch"], r["learner_step"]) for r in rows] == [
        (first.learner_hash, 1, 10),
        (second.learner_hash, 2, 20),
    ]
    assert [r["source"] for r in rows] == [[1, 0], [0, 0]]
    assert [(r["health"], r["action_age"], r["outcome"]) for r in rows] == [(3, 0.25, 0), (0, 0.0, 0)]
    assert [(r["actor"], r["stream"], r["seq"], r["task"]) for r in rows] == [(0, 0, 0, 0)] * 2
    assert [r["action"] for r in rows] == [[0.5], [np.float32(0.7)]]


def test_everything_is_copied():
    assembler = Assembler(spec_for())
    obs, action = {"obs": np.zeros(2, np.float32)}, np.zeros(1, np.float32)
    assembler.begin(0, obs)
    for t in range(1, 4):
        obs["obs"][:] = t
        action[:] = t / 10
        assembler.step(action, 0.0, t == 3, False, obs, version=VERSION)
    action[:], obs["obs"][:] = 9, 9
    block = assembler.take(9)
    assert block.frames["obs"].tolist() == [[t, t] for t in range(4)]
    assert block.rows["action"].tolist() == [[np.float32(t / 10)] for t in (1, 2, 3)]


def test_calls_out_of_order_are_refused():
    assembler = Assembler(spec_for(), limit=4)
    with pytest.raises(EnvError, match="a step without an episode"):
        assembler.step(np.zeros(1), 0.0, False, False, frame(0, 1), version=VERSION)
    assembler.begin(0, frame(0, 0))
    with pytest.raises(EnvError, match="episode 1 begins while episode 0 runs"):
        assembler.begin(1, frame(1, 0))
    with pytest.raises(EnvError, match=r"4 entries wait to be taken, allowed 4: take\(\)"):
        for t in range(5):
            assembler.step(np.zeros(1), 0.0, False, False, frame(0, t + 1), version=VERSION)


WRONG = {
    "observation 'obs': float64 (3,), declared float32 (2,)": ({"obs": np.zeros(3)}, np.zeros(1)),
    "observation 'obs': float64 (), declared float32 (2,)": ({"obs": 1.0}, np.zeros(1)),
    "observation 'obs' is missing; there are ['pose']": ({"pose": np.zeros(2)}, np.zeros(1)),
    "observation 'obs': <U1 (2,), declared float32 (2,)": ({"obs": np.array(["a", "b"])}, np.zeros(1)),
    "action: (), declared (1,)": (frame(0, 2), 0.5),
    "action: (2,), declared (1,)": (frame(0, 2), np.zeros(2)),
}


@pytest.mark.parametrize("goes_on", [True, False], ids=["goes on", "aborts"])
@pytest.mark.parametrize("why", WRONG)
def test_a_step_that_is_refused_has_kept_nothing(why, goes_on):
    """Whoever goes on after it, or aborts, has the rows of the steps that were taken."""
    assembler, (obs, action) = Assembler(spec_for()), WRONG[why]
    assembler.begin(0, frame(0, 0))
    assembler.step(np.zeros(1), 0.0, False, False, frame(0, 1), version=VERSION)
    with pytest.raises(EnvError) as refused:
        assembler.step(action, 1.0, False, False, obs, version=VERSION)
    assert str(refused.value) == f"assembler: {why}"
    assert assembler.check_valid() == (True, "")
    if goes_on:
        assembler.step(np.array([0.01]), 1.0, True, False, frame(0, 2), version=VERSION)
    else:
        assembler.abort()
    assembler.begin(1, frame(1, 0))
    assembler.step(np.zeros(1), 0.0, True, False, frame(1, 1), version=VERSION)
    episodes = [(2, "terminated") if goes_on else (1, "crash"), (1, "terminated")]
    assert seen([assembler.take(10)]) == table(episodes, 1, 1)


def test_pictures_are_not_made_of_numbers_that_are_none():
    camera = TransitionSpec((ObsSpec("camera", (2, 2, 3), "|u1"),), ActionSpec((1,), (-1.0,), (1.0,)))
    with pytest.raises(EnvError, match=r"observation 'camera': float32 \(2, 2, 3\), declared uint8 \(2, 2, 3\)"):
        Assembler(camera).begin(0, {"camera": np.full((2, 2, 3), 0.5, np.float32)})
    with pytest.raises(EnvError, match="episode -1, expected 0 or more"):
        Assembler(camera).begin(-1, {"camera": np.zeros((2, 2, 3), np.uint8)})


def test_state_carries_the_rows_that_wait():
    whole, first, second = (Assembler(spec_for(3, 2)) for _ in range(3))
    for assembler in (whole, first):
        assembler.begin(0, frame(0, 0))
        for t in range(90):
            assembler.step(np.array([t / 100]), t, False, False, frame(0, t + 1), version=VERSION)
        assembler.take(5)
    second.set_state(first.get_state())
    assert second.check_valid() == (True, "")
    for assembler in (whole, second):
        assembler.step(np.zeros(1), 90.0, True, False, frame(0, 91), version=VERSION)
    assert seen([second.take(200)]) == seen([whole.take(200)])


def test_dict_and_image_observations():
    window = WindowConfig(n_step=2, stack=3)
    config = EnvConfig("headrace.launch.chaos.scripted:make", kwargs={"form": "dict", "lengths": [4], "reuse": True})
    (rows,) = drive_config(config, 14, window)
    assert len(rows) == 12
    for row in rows:
        t, m = row["t"], row["steps"]
        for side, at in ((row.obs, t), (row.next_obs, t + m)):
            times = [max(0, at - back) for back in (2, 1, 0)]
            assert side["arm.t"] == times
            assert side["arm.pose"] == [[[float(np.float32(s / 3))] * 2] * 2 for s in times]
            assert side["camera"] == [[[[s] * 3] * 4] * 4 for s in times]
            assert side["held"] == [[s % 2, 1] for s in times]
            assert [s[2] for s in side["stamp"]] == times


def test_the_policy_sees_the_stack_that_rows_refer_to():
    window = WindowConfig(stack=3)
    config = EnvConfig("headrace.launch.chaos.scripted:make", kwargs={"lengths": [2, 5]}, lanes=2)
    lanes = make_lanes(config, window, run_seed=0, actor="a", epoch=1)
    stack, looked = FrameStack(lanes.spec, 2), {}
    original_reset, original_step = lanes.reset, lanes.step

    def look(result):
        stacked = stack.push(result.obs, result.episode)["obs"]
        for lane in range(2):
            episode, t = stacked[lane, -1, 1:].astype(int)
            looked[episode, t] = stacked[lane].tolist()
        return result

    lanes.reset = lambda: look(original_reset())
    lanes.step = lambda actions: look(original_step(actions))
    for rows in drive(lanes, 14):
        assert rows
        for row in rows:
            assert looked[row["episode"], row["t"]] == row.obs["obs"]
    lanes.close()
