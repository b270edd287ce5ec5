"""The learner's ends: what must be on disk before it may say that it is done."""

from __future__ import annotations

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
def made(tmp_path, monkeypatch):
    monkeypatch.setattr(loop, "PUBLISH_S", 0.0)
    config = LearnerConfig(batch_size=4)
    model = ModelConfig(options={"hidden": [8]})
    settings = loop.LearnerSettings("", "l", config, model, SinkConfig(), NetworkConfig(), tmp_path, 0)
    welcome = Welcome(1, 5.0, 0.5, 1 << 20, 1 << 18, 1 << 28, make_spec().to_dict())
    return loop.LearnerLoop(settings, welcome, Feed(4, 2, statistics=False), Link(), Sinks(), ManualClock())


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
    monkeypatch.setattr(checkpoint, "write", full_disk)
    with pytest.raises(CheckpointError, match="no space"):
        made._finish()
