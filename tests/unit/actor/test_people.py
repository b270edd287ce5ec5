"""B05, and people who take over inside an env: what was executed is stored, and whose it was, step by step."""

import numpy as np
import pytest
from helpers.people import human_number

from headrace.actor.config import EnvConfig, WindowConfig, WrapperConfig
from headrace.actor.envs import make_lanes
from headrace.actor.gym_human import human_action
from headrace.buffer import SACReplayPool
from headrace.buffer.config import SamplingConfig, SetConfig
from headrace.common.errors import EnvError
from headrace.common.specs import SOURCE_HUMAN, SOURCE_POLICY
from headrace.common.weights import Version
from headrace.launch.chaos import scripted
from headrace.launch.sync_actor import SyncActor

VERSION = Version("l", 1, 7)
AT = (3, 4, 5)  # steps of each episode that a human acts in


class Counting:
    """Its n-th decision is n / 1000 in every number, all the actions of a chunk alike but for i / 10000."""

    def __init__(self, shape):
        self.shape, self.asked = shape, 0

    def act(self, obs, rng, deterministic):
        out = np.empty((len(next(iter(obs.values()))), *self.shape), np.float32)
        for lane in range(len(out)):
            self.asked += 1
            out[lane] = self.asked / 1000
            if len(self.shape) > 1:
                out[lane] += np.arange(self.shape[0], dtype=np.float32)[:, None] / 10000
        return out


def collected(window=None, *, steps=40, lengths=(8, 5, 12), sampling=None, history=None, **env):
    """A pool of rows that were collected with a human in the env, and how often the policy was asked."""
    wrapper = WrapperConfig("helpers.people:TakenOver", {"at": AT, **env.pop("people", {})})
    kwargs = {"lengths": lengths, "ends": ["terminated", "truncated"], "action_dim": 2, "history": history}
    config = EnvConfig(scripted.ENV, kwargs=kwargs, wrappers=(wrapper,), **env)
    lanes = make_lanes(config, window or WindowConfig(), run_seed=0, actor="a", epoch=1)
    pool = SACReplayPool(1000, spec=lanes.spec, sampling=sampling)
    actor, policy = SyncActor("a", lanes, pool, np.random.default_rng(0)), Counting(lanes.spec.action.shape)
    actor.begin()
    for _ in range(steps):
        actor.step(policy, VERSION)
    actor.cut()
    actor.close()
    return pool, policy


def steps_of(pool):
    """(episode, t) -> (who acted, what was executed), of every step that a row covers; rows must agree."""
    found = {}
    for row in pool.gather(np.arange(pool.tail, pool.head)).rows:
        actions = row["action"].reshape(-1, row["action"].shape[-1])
        for i in range(row["steps"]):
            key = int(row["episode"]), int(row["t"]) + i
            source = int(row["source"][i])
            assert found.setdefault(key, (source, None))[0] == source
            if i < len(actions):
                found[key] = source, actions[i]
    return found


@pytest.mark.parametrize("flag", [False, True])
@pytest.mark.parametrize("autoreset", ["next_step", "same_step", "disabled"])
def test_b05_rows_hold_the_humans_action_and_mark_on_exactly_the_steps_that_somebody_took_over(tmp_path, autoreset, flag):
    pool, _ = collected(autoreset=autoreset, people={"flag": flag}, history=str(tmp_path), lanes=2)
    executed = scripted.executed(tmp_path)
    steps = steps_of(pool)
    assert len(steps) > 50
    for (episode, t), (source, action) in steps.items():
        assert source == (SOURCE_HUMAN if t in AT else SOURCE_POLICY)
        if t in AT:
            np.testing.assert_array_equal(action, np.float32(human_number(t)))
        np.testing.assert_allclose(action, executed[(episode % 2, episode, t)], rtol=1e-6)
    dumped = {(row["episode"], row["t"]): row["source"] for row in pool.dump()}
    assert dumped == {key: ["human" if key[1] in AT else "policy"] for key in steps}


def test_in_lanes_of_processes_too():
    pool, _ = collected(vector="async", lanes=2, steps=15)
    assert {t for (_, t), (source, _) in steps_of(pool).items() if source == SOURCE_HUMAN} == set(AT)


