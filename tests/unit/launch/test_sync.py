"""Synchronous mode: equal runs are equal to the bit, stopped or not, and every step is counted once."""

import json
from pathlib import Path

import numpy as np
import pytest
from helpers.scripted import read_log

from headrace.actor.best import read_evaluation
from headrace.buffer.pool import SACReplayPool
from headrace.common.clock import ManualClock
from headrace.common.config import dump, merge
from headrace.common.errors import CheckpointError
from headrace.common.weights import WeightSet
from headrace.launch import sync
from headrace.launch.config import make_config, resume_config
from headrace.launch.interrupt import Interrupt
from headrace.launch.play import find_policy, read_policy, read_spec
from headrace.launch.rundir import RunDir
from headrace.launch.sync import SyncRun, run_sync
from headrace.launch.sync_actor import STREAM, SyncActor
from headrace.learner import checkpoint
from headrace.learner.sinks import MetricSinks

PENDULUM = {
    "env": {"id": "Pendulum-v1", "max_episode_steps": 20},
    "model": {"options": {"hidden": [8, 8]}},
    "learner": {"batch_size": 16, "checkpoint_every_updates": 1_000_000},
    "pool": {"capacity": 100},  # smaller than a run, so that rows are evicted too
    "pacing": {"env_steps": 160, "min_fill": 20, "random_steps": 30},
    "eval": {"every": 0},
    "sinks": {"tensorboard": False},
}
FANCY = {
    "env": {"lanes": 2},
    "actor": {"count": 2, "epsilon": 0.4},
    "window": {"n_step": 3, "stack": 2},
    "pacing": {"ratio": 0.7},
    "learner": {"normalise_obs": True, "normalise_rewards": True, "actor_update_interval": 2},
    "pool": {"min_block_rows": 4},
}
MIXED = {  # odd shares, so that remainders are carried over a checkpoint
    "actor": {"count": 2},
    "learner": {"batch_size": 15},
    "sampling": {
        "sets": {
            "first": {"share": 0.3, "actor_share": 0.8, "actor": ["actor-0"], "when_small": "replace", "min_fill": 15},
            "newest": {"share": 0.7, "actor_share": 0.2, "newest_rows": 60, "balance": "task"},
        }
    },
}
BY_PRIORITY = {"sampling": {"method": "prioritised", "importance_anneal_updates": 200}}
CROSSQ = {"model": {"options": {"critic_batch_norm": True}}, "learner": {"adam_beta1": 0.5, "actor_update_interval": 3}}
DROQ = {"model": {"options": {"critic_layer_norm": True, "critic_dropout": 0.1}}, "learner": {"actor_reduction": "mean"}}
PIXELS = {
    "env": {"id": "helpers.scripted:make", "max_episode_steps": None, "kwargs": {"lengths": [20], "form": "dict"}},
    "window": {"stack": 2},
    "model": {"type": "pixels", "options": {"channels": [4], "strides": [1], "projection": 8}},
}
UNEVEN = {  # two lanes whose episodes never end together: a checkpoint must cut one of them
    "env": {
        "id": "helpers.scripted:make",
        "max_episode_steps": None,
        "lanes": 2,
        "kwargs": {"lengths": [3, 4, 5, 7, 9], "ends": ["truncated", "terminated", "both"]},
    },
    "learner": {"checkpoint_every_updates": 30},
}


class Told:
    def __init__(self, on_update=lambda: None):
        self.notices, self.on_update = [], on_update

    def notice(self, text):
        self.notices.append(text)

    def update(self, status):
        self.on_update()


def config_of(*changes):
    mapping = PENDULUM
    for change in changes:
        mapping = merge(mapping, change)
    return make_config(mapping)


def play(place: Path, config, interrupt=None, told=None, clock=None, begin=None):
    """Run or go on in ``place`` and give the digest of the end."""
    run = RunDir.open(place) if (place / "config.yaml").exists() else RunDir.create(place, dump(config))
    with MetricSinks(run.path, config.sinks) as sinks:
        job = SyncRun(config, run, told or Told(), sinks, clock or ManualClock())
        try:
            if begin is not None:
                begin(job)
            job.run(interrupt or Interrupt())
        finally:
            assert job.check_valid() == (True, "")
            digest = job.digest()
            job.close()
    return digest


def steps(n):
    return {"pacing": {"env_steps": n}}


