"""Synchronous mode: equal runs are equal to the bit, stopped or not, and every step is counted once."""

import json

import pytest
from helpers.sync_runs import BY_PRIORITY, FANCY, MIXED, UNEVEN, Told, config_of, play, range_of, steps

from headrace.actor.best import read_evaluation
from headrace.buffer.pool import SACReplayPool
from headrace.common.clock import ManualClock
from headrace.common.weights import WeightSet
from headrace.launch import sync
from headrace.launch.chaos.scripted import executed
from headrace.launch.interrupt import Interrupt
from headrace.launch.play import find_policy, read_policy, read_spec
from headrace.launch.rundir import RunDir
from headrace.launch.sync import SyncRun, run_sync
from headrace.launch.sync_actor import STREAM, SyncActor
from headrace.learner import checkpoint
from headrace.learner.sinks import MetricSinks


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


@pytest.mark.parametrize(("ratio", "updates"), [(0.0, 0), (0.3, 42), (1.0, 140), (2.5, 350)])
def test_ratio_counts_updates_per_executed_step(tmp_path, ratio, updates):
    run = RunDir.create(tmp_path / "r", {})
    status = run_sync(config_of({"pacing": {"ratio": ratio}}), run, Told(), clock=ManualClock())
    assert (status["env_steps"], status["updates"]) == (160, updates)


def test_decisions_that_are_chunks_count_by_their_env_steps(tmp_path):
    run = RunDir.create(tmp_path / "r", {})
    status = run_sync(config_of({"window": {"chunk": 3}, "pacing": {"ratio": 0.5}}), run, Told(), clock=ManualClock())
    assert (status["env_steps"], status["updates"]) == (160, 70)
    with SACReplayPool(1000, path=run.pool) as pool:
        assert 0 < pool.size < 160
        assert pool.counters()["env_steps"] == 160


def test_each_actor_explores_by_its_place_on_the_ladder(tmp_path):
    config = config_of({"actor": {"count": 2, "epsilon": 0.4, "epsilon_ladder": 1.0}})
    run = RunDir.create(tmp_path / "r", {})
    status = run_sync(config, run, Told(), clock=ManualClock())
    assert [(actor["id"], actor["epsilon"]) for actor in status["actors"]] == [("actor-0", 0.4), ("actor-1", 0.16)]


def test_rows_are_the_steps_that_the_env_saw(tmp_path):
    log = tmp_path / "history"
    env = {**UNEVEN["env"], "kwargs": {**UNEVEN["env"]["kwargs"], "history": str(log)}}
    config = config_of({"env": env, "pool": {"capacity": 1000}, "pacing": {"env_steps": 101, "random_steps": 40}})
    run = RunDir.create(tmp_path / "r", {})
    status = run_sync(config, run, Told(), clock=ManualClock())
    assert status["env_steps"] == 102  # two lanes: the first whole vector step that reaches 101
    pool = SACReplayPool(1000, path=run.pool)
    batch = pool.gather(range_of(pool))
    assert (batch.obs["obs"][:, 2] == batch.rows["t"]).all()
    assert (batch.next_obs["obs"][:, 2] == batch.rows["t"] + 1).all()
    assert (batch.next_obs["obs"][:, 1] == batch.obs["obs"][:, 1]).all()
    seen = dict(executed(log))
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
    env = {"id": "headrace.launch.chaos.scripted:make", "max_episode_steps": None, "kwargs": kwargs}
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
