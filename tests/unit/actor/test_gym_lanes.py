"""Rules 5, 6, 7 and B25, B28: rows are the same real steps in every autoreset mode, and crashes cost one episode."""

import itertools
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from helpers.driving import drive, drive_config, scripted_action

from headrace.actor.config import EnvConfig, WindowConfig, WrapperConfig
from headrace.actor.envs import make_lanes
from headrace.common.errors import EnvError
from headrace.common.seeds import derive_seed
from headrace.launch.chaos.history import History
from headrace.launch.chaos.scripted import ENV, executed

VECTOR = f"{ENV}_vector"
MODES = ("next_step", "same_step", "disabled")


def scripted(lanes=1, autoreset="next_step", vector="sync", max_restarts=10, **kwargs):
    return EnvConfig(
        ENV,
        kwargs=kwargs,
        lanes=lanes,
        autoreset=autoreset,
        vector=vector,
        max_restarts=max_restarts,
    )


def made(config, window=None):
    return make_lanes(config, window or WindowConfig(), run_seed=3, actor="actor-0", epoch=1)


@pytest.mark.parametrize("autoreset", MODES)
def test_rule_5_a_truncated_step_keeps_its_true_last_observation(autoreset):
    (rows,) = drive_config(scripted(lengths=[3], reuse=True, autoreset=autoreset), 20)
    ends = [row for row in rows if row["truncated"]]
    assert len(ends) >= 4
    for row in ends:
        assert row.next_obs["obs"] == [[0, row["episode"], 3]]
        assert row["terminated"] == 0


@pytest.mark.parametrize("autoreset", MODES)
def test_b25_no_row_crosses_an_episode_end(autoreset):
    (rows,) = drive_config(scripted(lengths=[3], autoreset=autoreset), 1000)
    for row in rows:
        (obs,), (next_obs,) = row.obs["obs"], row.next_obs["obs"]
        assert next_obs == [obs[0], obs[1], obs[2] + 1]
        assert (row["episode"], row["t"], row["rewards"]) == (obs[1], obs[2], [obs[2]])
    assert len(rows) >= 700


def test_rule_6_next_step_stores_real_steps_only():
    rows = drive_config(scripted(lanes=2, lengths=[3, 5]), 20)
    # 20 calls: a lane of length n spends n + 1 calls on an episode; the newest row of a running episode is held back.
    assert len(rows[0]) == 5 * 3
    assert len(rows[1]) == 3 * 5 + 1
    for row in itertools.chain(*rows):
        length = 3 if row["episode"] % 2 == 0 else 5
        assert row.obs["obs"][0][2] < length, "a row starts at a final observation"
        assert row.next_obs["obs"][0][2] > 0, "a row ends at a reset observation"


@pytest.mark.parametrize("vector", ["sync", "async"])
@pytest.mark.parametrize("window", [WindowConfig(), WindowConfig(n_step=3, stack=2)], ids=["1-step", "3-step stack 2"])
def test_rule_7_all_modes_and_vectors_give_identical_rows(vector, window):
    script = {"lengths": [3, 5, 1], "ends": ["truncated", "terminated", "raise", "both"], "reuse": True, "success": True}
    expected = drive_config(scripted(lanes=2, **script), 60, window)
    for autoreset in MODES:
        rows = drive_config(scripted(lanes=2, autoreset=autoreset, vector=vector, **script), 60, window)
        for lane in range(2):
            n = min(len(rows[lane]), len(expected[lane]))
            assert n > 30
            assert rows[lane][:n] == expected[lane][:n]
            order = [(row["episode"], row["t"]) for row in rows[lane]]
            assert order == sorted(order)


def test_rows_carry_what_the_env_executed(tmp_path):
    rows = drive_config(scripted(lanes=2, lengths=[3, 5], history=str(tmp_path)), 21)
    acted = executed(tmp_path)
    for lane in range(2):
        for row in rows[lane]:
            t, e = row["t"], row["episode"]
            assert acted[lane, e, t] == row["action"] == pytest.approx([scripted_action(lane, e, t)])
    assert len(acted) == 16 + 18  # of which the newest of the running episode is not yet a row


@pytest.mark.parametrize("vector", ["sync", "async"])
@pytest.mark.parametrize("autoreset", MODES)
def test_b28_reused_array_in_same_step(vector, autoreset):
    (rows,) = drive_config(scripted(lengths=[3], reuse=True, vector=vector, autoreset=autoreset), 5)
    assert [row.next_obs["obs"][0][2] for row in rows[:3]] == [1, 2, 3]


def test_steps_are_never_written_again():
    lanes = made(scripted(lengths=[9], reuse=True))
    lanes.reset()
    steps = [lanes.step(np.zeros((1, 1), np.float32)) for _ in range(4)]
    lanes.close()
    assert [s.obs["obs"].tolist() for s in steps] == [[[0, 0, t]] for t in (1, 2, 3, 4)]


