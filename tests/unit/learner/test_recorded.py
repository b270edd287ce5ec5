"""Recorded updates, on a tape that stands in for a GPU: they are the plain ones to the bit, and what is worse is not taken."""

import contextlib
import itertools
import logging
import types
from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers.learner import make_batch, make_sac, make_spec
from helpers.tape import TapeRecorder

from headrace.common.errors import ConfigError
from headrace.common.specs import ObsSpec
from headrace.common.statistics import ObsStatistics, ReturnStatistics
from headrace.learner import recorded
from headrace.learner.config import LearnerConfig, ModelConfig
from headrace.learner.group import Group
from headrace.learner.mlp import MLP
from headrace.learner.recorded import CudaGraphs
from headrace.learner.sac import SAC

SPEC = make_spec()
FOLLOWED = replace(SPEC, next_action=True)
SEEN = make_spec(obs=(ObsSpec("arm", (3,), "<f4"), ObsSpec("eye", (12, 14, 3), "|u1")))
PIXELS = ModelConfig("pixels", {"channels": [4], "strides": [2], "projection": 4, "hidden": [8]})


def mlp(**options):
    return ModelConfig("mlp", {"hidden": [16, 16], **options})


PHASES = {"bc_weight": 1.0, "td3_bc_alpha": 2.5, "cloning_updates": 2, "critic_warmup_updates": 2}
CASES = {
    "plain": {},
    "clipped": {"temperature": "auto_softplus", "entropy_backup": False, "grad_clip": 0.1, "micro_batch_size": 4},
    "uneven": {"actor_update_interval": 2, "target_update_interval": 3, "ema_decay": 0.9},
    "normalised": {"normalise_obs": True, "normalise_rewards": True, "step_penalty": 0.1},
    "redq": {"model": mlp(critics=5), "target_critics": 2, "actor_reduction": "mean"},
    "droq": {"model": mlp(critic_layer_norm=True, critic_dropout=0.1)},
    "crossq": {"model": mlp(critic_batch_norm=True)},
    "phases": PHASES,
    "cql": {"cql_weight": 0.5, "cql_actions": 2},
    "followed": {"spec": FOLLOWED, "resample_target_action": False},
    "pixels": {"spec": SEEN, "model": PIXELS},
}


class Watch:
    """A clock on which windows of plain updates and of recorded ones, in turn, take so long."""

    def __init__(self, plain, recorded):
        self._spans, self._time = itertools.cycle([0, plain, 0, recorded]), 0.0

    def now(self):
        self._time += next(self._spans)
        return self._time


@pytest.fixture(autouse=True)
def short(monkeypatch):
    for name, value in {"COMPARED": 2, "TIMED": 1, "WINDOWS": 2}.items():
        monkeypatch.setattr(recorded, name, value)


def make(spec=SPEC, **options):
    sac = make_sac(spec, **options)
    sac.model._by_hand = lambda x: None  # what a GPU does
    return sac


def record(sac, recorder=None, plain=2.0, taped=1.0):
    recorder = recorder or TapeRecorder()
    sac.record(recorder, Watch(plain, taped))
    return recorder


def batches(spec, seed):
    """The critics' batch with weights, the actor's own, and statistics that go on."""
    weights = np.linspace(0.1, 1, 8, dtype=np.float32)
    first, second = (make_batch(spec, seed=seed, steps=1), make_batch(spec, seed=100 + seed))
    if "eye" in first.obs:
        return replace(first, weights=weights), None, second
    mean, var = {"obs": np.full(3, seed / 3, "<f4")}, {"obs": np.full(3, 1 + seed, "<f4")}
    return replace(first, weights=weights), ObsStatistics(9 + seed, mean, var, ReturnStatistics(9, 7.0 + seed)), second


def apart(one, other):
    ours, theirs = one.get_state()["tensors"], other.get_state()["tensors"]
    assert ours.keys() == theirs.keys()
    return [name for name in ours if not torch.equal(ours[name], theirs[name])]


