"""The learner's ends: what must be on disk before it may say that it is done."""

from __future__ import annotations

import shutil
import threading

import pytest
import torch
from helpers.learner import make_batch, make_spec

from headrace.common.clock import ManualClock
from headrace.common.errors import CheckpointError
from headrace.common.weights import Version
from headrace.common.wire.messages import Welcome
from headrace.common.wire.network import NetworkConfig
from headrace.learner import checkpoint, loop
from headrace.learner.config import LearnerConfig, ModelConfig
from headrace.learner.feed import Feed
from headrace.learner.sinks import SinkConfig

SOON_S = 20.0


class Link:
    def wake(self):
        pass

    def check(self):
        pass


class Sinks:
    not_logged = ""

    def write(self, values):
        pass


@pytest.fixture
def make(tmp_path, monkeypatch):
    monkeypatch.setattr(loop, "PUBLISH_S", 0.0)
    model = ModelConfig(options={"hidden": [8]})
    welcome = Welcome(1, 5.0, 0.5, 1 << 20, 1 << 18, 1 << 28, make_spec().to_dict())

    def learner(init_from=None, offline=0, **options):
        config = LearnerConfig(batch_size=4, **options)
        settings = loop.LearnerSettings("", "l", config, model, SinkConfig(), NetworkConfig(), tmp_path, 0, init_from, offline)
        return loop.LearnerLoop(settings, welcome, Feed(4, 2, statistics=False), Link(), Sinks(), ManualClock())

    return learner


@pytest.fixture
def made(make):
    return make()


def full_disk(*args, **kwargs):
    raise CheckpointError("no space left")


def try_to_save(made):
    made._save()
    made._saver.wait(SOON_S)


def test_a_checkpoint_that_failed_on_the_way_is_written_at_the_end(made, monkeypatch):
    with monkeypatch.context() as broken:
        broken.setattr(checkpoint, "write", full_disk)
        try_to_save(made)  # at the very step at which the run ends
    assert checkpoint.newest(made._settings.checkpoints) is None
    try_to_save(made)
    made.sac.step += 1
    with monkeypatch.context() as broken:
        broken.setattr(checkpoint, "write", full_disk)
        try_to_save(made)
    made._finish()
    assert checkpoint.resume(made._settings.checkpoints).step == made.sac.step


def test_a_checkpoint_that_failed_is_told_at_once_and_tried_again_soon(made, monkeypatch):
    made.sac.step += 1
    with monkeypatch.context() as broken:
        broken.setattr(checkpoint, "write", full_disk)
        try_to_save(made)
    made._log()  # no time has passed since the last one
    assert made._feed.pulse().report["not_saved"] == "no space left"
    assert not made._save_due()
    made._clock.advance(loop.SAVE_AGAIN_S)
    assert made._save_due()
    try_to_save(made)
    made._log()
    assert "not_saved" not in made._feed.pulse().report
    made._clock.advance(loop.SAVE_AGAIN_S)
    assert not made._save_due()


def test_what_the_last_step_of_the_actor_said_is_told_until_the_next(make):
    made = make(actor_update_interval=2)
    batch = make_batch(make_spec(), 4)
    made._update([batch])
    assert "sac/alpha" not in made._metrics
    made._update([batch])
    alpha, loss = (float(made._metrics[name]) for name in ("sac/alpha", "critic/loss"))
    made._update([batch])
    assert float(made._metrics["sac/alpha"]) == alpha
    assert float(made._metrics["critic/loss"]) != loss


def test_metrics_that_are_not_written_are_told(made):
    made._sinks.not_logged = "No space left on device"
    made._log(force=True)
    assert made._feed.pulse().report["not_logged"] == "No space left on device"


def test_a_final_checkpoint_that_cannot_be_written_is_an_error(made, monkeypatch):
    made.sac.step += 1
    monkeypatch.setattr(checkpoint, "write", full_disk)
    with pytest.raises(CheckpointError, match="no space"):
        made._finish()


def test_a_learner_without_an_update_writes_no_checkpoint_over_nothing(made):
    made._finish()
    assert not made._settings.checkpoints.exists()


def test_a_policy_that_was_taken_over_is_kept_without_an_update(make):
    first = make()
    weights = first.sac.weights(Version("other", 1, 9))
    make(weights)._finish()
    assert checkpoint.resume(first._settings.checkpoints).step == 0


def test_a_learner_that_goes_on_publishes_the_policy_of_its_checkpoint_first(make, monkeypatch):
    first, published = make(), []
    with torch.no_grad():
        for parameter in first.sac.model.parameters():
            parameter.add_(1.0)
    first.sac.step = 7
    try_to_save(first)
    saved = first.sac.weights(Version("l", 0, 7)).tensors
    again, stop = make(), threading.Event()
    monkeypatch.setattr(again._feed, "publish", lambda weights, halved: published.append(weights))
    stop.set()
    again.run(stop)
    assert published[0].version.step == 7
    assert published[0].tensors.keys() == saved.keys()
    assert all((published[0].tensors[name] == tensor).all() for name, tensor in saved.items())


def test_a_learner_that_goes_on_and_makes_no_update_leaves_the_checkpoint_as_it_is(make, monkeypatch):
    first = make()
    first.sac.step = 7
    try_to_save(first)
    monkeypatch.setattr(checkpoint, "write", full_disk)
    again = make()
    again._finish()
    assert again.sac.step == 7
    shutil.rmtree(first._settings.checkpoints)  # but what is on no disk any more is written again
    with pytest.raises(CheckpointError, match="no space"):
        again._finish()