@pytest.mark.parametrize("autoreset", MODES)
def test_rule_5_a_crash_truncates_the_last_complete_row(autoreset):
    (rows,) = drive_config(scripted(lengths=[2], ends=["raise"], autoreset=autoreset, max_restarts=99), 12)
    assert [(r["episode"], r["t"], r["truncated"], r["terminated"]) for r in rows[:4]] == [
        (0, 0, 0, 0), (0, 1, 1, 0), (1, 0, 0, 0), (1, 1, 1, 0)
    ]  # fmt: skip
    assert rows[1].next_obs["obs"] == [[0, 0, 2]]
    lanes = made(scripted(lengths=[2], ends=["raise"], autoreset=autoreset, max_restarts=99))
    lanes.reset()
    steps = [lanes.step(np.zeros((1, lanes.spec.action.dim), np.float32)) for _ in range(8)]
    lanes.close()
    crashed = [step for step in steps if step.crashed[0]]
    assert len(crashed) >= 2
    assert not any(step.live[0] or step.truncated[0] or step.terminated[0] or step.rewards[0] for step in crashed)


@pytest.mark.parametrize("autoreset", MODES)
def test_a_crash_costs_only_its_own_lane(autoreset):
    lanes = made(scripted(lanes=2, lengths=[2, 4], ends=["raise", "truncated"], autoreset=autoreset))
    rows = drive(lanes, 9)
    assert lanes.restarts == (2 if autoreset == "next_step" else 3)
    assert [r["t"] for r in rows[1]][:4] == [0, 1, 2, 3]
    assert not any(r["truncated"] for r in rows[1] if r["t"] < 3)
    lanes.close()


@pytest.mark.parametrize("autoreset", MODES)
def test_a_reset_that_raises_is_an_episode_without_rows(autoreset):
    (rows,) = drive_config(scripted(lengths=[2], ends=["truncated", "raise_reset"], autoreset=autoreset), 20)
    episodes = [row["episode"] for row in rows if row["t"] == 0]
    assert episodes == list(range(0, len(episodes) * 2, 2))
    assert len(episodes) >= 4


def test_an_env_that_always_crashes_is_given_up_by_name():
    lanes = made(scripted(lengths=[1], ends=["raise"], max_restarts=3))
    with pytest.raises(EnvError, match=r"lane 0 crashed 4 times .* env.max_restarts allows 3; .*RuntimeError: scripted"):
        drive(lanes, 40)
    assert lanes.restarts == 4
    lanes.close()


@pytest.mark.parametrize("lanes", [1, 2])
@pytest.mark.parametrize("after", [0, 3])
def test_an_observation_of_another_shape_than_its_space_is_named(after, lanes):
    wrapper = WrapperConfig("helpers.driving:Growing", {"after": after})
    config = EnvConfig("Pendulum-v1", wrappers=(wrapper,), lanes=lanes, max_restarts=2, max_episode_steps=5)
    made_lanes = made(config)
    with pytest.raises(EnvError, match=r"EnvError: observation 'obs' is \(4,\), and its space says \(3,\)"):
        drive(made_lanes, 40)
    made_lanes.close()


def test_finished_episodes_forgive_crashes():
    lanes = made(scripted(lengths=[1], ends=["raise", "truncated"], max_restarts=1))
    drive(lanes, 60)
    assert lanes.restarts > 10
    assert lanes.check_valid() == (True, "")
    lanes.close()


@pytest.mark.filterwarnings("ignore:.*:UserWarning:gymnasium")
def test_a_worker_that_dies_is_replaced():
    lanes = made(scripted(lanes=2, lengths=[2, 9], ends=["die", "truncated"], vector="async", max_restarts=5))
    rows = drive(lanes, 8)
    assert lanes.restarts == 2
    # Lane 0 dies in the step after its second; all lanes then begin their next episode.
    assert [(r["episode"], r["t"], r["truncated"]) for r in rows[0]][:4] == [(0, 0, 0), (0, 1, 1), (2, 0, 0), (2, 1, 1)]
    assert [(r["episode"], r["t"], r["truncated"]) for r in rows[1]][:4] == [(1, 0, 0), (1, 1, 1), (3, 0, 0), (3, 1, 1)]
    lanes.close()
    lanes.close()


@pytest.mark.filterwarnings("ignore:.*:UserWarning:gymnasium")
def test_a_worker_that_hangs_is_replaced(monkeypatch):
    monkeypatch.setattr("headrace.actor.gym_lanes.CLOSE_S", 0.2)
    config = scripted(lengths=[2, 1], ends=["hang", "truncated"], vector="async")
    lanes = made(replace(config, step_timeout_s=1.5))
    workers = lanes._venv.processes
    (rows,) = drive(lanes, 5)
    assert [(r["episode"], r["t"], r["truncated"]) for r in rows] == [(0, 0, 0), (0, 1, 1), (1, 0, 1)]
    assert lanes.restarts == 1
    assert not any(worker.is_alive() for worker in workers)
    lanes.close()


