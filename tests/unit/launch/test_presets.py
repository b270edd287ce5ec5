"""Presets: each is a config file to lay over another, and what comes of it trains as its paper says."""

from pathlib import Path

import numpy as np
import pytest
import yaml
from helpers.demo_pool import export_demos
from helpers.flow import export_flow

from headrace.actor.config import WindowConfig
from headrace.actor.envs import make_spec
from headrace.common.clock import ManualClock
from headrace.common.config import dump, merge
from headrace.launch import cli, train_command
from headrace.launch.config import make_config, read_config
from headrace.launch.interrupt import Interrupt
from headrace.launch.rundir import RunDir
from headrace.launch.sync import SyncRun
from headrace.learner.sinks import MetricSinks

PRESETS = Path(__file__).resolve().parents[3] / "examples" / "presets"
BASE = {
    "env": {"id": "Pendulum-v1", "max_episode_steps": 20},
    "learner": {"batch_size": 16, "threads": 1, "checkpoint_every_updates": 1_000_000},
    "pool": {"capacity": 1000},
    "eval": {"every": 0},
    "sinks": {"tensorboard": False},
}
SMALL = {"model": {"options": {"hidden": [8, 8], "critic_hidden": [8, 8]}}}
FILL, UPDATES = 20, 300
STEERED = {"dsrl": {"window": {"chunk": 2, "latent": 2}}, "residual": {"window": {"chunk": 2}}}
# preset: critics, targets, and steps of the actor in 300 updates
EXPECTED = {"sac": (2, 2, 300), "redq": (10, 10, 15), "droq": (2, 2, 15), "crossq": (2, 0, 100), "rlpd": (10, 10, 15)}


class Told:
    def notice(self, text):
        pass

    def update(self, status):
        pass


@pytest.mark.parametrize("name", EXPECTED)
def test_each_preset_makes_its_updates(tmp_path, name):
    mapping = merge(merge(BASE, read_config(PRESETS / f"{name}.yaml")), SMALL)
    ratio = mapping["pacing"]["ratio"]
    pacing = {"env_steps": FILL + UPDATES // ratio, "min_fill": FILL, "random_steps": FILL, "ratio": ratio}
    mapping = merge(mapping, {"pacing": pacing})
    if name == "rlpd":
        demos = export_demos(tmp_path / "demos", make_config(mapping))
        mapping = merge(mapping, {"pool": {"demos": [str(demos)]}})
    config = make_config(mapping)
    with MetricSinks(tmp_path, config.sinks) as sinks:
        job = SyncRun(config, RunDir.create(tmp_path / "run", dump(config)), Told(), sinks, ManualClock())
        try:
            job.run(Interrupt())
            assert job.check_valid() == (True, "")
            model, moves = job.sac.model, int(job.sac.actor_optimizer.get_state()["count"])
            assert (job.sac.step, len(model.critics), len(model.target_critics), moves) == (UPDATES, *EXPECTED[name])
            if name == "rlpd":
                assert job.pool.sampling_info()["mixes"]["critic"]["demo"]["realised"] == pytest.approx(0.5)
        finally:
            job.close()


def test_every_preset_is_tried():
    assert {path.stem for path in PRESETS.glob("*.yaml")} == {*EXPECTED, "bc", *STEERED}


def test_words_win_over_the_preset_and_the_preset_over_the_config(tmp_path, monkeypatch):
    own = {"pacing": {"ratio": 1, "env_steps": 5000}, "model": {"options": {"hidden": [32]}}}
    (tmp_path / "own.yaml").write_text(yaml.safe_dump(merge(BASE, own)))
    seen = []
    monkeypatch.setattr(train_command, "train", lambda options, init_from: seen.append(options))
    monkeypatch.setattr(train_command, "print_result", lambda result: None)
    words = ["train", str(tmp_path / "own.yaml"), "--preset", str(PRESETS / "redq.yaml"), "--learner.target_critics", "3"]
    assert cli.main(words) == 0
    (options,) = seen
    assert (options.pacing.ratio, options.pacing.env_steps, options.learner.target_critics) == (20, 5000, 3)
    assert options.model.options == {"hidden": [32], "critics": 10}


def test_a_resumed_run_keeps_its_options(tmp_path, capsys):
    assert cli.main(["train", "--resume", str(tmp_path), "--preset", str(PRESETS / "redq.yaml")]) == 1
    assert "--resume takes config" in capsys.readouterr().err


def test_cloning_makes_a_policy_of_demonstrations_without_an_env_step(tmp_path):
    mapping = merge(merge(BASE, read_config(PRESETS / "bc.yaml")), SMALL)
    demos = export_demos(tmp_path / "demos", make_config(merge(BASE, {"pacing": {"min_fill": 16}})))
    sizes = {"pacing": {"offline_updates": 30}, "learner": {"cloning_updates": 30}, "pool": {"demos": [str(demos)]}}
    config = make_config(merge(mapping, {**sizes, "eval": {"every": 0, "final_episodes": 0}}))
    with MetricSinks(tmp_path, config.sinks) as sinks:
        job = SyncRun(config, RunDir.create(tmp_path / "run", dump(config)), Told(), sinks, ManualClock())
        try:
            status = job.run(Interrupt())
            counts = [int(part.get_state()["count"]) for part in (job.sac.actor_optimizer, job.sac.critic_optimizer)]
            assert (counts, status["phase"], status["env_steps"]) == ([30, 0], "done", 0)
        finally:
            job.close()


@pytest.mark.parametrize("name", STEERED)
def test_a_flow_policy_is_steered(tmp_path, name):
    mapping = merge(merge(BASE, read_config(PRESETS / f"{name}.yaml")), STEERED[name])
    spec = make_spec(make_config(merge(BASE, {"window": {"chunk": 2}})).env, WindowConfig(chunk=2))
    model = {"options": {"base": export_flow(tmp_path / "base", spec), "hidden": [8], "critic_hidden": [8]}}
    pacing = {"env_steps": FILL + 40, "min_fill": FILL, "random_steps": 0, "ratio": 1}
    config = make_config(
        merge(mapping, {"model": model, "pacing": pacing, "learner": {"critic_warmup_updates": 5, "batch_size": 8}})
    )
    with MetricSinks(tmp_path, config.sinks) as sinks:
        job = SyncRun(config, RunDir.create(tmp_path / "run", dump(config)), Told(), sinks, ManualClock())
        try:
            job.run(Interrupt())
            assert job.check_valid() == (True, "")
            assert (job.sac.step, float(job.sac._skipped)) == (40, 0)
            rows = job.pool.sample(16).rows
            if name == "dsrl":
                assert rows["has_latent"].all()
                assert np.abs(rows["latent"]).max() <= 1
                assert len(np.unique(rows["latent"])) > 16
        finally:
            job.close()
