"""Rules 2, 3 and 25 on the acting side: the numpy forward equals torch, stays in the box, and swaps whole."""

import numpy as np
import pytest
import torch
from helpers.weights import mlp_description, mlp_weights, small_spec
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.actor.config import ActorConfig
from headrace.actor.policy import ACTIVATIONS, Box, MlpLayout, MlpPolicy, RandomPolicy, make_policy
from headrace.common.errors import SpecError
from headrace.common.specs import ActionSpec, ObsSpec, TransitionSpec
from headrace.common.weights import WeightSet

MIXED = TransitionSpec(
    (
        ObsSpec("camera", (4, 4, 3), "|u1"),
        ObsSpec("count", (), "<i8"),
        ObsSpec("pose", (2, 3), "<f4"),
        ObsSpec("secret", (5,), "<f4", "critic"),
    ),
    ActionSpec((2,), (-2.0, 0.0), (2.0, 5.0)),
    stack=2,
)


def mixed_obs(rng, lanes):
    return {
        "camera": rng.integers(0, 256, (lanes, 2, 4, 4, 3), np.uint8),
        "count": rng.integers(0, 50, (lanes, 2)),
        "pose": rng.standard_normal((lanes, 2, 2, 3)).astype(np.float32) * 30,
        "secret": np.zeros((lanes, 2, 5), np.float32),
    }


def reference(weights, spec, obs):
    """The forward pass written down once more, in torch, from the description alone."""
    policy, tensors = weights.policy, {k: torch.tensor(v) for k, v in weights.tensors.items()}
    parts = []
    for key in policy["keys"]:
        x = torch.tensor(obs[key]).float()
        if obs[key].dtype == np.uint8:
            x = x / 255
        elif f"mean.{key}" in tensors:
            x = ((x - tensors[f"mean.{key}"]) / torch.sqrt(tensors[f"var.{key}"] + 1e-8)).clamp(-10, 10)
        parts.append(x.flatten(1) if x.ndim > 1 else x[:, None])
    x = torch.cat(parts, 1)
    function = {"relu": torch.relu, "tanh": torch.tanh, "elu": torch.nn.ELU(), "silu": torch.nn.SiLU()}[policy["activation"]]
    for i in range(len(policy["hidden"])):
        x = function(torch.nn.functional.linear(x, tensors[f"trunk.{i}.weight"], tensors[f"trunk.{i}.bias"]))
    out = torch.nn.functional.linear(x, tensors["head.weight"], tensors["head.bias"])
    low, high = torch.tensor(spec.action.low), torch.tensor(spec.action.high)
    mean, log_std = out.chunk(2, 1)
    return (low + (torch.tanh(mean) + 1) / 2 * (high - low)).numpy(), log_std.numpy()


@pytest.mark.parametrize("activation", sorted(ACTIVATIONS))
@pytest.mark.parametrize("normalise", [False, True])
@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_forward_equals_torch(activation, normalise, kind):
    rng = np.random.default_rng(1)
    weights = mlp_weights(MIXED, activation=activation, normalise=normalise)
    obs = mixed_obs(rng, 7)
    actions = make_policy(weights, MIXED, ActorConfig(policy=kind)).act(obs, rng, True)
    expected, _ = reference(weights, MIXED, obs)
    assert actions.shape == (7, 2)
    assert actions.dtype == np.float32
    np.testing.assert_allclose(actions, expected, rtol=1e-6, atol=5e-6 if kind == "numpy" else 1e-6)


@pytest.mark.parametrize("lanes", [1, 2, 5])
def test_rule_25_acting_and_learning_agree_to_1e_6(lanes):
    spec = small_spec(17, (-1.0,) * 6, (1.0,) * 6)
    weights = mlp_weights(spec, hidden=[256, 256], scale=0.5, normalise=True)
    obs = {"obs": np.random.default_rng(2).standard_normal((lanes, 17)).astype(np.float32)}
    policy = make_policy(weights, spec)
    assert isinstance(policy, MlpPolicy)
    np.testing.assert_allclose(
        policy.act(obs, np.random.default_rng(0), True), reference(weights, spec, obs)[0], rtol=1e-6, atol=1e-6
    )


