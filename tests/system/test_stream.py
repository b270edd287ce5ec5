"""Real buffer and actor processes with a stand-in learner that proves every row: kills, restarts, late joiners."""

from __future__ import annotations

import random
import time

import pytest
from helpers.roles import roles, scripted

from headrace.buffer import SACReplayPool


def check_pool(run, *, env_steps):
    """Every committed row once, in order, and each proving itself."""
    with SACReplayPool(3000, path=run.run / "pool") as pool:
        assert pool.check_valid() == (True, "")
        assert pool.env_steps == env_steps
        rows = list(pool.dump())
        names = [(r["actor"], r["stream"], r["seq"]) for r in rows]
        assert len(set(names)) == len(names) == min(3000, env_steps)
        counters = pool.counters()
        kept = ("rows_live", "rows_evicted", "rows_retired", "rows_discarded")
        assert counters["rows_accepted"] == sum(counters[name] for name in kept)
        return counters


def test_a_run_of_scripted_rows_reaches_its_goal_exactly(tmp_path):
    with roles(tmp_path, scripted()) as run:
        run.canary(64, 50, 60, "socket")  # any start order works
        run.actor("actor-0")
        run.actor("actor-1")
        run.buffer()
        last = run.wait(lambda s: s["phase"] == "done", 60, watch=("buffer", "actor-0", "actor-1"))
        assert (last["env_steps"], last["updates"]) == (6000, 6000 - 256)
        assert last["achieved_ratio"] == pytest.approx(1.0, rel=0.02)
        assert run.processes["canary"].wait(20) == 0, run.log("canary")
        assert run.stop() == {"actor-0": 0, "actor-1": 0, "buffer": 0, "canary": 0}
        check_pool(run, env_steps=6000)


def check_outcomes(run):
    """The rows of every episode that an env has ended know how it ended; odd ones succeeded."""
    with SACReplayPool(3000, path=run.run / "pool") as pool:
        rows = list(pool.dump())
    found: dict[tuple[str, int, int], set[int]] = {}
    for row in rows:
        found.setdefault((row["actor"], row["stream"], row["episode"]), set()).add(row["outcome"])
    unknown = [key for key, outcomes in found.items() if outcomes == {0}]
    wrong = [key for key, outcomes in found.items() if key not in unknown and outcomes != {1 if key[2] % 2 else 2}]
    assert wrong == []
    assert len(found) > 100
    assert len(unknown) <= len({key[:2] for key in found})  # the one that was running at the end


def test_sigkill_of_the_buffer_loses_and_doubles_nothing(tmp_path):
    rng = random.Random(1)
    config = scripted(pacing={"env_steps": 30000})
    config["env"]["kwargs"]["success"] = True
    with roles(tmp_path, config) as run:
        run.buffer()
        run.actor("actor-0")
        run.actor("actor-1")
        run.canary(64, 50, 120)
        acked: dict[tuple[str, str], int] = {}
        for _ in range(5):
            reads = run.wait(lambda s: s["learner"] is not None and "reading" in s["learner"], 60)["learner"]["reading"]
            assert reads == "mapped"  # again and again, although each buffer has other files than the one before
            goal = run.status()["env_steps"] + rng.randint(300, 900)
            last = run.wait(lambda s, goal=goal: s["env_steps"] >= goal or s["phase"] == "done", 60)
            for actor in last["actors"]:
                for stream, seq in actor["acked"].items():
                    acked[actor["id"], stream] = max(seq, acked.get((actor["id"], stream), 0))
            assert last["phase"] == "training", "the run is over before all kills: make it longer"
            run.kill("buffer")
            run.buffer()
        last = run.wait(lambda s: s["phase"] == "done", 120, watch=("buffer", "actor-0", "actor-1"))
        assert last["env_steps"] == 30000
        assert last["counters"]["lost_before"] == 0
        for actor in last["actors"]:
            for stream, seq in actor["acked"].items():
                assert seq >= acked.get((actor["id"], stream), 0)
        assert run.processes["canary"].wait(20) == 0, run.log("canary")
        run.stop()
        check_pool(run, env_steps=30000)
        check_outcomes(run)


