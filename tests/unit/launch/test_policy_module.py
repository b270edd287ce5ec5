"""Policies as torch modules for other programs: the same actions, or one clear line."""

from __future__ import annotations

import io
import sys
import types
import warnings

import numpy as np
import pytest
import torch
from helpers.learner import make_sac
from helpers.weights import mlp_weights, observe, rich_spec, small_spec

from headrace.actor.policy import make_policy
from headrace.common.errors import ConfigError, SpecError
from headrace.common.specs import ActionSpec, ObsSpec, TransitionSpec
from headrace.common.weights import Version, WeightSet
from headrace.launch import policy_module
from headrace.launch.policy_module import onnx_file, torchscript_file
from headrace.learner.config import ModelConfig

PLAIN = small_spec()
RICH = rich_spec()


def load(data):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # TorchScript is called deprecated
        return torch.jit.load(io.BytesIO(data))


def own(name="helpers.models:Linear"):
    rng = np.random.default_rng(0)
    tensors = {
        "actor.weight": rng.standard_normal((2, 3)).astype("<f4"),
        "actor.bias": rng.standard_normal(2).astype("<f4"),
        "calls": np.array(0),
    }
    return WeightSet(Version("test", 1, 5), {"type": "torch", "class": name, "options": {"gain": 0.5}}, tensors)


def pictures(stack):
    """The built-in model for cameras, and its spec."""
    keys = (ObsSpec("arm", (3,), "<f4"), ObsSpec("eye", (12, 14, 3), "|u1"))
    spec = TransitionSpec(keys, ActionSpec((2,), (-2.0, 0.1), (2.0, 5.0)), 1, "steps", stack)
    model = ModelConfig("pixels", {"channels": [4, 8], "strides": [2, 1], "projection": 6, "hidden": [16]})
    return make_sac(spec, model=model).weights(Version("test", 1, 5)), spec


@pytest.mark.parametrize(
    ("weights", "spec"),
    [
        pictures(1),
        pictures(2),
        (mlp_weights(PLAIN, seed=1), PLAIN),
        (mlp_weights(RICH, seed=2, normalise=True, activation="silu"), RICH),
        (own(), PLAIN),
    ],
    ids=["cameras", "stacked cameras", "mlp", "mlp of stacked pictures, normalised", "a model of one's own"],
)
def test_torchscript_acts_as_the_policy_does(weights, spec):
    name, data = torchscript_file(weights, spec)
    assert name == "policy.pt"
    module = load(data)
    for rows in (1, 33):
        obs = observe(spec, rows, seed=rows)
        actions = module(*(torch.tensor(obs[key]) for key in sorted(obs))).numpy()
        expected = make_policy(weights, spec).act(obs, np.random.default_rng(0), True)
        assert actions.shape == expected.shape
        np.testing.assert_allclose(actions, expected, rtol=0, atol=1e-6)
        assert (actions >= np.float32(spec.action.low)).all()


class Fixed(torch.nn.Module):
    """Acts otherwise on more rows than it was traced with."""

    def __init__(self, spec, gain=1.0):
        super().__init__()
        self.actor = torch.nn.Linear(3, 2)
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def sac_state_features(self, obs, role):
        return obs["obs"]

    def sac_forward_actor(self, features, generator, deterministic):
        return torch.tanh(self.actor(features) / len(features)), None, None


class Sized(Fixed):
    """Makes of its input what fits the number of rows that it was traced with."""

    def sac_state_features(self, obs, role):
        return obs["obs"].reshape(len(obs["obs"]), -1)


class Branching(Fixed):
    """Does what no trace can follow."""

    def sac_forward_actor(self, features, generator, deterministic):
        raise RuntimeError("not in a trace\nand more")


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (Fixed, r"--format torchscript: actions of 1 rows are .* of the box off, so something in the model is taken for fixed"),
        (Sized, r"--format torchscript: its trace fails with 1 rows, so something in the model is taken for fixed"),
        (Branching, r"--format torchscript: this model cannot be traced: RuntimeError: not in a trace$"),
    ],
)
def test_a_model_that_cannot_be_traced_is_refused(model, said, monkeypatch):
    monkeypatch.setitem(sys.modules, "traced_models", types.SimpleNamespace(Model=model))
    with pytest.raises(ConfigError, match=said):
        torchscript_file(own("traced_models:Model"), PLAIN)


def test_a_policy_that_does_not_fit_its_spec_is_refused_as_such():
    with pytest.raises(SpecError, match=r"policy\.low"):
        torchscript_file(mlp_weights(PLAIN), small_spec(3, (-1.0, 0.0)))


def test_without_the_package_onnx_is_refused(monkeypatch):
    monkeypatch.setattr(policy_module.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="--format onnx: the package onnx is not installed; pip install onnx, or choose"):
        onnx_file(mlp_weights(PLAIN), PLAIN)


def test_onnx_names_inputs_and_output(monkeypatch):
    """The package is asked for functions of one's own in the file, of which a policy has none; torch writes the rest."""
    graph = types.SimpleNamespace(node=[])
    package = types.ModuleType("onnx")
    package.load_model_from_string = lambda data: types.SimpleNamespace(graph=graph)
    package.__spec__ = types.SimpleNamespace()
    monkeypatch.setitem(sys.modules, "onnx", package)
    name, data = onnx_file(mlp_weights(RICH, normalise=True), RICH)
    assert name == "policy.onnx"
    for word in (b"camera", b"state", b"action", b"rows"):
        assert word in data
    assert b"hidden" not in data
