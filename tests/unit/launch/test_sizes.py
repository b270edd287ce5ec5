"""Sizes that do not fit: what is called the nearest valid is accepted, together with what it says must change as well."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.common.errors import ConfigError
from headrace.launch.config import make_config

KEYS = ("learner.batch_size", "pacing.min_fill", "pacing.random_steps", "pacing.env_steps", "pool.capacity", "pacing.ratio")
CHANGE = re.compile(r"([a-z_]+\.[a-z_]+) ([\d.e-]+)")


def make(values):
    return make_config({"env": {"id": "x"}}, [f"--{key}={value}" for key, value in values.items()])


def refusal(values):
    """What is said, the changes that it asks for together, and the one that may be made instead."""
    try:
        make(values)
    except ConfigError as error:
        said = str(error)
        key, nearest, rest = re.match(r"(\S+): .*nearest valid: ([\d.e-]+)(.*)", said).groups()
        together, _, instead = rest.partition("; or ")
        return said, {key: nearest, **dict(CHANGE.findall(together))}, dict(CHANGE.findall(instead))
    return "", {}, {}


def test_a_short_run_names_all_that_must_change():
    said, _, _ = refusal({"pacing.env_steps": 50})
    assert said == (
        "learner.batch_size: 256 is not below pacing.env_steps 50, so no batch could be drawn before the end;"
        " nearest valid: 49, with pacing.min_fill 49 and pacing.random_steps 50; or pacing.env_steps 1001"
    )


@pytest.mark.parametrize(
    ("words", "changes"),
    [
        ({"pacing.env_steps": 1000}, {"pacing.min_fill": "999"}),
        ({"pool.capacity": 100}, {"learner.batch_size": "100", "pacing.min_fill": "100"}),
        ({"learner.batch_size": 2000}, {"pacing.min_fill": "2000"}),
        ({"pacing.env_steps": 900, "pacing.ratio": 0}, {"pacing.random_steps": "900"}),
    ],
)
def test_what_else_must_change_is_named(words, changes):
    assert refusal(words)[1] == changes


SIZES = st.integers(1, 40)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.tuples(SIZES, SIZES, SIZES, st.integers(2, 40), SIZES, st.sampled_from([0, 0.07, 0.3, 1 / 49, 1, 20])))
def test_what_is_called_valid_is_accepted(sizes):
    values = dict(zip(KEYS, sizes, strict=True))
    said, together, instead = refusal(values)
    make({**values, **together})
    if instead:
        make({**values, **instead})
    assert bool(said) == bool(together)