def test_two_runs_of_one_seed_are_equal_update_by_update(tmp_path):
    logs = []
    for name in ("one", "two"):
        run = RunDir.create(tmp_path / name, {})
        run_sync(config_of(FANCY), run, Told(), clock=ManualClock(), update_log=tmp_path / f"{name}.jsonl")
        logs.append((tmp_path / f"{name}.jsonl").read_text())
    assert logs[0] == logs[1]
    lines = [json.loads(line) for line in logs[0].splitlines()]
    assert [line["step"] for line in lines] == list(range(1, 99))  # floor(0.7 * (160 - 20))
    assert len({line["parameters"] for line in lines}) == len({line["batch"] for line in lines}) == 98


def test_another_seed_is_another_run(tmp_path):
    digests = {play(tmp_path / str(seed), config_of(steps(60), {"seed": seed})) for seed in (1, 2)}
    assert len(digests) == 2


def test_batches_are_mixed_and_updates_wait_for_the_sets(tmp_path):
    with MetricSinks(tmp_path, config_of(MIXED).sinks) as sinks:
        job = SyncRun(config_of(MIXED), RunDir.create(tmp_path / "run", {}), Told(), sinks, ManualClock())
        job.run(Interrupt())
        info, updates = job.pool.sampling_info(), job.pool.updates
        job.close()
    assert {name: round(s["realised"], 3) for name, s in info["mixes"]["critic"].items()} == {"first": 0.3, "newest": 0.7}
    assert {name: round(s["realised"], 3) for name, s in info["mixes"]["actor"].items()} == {"first": 0.8, "newest": 0.2}
    assert job.sac.step == updates == 140


def test_priorities_follow_the_updates(tmp_path):
    with MetricSinks(tmp_path, config_of(BY_PRIORITY).sinks) as sinks:
        job = SyncRun(config_of(BY_PRIORITY), RunDir.create(tmp_path / "run", {}), Told(), sinks, ManualClock())
        job.run(Interrupt())
        info, stale = job.pool.sampling_info(), job.pool.counters()["stale_updates"]
        assert job.pool.check_valid() == (True, "")
        job.close()
    assert info["priority_max"] > 1
    assert info["importance_exponent"] == pytest.approx(0.4 + 0.6 * 140 / 200)
    assert stale == 0


BOTH = merge(merge(MIXED, BY_PRIORITY), {"sampling": {"sets": {"newest": {"balance": "none"}}}})
CHANGES = {"plain": {}, "fancy": FANCY, "mixed": MIXED, "by-priority": BY_PRIORITY, "both": BOTH}
AVERAGE = {"learner": {"ema_decay": 0.9, "bc_weight": 0.1, "cql_weight": 0.5, "cql_actions": 1}, "actor": {"ema": True}}
FOLLOWING = {"window": {"next_action": True, "n_step": 2}, "learner": {"resample_target_action": False}}
CHANGES |= {"crossq": CROSSQ, "droq": DROQ, "pixels": PIXELS, "average": AVERAGE, "following": FOLLOWING}


@pytest.mark.parametrize("changes", CHANGES.values(), ids=CHANGES)
def test_half_then_resumed_is_the_whole(tmp_path, changes):
    whole = play(tmp_path / "whole", config_of(changes, steps(320)))
    half = play(tmp_path / "half", config_of(changes))
    assert half != whole
    assert play(tmp_path / "half", config_of(changes, steps(320))) == whole


def test_a_resumed_run_may_mix_its_batches_otherwise(tmp_path):
    play(tmp_path, config_of(MIXED))
    shares = {"first.share": 0.4, "newest.share": 0, "rest.share": 0.6, "rest.actor_share": 0}
    words = [f"--sampling.sets.{key}={share}" for key, share in shares.items()]
    told, seen = Told(), []

    def begin(job):
        told.on_update = lambda: seen.append(job.pool.sampling_info())

    play(tmp_path, resume_config(config_of(MIXED), ["--pacing.env_steps", "320", *words]), told=told, begin=begin)
    mixes = {mix: {name: round(s["realised"], 3) for name, s in sets.items()} for mix, sets in seen[-1]["mixes"].items()}
    assert mixes == {"critic": {"first": 0.4, "rest": 0.6}, "actor": {"first": 0.8, "newest": 0.2}}


