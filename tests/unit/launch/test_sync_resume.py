"""A synchronous run that was stopped, killed or ended goes on as if it had not been."""

import json

import pytest
from helpers.sync_runs import BY_PRIORITY, CROSSQ, DROQ, FANCY, MIXED, PIXELS, UNEVEN, Told, config_of, play, range_of, steps

from headrace.buffer.pool import SACReplayPool
from headrace.common.clock import ManualClock
from headrace.common.config import dump, merge
from headrace.common.errors import CheckpointError
from headrace.launch.config import resume_config
from headrace.launch.interrupt import Interrupt
from headrace.launch.rundir import RunDir
from headrace.launch.sync import SyncRun, run_sync
from headrace.learner import checkpoint
from headrace.learner.sinks import MetricSinks

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


def test_a_checkpoint_without_its_pool_is_refused(tmp_path):
    run = RunDir.create(tmp_path / "r", {})
    run_sync(config_of(steps(60)), run, Told(), clock=ManualClock())
    state = checkpoint.read(checkpoint.newest(run.checkpoints)).state
    checkpoint.write(run.checkpoints, 99, state, files={"sync.json": b"{}"}, keep=1)
    with pytest.raises(CheckpointError, match="no checkpoint of a synchronous run"):
        run_sync(config_of(steps(80)), run, Told(), clock=ManualClock())
