import mmap
from itertools import pairwise

import numpy as np
import pytest

from headrace.buffer.header import Field, Header
from headrace.buffer.random_source import RandomSource
from headrace.buffer.sampler import Drawn, UniformSampler, joined
from headrace.buffer.tombstones import Tombstones
from headrace.common.errors import PoolTooSmall


def sampler_of(tail, head, seed=0):
    header = Header(mmap.mmap(-1, Header.SIZE))
    header[Field.CAPACITY], header[Field.FLOOR], header[Field.HEAD] = 1 << 47, tail, head
    return UniformSampler(header, Tombstones(), RandomSource(np.random.default_rng(seed)))


def test_ids_are_live_distinct_and_equally_likely():
    sampler = sampler_of(100, 150)
    counts = np.zeros(50)
    for _ in range(4000):
        ids = sampler.draw(5).ids
        assert len(set(ids.tolist())) == 5
        counts[ids - 100] += 1
    expected = 4000 * 5 / 50
    chi_square = ((counts - expected) ** 2 / expected).sum()
    assert chi_square < 49 + 4 * np.sqrt(2 * 49)


def test_the_order_in_a_batch_says_nothing():
    sampler = sampler_of(0, 1000, seed=1)
    first = np.mean([sampler.draw(4).ids[0] for _ in range(4000)])
    assert abs(first - 499.5) < 5 * 288.7 / np.sqrt(4000)


def test_a_batch_of_all_rows_holds_each_once():
    assert sorted(sampler_of(7, 107).draw(100).ids.tolist()) == list(range(7, 107))


def test_cost_follows_the_batch_and_not_the_pool():
    ids = sampler_of(0, 1 << 46).draw(256).ids  # anything O(pool) would need 512 TiB
    assert len(set(ids.tolist())) == 256


@pytest.mark.parametrize("batch", [11, 0, -1])
def test_too_few_rows_names_both_numbers(batch):
    with pytest.raises(PoolTooSmall, match=f"batch of {batch} rows was asked of 10 stored"):
        sampler_of(5, 15).draw(batch)


def test_a_given_generator_draws_instead():
    sampler = sampler_of(0, 1000)
    one, two = (sampler.draw(9, np.random.default_rng(5)).ids for _ in range(2))
    np.testing.assert_array_equal(one, two)
    np.testing.assert_array_equal(sampler.draw(9).ids, sampler_of(0, 1000).draw(9).ids)


@pytest.mark.parametrize("rows", [50, 20])
def test_several_batches_at_once_are_drawn_as_one_by_one(rows):
    """The second size is too small for throwing batches away."""
    batches = sampler_of(100, 100 + rows).draw(5, batches=4000).ids.reshape(4000, 5) - 100
    assert (np.diff(np.sort(batches)) > 0).all()
    expected = 4000 * 5 / rows
    chi_square = ((np.bincount(batches.reshape(-1), minlength=rows) - expected) ** 2 / expected).sum()
    assert chi_square < rows - 1 + 4 * np.sqrt(2 * (rows - 1))
    assert abs(batches[:, 0].mean() - (rows - 1) / 2) < 5 * rows / np.sqrt(12 * 4000)  # the order says nothing
    shared = np.mean([len(np.intersect1d(a, b)) for a, b in pairwise(batches)])
    assert abs(shared - 25 / rows) < 0.1  # and one batch nothing about the next


def test_draws_of_several_batches_are_joined_batch_by_batch():
    one, two = (Drawn(np.arange(4) + at, np.arange(4, dtype=np.float32) + at) for at in (0, 10))
    both = joined([one, two], 2)
    assert both.ids.tolist() == both.weights.tolist() == [0, 1, 10, 11, 2, 3, 12, 13]
    assert both.sets is None
    assert joined([one, two]).ids.tolist() == [0, 1, 2, 3, 10, 11, 12, 13]
