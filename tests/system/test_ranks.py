"""A learner of two ranks under torchrun, with a real buffer and actor: paced as one, each rank with batches of its own."""

from __future__ import annotations

import os
import signal
import time

from helpers.roles import roles, scripted

RANKS = {"learner": {"batch_size": 32, "rank_timeout_s": 5.0}, "model": {"options": {"hidden": [16]}}}


def test_two_ranks_learn_as_one_learner_to_the_end_of_the_run(tmp_path):
    with roles(tmp_path, scripted(pacing={"env_steps": 600, "min_fill": 64, "random_steps": 600}, **RANKS)) as run:
        run.buffer()
        run.actor("arm")
        run.ranks(2)
        halfway = run.wait(lambda s: s["updates"] > 200 and len(s["ranks"]) == 1, 90)
        (rank,) = halfway["ranks"]
        assert rank["id"] == "learner-1"
        assert rank["reading"] == halfway["learner"]["reading"] == "mapped"
        assert 0 < rank["learner/updates"] <= halfway["updates"]
        assert run.processes["learner"].wait(60) == 0, run.log("learner")
        last = run.status()
        assert last["updates"] == 600 - 64  # those of the further rank are not counted again
        assert last["achieved_ratio"] == 1.0
        run.stop()


def test_ranks_that_share_a_model_publish_save_and_end_as_any_learner(tmp_path):
    config = scripted(pacing={"env_steps": 600, "min_fill": 64, "random_steps": 300}, **RANKS)
    config["learner"] = config["learner"] | {"strategy": "sharded", "checkpoint_every_updates": 100}
    with roles(tmp_path, config) as run:
        run.buffer()
        run.actor("arm")
        run.ranks(2)
        run.wait(lambda s: s["updates"] > 200 and len(s["ranks"]) == 1, 90)
        assert run.processes["learner"].wait(60) == 0, run.log("learner")
        assert f"ends at update {600 - 64} with all of it on disk" in run.log("learner")
        assert run.status()["weights"]["step"] == 600 - 64
        run.stop()


def test_a_killed_rank_ends_the_group_and_the_next_goes_on(tmp_path):
    config = scripted(pacing={"env_steps": 0, "min_fill": 64, "random_steps": 0}, **RANKS)
    config["learner"]["checkpoint_every_updates"] = 50
    with roles(tmp_path, config) as run:
        run.buffer()
        run.actor("arm")
        run.ranks(2)
        found = run.wait(lambda s: s["updates"] > 150 and len(s["ranks"]) == 1, 90)
        os.kill(found["ranks"][0]["pid"], signal.SIGKILL)
        assert run.processes["learner"].wait(40) != 0
        run.ranks(2)
        learned = run.wait(lambda s: s["learner"] and s["learner"]["pid"] != found["learner"]["pid"], 60)["updates"]
        run.wait(lambda s: s["updates"] > learned + 50 and len(s["ranks"]) == 1, 60, watch=("learner",))
        assert "continued from" in run.log("learner")
        run.stop()


def test_a_silent_rank_ends_the_group_in_the_time_that_it_was_given(tmp_path):
    with roles(tmp_path, scripted(pacing={"env_steps": 0, "min_fill": 64, "random_steps": 0}, **RANKS)) as run:
        run.buffer()
        run.actor("arm")
        group = run.ranks(2)
        found = run.wait(lambda s: s["updates"] > 50 and len(s["ranks"]) == 1, 90)
        os.kill(found["ranks"][0]["pid"], signal.SIGSTOP)
        end = time.monotonic() + 40
        while "silent for 5 s (learner.rank_timeout_s)" not in run.log("learner"):
            assert time.monotonic() < end, run.log("learner")
            time.sleep(0.1)
        os.kill(found["ranks"][0]["pid"], signal.SIGKILL)  # as torchrun does half a minute later
        assert group.wait(40) != 0
        run.stop()