@pytest.mark.parametrize(("acts", "judged"), [(False, True), (True, False)])
def test_actors_and_evaluations_each_take_the_policy_or_its_average(tmp_path, monkeypatch, acts, judged):
    ema = {"learner": {"ema_decay": 0.9}, "actor": {"ema": acts}, "eval": {"ema": judged, "every": 40, "episodes": 1}}
    config, used = config_of(ema, steps(100)), []
    step, evaluate = SyncActor.step, sync.evaluate

    def look(who, policy, ema):
        heads = [job._weights().chosen(ema=which).tensors["head.weight"].T for which in (ema, not ema)]
        assert (policy._weights[1][0] == heads[0]).all()
        used.append((who, (heads[0] != heads[1]).any()))

    def act(self, policy, version):
        if policy is not None:
            look("actor", policy, acts)
        return step(self, policy, version)

    def judge(policy, *words):
        look("evaluation", policy, judged)
        return evaluate(policy, *words)

    monkeypatch.setattr(SyncActor, "step", act)
    monkeypatch.setattr(sync, "evaluate", judge)
    run = RunDir.create(tmp_path / "run", {})
    with MetricSinks(run.path, config.sinks) as sinks:
        job = SyncRun(config, run, Told(), sinks, ManualClock())
        job.run(Interrupt())
        job.close()
    assert {("actor", True), ("evaluation", True)} <= set(used)
    best = WeightSet.unpack(find_policy(run.path, best=True).read_bytes())
    assert best.tensors.keys() == read_policy(find_policy(run.path)).tensors.keys()


@pytest.mark.parametrize("changes", [{"learner": {"checkpoint_every_updates": 30}}, UNEVEN], ids=["together", "uneven"])
@pytest.mark.parametrize("dies_after", [10, 75])
def test_killed_then_resumed_is_the_whole(tmp_path, changes, dies_after):
    config = config_of(changes)
    whole = play(tmp_path / "whole", config)

    def die(job):
        update = job.sac.update

        def fatal(batch, statistics=None, actor_batch=None):
            if job.sac.step == dies_after:
                raise RuntimeError("killed")
            return update(batch, statistics, actor_batch)

        job.sac.update = fatal

    run = RunDir.create(tmp_path / "killed", dump(config))
    with MetricSinks(run.path, config.sinks) as sinks:
        job = SyncRun(config, run, Told(), sinks, ManualClock())
        die(job)
        with pytest.raises(RuntimeError, match="killed"):
            job.run(Interrupt())
        job.close()
    assert len(list(run.checkpoints.glob("step_*"))) == dies_after // 30
    assert play(run.path, config) == whole


def test_ctrl_c_stops_between_episodes_and_loses_nothing(tmp_path):
    config = config_of()
    whole = play(tmp_path / "whole", config)
    interrupt, told = Interrupt(), Told()

    def ask_inside_an_episode(job):
        act = job._act

        def counting():
            interrupt.asked |= job.executed == 69
            return act()

        job._act = counting

    with pytest.raises(KeyboardInterrupt):
        play(tmp_path / "stopped", config, interrupt, told, begin=ask_inside_an_episode)
    assert told.notices[-1].startswith("stopped between two episodes")
    assert (
        json.loads((checkpoint.newest(tmp_path / "stopped" / "checkpoints") / "sync.json").read_text())["actors"]["actor-0"][
            "executed"
        ]
        == 80
    )
    assert play(tmp_path / "stopped", config) == whole


def test_ctrl_c_cuts_an_episode_that_does_not_end_in_time(tmp_path):
    config = config_of({"env": {"max_episode_steps": 1000}})
    interrupt, clock, told = Interrupt(), ManualClock(), Told()

    def ask_at_step_50(job):
        act = job._act

        def counting():
            interrupt.asked |= job.executed >= 50
            clock.advance(1.0)
            return act()

        job._act = counting

    with pytest.raises(KeyboardInterrupt):
        play(tmp_path / "r", config, interrupt, told, clock, ask_at_step_50)
    assert "cut (truncated)" in told.notices[-1]
    pool = SACReplayPool.from_path(checkpoint.newest(tmp_path / "r" / "checkpoints") / "pool")
    rows = pool.gather(range_of(pool)).rows
    assert rows["truncated"].tolist() == [0] * (len(rows) - 1) + [1]
    assert 55 <= len(rows) <= 57  # five seconds of one step each


def range_of(pool):
    return np.arange(pool.tail, pool.head)


@pytest.mark.parametrize(("ratio", "updates"), [(0.0, 0), (0.3, 42), (1.0, 140), (2.5, 350)])
def test_ratio_counts_updates_per_executed_step(tmp_path, ratio, updates):
    run = RunDir.create(tmp_path / "r", {})
    status = run_sync(config_of({"pacing": {"ratio": ratio}}), run, Told(), clock=ManualClock())
    assert (status["env_steps"], status["updates"]) == (160, updates)