def test_every_episode_has_its_own_seed():
    for autoreset in MODES:
        config = replace(scripted(lanes=2, lengths=[1], autoreset=autoreset), id="helpers.seeds:make", kwargs={})
        rows = drive_config(config, 12)
        for lane in range(2):
            assert len(rows[lane]) > 4
            for row in rows[lane]:
                expected = derive_seed(3, "actor-0", 1, row["episode"])
                assert row.obs["seed"][0] == expected
                assert row["episode"] % 2 == lane


def test_outcome_of_each_episode():
    (rows,) = drive_config(scripted(lengths=[2], success=True), 12)
    assert {(r["episode"], r["outcome"]) for r in rows if r["truncated"]} == {(0, 2), (1, 1), (2, 2), (3, 1)}
    (rows,) = drive_config(scripted(lengths=[2], success=True, autoreset="same_step"), 12)
    assert {(r["episode"], r["outcome"]) for r in rows if r["truncated"]} >= {(0, 2), (1, 1), (2, 2), (3, 1)}


def test_a_vector_env_of_ones_own():
    for mode, autoreset in (("NextStep", "next_step"), ("SameStep", "same_step"), ("Disabled", "disabled")):
        config = EnvConfig(VECTOR, kwargs={"lanes": 2, "autoreset": mode, "success": True}, lanes=2)
        lanes = made(replace(config, autoreset="disabled"))  # what the vector env says counts
        rows = drive(lanes, 3)
        assert [[r["t"] for r in lane] for lane in rows] == [[0, 1, 2]] * 2, autoreset
        assert [r["outcome"] for r in rows[1]] == [1, 1, 1]
        lanes.close()


def test_a_vector_env_must_say_its_mode_and_size():
    config = EnvConfig(VECTOR, kwargs={"autoreset": None}, lanes=2)
    with pytest.raises(EnvError, match="autoreset_mode None; known are NextStep, SameStep, Disabled"):
        made(config)
    with pytest.raises(EnvError, match="env.lanes: 3, but .* returned a VectorEnv of 2"):
        made(EnvConfig(VECTOR, lanes=3))
    with pytest.raises(EnvError, match="env.max_episode_steps: .* inside the factory"):
        made(EnvConfig(VECTOR, lanes=2, max_episode_steps=5))


@pytest.mark.parametrize(("autoreset", "calls"), [("next_step", 2), ("next_step", 3), ("same_step", 2), ("disabled", 2)])
def test_state_resumes_at_an_episode_boundary(autoreset, calls):
    config = scripted(lengths=[2, 3], autoreset=autoreset)
    whole = made(config)
    assert whole.get_state() == {"turns": [0], "restarts": 0}
    rows = drive(whole, calls)[0]  # episode 0, with or without the reset into episode 1
    state = json.loads(json.dumps(whole.get_state()))
    assert state["turns"] == [1]
    resumed = made(config)
    resumed.set_state(state)
    again = drive(resumed, 3)[0]
    assert [(r["episode"], r["t"]) for r in rows + again] == [(0, 0), (0, 1), (1, 0), (1, 1), (1, 2)]
    whole.step(np.zeros((1, 1), np.float32))
    whole.step(np.zeros((1, 1), np.float32))
    assert whole.get_state()["turns"] == [2], "an episode that was begun is not begun again"


def test_state_of_other_lanes_is_refused():
    with pytest.raises(EnvError, match="the state holds 1 lanes, env.lanes is 2"):
        made(scripted(lanes=2)).set_state({"turns": [1], "restarts": 0})


def test_values_that_are_not_finite_pass_to_the_pool():
    lanes = made(EnvConfig("helpers.seeds:make_nan"))
    lanes.reset()
    step = lanes.step(np.zeros((1, 1), np.float32))
    lanes.close()
    assert np.isnan(step.rewards[0])
    assert np.isinf(step.next_obs["obs"][0]).all()
    assert step.live[0]
    assert not step.crashed[0]


def test_max_episode_steps_truncates():
    (rows,) = drive_config(replace(scripted(lengths=[50]), max_episode_steps=2), 6)
    assert [r["truncated"] for r in rows] == [0, 1, 0, 1]


def test_a_step_executed_twice_is_refused(tmp_path: Path):
    for number in (3, 4):
        history = History(tmp_path / f"steps-{number}.jsonl", {"actor": 0})
        history.write("step", 0, 1, 2, "0000003f", 0, 0)
        history.close()
    with pytest.raises(ValueError, match=r"\(0, 1, 2\) was executed twice"):
        executed(tmp_path)
