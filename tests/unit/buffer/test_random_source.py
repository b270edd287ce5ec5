import json

import numpy as np
import pytest

from headrace.buffer.random_source import RandomSource
from headrace.common.errors import ConfigError


@pytest.mark.parametrize("kind", [np.random.PCG64, np.random.MT19937, np.random.Philox, np.random.SFC64])
def test_state_survives_json(kind):
    source, again = RandomSource(np.random.Generator(kind(3))), RandomSource(np.random.Generator(kind(99)))
    source.pick(None).random(7)
    again.set_state(json.loads(json.dumps(source.get_state())))
    np.testing.assert_array_equal(again.pick(None).random(50), source.pick(None).random(50))
    assert again.check_valid() == (True, "")


def test_state_of_another_generator_is_refused_naming_both():
    source = RandomSource(np.random.Generator(np.random.PCG64(0)))
    with pytest.raises(ConfigError, match="MT19937.*PCG64"):
        source.set_state(RandomSource(np.random.Generator(np.random.MT19937(0))).get_state())


def test_a_given_generator_takes_its_place():
    source, given = RandomSource(np.random.default_rng(0)), np.random.default_rng(5)
    before = source.get_state()
    assert source.pick(given) is given
    given.random()
    assert source.get_state() == before
