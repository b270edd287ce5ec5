"""bfloat16 products: close to float32 where they should be, and nowhere else."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from helpers.learner import SHAPES, Alone, OwnModel, make_batch, make_sac, make_spec

from headrace.common.errors import ConfigError, SpecError
from headrace.learner import contract, dense, mlp, precision
from headrace.learner.config import BF16, FP32, LearnerConfig, ModelConfig
from headrace.learner.contract import SupportSACTraining
from headrace.learner.crew import Crew
from headrace.learner.critic import SteadyCritic
from headrace.learner.dense import Dense
from headrace.learner.models import make_model
from headrace.learner.sac import SAC

SPEC = make_spec()
ROWS = 31
ROUGH = 0.1  # of the norm: small networks, roundings of 2^-9 each, and ReLUs that turn


@pytest.fixture(autouse=True)
def native(monkeypatch):
    """Any processor can imitate bfloat16, slowly."""
    monkeypatch.setattr(contract, "require_native", lambda precision, device: None)


@pytest.fixture(params=[1, 3], ids=lambda n: f"{n} shares")
def pair(request, monkeypatch):
    """Two models of the same weights, one of each precision."""

    def make(options):
        monkeypatch.setattr(mlp, "Crew", Alone)
        before = torch.get_num_threads()
        fine = make_model(SPEC, ModelConfig("mlp", options), 0)
        rough = copy.deepcopy(fine)
        rough.use_threads(request.param)
        torch.set_num_threads(before)
        rough.use_precision(BF16)
        return fine, rough

    return make


def noise():
    return torch.Generator().manual_seed(11)


def inputs():
    generator = torch.Generator().manual_seed(7)
    features = torch.randn(ROWS, 3, generator=generator)
    return features, torch.rand(ROWS, 2, generator=generator) * 2 - 1, torch.randn(ROWS, generator=generator)


def check_close(rough, fine, *, exact=False):
    """Within some roundings, float32, and rounded at all unless ``exact``."""
    assert {tensor.dtype for tensor in rough} == {torch.float32}
    a, b = (torch.cat([tensor.flatten() for tensor in tensors]) for tensors in (rough, fine))
    assert (a - b).norm() <= ROUGH * b.norm()
    assert torch.allclose(a, b, rtol=1e-5, atol=1e-6) is exact


@pytest.mark.parametrize("options", SHAPES)
@pytest.mark.parametrize("by_hand", [True, False], ids=["by hand", "by autograd"])
def test_all_three_steps_are_close_to_those_in_float32(options, by_hand, pair):
    fine, rough = pair(options)
    features, action, target = inputs()
    alpha = torch.tensor(0.2)
    kind = type(rough) if by_hand else SupportSACTraining
    exact = not options["hidden"]  # the last layer is in float32
    check_close(
        kind.sac_next_values(rough, features, features, noise()),
        SupportSACTraining.sac_next_values(fine, features, features, noise()),
        exact=exact,
    )
    ours, theirs = (
        kind.sac_critic_gradients(rough, features, action, target),
        fine.sac_critic_gradients(features, action, target),
    )
    check_close([ours.loss, ours.q], [theirs.loss, theirs.q], exact=exact)
    check_close(ours.gradients, theirs.gradients, exact=exact)
    ours = kind.sac_actor_gradients(rough, features, features, alpha, noise())
    theirs = fine.sac_actor_gradients(features, features, alpha, noise())
    check_close([ours.loss, ours.q, ours.log_prob], [theirs.loss, theirs.q, theirs.log_prob], exact=exact)
    check_close(ours.gradients, theirs.gradients, exact=exact)
    assert (rough._steps is not None) is by_hand


@pytest.mark.parametrize("threads", [1, 2])
def test_training_in_bfloat16_follows_float32_for_a_while_and_its_crew_agrees_to_the_bit(threads, monkeypatch):
    before, made = torch.get_num_threads(), []
    try:
        monkeypatch.setattr(mlp, "Crew", Alone)
        fine, alone = make_sac(SPEC), make_sac(SPEC, precision=BF16, threads=threads)
        monkeypatch.setattr(mlp, "Crew", Crew)
        crew = make_sac(SPEC, precision=BF16, threads=threads)
        made += [alone.model, crew.model]
        for i in range(10):
            batch = make_batch(SPEC, size=32, seed=i)
            metrics = [sac.update(batch) for sac in (fine, alone, crew)]
            assert crew.model._crew.wait_ready(60.0) or threads == 1
        for name, value in metrics[1].items():
            assert value.item() == metrics[2][name].item()
            assert value.item() == pytest.approx(metrics[0][name].item(), rel=0.05, abs=0.02), name
        assert alone.q.dtype == torch.float32
        for name, tensor in alone.get_state()["tensors"].items():
            assert tensor.dtype == fine.get_state()["tensors"][name].dtype, name
    finally:
        torch.set_num_threads(before)
        for model in made:
            model.close()


@pytest.mark.parametrize("model", ["mlp", "steady", "own"])
def test_targets_are_exact_whatever_networks_multiply(model, monkeypatch):
    """1 + .9 (10 - .5 * -2) = 10.9, where scalars in bfloat16 give 10.88."""
    options = {"mlp": None, "steady": ModelConfig("mlp", {"hidden": [8], "critic_layer_norm": True})}
    sac = make_sac(
        SPEC, model=options.get(model, ModelConfig("helpers.learner:OwnModel", {})), gamma=0.9, alpha=0.5, precision=BF16
    )
    monkeypatch.setattr(
        sac.model, "sac_next_values", lambda *_: (torch.tensor([[10.0, 12.0]]).expand(8, 2), torch.full((8,), -2.0))
    )
    seen, real = [], sac.model.sac_critic_gradients
    monkeypatch.setattr(sac.model, "sac_critic_gradients", lambda f, a, y, *rest: seen.append(y) or real(f, a, y, *rest))
    sac.update(make_batch(SPEC, rewards=1.0))
    assert seen[0].dtype == torch.float32
    np.testing.assert_allclose(seen[0], np.full(8, 10.9), rtol=1e-6)


def test_returns_of_windows_are_exact():
    sac = make_sac(make_spec(window=3), gamma=0.9, precision=BF16)
    sample = sac.prepare(make_batch(make_spec(window=3), rewards=[1, 2, 3], steps=3))
    np.testing.assert_allclose(sample.reward, np.full(8, 5.23), rtol=1e-6)
    np.testing.assert_allclose(sample.weight, np.full(8, 0.729), rtol=1e-6)


@pytest.mark.parametrize("by_hand", [True, False], ids=["by hand", "by autograd"])
def test_the_last_layer_is_not_rounded(by_hand, pair):
    _, rough = pair(SHAPES[0])
    with torch.no_grad():
        for p in rough.parameters():
            p.zero_()
        for head in rough.critics:
            head.head.bias.fill_(10.9)  # 10.875 in bfloat16
    features, action, target = inputs()
    kind = type(rough) if by_hand else SupportSACTraining
    torch.testing.assert_close(
        kind.sac_critic_gradients(rough, features, action, target).q, torch.full((ROWS, 2), 10.9), rtol=0, atol=0
    )


@pytest.mark.parametrize(
    "make", [lambda: Dense(3, [8], 2), lambda: SteadyCritic(3, [8], layer_norm=True, dropout=0.0, batch_norm=False)]
)
def test_networks_put_out_float32_under_autocast(make):
    net, x = make(), torch.randn(4, 3)
    with torch.autocast("cpu", torch.bfloat16):
        out = net(x)
    assert out.dtype == torch.float32
    assert not torch.equal(out, net(x))


@pytest.mark.parametrize("options", [{"critic_layer_norm": True, "critic_dropout": 0.1}, {"critic_batch_norm": True}])
def test_steady_critics_train_in_bfloat16(options):
    sac = make_sac(SPEC, model=ModelConfig("mlp", {"hidden": [8], **options}), precision=BF16)
    for i in range(3):
        metrics = sac.update(make_batch(SPEC, seed=i))
    assert all(torch.isfinite(v) for v in metrics.values())
    assert sac.q.dtype == metrics["critic/loss"].dtype == torch.float32
    assert sac.check_valid() == (True, "")


def test_encoders_multiply_in_the_precision_of_training_too():
    seen = []

    class Watched(OwnModel):
        def sac_state_features(self, obs, role):
            features = super().sac_state_features(obs, role)
            seen.append((role, features.dtype))
            return features

    for kind, dtype in ((FP32, torch.float32), (BF16, torch.bfloat16)):
        seen.clear()
        SAC(Watched(SPEC), SPEC, LearnerConfig(batch_size=8, precision=kind), 0).update(make_batch(SPEC))
        assert {d for _, d in seen} == {dtype}
        assert len(seen) == 5


class Coarse(OwnModel):
    """Makes its density of what the network puts out as it is."""

    def sac_forward_actor(self, features, generator, deterministic):
        mean = self.mean(features)
        return torch.tanh(mean), -mean.square().sum(1), None


def test_a_density_in_bfloat16_is_refused():
    sac = SAC(Coarse(SPEC), SPEC, LearnerConfig(batch_size=8, precision=BF16), 0)
    with pytest.raises(SpecError, match=r"log_prob is torch\.bfloat16, which has three digits; make it of the"):
        sac.update(make_batch(SPEC))


@pytest.mark.parametrize(
    ("flags", "native"),
    [
        ("fpu avx512f avx512_bf16 amx_tile", True),
        ("fpu avx512f amx_bf16", True),
        ("asimd bf16 i8mm", True),
        ("fpu avx512f", False),
    ],
)
def test_a_processor_that_would_imitate_bfloat16_is_refused(flags, native, tmp_path, monkeypatch):
    monkeypatch.setattr(precision, "CPUINFO", tmp_path / "cpuinfo")
    (tmp_path / "cpuinfo").write_text(f"processor : 0\nflags\t\t: {flags}\n")
    cpu = torch.device("cpu")
    assert precision.is_native(cpu) is native
    precision.require_native(FP32, cpu)
    if native:
        precision.require_native(BF16, cpu)
        return
    with pytest.raises(ConfigError, match=r"learner\.precision: bf16, but this processor has no .*; nearest valid: fp32"):
        precision.require_native(BF16, cpu)


def test_a_processor_that_says_nothing_of_itself_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(precision, "CPUINFO", tmp_path / "none")
    assert not precision.is_native(torch.device("cpu"))


def test_a_learner_asks_before_it_begins(monkeypatch):
    def refuse(precision, device):
        raise ConfigError(f"{precision} on {device}")

    monkeypatch.setattr(contract, "require_native", refuse)
    with pytest.raises(ConfigError, match="bf16 on cpu"):
        make_sac(SPEC, precision=BF16)


def test_rows_of_one_critic_are_multiplied_in_few_shapes_and_no_other_row_counts(pair):
    _, rough = pair(SHAPES[0])
    features, alpha = inputs()[0], torch.tensor(0.2)
    plain = rough.sac_actor_gradients(features, features, alpha, noise())
    before = [g.clone() for g in plain.gradients]
    for part in rough._steps._parts:
        for buffer in part.critics[0]._deltas:
            buffer.fill_(1e3)  # what a pass before has left there
    again = rough.sac_actor_gradients(features, features, alpha, noise())
    torch.testing.assert_close(again.gradients, before, rtol=0, atol=0)
    with torch.no_grad():
        rough.critics[1].head.bias.fill_(100.0)
    fine = SupportSACTraining.sac_actor_gradients(rough, features, features, alpha, noise())
    check_close(rough.sac_actor_gradients(features, features, alpha, noise()).gradients, fine.gradients)
    assert {rough._steps._parts[0].critics[0]._shape(n) for n in range(1, len(features) + 1)} <= {10, 31}


@pytest.mark.parametrize("value", [float("nan"), -float("nan"), float("inf")])
def test_an_update_of_numbers_that_are_none_is_void_in_bfloat16_too(value):
    sac, batch = make_sac(SPEC, precision=BF16), make_batch(SPEC)
    sac.update(batch)
    before = {name: tensor.clone() for name, tensor in sac.model.state_dict().items()}
    batch.obs["obs"][3, 1] = value
    metrics = sac.update(batch)
    assert metrics["sac/updates_skipped"].item() == 1
    assert torch.isfinite(sac.temperature.raw)
    after = sac.model.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before if not name.startswith("target"))


def test_relu_by_bits_is_relu():
    x = torch.tensor([-3.0, -0.0, 0.0, 1e-40, -1e-40, 2.5, float("inf"), -float("inf")]).bfloat16()
    delta = torch.arange(1.0, 9).bfloat16()
    expected, gradient = torch.relu(x), torch.where(torch.relu(x) > 0, delta, 0)
    dense._relu(x)
    assert torch.equal(x, expected)
    assert torch.equal(dense._relu_backward(delta, x), gradient)


@pytest.mark.parametrize(("times", "said"), [(1.9, True), (0.6, False)])
def test_a_processor_on_which_bfloat16_is_slower_is_told(times, said, monkeypatch, caplog):
    monkeypatch.setattr(precision, "slowdown", lambda: times)
    model = make_model(SPEC, ModelConfig("mlp"), 0)
    model.use_precision(BF16)
    told = [r.getMessage() for r in caplog.records if "learner.precision" in r.getMessage()]
    slower = "learner.precision: bf16 products take 1.9 times as long as fp32 ones on this processor; fp32 is faster here"
    assert told == ([slower] if said else [])


def test_how_much_slower_is_the_fastest_of_each():
    taken = [9.0, 2.0, *[5.0] * 18, 8.0, *[6.0] * 19]  # of twenty products in float32, and of twenty in bfloat16
    readings = iter([reading for seconds in taken for reading in (1.0, 1.0 + seconds)])
    assert precision.slowdown(lambda: next(readings)) == 3.0