@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_samples_have_the_described_mean_and_deviation(kind):
    spec = small_spec(2, (-1.0, -1.0), (1.0, 1.0))
    weights = mlp_weights(spec, scale=0.3)
    policy, rng = make_policy(weights, spec, ActorConfig(policy=kind)), np.random.default_rng(5)
    obs = {"obs": np.tile(np.array([[0.3, -0.2]], np.float32), (20000, 1))}
    u = np.arctanh(policy.act(obs, rng, False).astype(float).clip(-0.9999999, 0.9999999))
    mode, log_std = reference(weights, spec, {"obs": obs["obs"][:1]})
    np.testing.assert_allclose(np.median(u, axis=0), np.arctanh(mode[0]), atol=0.05)
    spread = np.subtract(*np.quantile(u, [0.8413447, 0.1586553], axis=0)) / 2  # one deviation, deaf to the saturated tails
    np.testing.assert_allclose(spread, np.exp(log_std[0]), rtol=0.03)


@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_log_std_is_clamped(kind):
    spec = small_spec(1, (-1.0,), (1.0,))
    weights = mlp_weights(spec, log_std=[-20, -3])
    tensors = {k: np.zeros_like(v) for k, v in weights.tensors.items()}
    tensors["head.bias"][1] = 50  # asks for a deviation of e^50
    policy = make_policy(WeightSet(weights.version, weights.policy, tensors), spec, ActorConfig(policy=kind))
    actions = policy.act({"obs": np.zeros((5000, 1), np.float32)}, np.random.default_rng(0), False)
    assert np.arctanh(actions).std() == pytest.approx(np.exp(-3), rel=0.05)


@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_the_same_generator_gives_the_same_noise(kind):
    spec = small_spec()
    policy = make_policy(mlp_weights(spec), spec, ActorConfig(policy=kind))
    obs = {"obs": np.zeros((3, 3), np.float32)}
    first, second = (policy.act(obs, np.random.default_rng(4), False) for _ in range(2))
    other = policy.act(obs, np.random.default_rng(5), False)
    assert (first == second).all()
    assert (first != other).any()
    assert (first[0] != first[1]).any()


# Bounds that float32 cannot hold: rounded to nearest, 0.1 and 16777217 would leave the box.
AWKWARD = ((-0.1, 0.1), (0.7, 16777217.0), (-1e-45, 1e-45), (-3.3e38, 3.3e38), (1.0000001, 1.0000002))


@settings(deadline=None, max_examples=200)
@given(low=st.floats(-1e6, 1e6), width=st.floats(1e-3, 1e6), u=st.floats(-50, 50, width=32))
def test_rule_2_actions_never_leave_the_box(low, width, u):
    high = low + width
    try:
        box = Box(ActionSpec((1,), (low,), (high,)))
    except SpecError:
        assert float(np.nextafter(np.float32(low), np.float32(np.inf))) > high  # no number in between, or nearly
        return
    action = float(box.place(np.tanh(np.array([[u]], np.float32)))[0, 0])
    assert low <= action <= high


@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning")
@pytest.mark.parametrize("bounds", AWKWARD)
def test_awkward_bounds(bounds):
    box = Box(ActionSpec((1,), (bounds[0],), (bounds[1],)))
    actions = box.place(np.array([[-1.0], [0.0], [1.0]], np.float32)).astype(float)
    assert (bounds[0] <= actions).all()
    assert (actions <= bounds[1]).all()


def test_bounds_without_a_float32_between_them_are_refused():
    with pytest.raises(SpecError, match=r"no float32 number lies in the bounds \[65536.001, 65536.002\] of dimension 1"):
        Box(ActionSpec((2,), (0.0, 65536.001), (1.0, 65536.002)))


def test_rule_2_per_dimension():
    box = Box(ActionSpec((2,), (-2.0, 0.0), (2.0, 5.0)))
    assert box.place(np.array([[-1, -1], [0, 0], [1, 1], [0.5, 0.5]], np.float32)).tolist() == [
        [-2, 0], [0, 2.5], [2, 5], [1, 3.75],
    ]  # fmt: skip


def test_random_policy_fills_the_box():
    spec = small_spec()
    actions = np.concatenate([RandomPolicy(spec).draw(4, np.random.default_rng(i)) for i in range(2000)])
    assert actions.shape == (8000, 2)
    assert actions.dtype == np.float32
    for dim, (low, high) in enumerate(((-2, 2), (0, 5))):
        counts, _ = np.histogram(actions[:, dim], 10, (low, high))
        assert counts.sum() == 8000
        assert (abs(counts - 800) < 5 * 27).all()  # 5 standard deviations of a binomial
    assert RandomPolicy(spec).act({"x": np.zeros((1, 3))}, np.random.default_rng(0), True).tolist() == [[0, 2.5]]
    with pytest.raises(SpecError, match="holds no weights"):
        RandomPolicy(spec).load(mlp_weights(spec))