@pytest.mark.parametrize("options", CASES.values(), ids=CASES)
def test_a_recorded_update_is_the_plain_one_to_the_bit(options):
    spec = options.get("spec", SPEC)
    plain, taped = make(**options), make(**options)
    recorder = record(taped)
    for seed in range(8):
        wanted, found = (sac.update(*batches(spec, seed)) for sac in (plain, taped))
        assert {name: float(value) for name, value in found.items()} == {name: float(value) for name, value in wanted.items()}
        assert (plain.q is None) is (taped.q is None)
        assert plain.q is None or torch.equal(taped.q, plain.q)
        assert plain.td_error is None or torch.equal(taped.td_error, plain.td_error)
        assert apart(taped, plain) == []
    assert recorder.replayed == 8 + len(recorder.tapes) * (recorded.COMPARED + recorded.WINDOWS * recorded.TIMED)


def test_numbers_that_are_none_void_a_recorded_update_too():
    sac = make(tau=1.0)
    record(sac)
    sac.update(make_batch(SPEC))
    before = sac.get_state()["tensors"]
    for skipped in (1, 2):
        assert sac.update(make_batch(SPEC, rewards=np.nan))["sac/updates_skipped"] == skipped
        assert sac.get_state()["tensors"]["skipped"] == skipped
    changed = [name for name, tensor in sac.get_state()["tensors"].items() if not torch.equal(tensor, before[name])]
    assert set(changed) <= {"generator", "skipped"}


def test_errors_of_a_batch_stay_until_the_pool_has_heard_of_them():
    sac = make()
    record(sac)
    sac.update(*batches(SPEC, 0))
    errors, kept = sac.td_error, sac.td_error.clone()
    sac.update(*batches(SPEC, 1))
    assert torch.equal(errors, kept)
    assert not torch.equal(errors, sac.td_error)


def test_a_state_that_is_restored_is_gone_on_from():
    plain, taped = make(), make(seed=1)
    record(taped)
    for seed in (7, 8):
        plain.update(make_batch(SPEC, seed=seed))
        taped.update(make_batch(SPEC, seed=seed))
    taped.set_state(plain.get_state())
    for sac in (plain, taped):
        sac.update(make_batch(SPEC, seed=9))
    assert apart(taped, plain) == []


class Waiting(MLP):
    """Asks on the processor what the device has found."""

    def sac_forward_critic(self, features, action, twin="online"):
        q = super().sac_forward_critic(features, action, twin)
        return q if float(q.detach().sum()) < 1e30 else q * 0


class Wrong(TapeRecorder):
    """Its graphs have the noise of the plain updates, and another loss."""

    def record(self, make, generator):
        replay, made = super().record(make, generator)

        def again():
            replay()
            made.metrics["critic/loss"].mul_(1.01)

        return again, made


class Silent(TapeRecorder):
    """Its graphs have the numbers of the plain updates, and once their noise does not go on."""

    def record(self, make, generator):
        replay, made = super().record(make, generator)
        noise = []

        def again():
            noise.append(generator.get_state())
            replay()
            if len(noise) == recorded.COMPARED:
                generator.set_state(noise[-1])

        return again, made


@pytest.mark.parametrize(
    ("options", "recorder", "taped", "why"),
    [
        (
            {"model": ModelConfig(f"{__name__}:Waiting", {})},
            TapeRecorder,
            1,
            "operation not permitted when stream is capturing",
        ),
        ({}, Wrong, 1, "a graph gives other numbers"),
        ({}, Silent, 1, "a graph gives other numbers"),
        ({}, TapeRecorder, 3, "/s as a graph"),
    ],
    ids=["cannot be", "wrong", "silent", "slower"],
)
def test_what_is_worse_is_launched_as_ever_and_a_line_says_why(options, recorder, taped, why, caplog):
    plain, sac = make(**options), make(**options)
    record(sac, recorder(), taped=taped)
    with caplog.at_level(logging.WARNING):
        for seed in range(3):
            for each in (plain, sac):
                each.update(make_batch(SPEC, seed=seed))
    assert apart(sac, plain) == []
    assert [line.startswith("learner.cuda_graphs: updates of critics, actor, target are") for line in caplog.messages] == [True]
    assert why in caplog.text


def test_kinds_of_updates_are_bounded(monkeypatch, caplog):
    monkeypatch.setattr(recorded, "MOST_KINDS", 2)
    sac = make()
    recorder = record(sac)
    for size in (8, 7, 6, 8, 6):
        sac.update(make_batch(SPEC, size=size))
    assert len(recorder.tapes) == 2
    assert sac.q.shape == (6, 2)


