import json

import numpy as np
import pytest
from helpers.set_rows import set_spec

from headrace.buffer.config import SetConfig
from headrace.buffer.mix import Mix
from headrace.buffer.row_set import SetIndex
from headrace.common.errors import PoolTooSmall

DEMO, ONLINE = 2, 0


def make(rows, **sets):
    """Sets over ``rows`` with ids from 0, and their mix."""
    indexes = {name: SetIndex(name, config, 2 * len(rows)) for name, config in sets.items()}
    for index in indexes.values():
        index.committed(0, rows)
    return indexes, Mix(indexes, {name: config.share for name, config in sets.items()})


def rows_of(demo, online, **labels):
    rows = np.zeros(demo + online, set_spec().row_dtype)
    rows["source"][:demo] = DEMO
    for name, values in labels.items():
        rows[name] = values
    return rows


def halves(demo, online, when_small="replace"):
    sets = {
        "demo": SetConfig(0.5, source=("demo",), when_small=when_small),
        "online": SetConfig(0.5, source=("policy",), when_small="yield"),
    }
    return make(rows_of(demo, online), **sets)[1]


def distinct(ids):
    return len(set(ids.tolist())) == len(ids)


def test_half_and_half_also_in_each_slice():
    mix, rng = halves(300, 1000), np.random.default_rng(0)
    for _ in range(20):
        ids, sets, _ = mix.draw(256, rng)
        assert np.array_equal(ids < 300, sets == 0)
        assert (sets == 0).sum() == 128
        assert distinct(ids)
        assert [(s == 0).sum() for s in np.split(sets, 8)] == [16] * 8


def test_ten_demonstrations_that_repeat_still_are_half():
    ids, sets, _ = halves(10, 1000).draw(256, np.random.default_rng(0))
    times = np.bincount(ids[sets == 0], minlength=10)
    assert (sets == 0).sum() == 128
    assert times.max() - times.min() == 1
    assert distinct(ids[sets == 1])


def test_ten_demonstrations_that_yield_are_ten_rows():
    mix = halves(10, 1000, "yield")
    for _ in range(5):
        ids, sets, _ = mix.draw(256, np.random.default_rng(0))
        assert np.bincount(sets).tolist() == [10, 246]
        assert distinct(ids)
    assert mix.realised()["demo"] == {"share": 0.5, "realised": 10 / 256, "repeated": 0.0}


def test_a_set_that_fills_gets_its_share_and_not_what_it_missed():
    mix = halves(0, 1000, "yield")
    rng = np.random.default_rng(0)
    for _ in range(7):
        assert (mix.draw(9, rng)[1] == 1).all()
    mix._sets[0].committed(1000, rows_of(500, 0))
    counts = [(mix.draw(9, rng)[1] == 0).sum() for _ in range(2)]
    assert sorted(counts) == [4, 5]


def test_repeating_sets_take_what_nobody_has():
    mix, rng = halves(10, 100), np.random.default_rng(0)
    for _ in range(3):
        ids, sets, _ = mix.draw(256, rng)
        assert np.bincount(sets).tolist() == [156, 100]
        assert distinct(ids[sets == 1])
    assert mix.realised()["demo"]["repeated"] == pytest.approx(146 / 156)


def test_overlapping_sets_share_no_row():
    sets = {
        "all": SetConfig(0.6),
        "recent": SetConfig(0.2, newest_rows=40),
        "demo": SetConfig(0.2, source=("demo",), when_small="replace"),
    }
    rows = rows_of(100, 100)
    _, mix = make(rows, **sets)
    rng = np.random.default_rng(0)
    for _ in range(50):
        ids, numbers, _ = mix.draw(200, rng)
        assert sorted(ids.tolist()) == list(range(200))
        assert (ids[numbers == 1] >= 160).all()
        assert (ids[numbers == 2] < 100).all()
        assert np.bincount(numbers).tolist() == [120, 40, 40]


def test_a_set_covered_by_others_is_short_of_rows():
    sets = {"all": SetConfig(0.5), "same": SetConfig(0.5, when_small="replace")}
    _, mix = make(rows_of(0, 10), **sets)
    ids, numbers, _ = mix.draw(16, np.random.default_rng(0))
    assert np.bincount(numbers, minlength=2).tolist() == [8, 8]
    assert len(set(ids.tolist())) == 10


