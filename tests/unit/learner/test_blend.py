"""Stock and blend: which rows of which shard a batch has, against stand-ins whose rows name themselves."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from helpers.lane_rows import lane_spec

from headrace.common.batch import SHARD_BITS
from headrace.common.staging import Staging
from headrace.common.statistics import ObsStatistics, ReturnStatistics, pooled
from headrace.learner.blend import Blend
from headrace.learner.stock import Stock

SPEC = lane_spec()
CHUNK, B = 8, 16


def chunk_of(ids, epoch=1, weights=None):
    out = Staging(SPEC, len(ids)).take()
    out.ids[:] = ids
    for side in (out.obs, out.next_obs):
        side["obs"][:] = np.asarray(ids)[:, None]
    out.rows["seq"] = ids
    return type(out)(out.ids, out.rows, out.obs, out.next_obs, weights, None, epoch)


def excess(found, expected):
    """By how many of its standard deviations chi square is above its mean."""
    square, freedom = float(((found - expected) ** 2 / expected).sum()), len(found) - 1
    return (square - freedom) / np.sqrt(2 * freedom)


class Shard:
    """Draws chunks of distinct rows out of ``live_rows`` as long as ``ready`` allows."""

    spec, failed, statistics = SPEC, False, None

    def __init__(self, rows, changed, seed, ready=1 << 30, parts=1):
        self.live_rows, self.changed, self.ready, self.parts = rows, changed, ready, parts
        self.rng, self.epoch, self.rated = np.random.default_rng(seed), seed + 10, []

    def get(self, timeout_s):
        if self.ready <= 0 or self.live_rows < CHUNK:
            return None
        self.ready -= 1
        return [chunk_of(self.rng.choice(self.live_rows, CHUNK, replace=False), self.epoch) for _ in range(self.parts)]

    def check(self):
        if self.failed:
            raise RuntimeError("it failed")

    def rate(self, epoch, ids, errors):
        self.rated.append((epoch, ids.tolist(), errors.tolist()))


def blend_of(*rows, alive=None, parts=1):
    changed = threading.Condition()
    shards = [Shard(n, changed, seed, parts=parts) for seed, n in enumerate(rows)]
    here = alive if alive is not None else [True] * len(rows)
    return Blend(shards, lambda n: here[n], None, B, CHUNK, np.random.default_rng(3)), shards


def origins(batch):
    return batch.ids >> SHARD_BITS, batch.ids & ((1 << SHARD_BITS) - 1)


def test_rows_come_from_all_shards_in_proportion_to_what_is_live_there():
    blend, _ = blend_of(600, 300, 100)
    counts = np.zeros((3, 1000), int)
    by_shard = np.zeros(3, int)
    for _ in range(1000):
        (batch,) = blend.get(0.0)
        shard, row = origins(batch)
        assert len(set(batch.ids.tolist())) == B  # distinct, also where a part goes on in the next chunk
        assert np.array_equal(batch.obs["obs"][:, 0], row)
        assert np.array_equal(batch.rows["seq"], row)
        by_shard += np.bincount(shard, minlength=3)
        np.add.at(counts, (shard, row), 1)
    assert by_shard.sum() == 1000 * B == sum(blend.rows)
    assert excess(by_shard, 1000 * B * np.array([0.6, 0.3, 0.1])) < 4
    rows = np.concatenate([counts[0, :600], counts[1, :300], counts[2, :100]])
    assert excess(rows, np.full(1000, rows.mean())) < 4  # and each row of all shards is as likely as any other


def test_the_parts_of_batches_vary_as_those_of_draws_from_one_pool():
    blend, _ = blend_of(40, 24)
    parts = np.array([np.bincount(origins(blend.get(0.0)[0])[0], minlength=2)[0] for _ in range(1500)])
    variance = B * (40 / 64) * (24 / 64) * (64 - B) / (64 - 1)  # hypergeometric, and not binomial: no row is drawn twice
    assert parts.mean() == pytest.approx(B * 40 / 64, abs=0.15)
    assert parts.var() == pytest.approx(variance, rel=0.12)


def test_a_lost_shard_gives_nothing_and_its_planned_part_comes_from_the_others():
    here = [True, True]
    blend, shards = blend_of(500, 500, alive=here)
    shards[1].ready = 0
    assert blend.get(0.0) is None  # its part is planned and waited for
    here[1] = False
    for _ in range(20):
        assert set(origins(blend.get(0.0)[0])[0]) == {0}
    here[1], shards[1].ready = True, 1 << 30
    assert {1} <= {int(s) for _ in range(5) for s in origins(blend.get(0.0)[0])[0]}


def test_a_shard_without_a_chunk_of_rows_and_a_run_without_any_give_nothing():
    blend, shards = blend_of(1000, CHUNK - 1)
    assert set(origins(blend.get(0.0)[0])[0]) == {0}
    shards[0].live_rows = 0
    fresh, _ = blend_of(0, CHUNK - 1)
    assert fresh.get(0.0) is None


def test_ratings_go_to_the_shard_and_the_epoch_that_the_rows_are_of():
    blend, shards = blend_of(100, 100)
    (batch,) = blend.get(0.0)
    shard, row = origins(batch)
    shards[0].epoch = 77
    while (later := blend.get(0.0)[0]).epoch == batch.epoch:
        pass
    blend.rate(batch.epoch, batch.ids, row.astype(np.float32))
    for number in (0, 1):
        ((epoch, ids, errors),) = shards[number].rated
        assert (epoch, ids, errors) == (number + 10, row[shard == number].tolist(), row[shard == number].tolist())
    blend.rate(later.epoch, later.ids, np.zeros(B, np.float32))
    assert shards[0].rated[-1][0] == 77
    blend.rate(10**6, batch.ids, np.zeros(B, np.float32))  # of a number that nobody gave
    assert len(shards[1].rated) == 2


def test_an_update_of_two_batches_has_both_in_one_proportion():
    blend, _ = blend_of(300, 100, parts=2)
    for _ in range(50):
        critic, actor = blend.get(0.0)
        assert np.array_equal(origins(critic)[0], origins(actor)[0])
        assert not np.array_equal(critic.ids, actor.ids)


def test_what_a_look_ahead_shows_is_what_comes():
    blend, _ = blend_of(50, 50)
    (ahead,) = blend.peek()
    assert blend.get(0.0)[0] is ahead


def test_a_failure_of_any_shard_is_raised():
    blend, shards = blend_of(50, 50)
    shards[1].failed = True
    with pytest.raises(RuntimeError, match="it failed"):
        blend.get(0.0)


def test_a_stock_starts_anew_with_a_shard_that_was_started_again():
    stock = Stock()
    stock.put(chunk_of([1, 2, 3], epoch=1))
    assert not stock.fill(5)
    stock.put(chunk_of([3, 2, 9, 8, 7, 6], epoch=2))  # other rows, though ids are the same
    assert stock.fill(5)
    assert (stock.epoch, np.concatenate([p.ids for p in stock.take(5)]).tolist()) == (2, [3, 2, 9, 8, 7])


def test_a_stock_leaves_out_what_a_part_has_already_but_not_where_draws_may_repeat():
    plain, weighed = Stock(), Stock()
    for stock, weights in ((plain, None), (weighed, np.ones(3, np.float32))):
        stock.put(chunk_of([1, 2, 3], weights=weights))
        stock.put(chunk_of([3, 4, 1], weights=weights))
        stock.fill(4)
    assert np.concatenate([p.ids for p in plain.take(4)]).tolist() == [1, 2, 3, 4]
    assert np.concatenate([p.ids for p in weighed.take(4)]).tolist() == [1, 2, 3, 3]
    plain.put(chunk_of([5, 6, 7]))
    assert plain.fill(2)  # 1 is left out of the part before, not of this one
    assert plain.take(2)[0].ids.tolist() == [5, 6]


def test_pooled_statistics_are_those_of_all_rows_together():
    rng = np.random.default_rng(0)
    data = [rng.normal(3 * i, 1 + i, (50 * (i + 1), 3)) for i in range(3)]
    parts = [
        ObsStatistics(len(d), {"obs": d.mean(0).astype("<f4")}, {"obs": d.var(0).astype("<f4")}, ReturnStatistics(len(d), 2.0))
        for d in data
    ]
    whole, together = np.concatenate(data), pooled([*parts, ObsStatistics()])
    assert together.count == len(whole)
    np.testing.assert_allclose(together.mean["obs"], whole.mean(0), rtol=1e-5)
    np.testing.assert_allclose(together.var["obs"], whole.var(0), rtol=1e-5)
    assert together.returns == ReturnStatistics(300, 2.0)
    assert pooled([ObsStatistics()]) == ObsStatistics()