def test_what_cannot_be_recorded_is_refused_by_name():
    own = make_sac(SPEC, model=ModelConfig("helpers.learner:OwnModel", {}))
    with pytest.raises(ConfigError, match="cuda_graphs: true, but the steps of OwnModel cannot be recorded"):
        own.record(TapeRecorder())
    with pytest.raises(ConfigError, match="cuda_graphs: true, but 2 ranks cannot be recorded"):
        SAC(MLP(SPEC), SPEC, LearnerConfig(), 0, Group(0, 2)).record(TapeRecorder())
    for words, said in (({}, "device cpu"), ({"device": "cuda", "ranks": 2}, "ranks 2")):
        with pytest.raises(ConfigError, match=rf"learner\.cuda_graphs: true with learner\.{said}, but graphs are"):
            LearnerConfig(cuda_graphs=True, **words).check("learner")


class Stumbling(TapeRecorder):
    """Cannot record a second kind, and has nothing of the first any more."""

    def record(self, make, generator):
        if self.tapes:
            raise RuntimeError("operation failed due to a previous error during capture\nand more")
        return super().record(make, generator)


def test_a_recording_that_fails_ends_those_before(caplog):
    options = {"actor_update_interval": 2}
    plain, sac = make(**options), make(**options)
    recorder = record(sac, Stumbling())
    replayed = []
    for seed in range(4):
        for each in (plain, sac):
            each.update(make_batch(SPEC, seed=seed))
        replayed.append(recorder.replayed)
    assert apart(sac, plain) == []
    assert len(recorder.tapes) == 1
    assert replayed == [replayed[0]] * 4
    assert "previous error during capture (and so is from now on what was recorded before)" in caplog.text


@pytest.fixture
def gpu(monkeypatch):
    """A GPU as far as a record needs one, and what it was told."""
    said = []

    @contextlib.contextmanager
    def within(what, **options):
        said.append(("enter", what, options))
        try:
            yield
        finally:
            said.append(("leave", what))

    class Stream:
        def __init__(self, name="beside"):
            self.name = name

        def wait_stream(self, other):
            said.append((self.name, "waits for", other.name))

    graph = types.SimpleNamespace(replay="replay", register_generator_state=lambda g: said.append("registered"))
    stubs = {"Stream": Stream, "current_stream": lambda: Stream("here"), "CUDAGraph": lambda: graph}
    stubs |= {"stream": lambda s: within(s.name), "graph": lambda g, **options: within("graph", **options)}
    for name, stub in stubs.items():
        monkeypatch.setattr(torch.cuda, name, stub)
    generator = types.SimpleNamespace(clone_state=lambda: "copy", graphsafe_set_state=lambda s: said.append(("noise", s)))
    return types.SimpleNamespace(said=said, graph=graph, generator=generator)


WARM = [
    *(("beside", "waits for", "here"), ("enter", "beside", {}), "made", ("leave", "beside"), ("here", "waits for", "beside")),
    *("registered", ("enter", "here", {}), ("enter", "graph", {"capture_error_mode": "thread_local"})),
]


def test_a_gpu_warms_up_beside_registers_the_noise_and_records_while_other_threads_go_on(gpu):
    assert CudaGraphs().record(lambda: gpu.said.append("made") or "made", gpu.generator) == ("replay", "made")
    assert gpu.said == [*WARM, "made", ("leave", "graph"), ("leave", "here")]
    del gpu.graph.register_generator_state  # as newer versions of torch have it
    assert CudaGraphs().record(lambda: "made", gpu.generator) == ("replay", "made")


def test_a_recording_that_fails_leaves_the_stream_and_the_noise_as_they_were(gpu):
    def make():
        gpu.said.append("made")
        if gpu.said.count("made") == 2:
            raise RuntimeError("operation not permitted when stream is capturing")

    with pytest.raises(RuntimeError, match="not permitted"):
        CudaGraphs().record(make, gpu.generator)
    assert gpu.said == [*WARM, "made", ("leave", "graph"), ("leave", "here"), ("noise", "copy")]
