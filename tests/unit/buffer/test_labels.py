import random

import numpy as np
import pytest
from helpers.lane_rows import Lane, die, lane_spec, prove_pool, seqs
from helpers.mirror import agree, attach

from headrace.buffer import PoolConfig, SACReplayPool, segment
from headrace.buffer.config import SamplingConfig
from headrace.buffer.header import Field
from headrace.buffer.labels import Labels
from headrace.common.errors import LabelRefused, PoolDamaged, PoolTooSmall
from headrace.common.label import MAX_REWARD_BYTES, Kind, Label

SPEC = lane_spec()
CHUNKS = lane_spec(window=3, kind="chunk")


def make(capacity=100, spec=SPEC, path=None, **config):
    return SACReplayPool(capacity, path=path, spec=spec, config=PoolConfig(**config), rng=np.random.default_rng(0))


def fill(pool, rows, actor="a", stream=1, lane=None, size=1):
    lane = lane or Lane(pool.spec, 1)
    for _ in range(0, rows, size):
        first = lane.seq
        pool.insert(lane.block(size), actor, stream, first)
    return lane


def outcomes(pool, actor="a", stream=1):
    return {r["seq"]: r["outcome"] for r in pool.dump() if (r["actor"], r["stream"]) == (actor, stream)}


def test_an_outcome_reaches_its_rows_and_no_others():
    pool = make()
    lanes = {("a", 1): Lane(SPEC, 1), ("a", 2): Lane(SPEC, 1), ("b", 1): Lane(SPEC, 2)}
    for _ in range(10):
        for (actor, stream), lane in lanes.items():
            fill(pool, 2, actor, stream, lane)
    done = pool.label("a", 2, 5, 9, 1)
    assert (done.rows, done.gone) == (5, 0)
    assert outcomes(pool, "a", 2) == {s: int(5 <= s <= 9) for s in range(1, 21)}
    assert set(outcomes(pool, "a", 1).values()) == set(outcomes(pool, "b", 1).values()) == {0}
    assert pool.sample(60).rows["outcome"].sum() == 5
    assert pool.label("a", 2, 5, 9, 1).rows == 0
    assert pool.label("a", 2, 9, 10, 2).rows == 2
    prove_pool(pool)


def test_rows_that_are_gone_are_passed_over_and_counted():
    pool = make(10)
    fill(pool, 25)
    done = pool.label("a", 1, 10, 18, 2)
    assert (done.rows, done.gone) == (3, 6)
    done = pool.label("a", 1, 1, 4, 2)
    assert (done.rows, done.gone) == (0, 4)
    assert pool.counters()["labels_gone"] == 10
    assert [s for s, o in outcomes(pool).items() if o] == [16, 17, 18]
    fill(pool, 10, lane=Lane(SPEC, 1, seq=26))
    assert set(outcomes(pool).values()) == {0}  # a new row in an old slot starts unlabelled


@pytest.mark.parametrize("chunk", [1, 3, 64])
def test_the_search_ends_in_front_of_the_range(monkeypatch, chunk):
    monkeypatch.setattr(segment, "_FIND_ROWS", chunk)
    pool = make(64)
    lanes = [Lane(SPEC, i) for i in range(3)]
    draw = random.Random(0)
    for _ in range(100):
        lane = draw.choice(lanes)
        fill(pool, 1, f"a{lane.actor}", lane=lane)
    store = pool._store
    for lane in lanes:
        live = seqs(pool, f"a{lane.actor}")
        index = store.ledger.actors.index(f"a{lane.actor}")
        for first in range(1, lane.seq):
            for last in (first, first + 2, lane.seq - 1):
                found = store.segment.reader.rows(store.segment.find(index, 1, first, last))
                assert found["seq"].tolist() == [s for s in live if first <= s <= last]
                assert (found["actor"] == index).all()


def test_a_search_for_new_rows_does_not_read_old_ones(monkeypatch):
    monkeypatch.setattr(segment, "_FIND_ROWS", 8)
    pool = make(1000)
    fill(pool, 900)
    read = []
    real = np.arange

    def count(*args):
        read.append(args)
        return real(*args)

    monkeypatch.setattr(segment.np, "arange", count)
    pool._store.segment.find(0, 1, 890, 895)
    assert len(read) <= 3


