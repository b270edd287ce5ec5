"""Micro-batches: in parts of any size an update is that of the whole batch, and noise is drawn as it is said to be."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from helpers.learner import make_batch, make_sac, make_spec
from helpers.rank import TiedNoise, spec

from headrace.common.errors import ConfigError, SpecError
from headrace.learner.config import LearnerConfig, ModelConfig
from headrace.learner.micro import joined, split
from headrace.learner.sac import SAC

ROWS = 14
MLP = {"hidden": [16, 16]}


class Shifting(TiedNoise):
    """Augments what it learns from by the learner's own noise."""

    def sac_augment(self, obs, generator):
        return {**obs, "obs": obs["obs"] + torch.randn(obs["obs"].shape, generator=generator)}


def make_tied(model=TiedNoise, critics=2, **options):
    torch.manual_seed(0)
    return SAC(model(spec(), critics=critics), spec(), LearnerConfig(batch_size=ROWS, **options), 0)


def weighted(seed):
    rng = np.random.default_rng(seed)
    batch = make_batch(spec(), ROWS, seed=seed, rewards=rng.standard_normal((ROWS, 1)))
    return replace(batch, weights=rng.random(ROWS).astype(np.float32))


def trained(sac, batches):
    """Metrics, values and errors of each update, and what they lead to."""
    seen = []
    for batch in batches:
        metrics = sac.update(batch)
        seen.append({**metrics, "q": sac.q, "td": sac.td_error})
    return seen, sac.get_state()["tensors"]


@pytest.mark.parametrize("rows", [13, 7, 5, 1])
@pytest.mark.parametrize("model", [TiedNoise, Shifting])
def test_an_update_in_parts_is_that_of_the_whole_batch(rows, model):
    options = {"grad_clip": 0.5, "target_critics": 2, "model": model, "critics": 4}
    batches = [weighted(seed) for seed in range(4)]
    whole, parts = (trained(make_tied(**options, micro_batch_size=size), batches) for size in (None, rows))
    torch.testing.assert_close(parts, whole, rtol=1e-5, atol=1e-6)


def test_actors_batches_are_judged_in_parts_too():
    batches = [(weighted(seed), weighted(seed + 100)) for seed in range(3)]
    states = []
    for size in (None, 5):
        sac = make_tied(micro_batch_size=size)
        for batch, actors in batches:
            sac.update(batch, None, actors)
        states.append(sac.get_state()["tensors"])
    torch.testing.assert_close(*states, rtol=1e-5, atol=1e-6)


def test_passes_by_hand_sum_up_what_they_write_over():
    small = make_spec()
    states = []
    for by_hand in (True, False):
        sac = make_sac(small, model=ModelConfig("mlp", MLP), batch_size=ROWS, micro_batch_size=5)
        if not by_hand:
            sac.model._by_hand = lambda x: None
        for seed in range(3):
            sac.update(make_batch(small, ROWS, seed=seed))
        states.append(sac.get_state()["tensors"])
    torch.testing.assert_close(*states, rtol=1e-5, atol=1e-6)


def test_each_part_draws_noise_of_its_own_and_an_update_one_set_of_critics(monkeypatch):
    small = make_spec()
    half = make_batch(small, 4)
    twice = half[np.array([0, 1, 2, 3, 0, 1, 2, 3])]
    sac = make_sac(small, model=ModelConfig("mlp", {**MLP, "critic_dropout": 0.5}), batch_size=8, micro_batch_size=4)
    sac.update(twice)
    assert not torch.equal(sac.q[:4], sac.q[4:])  # masks
    calm = make_sac(small, model=ModelConfig("mlp", MLP), batch_size=8, micro_batch_size=4)
    noise = []
    real = calm.model.sac_next_values
    monkeypatch.setattr(calm.model, "sac_next_values", lambda *a: noise.append(real(*a)) or noise[-1])
    calm.update(twice)
    assert torch.equal(calm.q[:4], calm.q[4:])
    assert not torch.equal(noise[0][1], noise[1][1])  # the policy's own


def test_batch_norm_is_refused_by_its_name():
    crossq = ModelConfig("mlp", {**MLP, "critic_batch_norm": True})
    own = ModelConfig("helpers.learner:OwnModel", {})
    for model, name in ((crossq, "critics.0.0"), (own, "q.0.1")):
        text = rf"learner\.micro_batch_size: 4 of 8 rows, but {name} of the model is batch norm.*nearest valid: none"
        with pytest.raises(ConfigError, match=text):
            make_sac(make_spec(), model=model, micro_batch_size=4)
        make_sac(make_spec(), model=model, micro_batch_size=8)


def test_a_batch_of_fewer_rows_than_parts_is_refused():
    sac = make_tied(micro_batch_size=1)
    with pytest.raises(SpecError, match="batch: 3 rows for 14 micro-batches"):
        sac.update(make_batch(spec(), 3))


@dataclass(frozen=True)
class Step:
    loss: torch.Tensor
    rows: torch.Tensor
    none: None
    gradients: list


def test_means_and_gradients_are_weighed_and_rows_put_in_order():
    parts = [(Step(torch.tensor(x), torch.arange(n) + x, None, [torch.full((2,), x)]), n / 4) for x, n in ((1.0, 1), (5.0, 3))]
    (step, rows) = joined(((part, part.rows), share) for part, share in parts)
    assert step.loss == 4.0
    assert rows.tolist() == step.rows.tolist() == [1, 5, 6, 7]
    assert step.none is None
    assert step.gradients[0].tolist() == [4.0, 4.0]
    assert parts[0][0].gradients[0].tolist() == [1.0, 1.0]


def test_parts_are_as_equal_as_can_be_and_hold_all_columns():
    sac = make_tied()
    sample = sac.prepare(weighted(0))
    parts = split(sample, 4)
    assert [round(share * ROWS) for _, share in parts] == [3, 4, 3, 4]
    for name in ("reward", "weight", "action", "importance"):
        assert torch.equal(torch.cat([getattr(part, name) for part, _ in parts]), getattr(sample, name))
    assert torch.equal(torch.cat([part.next_obs["noise"] for part, _ in parts]), sample.next_obs["noise"])
