"""Hypothesis interleaves all that may happen to a pool; after every step it equals a model that is a list of rows.

Blocks of several actors, from one row to twice the capacity, sent again; late outcomes, rewards and discards; priorities,
fresh and stale; named sets; snapshots, loaded into other capacities too; closes and deaths, reopened with other capacities.
Every row proves itself, and at the end rows come as often as they should.
"""

from __future__ import annotations

import copy
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from helpers.lane_rows import Lane, die, lane_spec, prove, prove_pool
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headrace.buffer import PoolConfig, SACReplayPool, SamplingConfig, SetConfig

SPECS = [lane_spec(), lane_spec(stack=2, window=3)]
CAPACITIES = [1, 5, 16, 41]
WAYS = {
    "uniform": SamplingConfig(),
    "prioritised": SamplingConfig("prioritised", priority_exponent=1.0, priority_eps=1e-12),
    "sets": SamplingConfig(sets={"good": SetConfig(0.5, outcome=("success",)), "all": SetConfig(0.5)}),
}
DRAWS_A_ROW = 30
AGES = st.integers(0, 12)


@dataclass
class Row:
    """What the pool must know of a row."""

    identity: tuple[str, int, int]
    rewards: np.ndarray
    steps: int
    priority: float
    outcome: int = 0
    dead: bool = False


@dataclass
class Model:
    """Every row ever committed, by id, and the id of the oldest that is live."""

    rows: list[Row] = field(default_factory=list)
    last: dict[tuple[str, int], int] = field(default_factory=dict)
    tail: int = 0
    largest: float = 1.0
    duplicates: int = 0

    def shrink(self, capacity):
        self.tail = max(self.tail, len(self.rows) - capacity)

    def live(self):
        return range(self.tail, len(self.rows))

    def alive(self):
        return [i for i in self.live() if not self.rows[i].dead]