def test_each_actor_explores_by_its_place_on_the_ladder(tmp_path):
    config = config_of({"actor": {"count": 2, "epsilon": 0.4, "epsilon_ladder": 1.0}})
    run = RunDir.create(tmp_path / "r", {})
    status = run_sync(config, run, Told(), clock=ManualClock())
    assert [(actor["id"], actor["epsilon"]) for actor in status["actors"]] == [("actor-0", 0.4), ("actor-1", 0.16)]


def test_rows_are_the_steps_that_the_env_saw(tmp_path):
    log = tmp_path / "actions.jsonl"
    env = {**UNEVEN["env"], "kwargs": {**UNEVEN["env"]["kwargs"], "log": str(log)}}
    config = config_of({"env": env, "pool": {"capacity": 1000}, "pacing": {"env_steps": 101, "random_steps": 40}})
    run = RunDir.create(tmp_path / "r", {})
    status = run_sync(config, run, Told(), clock=ManualClock())
    assert status["env_steps"] == 102  # two lanes: the first whole vector step that reaches 101
    pool = SACReplayPool(1000, path=run.pool)
    batch = pool.gather(range_of(pool))
    assert (batch.obs["obs"][:, 2] == batch.rows["t"]).all()
    assert (batch.next_obs["obs"][:, 2] == batch.rows["t"] + 1).all()
    assert (batch.next_obs["obs"][:, 1] == batch.obs["obs"][:, 1]).all()
    seen = read_log(log)
    for row in batch.rows:
        assert seen.pop((int(row["episode"]) % 2, int(row["episode"]), int(row["t"]))) == pytest.approx(row["action"].tolist())
    assert not seen
    assert pool.last_seq("actor-0", STREAM) == 102
    random = batch.rows["learner_epoch"] == 0
    assert random.sum() == 40
    newest = batch.rows[~random]
    assert (newest["learner_step"] <= 82).all()
    pool.close()


@pytest.mark.parametrize("autoreset", ["next_step", "same_step", "disabled"])
def test_every_row_of_an_ended_episode_knows_its_outcome(tmp_path, autoreset):
    kwargs = {**UNEVEN["env"]["kwargs"], "success": True}
    env = {**UNEVEN["env"], "kwargs": kwargs, "autoreset": autoreset}
    config = config_of({"env": env, "pool": {"capacity": 1000, "min_block_rows": 4}, "pacing": {"env_steps": 101}})
    run = RunDir.create(tmp_path / "r", {})
    run_sync(config, run, Told(), clock=ManualClock())
    with SACReplayPool(1000, path=run.pool, config=config.pool) as pool:
        found = {}
        for row in pool.dump():
            found.setdefault(row["episode"], set()).add(row["outcome"])
    ended = {e: outcomes for e, outcomes in found.items() if outcomes != {0}}
    assert ended == {e: {1 if e % 2 else 2} for e in ended}
    assert len(ended) >= len(found) - 2 > 10


def test_rows_carry_the_newest_version(tmp_path):
    run = RunDir.create(tmp_path / "r", {})
    run_sync(config_of({"pool": {"capacity": 1000}}), run, Told(), clock=ManualClock())
    pool = SACReplayPool(1000, path=run.pool)
    rows = pool.gather(range_of(pool)).rows
    pool.close()
    # step k acts after the updates that the rows before it owed; the newest row of a running episode waits one step
    for k, row in enumerate(rows):
        step = int(row["learner_step"])
        assert step == 0 if k < 30 else k - 20 - step == (0 if k % 20 == 0 else 1)


def test_run_directory_is_that_of_any_run(tmp_path):
    run = RunDir.create(tmp_path / "r", {})
    config = config_of(
        {"eval": {"every": 50, "episodes": 2}, "learner": {"checkpoint_every_updates": 40, "checkpoint_keep": 2}}
    )
    shown = []
    told = Told(lambda: shown.append(1))
    status = run_sync(config, run, told, clock=ManualClock())
    newest = checkpoint.newest(run.checkpoints)
    assert [p.name for p in sorted(run.checkpoints.glob("step_*"))] == ["step_000000000120", "step_000000000140"]
    best = read_evaluation(run.checkpoints)
    assert best == max(status["evaluations"], key=lambda e: e["return_mean"])
    assert read_policy(find_policy(run.path, best=True)).version.step == best["step"]
    assert read_spec(find_policy(run.path)) == read_spec(find_policy(run.path, best=True))
    assert WeightSet.unpack((newest / "policy.hrw").read_bytes()).version.step == 140
    records = [json.loads(line) for line in run.metrics.read_text().splitlines()]
    evaluated = {r["run/evaluation"]["env_steps"] for r in records if r["run/evaluation"]}
    assert len(evaluated) == 3
    assert records[-1]["run/updates"] == records[-1]["learner/updates"] == 140
    assert "critic/loss" in records[-1]
    assert len(shown) >= 4
    assert status["counters"]["rows_evicted"] == 60


