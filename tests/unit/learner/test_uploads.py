"""Uploads: what is begun ahead is taken once, by the stream that computes; and what of a GPU can be told without one."""

import pytest
import torch
from helpers.learner import make_batch, make_sac, make_spec

from headrace.common.errors import ConfigError
from headrace.learner.group import find_device
from headrace.learner.uploads import Uploads

SPEC = make_spec()


class Gpu:
    """Stands in for ``torch.cuda``."""

    def __init__(self):
        self.said, self.here = [], "compute"

    def Stream(self):  # noqa: N802  # as torch names it
        return Stream(self, "copy")

    def stream(self, stream):
        return stream

    def current_stream(self):
        return Stream(self, self.here)


class Stream:
    def __init__(self, gpu, name):
        self.gpu, self.name = gpu, name

    def __enter__(self):
        self.before, self.gpu.here = self.gpu.here, self.name

    def __exit__(self, *error):
        self.gpu.here = self.before

    def record_event(self):
        return f"copied on {self.name}"

    def wait_event(self, event):
        self.gpu.said.append(f"{self.name} waits for {event}")


@pytest.fixture
def gpu(monkeypatch):
    found = Gpu()
    monkeypatch.setattr(torch, "get_device_module", lambda device: found)
    return found


def test_a_batch_that_was_begun_is_copied_once_beside_the_stream_that_waits_for_it(gpu):
    loads = []

    def load(batch):
        loads.append((len(batch), gpu.here))
        return {"rows": torch.arange(len(batch))}

    uploads = Uploads(load, torch.device("cpu"))
    first, second = make_batch(SPEC, 3), make_batch(SPEC, 5)
    for batch in (first, first, second):
        uploads.begin(batch)
    assert uploads.take(first)["rows"].tolist() == [0, 1, 2]
    assert loads == [(3, "copy"), (5, "copy")]
    assert gpu.said == ["compute waits for copied on copy"]
    uploads.take(first)
    assert loads[2:] == [(3, "compute")]  # nobody had begun it again


def test_updates_of_batches_that_were_begun_are_the_same():
    plain, ahead = make_sac(SPEC), make_sac(SPEC)
    ahead.prepare._uploads = Uploads(ahead.prepare._load, torch.device("cpu"))
    ahead.prepare._tensor = plain.prepare._tensor  # a CPU without CUDA has no pinned memory
    batches = [make_batch(SPEC, seed=i) for i in range(3)]
    for i, batch in enumerate(batches):
        plain.update(batch)
        ahead.update(batch)
        for following in batches[i + 1 : i + 2]:
            ahead.prepare.ahead(following)
    states = (sac.get_state()["tensors"] for sac in (plain, ahead))
    torch.testing.assert_close(*states, rtol=0, atol=0)
    assert not ahead.prepare._uploads._begun


def test_a_gpu_that_is_not_there_is_refused(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setenv("LOCAL_RANK", "2")
    with pytest.raises(ConfigError, match="learner.device: cuda, but torch sees 2 GPUs and this is rank 2 of the host"):
        find_device("cuda")
    assert find_device("cpu") == torch.device("cpu")


def test_a_model_elsewhere_than_the_config_says_is_refused():
    with pytest.raises(ConfigError, match=r"learner\.device: cuda, but the model is on cpu"):
        make_sac(SPEC, device="cuda")


def test_noise_of_another_kind_of_device_begins_anew_by_the_step():
    source, states = make_sac(SPEC), []
    source.update(make_batch(SPEC))
    state = source.get_state()
    state["tensors"]["generator"] = torch.zeros(16, dtype=torch.uint8)  # that of a GPU is as short
    for seed in (0, 0, 1):
        sac = make_sac(SPEC, seed=seed)
        sac.set_state(state)
        sac.update(make_batch(SPEC, seed=1))
        states.append(sac.get_state()["tensors"]["model.actor.head.weight"])
    assert torch.equal(states[0], states[1])
    assert not torch.equal(states[0], states[2])