class PoolMachine(RuleBasedStateMachine):
    """One pool on disk beside its model."""

    way = "uniform"

    @initialize(spec=st.sampled_from(SPECS), capacity=st.sampled_from(CAPACITIES), block_rows=st.sampled_from([3, 1024]))
    def begin(self, spec, capacity, block_rows):
        self.place = tempfile.TemporaryDirectory()
        self.spec, self.capacity = spec, capacity
        self.config = PoolConfig(max_block_rows=block_rows, max_actors=3)
        self.model, self.saved, self.old = Model(), None, None
        self.lanes = {(f"a{i}", stream): Lane(spec, i) for i in range(3) for stream in (1, 2)}
        self.sent = []
        self.open()

    def open(self):
        path = Path(self.place.name) / "pool"
        way = {"config": self.config, "sampling": WAYS[self.way], "rng": np.random.default_rng(0)}
        self.pool = SACReplayPool(self.capacity, path=path, spec=self.spec, **way)

    @rule(which=st.integers(0, 5), size=st.sampled_from([1, 1, 2, 5, 17, 83]))
    def insert(self, which, size):
        (actor, stream), lane = list(self.lanes.items())[which]
        first = lane.seq
        self.sent.append((lane.block(size), actor, stream, first))
        self.commit(*self.sent[-1])

    @precondition(lambda self: self.sent)
    @rule(age=AGES)
    def insert_again(self, age):
        self.commit(*self.sent[-1 - age % len(self.sent)])

    def commit(self, block, actor, stream, first):
        self.pool.insert(block, actor, stream, first)
        model, known = self.model, self.model.last.get((actor, stream), 0)
        for i, row in enumerate(block.rows):
            if first + i <= known:
                model.duplicates += 1
            else:
                kept = (row["rewards"].copy(), int(row["steps"]), model.largest)
                model.rows.append(Row((actor, stream, first + i), *kept))
        model.last[actor, stream] = max(known, first + block.n_rows - 1)
        model.shrink(self.capacity)

    def named(self, age, size):
        """Rows of one stream, from ``age`` rows before the newest on: ids (gone ones too), and identity of the range."""
        actor, stream, seq = self.model.rows[max(0, len(self.model.rows) - 1 - age)].identity
        last = min(seq + size - 1, self.model.last[actor, stream])
        found = [
            i for i, row in enumerate(self.model.rows) if row.identity[:2] == (actor, stream) and seq <= row.identity[2] <= last
        ]
        return [i for i in found if i >= self.model.tail and not self.model.rows[i].dead], (actor, stream, seq, last)

    @precondition(lambda self: self.model.rows)
    @rule(age=AGES, size=st.integers(1, 9), outcome=st.sampled_from([0, 1, 1, 2]))
    def label(self, age, size, outcome):
        ids, (actor, stream, first, last) = self.named(age, size)
        self.pool.label(actor, stream, first, last, outcome)
        for i in ids:
            self.model.rows[i].outcome = outcome

    @precondition(lambda self: self.model.rows)
    @rule(age=AGES, size=st.integers(1, 9))
    def discard(self, age, size):
        ids, (actor, stream, first, last) = self.named(age, size)
        assert self.pool.discard(actor, stream, first, last).rows == len(ids)
        for i in ids:
            self.model.rows[i].dead = True

    @precondition(lambda self: self.model.rows)
    @rule(age=AGES, value=st.integers(-9, 9))
    def amend(self, age, value):
        ids, (actor, stream, first, _) = self.named(age, 1)
        rewards = np.zeros((1, self.spec.window), "<f4")
        rewards[0, 0] = value
        self.pool.amend_rewards(actor, stream, first, rewards)
        for i in ids:
            self.model.rows[i].rewards = rewards[0]

    @precondition(lambda self: self.model.alive())
    @rule(size=st.integers(1, 8))
    def sample(self, size):
        batch = self.pool.sample(1 if self.way == "sets" else min(size, len(self.model.alive())))
        prove(batch, self.spec)
        assert set(batch.ids) <= set(self.model.alive())
        self.old = batch

    @precondition(lambda self: self.way == "prioritised" and self.old is not None)
    @rule(values=st.lists(st.integers(1, 500), min_size=8, max_size=8))
    def update(self, values):
        ids, model = self.old.ids, self.model
        values = np.array(values[: len(ids)], np.float32)
        known = self.old.epoch == self.pool.epoch
        fresh = set(model.alive()) if known else set()
        stale = self.pool.update_priorities(ids, values, self.old.epoch)
        assert stale == sum(int(i) not in fresh for i in ids)
        for i, value in zip(ids.tolist(), values.tolist(), strict=True):
            if i in fresh:
                model.rows[i].priority = value
                model.largest = max(model.largest, value)

    @rule(capacity=st.sampled_from(CAPACITIES), change=st.booleans(), ended=st.sampled_from([die, SACReplayPool.close]))
    def reopen(self, capacity, change, ended):
        ended(self.pool)
        self.capacity = capacity if change else self.capacity
        self.open()
        self.model.shrink(self.capacity)

    @precondition(lambda self: self.model.rows)
    @rule()
    def save(self):
        self.pool.save(Path(self.place.name) / "snapshots")
        self.saved = copy.deepcopy(self.model)

    @precondition(lambda self: self.saved is not None)
    @rule()
    def load(self):
        assert self.pool.load(Path(self.place.name) / "snapshots")
        self.model = copy.deepcopy(self.saved)
        self.model.shrink(self.capacity)

    @invariant()
    def agrees(self):
        model, pool = self.model, self.pool
        prove_pool(pool)
        counters = pool.counters()
        dead = len(model.live()) - len(model.alive())
        assert (pool.tail, pool.head, pool.size) == (model.tail, len(model.rows), len(model.alive()))
        assert (counters["rows_duplicate"], counters["rows_retired"]) == (model.duplicates, 0)
        assert counters["rows_accepted"] - counters["rows_live"] - counters["rows_evicted"] - counters["rows_discarded"] == 0
        assert counters["rows_discarded"] >= dead
        ids = np.array(model.live(), np.int64)
        rows, names = pool.gather(ids).rows, pool.actors()
        for i, row in zip(ids, rows, strict=True):
            known = model.rows[i]
            assert (names[row["actor"]], row["stream"], row["seq"]) == known.identity
            assert (row["outcome"], row["steps"], row["rewards"].tolist()) == (
                known.outcome,
                known.steps,
                known.rewards.tolist(),
            )
        if self.way == "prioritised" and len(ids):
            column = pool._store.files.columns["priority"]
            assert [column[i % len(column)] for i in model.alive()] == [model.rows[i].priority for i in model.alive()]
        if self.way == "sets":
            good = sum(model.rows[i].outcome == 1 for i in model.alive())
            assert pool.sampling_info()["sets"] == {"good": good, "all": len(model.alive())}

    def teardown(self):
        if hasattr(self, "pool"):
            self.comes_as_often_as_it_should()
            self.pool.close()
            self.place.cleanup()

    def comes_as_often_as_it_should(self):
        """Chi-square of single draws over the rows; with sets of those drawn for the set that is always drawn from first."""
        model, alive = self.model, self.model.alive()
        size = 1
        if self.way == "sets":
            alive, size = [i for i in alive if model.rows[i].outcome == 1], 2
        if len(alive) < 2 or self.pool.size < size + 1:
            return
        draws = DRAWS_A_ROW * len(alive)
        drawn = [self.pool.draw(size) for _ in range(draws)]
        ids = np.concatenate([d.ids if d.sets is None else d.ids[d.sets == 0] for d in drawn])
        assert len(ids) == draws
        weights = np.array([model.rows[i].priority for i in alive] if self.way == "prioritised" else [1.0] * len(alive))
        expected = draws * weights / weights.sum()
        counts = np.array([np.count_nonzero(ids == i) for i in alive])
        assert counts.sum() == draws
        rare = expected < 5  # too few for chi-square: together
        pairs = [*zip(counts[~rare], expected[~rare], strict=True), (counts[rare].sum(), expected[rare].sum())]
        chi_square = sum((count - e) ** 2 / e for count, e in pairs if e >= 5)
        freedom = sum(e >= 5 for _, e in pairs)
        assert chi_square < freedom + 7 * np.sqrt(2 * freedom) + 7, (counts, expected)


class PrioritisedMachine(PoolMachine):
    """The same by priority."""

    way = "prioritised"


class SetsMachine(PoolMachine):
    """The same with named sets."""

    way = "sets"


for machine in (PoolMachine, PrioritisedMachine, SetsMachine):
    machine.TestCase.settings = settings(max_examples=25, stateful_step_count=40, deadline=None, derandomize=True)
TestUniform, TestPrioritised, TestSets = PoolMachine.TestCase, PrioritisedMachine.TestCase, SetsMachine.TestCase