def test_a_checkpoint_without_its_pool_is_refused(tmp_path):
    run = RunDir.create(tmp_path / "r", {})
    run_sync(config_of(steps(60)), run, Told(), clock=ManualClock())
    state = checkpoint.read(checkpoint.newest(run.checkpoints)).state
    checkpoint.write(run.checkpoints, 99, state, files={"sync.json": b"{}"}, keep=1)
    with pytest.raises(CheckpointError, match="no checkpoint of a synchronous run"):
        run_sync(config_of(steps(80)), run, Told(), clock=ManualClock())


def test_init_from_a_policy(tmp_path):
    first = RunDir.create(tmp_path / "first", {})
    run_sync(config_of(steps(60)), first, Told(), clock=ManualClock())
    policy = checkpoint.newest(first.checkpoints) / "policy.hrw"
    second = RunDir.create(tmp_path / "second", {})
    run_sync(config_of(steps(60), {"pacing": {"ratio": 0}}), second, Told(), clock=ManualClock(), init_from=policy)
    begun = WeightSet.unpack((checkpoint.newest(second.checkpoints) / "policy.hrw").read_bytes())
    taken = WeightSet.unpack(policy.read_bytes())
    assert all((begun.tensors[name] == tensor).all() for name, tensor in taken.tensors.items())


def test_crashes_and_refused_rows_end_nothing(tmp_path):
    kwargs = {"lengths": [3, 4], "ends": ["truncated", "raise"]}
    env = {"id": "helpers.scripted:make", "max_episode_steps": None, "kwargs": kwargs}
    run = RunDir.create(tmp_path / "crashing", {})
    status = run_sync(config_of({"env": env}), run, Told(), clock=ManualClock())
    assert status["env_steps"] == 160
    assert "scripted failure in episode 1 at t = 4" in run.log("sync").read_text()
    run = RunDir.create(tmp_path / "nan", {})
    env = {"id": "helpers.seeds:NanEnv", "max_episode_steps": 20}
    status = run_sync(config_of({"env": env}, {"pacing": {"random_steps": 160}}), run, Told(), clock=ManualClock())
    assert status["counters"]["rows_rejected"] == 160
    assert (status["env_steps"], status["updates"], status["phase"]) == (0, 0, "done")
    assert "rows refused: non-finite" in run.log("sync").read_text()


@pytest.mark.parametrize("env_steps", [0, 100])
def test_the_offline_phase_learns_from_an_older_run_before_any_step_stopped_or_not(tmp_path, env_steps):
    old = RunDir.create(tmp_path / "old", {})
    run_sync(config_of(), old, Told(), clock=ManualClock())
    pacing = {"offline_updates": 150, "env_steps": env_steps}
    config = config_of({"run": {"pool_from": str(old.pool)}, "pacing": pacing})
    run = RunDir.create(tmp_path / "new", {})
    status = run_sync(config, run, Told(), clock=ManualClock())
    online = max(0, env_steps - 20)
    assert (status["env_steps"], status["offline_updates"], status["updates"]) == (env_steps, 150, 150 + online)
    assert (status["phase"], status["updates_owed"]) == ("done", 150 + online)
    interrupt = Interrupt()

    def ask_in_the_middle(job):
        learn = job._learn

        def counting():
            learn()
            interrupt.asked |= job.sac.step >= 64
            assert job.executed == 0 or not job.pacing.offline

        job._learn = counting

    with pytest.raises(KeyboardInterrupt):
        play(tmp_path / "stopped", config, interrupt, begin=ask_in_the_middle)
    assert play(tmp_path / "stopped", config) == play(tmp_path / "whole", config)


def test_offline_batches_that_never_come_end_the_phase(tmp_path):
    old = RunDir.create(tmp_path / "old", {})
    run_sync(config_of(), old, Told(), clock=ManualClock())
    human = {"sampling": {"sets": {"human": {"share": 1.0, "source": ["human"], "when_small": "replace"}}}}
    for env_steps in (0, 100):
        pacing = {"offline_updates": 150, "env_steps": env_steps}
        config = config_of({"run": {"pool_from": str(old.pool)}, "pacing": pacing}, human)
        run = RunDir.create(tmp_path / f"new-{env_steps}", {})
        status = run_sync(config, run, Told(), clock=ManualClock())
        assert (status["env_steps"], status["updates"]) == (env_steps, 0)
