"""The learner's ends: what must be on disk before it may say that it is done."""

from __future__ import annotations

import shutil

import pytest
from helpers.learner import make_spec

from headrace.common.clock import ManualClock
from headrace.common.errors import CheckpointError
from headrace.common.wire.messages import Welcome
from headrace.common.wire.network import NetworkConfig
from headrace.learner import checkpoint, loop
from headrace.learner.config import LearnerConfig, ModelConfig
from headrace.learner.feed import Feed
from headrace.learner.sinks import SinkConfig


class Link:
    def wake(self):
        pass


class Sinks:
    def write(self, values):
        pass


@pytest.fixture
def make(tmp_path, monkeypatch):
    monkeypatch.setattr(loop, "PUBLISH_S", 0.0)
    config = LearnerConfig(batch_size=4)
    model = ModelConfig(options={"hidden": [8]})
    welcome = Welcome(1, 5.0, 0.5, 1 << 20, 1 << 18, 1 << 28, make_spec().to_dict())

    def learner(init_from=None):
        settings = loop.LearnerSettings("", "l", config, model, SinkConfig(), NetworkConfig(), tmp_path, 0, init_from)
        return loop.LearnerLoop(settings, welcome, Feed(4, 2, statistics=False), Link(), Sinks(), ManualClock())

    return learner


@pytest.fixture
def made(make):
    return make()


def full_disk(*args, **kwargs):
    raise CheckpointError("no space left")


def test_a_checkpoint_that_failed_on_the_way_is_written_at_the_end(made, monkeypatch):
    with monkeypatch.context() as broken:
        broken.setattr(checkpoint, "write", full_disk)
        made._try_to_save()  # at the very step at which the run ends
    assert checkpoint.newest(made._settings.checkpoints) is None
    made.save()
    made.sac.step += 1
    with monkeypatch.context() as broken:
        broken.setattr(checkpoint, "write", full_disk)
        made._try_to_save()
    made._finish()
    assert checkpoint.resume(made._settings.checkpoints).step == made.sac.step


def test_a_final_checkpoint_that_cannot_be_written_is_an_error(made, monkeypatch):
    made.sac.step += 1
    monkeypatch.setattr(checkpoint, "write", full_disk)
    with pytest.raises(CheckpointError, match="no space"):
        made._finish()


def test_a_learner_without_an_update_writes_no_checkpoint_over_nothing(made):
    made._finish()
    assert not made._settings.checkpoints.exists()


def test_a_policy_that_was_taken_over_is_kept_without_an_update(make, tmp_path):
    first = make()
    shutil.copy(first.save() / "policy.hrw", tmp_path / "policy.hrw")
    shutil.rmtree(first._settings.checkpoints)
    make(tmp_path / "policy.hrw")._finish()
    assert checkpoint.resume(first._settings.checkpoints).step == 0


def test_a_learner_that_goes_on_and_makes_no_update_leaves_the_checkpoint_as_it_is(make, monkeypatch):
    first = make()
    first.sac.step = 7
    first.save()
    monkeypatch.setattr(checkpoint, "write", full_disk)
    again = make()
    again._finish()
    assert again.sac.step == 7
    shutil.rmtree(first._settings.checkpoints)  # but what is on no disk any more is written again
    with pytest.raises(CheckpointError, match="no space"):
        again._finish()
