"""Pacing with real processes: each mode to its end, the offline phase under SIGKILL, a slow robot beside a fast simulator."""

from __future__ import annotations

import pytest
from helpers.roles import roles, scripted

from headrace.buffer import SACReplayPool

ROBOT = ["--actor.robot", "true", "--robot.rate_hz", "100", "--robot.operator", "headrace.actor.operator:Willing"]
ROBOT += ["--robot.guard.command", "displacement", "--robot.guard.low", "[-1]", "--robot.guard.high", "[1]"]
ROBOT += ["--robot.guard.max_delta", "[2]", "--robot.guard.max_rate", "[200]", "--robot.guard.late", "10"]


@pytest.mark.parametrize("hold_learner", [True, False])
@pytest.mark.parametrize("hold_actors", [True, False])
def test_each_mode_runs_to_its_end(tmp_path, hold_learner, hold_actors):
    pacing = {"env_steps": 1500, "min_fill": 128, "ratio": 0.5, "hold_learner": hold_learner, "hold_actors": hold_actors}
    with roles(tmp_path, scripted(pacing=pacing, env={"lanes": 3})) as run:
        run.buffer()
        run.actor("actor-0")
        run.actor("actor-1")
        run.canary(64, 50, 60)
        last = run.wait(lambda s: s["phase"] == "done", 60, watch=("buffer", "actor-0", "actor-1"))
        assert run.processes["canary"].wait(20) == 0, run.log("canary")
        assert run.stop().keys() == {"buffer", "actor-0", "actor-1", "canary"}
    assert 1500 <= last["env_steps"] <= 1500 + 2 * 2
    owed = (last["env_steps"] - 128) // 2
    if hold_learner:
        assert last["updates"] == owed
    elif hold_actors:
        assert last["updates"] >= owed


def test_offline_updates_are_made_once_whoever_is_killed_and_then_the_run_goes_online(tmp_path):
    old, new = tmp_path / "old", tmp_path / "new"
    for directory in (old, new):
        directory.mkdir()
    with roles(old, scripted(pacing={"ratio": 0, "env_steps": 400, "min_fill": 64, "random_steps": 400})) as run:
        run.buffer()
        run.actor("actor-0")
        run.wait(lambda s: s["phase"] == "done", 60)
        run.stop()
    pacing = {"offline_updates": 4000, "env_steps": 600, "min_fill": 100}
    with roles(new, scripted(pacing=pacing, run={"dir": str(new), "name": "run", "pool_from": str(run.run)})) as run:
        run.buffer()
        run.canary(64, 50, 90)
        seen = 0
        for number, name in enumerate(["buffer", "canary", "buffer"]):
            goal = 500 + 1000 * number
            status = run.wait(lambda s, goal=goal: s["offline_updates"] >= goal, 60)
            assert (status["phase"], status["env_steps"]) == ("offline", 0)
            assert status["offline_updates"] == status["updates"] >= seen
            seen = status["offline_updates"]
            run.kill(name)
            run.buffer() if name == "buffer" else run.canary(64, 50, 90)
        status = run.wait(lambda s: s["phase"] != "offline", 60)
        assert status["offline_updates"] == status["updates"] == 4000
        assert status["phase"] == "waiting"
        run.actor("actor-0")
        last = run.wait(lambda s: s["phase"] == "done", 60, watch=("buffer", "actor-0"))
        assert (last["env_steps"], last["updates"], last["offline_updates"]) == (600, 4500, 4000)
        assert last["achieved_ratio"] == 1.0
        run.stop()
    with SACReplayPool(3000, path=run.run / "pool") as pool:
        assert pool.check_valid() == (True, "")
        assert pool.actors() == ["past-0/actor-0", "actor-0"]
        assert pool.size == 1000


def test_a_fast_simulator_leaves_a_slow_robot_its_share_and_the_robot_is_never_held(tmp_path):
    pacing = {"env_steps": 0, "min_fill": 100_000, "robot_share": 0.5, "hold_actors": True, "lead_steps": 64}
    with roles(tmp_path, scripted(pacing=pacing, pool={"capacity": 100_000})) as run:
        run.buffer()
        run.actor("arm", *ROBOT)
        run.wait(lambda s: s["env_steps"] > 0, 30)
        run.actor("sim")
        run.canary(64, 50, 60)

        def steps(status, name):
            return next((a["settled"] for a in status["actors"] if a["id"] == name), 0)

        for goal in (200, 400):
            status = run.wait(lambda s, goal=goal: steps(s, "arm") > goal, 60, watch=("arm", "sim"))
            assert status["robot_share"]["achieved"] >= (goal - 64) / (2 * goal)
            assert steps(status, "sim") >= steps(status, "arm") // 4
        assert [a["robot"] for a in status["actors"] if a["id"] == "arm"] == [True]
        run.kill("arm")
        run.wait(lambda s: steps(s, "sim") > 5000, 60, watch=("sim",))  # nobody to leave a share to
        run.stop()


def test_a_run_ends_although_its_buffer_dies_after_the_learner_has_left(tmp_path):
    with roles(tmp_path, scripted(pacing={"env_steps": 600, "min_fill": 100})) as run:
        run.buffer()
        run.actor("actor-0")
        run.canary(64, 50, 60)
        run.wait(lambda s: s["phase"] == "done", 60)
        assert run.processes["canary"].wait(20) == 0, run.log("canary")
        run.kill("buffer")
        run.buffer()
        last = run.wait(lambda s: s["phase"] == "done", 30, watch=("buffer",))
        assert (last["learner"], last["env_steps"], last["updates"]) == (None, 600, 500)
        run.actor("actor-1")
        assert run.processes["actor-1"].wait(30) == 0, run.log("actor-1")  # told that there is nothing to do
        run.stop()