def test_rewards_are_amended_row_by_row():
    pool = make(spec=CHUNKS)
    fill(pool, 20, size=4)
    steps = dict(zip(seqs(pool, "a"), pool.gather(np.arange(20)).rows["steps"].tolist(), strict=True))
    new = np.arange(1, 19, dtype="<f4").reshape(6, 3)
    for i, seq in enumerate(range(4, 10)):
        new[i, steps[seq] :] = 0
    before = pool.gather(np.arange(20)).rows["rewards"].copy()
    assert pool.amend_rewards("a", 1, 4, new).rows == 6
    after = pool.gather(np.arange(20)).rows["rewards"]
    np.testing.assert_array_equal(after[3:9], new)
    np.testing.assert_array_equal(np.delete(after, np.s_[3:9], 0), np.delete(before, np.s_[3:9], 0))
    short = next(s for s in range(1, 21) if steps[s] < 3)
    with pytest.raises(LabelRefused) as error:
        pool.amend_rewards("a", 1, short, np.ones((1, 3)))
    assert error.value.reason == "reward"
    with pytest.raises(LabelRefused, match="reward: rewards: row 1 holds 16777217, .* would make 16777216"):
        pool.amend_rewards("a", 1, 1, [[1, 0, 0], [16777217, 0, 0]])
    np.testing.assert_array_equal(pool.gather(np.arange(20)).rows["rewards"], after)
    prove_pool(pool)


