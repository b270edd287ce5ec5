import numpy as np
import pytest
from helpers.lane_rows import Lane, lane_spec

from headrace.actor.assembler import Assembler
from headrace.actor.rating import find_rate, rated
from headrace.common.errors import ConfigError
from headrace.common.weights import NO_VERSION

SPEC = lane_spec()
NAME = "helpers.rate_rows:by_t"


def test_rows_begin_with_the_priorities_that_the_named_function_gives():
    block = rated(Lane(SPEC, 1).block(4), find_rate(NAME))
    assert block.priorities.dtype == "<f4"
    assert block.priorities.tolist() == (block.rows["t"] + 1).tolist()
    assert rated(block, lambda block: None) is block
    assert find_rate("") is None


def test_an_assembler_rates_each_block_that_it_gives():
    lane, spec = Assembler(SPEC, rate=lambda block: block.rows["t"] + 1), SPEC
    obs = {o.key: np.zeros(o.shape, o.dtype) for o in spec.obs}
    lane.begin(0, obs)
    for t in range(5):
        lane.step(np.zeros(spec.action.shape, np.float32), 0.0, t == 4, False, obs, version=NO_VERSION)
    assert [lane.take(3).priorities.tolist() for _ in range(2)] == [[1, 2, 3], [4, 5]]


@pytest.mark.parametrize("name", ["by_t", "helpers.rate_rows", "helpers.rate_rows:missing", "nowhere.at_all:by_t"])
def test_a_name_without_a_function_is_refused(name):
    with pytest.raises(ConfigError, match=r"actor\.priorities: .* cannot be imported"):
        find_rate(name)


def test_what_is_no_function_of_a_block_is_refused():
    with pytest.raises(ConfigError, match="is a ndarray, expected a function"):
        find_rate("helpers.rate_rows:NOT_A_FUNCTION")
    for given in (1.0, np.zeros(3), np.zeros((4, 1)), ["a"] * 4, np.zeros(4, complex)):
        with pytest.raises(ConfigError, match=r"for a block of 4 rows, expected \(4,\) numbers"):
            rated(Lane(SPEC, 1).block(4), lambda block, given=given: given)