def damaged(weights, **tensors):
    changed = {**weights.tensors, **tensors}
    return WeightSet(weights.version, weights.policy, {k: v for k, v in changed.items() if v is not None})


@pytest.mark.parametrize("kind", ["numpy", "torch"])
@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ({"trunk.1.bias": None}, "'trunk.1.bias' is missing"),
        ({"extra": np.zeros(1, np.float32)}, "'extra' is unknown"),
        (
            {"trunk.0.weight": np.zeros((32, 4), np.float32)},
            r"'trunk.0.weight' is \(32, 4\) float32, expected \(32, 3\)",
        ),
        ({"head.bias": np.zeros(4)}, r"'head.bias' is \(4,\) float64, expected \(4,\) float32"),
        ({"head.bias": np.array([0, 0, np.nan, 0], np.float32)}, "'head.bias' holds NaN"),
        ({"var.obs": np.array([1, -1, 1], np.float32)}, "'var.obs' holds a negative variance"),
    ],
)
def test_weights_are_taken_whole_or_not_at_all(kind, tensors, message):
    spec = small_spec()
    policy = make_policy(mlp_weights(spec, normalise=True), spec, ActorConfig(policy=kind))
    obs, rng = {"obs": np.ones((2, 3), np.float32)}, np.random.default_rng(0)
    before = policy.act(obs, rng, True)
    with pytest.raises(SpecError, match=message):
        policy.load(damaged(mlp_weights(spec, seed=9, normalise=True), **tensors))
    assert (policy.act(obs, rng, True) == before).all()
    good = mlp_weights(spec, seed=9, normalise=True)
    policy.load(good)
    after = policy.act(obs, rng, True)
    np.testing.assert_allclose(after, reference(good, spec, obs)[0], rtol=1e-5)
    for tensor in good.tensors.values():
        tensor[...] = np.nan  # the policy holds copies
    assert (policy.act(obs, rng, True) == after).all()


@pytest.mark.parametrize("kind", ["numpy", "torch"])
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"keys": ["secret"]}, r"policy.keys: \['secret'\], the spec lets the actor see \['camera', 'count', 'pose'\]"),
        ({"stack": 1}, "policy.stack: 1, the spec says 2"),
        ({"high": [2.0, 6.0]}, r"policy.high: \(2.0, 6.0\), the spec says \(2.0, 5.0\)"),
        ({"activation": "softsign"}, "policy.activation: 'softsign' is not one of relu"),
        ({"hidden": [0]}, "hidden widths"),
        ({"hidden": "wide"}, "not the description of an MLP"),
    ],
)
def test_descriptions_that_do_not_fit_are_refused(kind, changes, message):
    weights = mlp_weights(MIXED)
    with pytest.raises(SpecError, match=message):
        make_policy(WeightSet(weights.version, {**weights.policy, **changes}, weights.tensors), MIXED, ActorConfig(policy=kind))


def test_other_descriptions_are_not_loaded():
    spec = small_spec()
    policy = make_policy(mlp_weights(spec), spec)
    with pytest.raises(SpecError, match=r"ours first\): policy\.activation: 'relu' != 'tanh'; start"):
        policy.load(mlp_weights(spec, activation="tanh"))
    with pytest.raises(SpecError, match="numpy runs the models mlp and pixels, not a policy of type 'torch'"):
        make_policy(WeightSet(mlp_weights(spec).version, {"type": "torch"}, {}), spec, ActorConfig(policy="numpy"))


def test_an_observation_that_is_not_finite_does_not_crash_the_actor():
    spec = small_spec()
    policy = make_policy(mlp_weights(spec, normalise=True), spec)
    actions = policy.act({"obs": np.array([[np.nan, np.inf, 1e38], [0, 0, 0]], np.float32)}, np.random.default_rng(0), False)
    assert np.isfinite(actions[1]).all()


def test_layout_without_hidden_layers():
    spec = small_spec()
    assert MlpLayout.of(mlp_description(spec, hidden=[]), spec).shapes == {"head.weight": (4, 3), "head.bias": (4,)}
