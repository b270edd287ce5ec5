"""Several buffers in one run as real processes, whose rows prove themselves: each of two is killed in turn, three have keys."""

from __future__ import annotations

from helpers.roles import Roles, roles, scripted, with_shards

from headrace.buffer import SACReplayPool
from headrace.buffer.query import status
from headrace.common.wire.key_files import KeyFiles

STEPS, FEW = 9_000, 900
RANKS = {"learner", "learner-1"}


def pools(run: Roles, steps: int) -> list[int]:
    """Env steps in each pool, which add up to ``steps``; every row once, in order, and each account balanced."""
    found = []
    further = [run.run / f"shard-{number}" for number in range(1, len(run.network.shards))]
    for place in (run.run, *further):
        with SACReplayPool(3000, path=place / "pool") as pool:
            assert pool.check_valid() == (True, "")
            rows = [(r["actor"], r["stream"], r["seq"]) for r in pool.dump()]
            assert len(set(rows)) == len(rows) == min(3000, pool.env_steps)
            counters = pool.counters()
            kept = ("rows_live", "rows_evicted", "rows_retired", "rows_discarded")
            assert counters["rows_accepted"] == pool.env_steps == sum(counters[name] for name in kept)
            assert counters["lost_before"] == 0
            found.append(pool.env_steps)
    assert sum(found) == steps
    return found


def drawn_by(status):
    """Rows that the learner has drawn from each shard."""
    return (status["learner"] or {}).get("rows_by_shard") or [0]


def lost_by(status):
    """Numbers of the shards that the learner does not reach; none where it is not there."""
    return (status["learner"] or {}).get("shards_lost")


def drawing(run):
    """Ranks that draw rows, of each shard."""
    return [{rank["id"] for rank in status(at, 10, run.network)["ranks"]} for at in run.network.shards]


def test_each_of_two_buffers_is_killed_and_nothing_is_lost_or_doubled(tmp_path):
    config = with_shards(scripted(pacing={"env_steps": STEPS}), 2)
    with roles(tmp_path, config) as run:
        run.shard(1)  # any start order works
        run.canary(64, 50, 120)
        run.actor("actor-0", through=run.network.shards[0])
        run.actor("actor-1", through=run.network.shards[1])
        run.buffer()
        run.wait(lambda s: s["env_steps"] > 1000 and min(drawn_by(s)) > 1000, 60, watch=("canary",))
        run.kill("buffer-1")
        lost = run.wait(lambda s: lost_by(s) == [1] and not s["shards"], 30, watch=("canary",))
        assert any("shard/shard-1 has not come back" in warning for warning in lost["warnings"])
        run.wait(lambda s: s["updates"] > lost["updates"] + 200, 30, watch=("canary",))  # on the others' rows
        run.shard(1)
        back = run.wait(lambda s: s["shards"] and lost_by(s) == [], 30, watch=("canary", "actor-1"))
        assert back["phase"] == "training", "the run is over before both were killed: make it longer"
        run.kill("buffer")
        run.buffer()
        last = run.wait(lambda s: s["phase"] == "done", 90, watch=("buffer", "buffer-1", "actor-0", "actor-1"))
        assert (last["env_steps"], last["updates"]) == (STEPS, STEPS - 256)
        assert run.processes["canary"].wait(20) == 0, run.log("canary")
        assert set(run.stop().values()) == {0}
        mine, theirs = pools(run, STEPS)
        assert min(mine, theirs) > STEPS // 10


def test_two_ranks_learn_from_three_buffers_with_keys(tmp_path):
    keys = KeyFiles(tmp_path / "keys")
    actors = [f"actor-{number}" for number in range(3)]
    for name, role in {
        "learner": "learner",
        "shard": "shard",
        "operator": "operator",
        **dict.fromkeys(actors, "actor"),
    }.items():
        keys.new(name, role)
    learner, model = {"batch_size": 32, "strategy": "replicated"}, {"options": {"hidden": [16]}}
    pacing = {"env_steps": FEW, "min_fill": 64, "random_steps": FEW}
    config = with_shards(scripted(pacing=pacing, learner=learner, model=model), 3)
    config["network"]["keys"] = str(keys.path)
    with roles(tmp_path, config) as run:
        run.ranks(2)
        for number, name in enumerate(actors):
            run.shard(number) if number else run.buffer()
            run.actor(name, through=run.network.shards[number])
        run.wait(lambda s: s["security"]["mode"] == "keys" and min(drawn_by(s)) > 0 and drawing(run) == [RANKS] * 3, 120)
        assert run.processes["learner"].wait(60) == 0, run.log("learner")
        assert run.status()["updates"] == FEW - 64
        assert set(run.stop().values()) == {0}
        assert min(pools(run, FEW)) > FEW // 10