REFUSED = [
    ("actor", "nobody", Label(Kind.OUTCOME, 1, 1, 2, 1)),
    ("stream", "a", Label(Kind.OUTCOME, 9, 1, 2, 1)),
    ("ahead", "a", Label(Kind.DISCARD, 1, 1, 6)),
    ("sequence", "a", Label(Kind.DISCARD, 1, 0, 2)),
    ("sequence", "a", Label(Kind.DISCARD, 1, 3, 2)),
    ("sequence", "a", Label(Kind.DISCARD, 1, 3, 1 << 48)),
    ("outcome", "a", Label(Kind.OUTCOME, 1, 1, 2, 3)),
    ("outcome", "a", Label(Kind.OUTCOME, 1, 1, 2, -1)),
    ("shape", "a", Label(Kind.REWARDS, 1, 1, 2)),
    ("shape", "a", Label(Kind.DISCARD, 1, 1, 2, rewards=np.zeros((2, 1), "<f4"))),
    ("shape", "a", Label(Kind.REWARDS, 1, 1, 2, rewards=np.zeros((3, 1), "<f4"))),
    ("shape", "a", Label(Kind.REWARDS, 1, 1, 2, rewards=np.zeros((2, 1), "<f8"))),
    ("size", "a", Label(Kind.REWARDS, 1, 1, MAX_REWARD_BYTES // 4 + 1, rewards=np.zeros((1, 1), "<f4"))),
    ("non-finite", "a", Label(Kind.REWARDS, 1, 1, 2, rewards=np.array([[0], [np.nan]], "<f4"))),
]


@pytest.mark.parametrize(("reason", "actor", "label"), REFUSED)
def test_labels_that_cannot_be_true_change_nothing(reason, actor, label):
    pool = make()
    fill(pool, 5)
    before = pool.get_state()
    with pytest.raises(LabelRefused) as error:
        pool.amend(actor, label)
    assert error.value.reason == reason
    after = pool.get_state()
    assert {k: v for k, v in before.items() if k != "arrays"} == {k: v for k, v in after.items() if k != "arrays"}
    assert all(v.tobytes() == after["arrays"][k].tobytes() for k, v in before["arrays"].items())


def test_rows_of_a_closed_stream_are_labelled_still():
    pool = make()
    for stream in range(1, 12):
        fill(pool, 3, stream=stream)
    assert pool.label("a", 2, 1, 3, 1).rows == 3
    assert pool.discard("a", 1, 2, 2).rows == 1
    prove_pool(pool)


@pytest.mark.parametrize("share", [0.02, 0.5, 0.97])
def test_discarded_rows_are_never_sampled_and_the_others_equally_often(share):
    pool = make(200)
    fill(pool, 300)
    draw = random.Random(1)
    dead = sorted(draw.sample(range(101, 301), int(200 * share)))
    for seq in draw.sample(dead, len(dead)):
        pool.discard("a", 1, seq, seq)
    alive = sorted(set(range(101, 301)) - set(dead))
    assert (pool.size, len(pool)) == (len(alive), len(alive))
    assert sorted(pool.sample(len(alive)).rows["seq"].tolist()) == alive
    with pytest.raises(PoolTooSmall, match=f"{len(alive) + 1} rows was asked of {len(alive)}"):
        pool.sample(len(alive) + 1)
    counts = dict.fromkeys(alive, 0)
    draws = 2000
    for _ in range(draws):
        for seq in pool.sample(3).rows["seq"].tolist():
            counts[seq] += 1
    expected = draws * 3 / len(alive)
    chi_square = sum((c - expected) ** 2 / expected for c in counts.values())
    assert chi_square < len(alive) - 1 + 5 * np.sqrt(2 * len(alive))


def test_discarded_rows_are_never_sampled_by_priority():
    sampling = SamplingConfig("prioritised")
    pool = SACReplayPool(50, spec=SPEC, sampling=sampling, rng=np.random.default_rng(0))
    lane = fill(pool, 70)
    pool.discard("a", 1, 30, 60)
    for _ in range(50):
        seqs_drawn = set(pool.sample(16).rows["seq"].tolist())
        assert seqs_drawn <= {*range(21, 30), *range(61, 71)}
    fill(pool, 20, lane=lane)
    prove_pool(pool)
    assert max(pool.sample(30).rows["seq"]) > 70


def test_a_pool_of_discarded_rows_is_empty_until_new_ones_come():
    pool = make(8)
    lane = fill(pool, 12)
    steps, count = pool.env_steps, pool.statistics().count
    assert pool.discard("a", 1, 1, 12).rows == 8
    assert (pool.size, pool.env_steps, pool.statistics().count) == (0, steps, count)
    with pytest.raises(PoolTooSmall):
        pool.sample(1)
    for i in range(1, 12):
        fill(pool, 1, lane=lane)
        assert pool.size == min(i, 8)
        assert sorted(pool.sample(pool.size).rows["seq"].tolist()) == list(range(13 + i - pool.size, 13 + i))
        prove_pool(pool)
    counters = pool.counters()
    assert (counters["rows_discarded"], counters["rows_evicted"], counters["rows_live"]) == (8, 7, 8)


def test_discarded_rows_that_lose_their_frames_are_counted_once():
    spec = lane_spec(stack=2)
    pool = make(64, spec, min_block_rows=8, max_block_rows=8)
    lane = Lane(spec, 1, (1,))
    for _ in range(60):
        fill(pool, 3, lane=lane, size=3)
        if lane.seq > 30:
            pool.discard("a", 1, lane.seq - 20, lane.seq - 18)
        prove_pool(pool)
    counters = pool.counters()
    assert counters["rows_retired"] > 0
    assert counters["rows_discarded"] > 100


def test_indexes_hear_of_labels_at_once():
    pool = make(20)
    lane = fill(pool, 5)
    mirror = attach(pool)
    draw = random.Random(3)
    for _ in range(100):
        fill(pool, draw.randint(1, 3), lane=lane)
        first = draw.randint(1, lane.seq - 1)
        last = draw.randint(first, min(lane.seq - 1, first + 4))
        kind = draw.random()
        if kind < 0.4:
            pool.label("a", 1, first, last, draw.randint(0, 2))
        elif kind < 0.7:
            pool.amend_rewards("a", 1, first, [draw.choice([1.0, 2.0]) for _ in range(first, last + 1)])
        else:
            pool.discard("a", 1, first, last)
        agree(mirror, pool)
        assert mirror.dead == {r["id"] for r in pool.dump() if r["discarded"]}
        late = attach(pool)
        assert (late.rows, late.dead) == (mirror.rows, mirror.dead)
        prove_pool(pool)


@pytest.mark.parametrize("capacity", [4, 20, 50])
@pytest.mark.parametrize("end", [die, SACReplayPool.close])
def test_labels_survive_restarts_and_snapshots(tmp_path, end, capacity):
    pool = make(20, path=tmp_path / "pool")
    lane = fill(pool, 30)
    pool.label("a", 1, 5, 14, 1)
    pool.discard("a", 1, 27, 29)
    pool.amend_rewards("a", 1, 25, [7.0])
    rows, counters = list(pool.dump()), pool.counters()
    pool.save(tmp_path / "s")
    end(pool)
    pool = make(20, path=tmp_path / "pool")
    assert (list(pool.dump()), pool.counters()) == (rows, counters)
    prove_pool(pool)
    pool.close()
    other = make(capacity)
    attach(other)
    assert other.load(tmp_path / "s")
    assert list(other.dump()) == rows[-capacity:]
    prove_pool(other)
    assert other.counters()["rows_discarded"] == 3
    assert other.size == min(capacity, 20) - 3
    for _ in range(60):
        fill(other, 1, lane=lane)
        prove_pool(other)


def test_the_amend_counter_is_odd_only_while_rows_change(monkeypatch):
    pool = make()
    fill(pool, 5)
    header = pool._store.header
    assert header[Field.AMENDS] == 0
    pool.label("a", 1, 1, 2, 1)
    pool.label("a", 1, 1, 2, 1)  # says nothing new
    assert header[Field.AMENDS] == 2
    pool.discard("a", 1, 1, 2)
    assert header[Field.AMENDS] == 4
    seen = []
    outcome = pool._store.files.columns["outcome"]
    monkeypatch.setattr(pool._store._labels, "_fence", lambda: seen.append((header[Field.AMENDS], int(outcome[4]))))
    pool.label("a", 1, 5, 5, 1)
    assert (seen, header[Field.AMENDS]) == ([(5, 0), (5, 1)], 6)


def test_nothing_can_be_said_about_a_discarded_row():
    pool = make()
    fill(pool, 5)
    pool.discard("a", 1, 2, 3)
    done = pool.label("a", 1, 1, 4, 2)
    assert (done.rows, done.gone) == (2, 0)
    assert pool.discard("a", 1, 1, 4).rows == 2
    assert pool.counters()["rows_discarded"] == 4


class Killed(Exception):
    pass


SAID = {
    "outcome": lambda pool: pool.label("a", 1, 3, 8, 2),
    "rewards": lambda pool: pool.amend_rewards("a", 1, 3, np.arange(6) + 50),
    "discard": lambda pool: pool.discard("a", 1, 3, 8),
}


@pytest.mark.parametrize("name", SAID)
@pytest.mark.parametrize("done", range(7))
def test_a_label_that_a_kill_left_in_the_middle_of_a_column_is_finished_at_open(monkeypatch, tmp_path, name, done):
    whole = make()
    fill(whole, 10)
    SAID[name](whole)
    pool = make(path=tmp_path)
    fill(pool, 10)
    real = Labels._change

    def cut(self, serial, label, ids, rewards, counts):
        real(self, serial, label, ids[:done], None if rewards is None else rewards[:done], self_counts(self))
        self._header[Field.AMENDS] = serial
        raise Killed

    def self_counts(labels):
        return labels._header[Field.DISCARDED], labels._header[Field.LABELS_GONE]

    monkeypatch.setattr(Labels, "_change", cut)
    with pytest.raises(Killed):
        SAID[name](pool)
    monkeypatch.undo()
    die(pool)
    pool = make(path=tmp_path)
    assert list(pool.dump()) == list(whole.dump())
    assert pool.counters() == whole.counters()
    assert pool._store.header[Field.AMENDS] == 2
    prove_pool(pool)
    pool.close()


@pytest.mark.parametrize("amends", [0, 1])
def test_a_record_that_is_not_whole_was_never_written_or_is_missed(tmp_path, amends):
    pool = make(path=tmp_path)
    fill(pool, 10)
    before = list(pool.dump())
    pool._store.files.journal.write(1, b"x" * 64)
    pool._store.header[Field.AMENDS] = amends
    die(pool)
    [journal] = tmp_path.rglob("journal.bin")
    with open(journal, "r+b") as file:
        file.seek(60)
        file.write(b"y")
    if amends:
        with pytest.raises(PoolDamaged, match="journal.bin: change 1"):
            make(path=tmp_path)
    else:
        pool = make(path=tmp_path)
        assert list(pool.dump()) == before
        assert pool.label("a", 1, 1, 10, 1).rows == 10
        pool.close()