@pytest.fixture
def gate(monkeypatch):
    """Holds every write until it is set; ``begun`` says that one has begun, ``steps`` which were written."""
    held, write = threading.Event(), checkpoint.write
    held.begun, held.steps = threading.Event(), []

    def slow(directory, step, *args, **kwargs):
        held.begun.set()
        assert held.wait(SOON_S)
        held.steps.append(step)
        return write(directory, step, *args, **kwargs)

    monkeypatch.setattr(checkpoint, "write", slow)
    yield held
    held.set()


def test_the_end_of_the_offline_phase_is_kept(make):
    """Its updates are not granted again to a learner that begins anew."""
    made = make(offline=30)
    due = []
    for made.sac.step in range(1, 41):
        if made._save_due():
            due.append(made.sac.step)
            made._save()
            made._saver.wait(SOON_S)
    assert due == [30]
    made._finish()


def test_a_checkpoint_that_is_due_while_one_is_written_is_of_the_newest_update(made, gate):
    """And the last one is not written twice."""
    every = made._settings.learner.checkpoint_every_updates
    made.sac.step = every
    assert made._save_due()
    made._save()
    assert gate.begun.wait(SOON_S)
    for step in (2 * every, 3 * every, 3 * every + 7):
        made.sac.step = step
        assert not made._save_due()
    gate.set()
    made._saver.wait(SOON_S)
    assert made._save_due()
    made._save()
    made._finish()
    assert gate.steps == [every, 3 * every + 7]
    assert checkpoint.newest(made._settings.checkpoints).name == f"step_{3 * every + 7:012d}"


def test_a_stop_while_a_checkpoint_is_written_waits_for_it_and_writes_the_last(made, gate):
    made.sac.step = 5
    made._save()
    assert gate.begun.wait(SOON_S)
    made.sac.step = 6
    stop = threading.Event()
    stop.set()
    threading.Timer(0.1, gate.set).start()
    assert made.run(stop) is False
    assert gate.steps == [5, 6]
    assert checkpoint.newest(made._settings.checkpoints).name == "step_000000000006"


def fed(made, monkeypatch, get):
    """Have batches come by ``get`` and updates take no time; the list of steps at which weights are published."""
    published = []

    def update(batches):
        made.sac.step += 1

    monkeypatch.setattr(made._feed, "get", get)
    monkeypatch.setattr(made, "_update", update)
    monkeypatch.setattr(made._feed, "publish", lambda weights, halved: published.append(weights.version.step))
    return published


def test_updates_that_come_too_soon_behind_a_publish_are_published_while_no_batch_comes(made, monkeypatch):
    """Robots may stand still until they see them, so that no further update would follow."""
    stop, before_its_end, coming = threading.Event(), [], iter([["batch"]] * 10)

    def get(timeout_s):
        batches = next(coming, None)
        made._clock.advance(timeout_s if batches is None else 0.001)
        if made._clock.now() > 1.0 and not stop.is_set():
            before_its_end.extend(published)
            stop.set()
        return batches

    published = fed(made, monkeypatch, get)
    made.run(stop)
    assert before_its_end == [0, 10]


def test_publishes_are_a_period_apart_however_fast_updates_come(make, monkeypatch):
    made, stop, coming = make(publish_every_updates=1, publish_period_s=0.5), threading.Event(), iter([["batch"]] * 16)

    def get(timeout_s):
        made._clock.advance(0.125)
        batches = next(coming, None)
        if batches is None:
            stop.set()
        return batches

    published = fed(made, monkeypatch, get)
    made.run(stop)
    assert published == [0, 4, 8, 12, 16]


def test_a_failure_of_the_writing_thread_ends_the_training(made, monkeypatch):
    def broken(*args, **kwargs):
        raise RuntimeError("a defect")

    monkeypatch.setattr(checkpoint, "write", broken)
    made._save()
    made._saver._thread.join(SOON_S)
    with pytest.raises(RuntimeError, match="a defect"):
        made.run(threading.Event())


@pytest.mark.parametrize("asked_to_stop", [True, False])
def test_what_is_granted_is_used_before_an_ordered_end(made, monkeypatch, asked_to_stop):
    """Also what is on its way: it comes within ``QUIET_S``."""
    waits, used, stop = [], [], threading.Event()
    coming = iter(["one", "two", None])

    def get(timeout_s):
        waits.append(timeout_s)
        return next(coming)

    monkeypatch.setattr(made._feed, "get", get)
    monkeypatch.setattr(made, "_update", used.append)
    if asked_to_stop:
        stop.set()
    made._use_up(stop)
    assert (used, waits) == ((["one", "two"], [loop.QUIET_S] * 3) if asked_to_stop else ([], []))


def test_an_ordered_end_is_not_put_off_for_long(made, monkeypatch):
    used, stop = [], threading.Event()
    stop.set()
    monkeypatch.setattr(made._feed, "get", lambda timeout_s: "one")
    monkeypatch.setattr(made, "_update", lambda batches: (used.append(batches), made._clock.advance(0.5)))
    made._use_up(stop)
    assert len(used) == loop.USE_UP_S / 0.5
