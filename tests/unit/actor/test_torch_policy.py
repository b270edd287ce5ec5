"""Policies by module:Class: built, loaded whole or not at all, and deterministic under the caller's generator."""

import numpy as np
import pytest
from helpers.weights import small_spec

from headrace.actor.policy import make_policy
from headrace.common.errors import SpecError
from headrace.common.weights import Version, WeightSet

SPEC = small_spec()
OBS = {"obs": np.array([[1, 2, 3], [0, 0, 0]], np.float32)}


def linear(value, step=1, **changes):
    policy = {"type": "torch", "class": "helpers.models:Linear", "options": {"gain": 0.5}, **changes}
    tensors = {
        "actor.weight": np.full((2, 3), value, np.float32),
        "actor.bias": np.zeros(2, np.float32),
        "calls": np.array(0),
    }
    return WeightSet(Version("test", 1, step), policy, tensors)


def test_a_class_by_name_acts_in_env_units():
    policy, rng = make_policy(linear(0.1), SPEC), np.random.default_rng(0)
    unit = np.tanh(0.5 * 0.1 * 6)
    np.testing.assert_allclose(policy.act(OBS, rng, True), [[2 * unit, (unit + 1) * 2.5], [0, 2.5]], rtol=1e-6)
    policy.load(linear(0.2))
    np.testing.assert_allclose(policy.act(OBS, rng, True)[0, 0], 2 * np.tanh(0.6), rtol=1e-6)


def test_noise_comes_from_the_callers_generator():
    policy = make_policy(linear(0.1), SPEC)
    draws = [policy.act(OBS, np.random.default_rng(seed), False) for seed in (1, 1, 2)]
    assert (draws[0] == draws[1]).all()
    assert (draws[0] != draws[2]).any()


@pytest.mark.parametrize(
    ("name", "tensor", "message"),
    [
        ("actor.bias", None, "'actor.bias' is missing"),
        ("critic.bias", np.zeros(1, np.float32), "'critic.bias' is unknown"),
        ("actor.bias", np.zeros(3, np.float32), r"'actor.bias' is \(3,\) float32, expected \(2,\) torch.float32"),
        ("calls", np.zeros((), np.float32), "'calls' is .* expected .* torch.int64"),
        ("actor.weight", np.full((2, 3), np.inf, np.float32), "'actor.weight' holds NaN"),
    ],
)
def test_weights_are_taken_whole_or_not_at_all(name, tensor, message):
    policy, rng = make_policy(linear(0.1), SPEC), np.random.default_rng(0)
    before = policy.act(OBS, rng, True)
    bad = linear(0.2)
    tensors = {k: v for k, v in {**bad.tensors, name: tensor}.items() if v is not None}
    with pytest.raises(SpecError, match=message):
        policy.load(WeightSet(bad.version, bad.policy, tensors))
    assert (policy.act(OBS, rng, True) == before).all()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"class": "helpers.models:Missing"}, "policy.class: 'helpers.models:Missing' cannot be built: AttributeError"),
        ({"class": "no_such_module:A"}, "ModuleNotFoundError"),
        ({"class": "helpers.models:NotAModel", "options": {}}, "is no torch module with sac_forward_actor"),
        ({"options": {"gian": 1}}, "cannot be built: TypeError"),
        ({"type": "onnx"}, "policy.type: 'onnx' is not one of mlp, torch"),
    ],
)
def test_descriptions_that_cannot_be_built_are_refused(changes, message):
    with pytest.raises(SpecError, match=message):
        make_policy(linear(0.1, **changes), SPEC)
    with pytest.raises(SpecError, match=r"another policy \(ours first\): policy\.options\.gain: \S+ != 2; start"):
        make_policy(linear(0.1), SPEC).load(linear(0.1, options={"gain": 2}))