def test_each_row_of_a_set_is_equally_likely_beside_an_overlapping_one():
    sets = {"all": SetConfig(0.5), "demo": SetConfig(0.5, source=("demo",))}
    _, mix = make(rows_of(30, 30), **sets)
    rng, counts = np.random.default_rng(0), np.zeros((2, 60))
    for _ in range(4000):
        ids, numbers, _ = mix.draw(8, rng)
        np.add.at(counts, (numbers, ids), 1)
    for part in (counts[1][:30], counts[0][:30], counts[0][30:]):
        assert ((part - part.mean()) ** 2 / part.mean()).sum() < 30 + 4 * np.sqrt(60)
    assert not counts[1][30:].any()


@pytest.mark.parametrize("when_small", ["replace", "yield"])
def test_tasks_take_turns(when_small):
    task = np.repeat([4, 7, 9], [5, 50, 45])
    config = SetConfig(1.0, balance="task", when_small=when_small)
    _, mix = make(rows_of(0, 100, task=task), all=config)
    rng, drawn = np.random.default_rng(0), np.zeros(10, int)
    for _ in range(30):
        drawn += np.bincount(task[mix.draw(10, rng)[0]], minlength=10)
    assert drawn[[4, 7, 9]].tolist() == [100, 100, 100]
    counts = np.bincount(task[mix.draw(30, rng)[0]], minlength=10)[[4, 7, 9]]
    assert counts.tolist() == ([10, 10, 10] if when_small == "replace" else [5, 13, 12])


def test_waiting_says_for_what():
    sets = {"demo": SetConfig(0.1, source=("demo",), when_small="replace"), "all": SetConfig(0.9, min_fill=50)}
    indexes, mix = make(rows_of(0, 49), **sets)
    assert mix.waiting() == "set 'demo' holds 0 rows of the 1 that it must hold before the first batch"
    indexes["demo"].committed(49, rows_of(1, 0))
    with pytest.raises(PoolTooSmall, match="set 'all' holds 49 rows of the 50"):
        mix.draw(8, np.random.default_rng(0))
    indexes["all"].committed(49, rows_of(1, 0))
    assert mix.waiting() == ""
    assert len(mix.draw(8, np.random.default_rng(0))[0]) == 8


def test_too_few_rows_names_each_set_and_changes_nothing():
    mix = halves(10, 20, "yield")
    before = mix.get_state()
    with pytest.raises(PoolTooSmall, match=r"batch of 31 distinct rows.*demo \(10 rows\), online \(20 rows\).*replace"):
        mix.draw(31, np.random.default_rng(0))
    assert {n: s["carry"] for n, s in mix.get_state().items()} == {n: s["carry"] for n, s in before.items()}
    assert sorted(mix.draw(30, np.random.default_rng(0))[0].tolist()) == list(range(30))


def test_fractions_of_odd_batches_are_exact_in_the_long_run():
    sets = {"demo": SetConfig(0.3, source=("demo",)), "online": SetConfig(0.7, source=("policy",))}
    _, mix = make(rows_of(50, 50), **sets)
    rng = np.random.default_rng(0)
    for _ in range(100):
        mix.draw(7, rng)
    assert mix.realised()["demo"]["realised"] == pytest.approx(0.3, abs=1 / 700)


def test_a_share_of_nothing_is_never_drawn_nor_waited_for():
    sets = {"demo": SetConfig(0.0, source=("demo",), when_small="replace", min_fill=9), "online": SetConfig(1.0)}
    _, mix = make(rows_of(0, 50), **sets)
    assert set(mix.draw(50, np.random.default_rng(0))[1]) == {1}


def test_the_state_goes_on_where_it_was():
    def fresh():
        sets = {"demo": SetConfig(0.3, source=("demo",), balance="task"), "online": SetConfig(0.7, source=("policy",))}
        return make(rows_of(50, 50, task=np.arange(100) % 3), **sets)[1]

    mix, again = fresh(), fresh()
    rng = np.random.default_rng(0)
    for _ in range(5):
        mix.draw(11, rng)
    again.set_state(json.loads(json.dumps(mix.get_state())))
    again_rng = np.random.default_rng(0)
    again_rng.bit_generator.state = rng.bit_generator.state
    for _ in range(5):
        for ours, theirs in zip(mix.draw(11, rng), again.draw(11, again_rng), strict=True):
            np.testing.assert_array_equal(ours, theirs)
    assert again.realised() == mix.realised()
    assert again.check_valid() == (True, "")
