"""Specs from spaces: what is stored as what, and what is refused by name."""

import gymnasium as gym
import numpy as np
import pytest

from headrace.actor.config import EnvConfig, WindowConfig
from headrace.actor.envs import make_spec
from headrace.common.errors import EnvError
from headrace.common.specs import ObsSpec

Box, Dict = gym.spaces.Box, gym.spaces.Dict
UNIT = Box(-1, 1, (1,))


def spec_of(roles=None, **spaces):
    return make_spec(EnvConfig("helpers.seeds:make_space", kwargs=spaces, roles=roles or {}), WindowConfig(n_step=3, stack=2))


def test_a_plain_box_is_called_obs():
    spec = spec_of(observation_space=Box(-np.inf, np.inf, (17,), np.float64))
    assert spec.obs == (ObsSpec("obs", (17,), "<f4"),)
    assert (spec.window, spec.stack, spec.kind) == (3, 2, "steps")


def test_nested_keys_and_dtypes():
    nested = Dict(
        {
            "z": Box(0, 255, (8, 6, 3), np.uint8),
            "a": Dict({"b": Box(-1, 1, (), np.float16), "c": Dict({"d": Box(0, 9, (2,), np.uint16)})}),
            "n": gym.spaces.Discrete(5),
            "m": gym.spaces.MultiDiscrete([2, 3]),
            "flag": Box(0, 1, (3,), np.bool_),
            "u": Box(0, 9, (1,), np.uint32),
        }
    )
    assert spec_of(observation_space=nested, roles={"z": "critic"}).obs == (
        ObsSpec("a.b", (), "<f4"),
        ObsSpec("a.c.d", (2,), "<u2"),
        ObsSpec("flag", (3,), "|b1"),
        ObsSpec("m", (2,), "<i8"),
        ObsSpec("n", (), "<i8"),
        ObsSpec("u", (1,), "<i8"),
        ObsSpec("z", (8, 6, 3), "|u1", "critic"),
    )


def test_action_bounds_a_dimension_flattened():
    space = Box(np.array([[-2, 0], [1, -1]], np.float32), np.array([[2, 5], [3, 1]], np.float32))
    action = spec_of(action_space=space).action
    assert (action.shape, action.low, action.high) == ((4,), (-2, 0, 1, -1), (2, 5, 3, 1))


@pytest.mark.parametrize(
    ("spaces", "message"),
    [
        ({"action_space": gym.spaces.Discrete(3)}, r"action space Discrete\(3\) is not supported; .* needs a Box of floats"),
        ({"action_space": Box(0, 9, (1,), np.int64)}, "is not supported"),
        ({"action_space": Box(-np.inf, np.inf, (2,))}, r"action dimension 0 has the bounds \[-inf, inf\].* RescaleAction"),
        ({"action_space": Box(np.float32([-1, -1]), np.float32([1, np.inf]))}, r"dimension 1 has the bounds \[-1.0, inf\]"),
        (
            {"action_space": Box(np.float32([0, 2]), np.float32([1, 2]))},
            r"bounds \[2.0, 2.0\] of dimension 1",
        ),
        ({"observation_space": gym.spaces.Text(4)}, "observation obs is a Text, which has no fixed array"),
        ({"observation_space": Dict({"a": gym.spaces.Tuple([UNIT])})}, "observation a is a Tuple"),
        ({"observation_space": Box(0, 9, (1,), np.uint64)}, "observation obs has dtype uint64"),
        ({"observation_space": Dict({"a.b": UNIT, "a": Dict({"b": UNIT})})}, "two observations are both named 'a.b'"),
        ({"roles": {"q": "critic"}}, "env.roles: 'q' is no observation .* there are: obs"),
    ],
)
def test_refused_by_name(spaces, message):
    with pytest.raises(EnvError, match=message):
        spec_of(**spaces)
