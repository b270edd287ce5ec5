"""Checkpoints beside training: one at a time, nothing lost without a word, and no wait without an end."""

from __future__ import annotations

import threading

import pytest
import torch
from helpers.learner import make_batch, make_sac, make_spec

from headrace.common.errors import CheckpointError, DeadlineExceeded
from headrace.common.policy_files import parse_spec
from headrace.common.weights import Version, WeightSet
from headrace.learner import checkpoint
from headrace.learner.saver import Saver

SPEC = make_spec()
SOON_S = 20.0


@pytest.fixture
def sac():
    return make_sac(SPEC)


@pytest.fixture
def saver(tmp_path):
    made = Saver(tmp_path / "checkpoints", 3, SPEC)
    yield made
    made.close(SOON_S)


@pytest.fixture
def gate(monkeypatch):
    """Holds every write until it is set; ``gate.begun`` says that one has begun."""
    held, write = threading.Event(), checkpoint.write
    held.begun = threading.Event()

    def slow(*args, **kwargs):
        held.begun.set()
        assert held.wait(SOON_S)
        return write(*args, **kwargs)

    monkeypatch.setattr(checkpoint, "write", slow)
    yield held
    held.set()


def save(saver, sac):
    saver.save(sac.step, sac.get_state(), sac.weights(Version("learner", 1, sac.step)))


def test_a_checkpoint_holds_state_policy_and_spec(saver, sac, tmp_path):
    save(saver, sac)
    saver.wait(SOON_S)
    found = checkpoint.read(checkpoint.newest(tmp_path / "checkpoints"))
    assert found.state["tensors"].keys() == sac.get_state()["tensors"].keys()
    assert WeightSet.unpack((found.path / "policy.hrw").read_bytes()).policy["type"] == "mlp"
    assert parse_spec((found.path / "spec.json").read_bytes()) == SPEC
    assert (saver.busy, saver.not_saved) == (False, "")


def test_what_is_written_is_the_state_of_the_call(saver, sac, gate, tmp_path):
    before = sac.get_state()["tensors"]
    save(saver, sac)
    assert gate.begun.wait(SOON_S)
    sac.update(make_batch(SPEC))
    gate.set()
    saver.wait(SOON_S)
    found = checkpoint.read(checkpoint.newest(tmp_path / "checkpoints"))
    assert all(torch.equal(tensor, before[name]) for name, tensor in found.state["tensors"].items())


def test_one_at_a_time(saver, sac, gate, tmp_path):
    save(saver, sac)
    assert saver.busy
    with pytest.raises(ValueError, match="another one is being written"):
        save(saver, sac)
    gate.set()
    saver.wait(SOON_S)
    sac.step = 8
    save(saver, sac)
    saver.wait(SOON_S)
    assert checkpoint.newest(tmp_path / "checkpoints").name == "step_000000000008"


def test_a_checkpoint_that_cannot_be_written_is_told_until_one_can(saver, sac, monkeypatch, caplog):
    def full(*args, **kwargs):
        raise CheckpointError("no space left")

    with monkeypatch.context() as broken:
        broken.setattr(checkpoint, "write", full)
        save(saver, sac)
        saver.wait(SOON_S)
    assert saver.not_saved == "no space left"
    assert "training goes on without this checkpoint: no space left" in caplog.text
    save(saver, sac)
    saver.wait(SOON_S)
    assert saver.not_saved == ""


@pytest.mark.parametrize("look", ["check", "wait"])
def test_what_else_goes_wrong_is_raised_where_training_looks(saver, sac, monkeypatch, look):
    def broken(*args, **kwargs):
        raise RuntimeError("a defect")

    monkeypatch.setattr(checkpoint, "write", broken)
    save(saver, sac)
    saver._thread.join(SOON_S)
    with pytest.raises(RuntimeError, match="a defect"):
        saver.check() if look == "check" else saver.wait(SOON_S)
    saver.check()  # once


def test_what_nobody_has_heard_of_is_in_the_log(saver, sac, monkeypatch, caplog):
    def broken(*args, **kwargs):
        raise RuntimeError("a defect")

    monkeypatch.setattr(checkpoint, "write", broken)
    save(saver, sac)
    saver.close(SOON_S)
    assert "the last checkpoint may be missing" in caplog.text
    assert "RuntimeError: a defect" in caplog.text


def test_a_disk_that_does_not_answer_is_waited_for_until_the_deadline(saver, sac, gate, tmp_path, caplog):
    save(saver, sac)
    with pytest.raises(DeadlineExceeded, match=r"checkpoints: a checkpoint was still being written after 0\.01 s"):
        saver.wait(0.01)
    saver.close(0.01)
    assert "the last checkpoint may be missing" in caplog.text
    assert saver._thread.daemon  # so a learner that gives up can leave