@pytest.mark.parametrize("window", [WindowConfig(n_step=3), WindowConfig(chunk=4)])
def test_rows_of_several_steps_say_it_step_by_step_and_feed_the_human_set(tmp_path, window):
    sets = {"human": SetConfig(share=0.5, source=("human",)), "rest": SetConfig(share=0.5, source=("policy", "demo"))}
    pool, _ = collected(window, history=str(tmp_path), sampling=SamplingConfig(sets=sets), steps=60)
    executed, steps = scripted.executed(tmp_path), steps_of(pool)
    assert len(steps) > 40
    for (episode, t), (source, action) in steps.items():
        assert (source == SOURCE_HUMAN) == (t in AT)
        np.testing.assert_allclose(action, executed[(0, episode, t)], rtol=1e-6)
    rows = pool.gather(np.arange(pool.tail, pool.head)).rows
    inside = np.arange(rows["source"].shape[1]) < rows["steps"][:, None]
    human = ((rows["source"] == SOURCE_HUMAN) & inside).any(axis=1)
    assert pool.sampling_info()["sets"] == {"human": int(human.sum()), "rest": int((~human).sum())}
    assert 0 < human.sum() < len(rows)
    assert pool.counters()["env_steps"] == len(steps)  # once, whatever sets its rows are in


def test_after_a_human_the_policy_decides_anew_and_its_old_chunk_is_thrown_away(tmp_path):
    pool, policy = collected(WindowConfig(chunk=4), lengths=(12,), steps=12, history=str(tmp_path))
    rows = pool.gather(np.arange(pool.tail, pool.head)).rows
    covered = [(int(r["t"]), int(r["steps"]), r["source"][: r["steps"]].tolist()) for r in rows if r["episode"] == 0]
    # Steps 3 to 5 are a human's: step 3 ends the first chunk, 4 and 5 begin one, which the policy's next decision ends.
    assert covered == [(0, 4, [0, 0, 0, 1]), (4, 2, [1, 1]), (6, 4, [0, 0, 0, 0]), (10, 2, [0, 0])]
    acted = [row["action"][: row["steps"], 0] for row in rows if row["episode"] == 0]
    asked = [1, 4, 5]  # decisions: at t = 0, behind steps 3, 4 and 5, and at t = 10
    assert policy.asked == asked[-1]
    np.testing.assert_allclose(acted[2], 0.004 + np.arange(4) / 10000, rtol=1e-5)
    np.testing.assert_allclose(acted[3], 0.005 + np.arange(2) / 10000, rtol=1e-5)
    # What of the row that was cut short was not executed stays as the policy had planned it then.
    np.testing.assert_allclose(rows[1]["action"][2:, 0], 0.002 + np.arange(2, 4) / 10000, rtol=1e-5)


@pytest.mark.parametrize("window", [WindowConfig(planned=True), WindowConfig(chunk=4, planned=True)])
def test_rows_hold_what_the_policy_wanted_too_where_they_are_to(window):
    pool, _ = collected(window, lengths=(12,), steps=12)
    rows = pool.gather(np.arange(pool.tail, pool.head)).rows
    assert (rows["has_planned"] == 1).all()
    if window.chunk == 1:
        np.testing.assert_allclose(rows["planned"][:, 0], (rows["t"] + 1) / 1000, rtol=1e-5)  # asked in each step
        differ = {int(row["t"]) for row in rows if (row["planned"] != row["action"]).any()}
        assert differ == set(AT)
    else:
        first = {0: 0.001, 4: 0.002, 6: 0.004, 10: 0.005}  # the decision that each row began with
        for row in rows:
            np.testing.assert_allclose(row["planned"][:, 1], first[int(row["t"])] + np.arange(4) / 10000, rtol=1e-5)
    assert pool.check_valid() == (True, "")


def test_what_is_no_action_of_this_robot_ends_the_episode_as_a_crash_and_is_named(caplog):
    with pytest.raises(EnvError, match=r"intervene_action.*shape \(3,\).*2 numbers"):
        collected(people={"shape": (3,)}, max_restarts=1)


@pytest.mark.parametrize(
    ("info", "what"),
    [
        ({}, None),
        ({"intervene_action": None}, None),
        ({"is_intervention": True}, None),
        ({"intervene_action": [1.0, 2.0], "intervene_flag": False}, None),
        ({"intervene_action": [1.0, 2.0], "intervene_flag": np.zeros(1)}, None),
        ({"intervene_action": [1.0, 2.0]}, [1.0, 2.0]),
        ({"intervene_action": [[1], [2]], "intervene_flag": np.ones(1)}, [1.0, 2.0]),
        ({"intervene_action": [1.0, 2.0], "is_intervention": False}, [1.0, 2.0]),
        ({"intervene_action": ["a", "b"]}, EnvError),
        ({"intervene_action": 1.0}, EnvError),
    ],
)
def test_what_info_says_of_a_human(info, what):
    if what is EnvError:
        with pytest.raises(EnvError, match="intervene_action"):
            human_action(info, 2)
    else:
        found = human_action(info, 2)
        assert (found is None) == (what is None)
        assert found is None or (found.tolist() == what and found.dtype == np.float32)