def test_sigkill_of_actors_invents_nothing_and_their_places_are_taken_again(tmp_path):
    with roles(tmp_path, scripted(pacing={"env_steps": 8000})) as run:
        run.buffer()
        run.actor("actor-0")
        run.actor("actor-1")
        run.canary(64, 50, 120)
        for i in range(4):
            goal = 500 * (i + 1)
            run.wait(lambda s, goal=goal: s["env_steps"] >= goal, 60)
            run.kill(f"actor-{i % 2}")
            run.actor(f"actor-{i % 2}")
        last = run.wait(lambda s: s["phase"] == "done", 120, watch=("buffer", "actor-0", "actor-1"))
        assert last["env_steps"] == 8000
        assert len(last["lost_sessions"]) >= 3  # the last one may still hold its lease
        run.stop()
        check_pool(run, env_steps=8000)


def test_two_live_actors_with_one_id_exactly_one_works(tmp_path):
    with roles(tmp_path, scripted(pacing={"env_steps": 0})) as run:
        run.buffer()
        first = run.actor("arm")
        run.canary(64, 50, 60)
        run.wait(lambda s: s["env_steps"] > 500, 60)
        second = run.start("rival", "actor", str(run.config), "--connect", run.endpoint, "--id", "arm")
        assert second.wait(30) == 3
        assert f"held by pid {first.pid}" in run.log("rival")
        before = run.status()["env_steps"]
        last = run.wait(lambda s: s["env_steps"] > before + 200, 60, watch=("arm",))
        assert [a["pid"] for a in last["actors"]] == [first.pid]
        run.stop()


def test_a_late_actor_has_the_weights_within_a_second(tmp_path):
    with roles(tmp_path, scripted(pacing={"env_steps": 0, "hold_actors": False})) as run:
        run.buffer()
        run.actor("early")
        run.canary(64, 100, 6)
        run.wait(lambda s: s["weights"]["step"] >= 300, 60)
        run.processes["canary"].wait(30)  # the learner is idle for good: no publish will help
        newest = run.wait(lambda s: s["learner"] is None, 20)["weights"]
        run.actor("late")
        run.wait(lambda s: any(a["id"] == "late" for a in s["actors"]), 30)
        joined = time.monotonic()
        wanted = [newest["epoch"], newest["step"]]
        run.wait(lambda s: any(a["id"] == "late" and a["version"] == wanted for a in s["actors"]), 10)
        assert time.monotonic() - joined < 1.0
        run.stop()


def test_an_actor_with_another_spec_is_refused_by_name(tmp_path):
    with roles(tmp_path, scripted(pacing={"env_steps": 0})) as run:
        run.buffer()
        run.actor("actor-0")
        run.wait(lambda s: len(s["actors"]) == 1, 30)
        other = run.actor("odd", "--window.stack", "2")
        assert other.wait(30) == 3
        assert "spec.stack: 1 != 2" in run.log("odd")
        run.stop()


def test_a_second_buffer_on_one_pool_names_the_owner(tmp_path):
    with roles(tmp_path, scripted()) as run:
        first = run.buffer()
        run.wait(lambda s: True, 30)
        second = run.start("second", "buffer", str(run.config), "--bind", "tcp://127.0.0.1:0")
        assert second.wait(30) != 0
        assert f"pid {first.pid}" in run.log("second")
        assert "Traceback" not in run.log("second")


def test_a_port_in_use_is_one_clear_line(tmp_path):
    with roles(tmp_path, scripted()) as run:
        run.buffer()
        run.wait(lambda s: True, 30)
        (tmp_path / "b").mkdir()
        with roles(tmp_path / "b", scripted()) as other:
            other.endpoint = run.endpoint
            assert other.buffer().wait(30) != 0
            assert "network.endpoint" in other.log("buffer")
            assert other.log("buffer").count("\n") <= 3
