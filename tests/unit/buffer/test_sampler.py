import json

import numpy as np
import pytest

from headrace.buffer.sampler import UniformSampler
from headrace.common.errors import ConfigError, PoolTooSmall


def test_ids_are_live_distinct_and_equally_likely():
    sampler = UniformSampler(np.random.default_rng(0))
    counts = np.zeros(50)
    for _ in range(4000):
        ids = sampler.draw(100, 150, 5)
        assert len(set(ids.tolist())) == 5
        counts[ids - 100] += 1
    expected = 4000 * 5 / 50
    chi_square = ((counts - expected) ** 2 / expected).sum()
    assert chi_square < 49 + 4 * np.sqrt(2 * 49)


def test_the_order_in_a_batch_says_nothing():
    sampler = UniformSampler(np.random.default_rng(1))
    first = np.mean([sampler.draw(0, 1000, 4)[0] for _ in range(4000)])
    assert abs(first - 499.5) < 5 * 288.7 / np.sqrt(4000)


def test_a_batch_of_all_rows_holds_each_once():
    assert sorted(UniformSampler(np.random.default_rng(0)).draw(7, 107, 100).tolist()) == list(range(7, 107))


def test_cost_follows_the_batch_and_not_the_pool():
    ids = UniformSampler(np.random.default_rng(0)).draw(0, 1 << 50, 256)  # anything O(pool) would need 8 PiB
    assert len(set(ids.tolist())) == 256


@pytest.mark.parametrize("batch", [11, 0, -1])
def test_too_few_rows_names_both_numbers(batch):
    with pytest.raises(PoolTooSmall, match=f"batch of {batch} rows was asked of 10 stored"):
        UniformSampler(np.random.default_rng(0)).draw(5, 15, batch)


@pytest.mark.parametrize("kind", [np.random.PCG64, np.random.MT19937, np.random.Philox, np.random.SFC64])
def test_state_survives_json(kind):
    sampler = UniformSampler(np.random.Generator(kind(3)))
    sampler.draw(0, 1000, 7)
    state = json.loads(json.dumps(sampler.get_state()))
    again = UniformSampler(np.random.Generator(kind(99)))
    again.set_state(state)
    np.testing.assert_array_equal(again.draw(0, 1000, 50), sampler.draw(0, 1000, 50))
    assert again.check_valid() == (True, "")


def test_state_of_another_generator_is_refused_naming_both():
    sampler = UniformSampler(np.random.Generator(np.random.PCG64(0)))
    with pytest.raises(ConfigError, match="MT19937.*PCG64"):
        sampler.set_state(UniformSampler(np.random.Generator(np.random.MT19937(0))).get_state())


def test_a_given_generator_draws_instead():
    sampler = UniformSampler(np.random.default_rng(0))
    before = sampler.get_state()
    one, two = (sampler.draw(0, 1000, 9, np.random.default_rng(5)) for _ in range(2))
    np.testing.assert_array_equal(one, two)
    assert sampler.get_state() == before
