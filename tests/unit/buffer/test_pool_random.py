"""Random interleavings of everything a pool may go through, against a model that is a list of rows."""

import copy
import random
from dataclasses import dataclass, field

import numpy as np
import pytest
from helpers.lane_rows import Lane, die, lane_spec, prove, prove_pool

from headrace.buffer import PoolConfig, SACReplayPool

SPECS = [lane_spec(), lane_spec(stack=3, image=3), lane_spec(window=3), lane_spec(stack=3, window=4, kind="chunk")]


@dataclass
class Model:
    """What the pool must hold: identities in the order of commits, and per stream the last seq."""

    rows: list[tuple[str, int, int]] = field(default_factory=list)
    last: dict[tuple[str, int], int] = field(default_factory=dict)
    duplicates: int = 0
    lost: int = 0

    def insert(self, actor, stream, first, n):
        last = self.last.get((actor, stream), 0)
        fresh = [s for s in range(first, first + n) if s > last]
        self.duplicates += n - len(fresh)
        if fresh:
            self.lost += fresh[0] - last - 1
            self.rows += [(actor, stream, s) for s in fresh]
            self.last[(actor, stream)] = fresh[-1]


def check(pool, model, capacity):
    prove_pool(pool)
    live = [(r["actor"], r["stream"], r["seq"]) for r in pool.dump()]
    assert live == model.rows[max(0, len(model.rows) - capacity) :]
    counters = pool.counters()
    assert counters["rows_accepted"] == len(model.rows)
    assert (counters["rows_duplicate"], counters["lost_before"], counters["rows_retired"]) == (model.duplicates, model.lost, 0)
    assert pool.statistics().count == len(model.rows)
    for (actor, stream), last in model.last.items():
        assert pool.last_seq(actor, stream) == last


@pytest.mark.parametrize("seed", range(12))
def test_interleavings(seed, tmp_path):
    draw = random.Random(seed)
    spec = draw.choice(SPECS)
    capacity = draw.choice([1, 3, 17, 64])
    config = PoolConfig(max_block_rows=draw.choice([1, 4, 1024]), max_actors=3)

    def reopen():
        return SACReplayPool(capacity, path=tmp_path / "pool", spec=spec, config=config, rng=np.random.default_rng(seed))

    pool, model, saved = reopen(), Model(), None
    lanes = {(i, stream): Lane(spec, i) for i in range(3) for stream in (1, 2)}
    sent: list[tuple] = []
    for _ in range(120):
        action = draw.random()
        if action < 0.6:
            actor, stream = draw.choice(list(lanes))
            lane = lanes[actor, stream]
            if draw.random() < 0.1:
                lane.block(draw.randint(1, 4))  # lost on the way
            first, n = lane.seq, draw.choice([1, 1, 2, 3, 8, 2 * capacity + 1])
            sent.append((lane.block(n), f"a{actor}", stream, first))
            pool.insert(*sent[-1])
            model.insert(f"a{actor}", stream, first, n)
        elif action < 0.75 and sent:
            block, actor, stream, first = draw.choice(sent)
            pool.insert(block, actor, stream, first)
            model.insert(actor, stream, first, block.n_rows)
        elif action < 0.9:
            if pool.size:
                prove(pool.sample(draw.randint(1, pool.size)), spec)
        elif action < 0.95:
            (die if draw.random() < 0.7 else SACReplayPool.close)(pool)
            pool = reopen()
            check(pool, model, capacity)
        elif action < 0.97 or saved is None:
            pool.save(tmp_path / "snapshot")
            saved = copy.deepcopy(model)
        else:
            assert pool.load(tmp_path / "snapshot")
            model = copy.deepcopy(saved)
            check(pool, model, capacity)
    check(pool, model, capacity)
    pool.close()


def test_rule_9_windows_of_a_pool_that_has_wrapped_are_of_one_episode_each():
    spec, rng = lane_spec(window=3), np.random.default_rng(0)
    pool, lanes = SACReplayPool(1000, spec=spec, rng=rng), [Lane(spec, i) for i in range(3)]
    while pool.counters()["rows_accepted"] < 1500:
        lane = lanes[rng.integers(3)]
        first = lane.seq
        pool.insert(lane.block(int(rng.integers(1, 10))), f"a{lane.actor}", 1, first)
    drawn = set()
    for _ in range(200):
        batch = pool.sample(500)
        prove(batch, spec)
        rows, left = batch.rows, np.array(Lane.lengths)[batch.rows["episode"] % 3] - batch.rows["t"]
        np.testing.assert_array_equal(rows["steps"], np.minimum(3, left))
        np.testing.assert_array_equal(rows["terminated"], left <= 3)
        inside = np.arange(3) < rows["steps"][:, None]
        np.testing.assert_array_equal(rows["rewards"], inside * (rows["t"][:, None] + np.arange(3)))
        drawn |= set(batch.ids.tolist())
    assert drawn == set(range(pool.tail, pool.head))  # so tails of episodes too
