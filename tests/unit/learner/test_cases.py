"""Ways in which other learners went wrong, each as a check of this one (docs/cases.md)."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from helpers.learner import make_batch, make_sac, make_spec

from headrace.actor.policy import make_policy
from headrace.common.weights import Version
from headrace.learner import checkpoint

SPEC = make_spec()


@pytest.mark.parametrize("temperature", ["auto", "auto_softplus"])
def test_the_temperature_goes_on_where_it_was_to_the_last_bit(tmp_path, temperature):
    options = {"temperature": temperature, "alpha_lr": 0.05}
    sac = make_sac(SPEC, **options)
    start = float(sac.temperature.alpha())
    for i in range(400):
        sac.update(make_batch(SPEC, seed=i))
        if not 0.5 < float(sac.temperature.alpha()) / start < 2:
            break
    alpha = sac.temperature.alpha()
    assert not 0.5 < float(alpha) / start < 2
    path = checkpoint.write(tmp_path, sac.step, sac.get_state(), keep=1)
    resumed = make_sac(SPEC, seed=9, **options)
    resumed.set_state(checkpoint.read(path).state)
    assert torch.equal(resumed.temperature.alpha(), alpha)


@pytest.mark.parametrize(("device", "dtype"), [("cpu", torch.float32), ("cpu", torch.float64), ("meta", torch.float32)])
def test_every_actor_acts_on_the_newest_weights_whatever_became_of_the_learners_copy(device, dtype):
    sac = make_sac(SPEC)
    obs = {"obs": np.array([[0.1, -0.2, 0.3]], np.float32)}
    rng = np.random.default_rng(0)
    first = sac.weights(Version("learner", 1, 0))
    policy = make_policy(first, SPEC)
    before = policy.act(obs, rng, True)
    for step in range(1, 6):
        sac.update(make_batch(SPEC, seed=step))
    newest = sac.weights(Version("learner", 1, 5))
    sac.model.to(device=device, dtype=dtype)  # a cast makes new tensors; what was published is of the old ones and stays
    policy.load(newest)
    acted = policy.act(obs, rng, True)
    assert not (acted == before).all()
    np.testing.assert_array_equal(make_policy(newest, SPEC).act(obs, rng, True), acted)
    assert math.isfinite(float(acted[0, 0]))
