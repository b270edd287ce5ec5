"""Demonstrations with real processes: sampled for ever, whoever is killed, in mixed batches whose every row proves itself."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.roles import roles, scripted

from headrace.buffer import SACReplayPool, export_pool
from headrace.common.block import Block
from headrace.common.specs import ActionSpec, ObsSpec, TransitionSpec

SPEC = TransitionSpec((ObsSpec("obs", (3,), "<f4"),), ActionSpec((1,), (-1.0,), (1.0,)))
HALVES = {
    "demo": {"share": 0.5, "source": ["demo"], "when_small": "replace"},
    "online": {"share": 0.5, "source": ["policy", "human"]},
}


def export(path, n=40, length=8):
    """Episodes of a teacher, number 99: observations (99, episode, t) as the scripted env's."""
    steps = np.arange(n)
    rows = np.zeros(n, SPEC.row_dtype)
    rows["episode"], rows["t"], rows["steps"] = steps // length, steps % length, 1
    frames = np.stack([np.full(2 * n, 99), np.repeat(steps // length, 2), np.zeros(2 * n)], axis=1).astype("<f4")
    frames[0::2, 2], frames[1::2, 2] = steps % length, steps % length + 1
    rows["obs"][:, 0], rows["next_obs"][:, 0] = 2 * steps, 2 * steps + 1
    rows["rewards"][:, 0], rows["terminated"] = steps % length, steps % length == length - 1
    pool = SACReplayPool(n, spec=SPEC)
    pool.insert(Block(rows, {"obs": frames}), "teacher", 1, 1)
    export_pool(pool, path)
    return str(path)


@pytest.mark.parametrize("reading", ["mapped", "socket"])
def test_demonstrations_outlive_the_ring_and_the_buffer(tmp_path, reading):
    config = scripted(
        pool={"capacity": 300, "demos": [export(tmp_path / "shards")]},
        sampling={"sets": HALVES},
        pacing={"offline_updates": 200, "env_steps": 2400, "min_fill": 128, "ratio": 0.5},
    )
    with roles(tmp_path, config) as run:
        run.buffer()
        run.canary(64, 50, 90, reading)  # no actor yet: the offline phase is on demonstrations alone
        status = run.wait(lambda s: s["offline_updates"] == 200, 60, watch=("buffer", "canary"))
        assert (status["phase"], status["env_steps"], status["pool"]["rows"]) == ("waiting", 0, 0)
        assert status["pool"]["demo_rows"] == 40
        run.actor("actor-0")
        for steps in (700, 1400):  # the ring has wrapped by then, and again
            run.wait(lambda s, steps=steps: s["env_steps"] > steps, 60, watch=("actor-0",))
            run.kill("buffer")
            run.buffer()
        last = run.wait(lambda s: s["phase"] == "done", 60, watch=("buffer", "actor-0"))
        assert run.processes["canary"].wait(20) == 0, run.log("canary")
        assert (last["env_steps"], last["offline_updates"]) == (2400, 200)
        assert last["sampling"]["sets"] == {"demo": 40, "online": 300}
        assert last["sampling"]["mixes"]["critic"]["demo"]["realised"] == 0.5
        assert last["learner"] is None or last["learner"]["reading"] == reading
        assert last["counters"]["rows_accepted"] == 2400
        run.stop()
    with SACReplayPool(300, path=run.run / "pool") as pool:
        assert pool.check_valid() == (True, "")
        assert (pool.size, pool.demo_rows, pool.env_steps) == (300, 40, 2400)


def test_a_buffer_refuses_to_go_on_with_others(tmp_path):
    shards = export(tmp_path / "shards")
    config = scripted(pool={"demos": [shards]}, pacing={"offline_updates": 0})
    with roles(tmp_path, config) as run:
        run.buffer()
        run.wait(lambda s: s["pool"].get("demo_rows") == 40, 30, watch=("buffer",))
        run.kill("buffer")
        (tmp_path / "shards").rename(tmp_path / "old")
        export(tmp_path / "shards", 41)
        assert run.buffer().wait(30) == 3  # must not be started again
        assert "has demonstrations of digest" in run.log("buffer")
