import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.buffer.sum_tree import SumTree

SIZES = [1, 15, 16, 17, 500, 4096 * 16, 4096 * 16 + 1, 1_200_000]


def tree_of(leaves):
    tree = SumTree(len(leaves))
    tree.set_range(0, len(leaves), np.asarray(leaves))
    return tree


@pytest.mark.parametrize("slots", SIZES)
def test_it_finds_what_a_running_sum_finds(slots):
    rng = np.random.default_rng(slots)
    leaves = rng.integers(0, 3, slots)  # whole numbers: sums are exact in any order
    leaves[rng.integers(slots)] = 7
    tree = tree_of(leaves)
    running = leaves.cumsum()
    assert tree.total == running[-1]
    points = rng.integers(0, running[-1], 1000) + rng.choice([0.0, 0.5], 1000)
    np.testing.assert_array_equal(tree.find(points), np.searchsorted(running, points, side="right"))
    assert tree.check_valid() == (True, "")


@pytest.mark.parametrize("slots", SIZES)
def test_the_total_is_in_the_last_live_leaf(slots):
    last = slots // 2
    tree = SumTree(slots)
    tree.set(np.array([last // 3, last]), np.array([0.1, 0.2]))
    assert tree.find(np.array([tree.total, tree.total * 2, 0.0, -1.0])).tolist() == [last, last, last // 3, last // 3]


def test_a_leaf_of_zero_is_never_found():
    rng = np.random.default_rng(3)
    leaves = np.where(rng.random(5000) < 0.02, rng.random(5000), 0.0)
    tree = tree_of(leaves)
    edges = tree._flat[0].cumsum(dtype=np.float64)
    points = np.concatenate([np.nextafter(edges, 0), edges, np.nextafter(edges, 1e9), rng.random(100_000) * tree.total])
    assert (leaves[tree.find(points)] > 0).all()


def test_rounding_never_carries_a_point_past_the_last_leaf_of_its_node():
    rng = np.random.default_rng(4)
    for _ in range(300):
        leaves = (10.0 ** rng.uniform(-8, 8, 16)).astype(np.float32)
        leaves[0] = 0
        tree = tree_of(leaves)  # its sum and its running sum differ in the last bits
        assert 0 not in tree.find(np.nextafter(tree.total, [0.0, tree.total]))


@pytest.mark.parametrize(("small", "large"), [(1e-8, 1e8), (1e-38, 3e38)])
def test_huge_and_tiny_leaves_side_by_side_stay_inside(small, large):
    rng = np.random.default_rng(0)
    tree = SumTree(500)
    tree.set_range(0, 100, np.where(np.arange(100) % 2, large, small))
    found = tree.find(rng.random(100_000) * tree.total)
    assert found.max() < 100
    assert set(np.unique(found % 2)) == {1}


def test_frequencies_are_those_of_the_leaves():
    rng = np.random.default_rng(1)
    leaves = rng.random(100).astype(np.float32)
    tree = SumTree(500)
    tree.set_range(0, 100, leaves)
    draws = 10_000_000
    counts = sum(np.bincount(tree.find(rng.random(draws // 100) * tree.total), minlength=500) for _ in range(100))
    assert counts[100:].sum() == 0
    share = leaves / leaves.sum(dtype=np.float64)
    sigma = np.sqrt(draws * share * (1 - share))
    assert (np.abs(counts[:100] - draws * share) < 4.5 * sigma).all()


def test_it_is_exact_after_ten_million_changes():
    rng = np.random.default_rng(2)
    tree, leaves = SumTree(100_000), np.zeros(100_000, np.float32)
    for n in [300, 39_700] * 250:
        slots = rng.integers(0, 100_000, n)
        values = (10.0 ** rng.uniform(-8, 8, n)).astype(np.float32)
        tree.set(slots, values)
        leaves[slots] = values
    fresh = tree_of(leaves)
    assert all(np.array_equal(a, b) for a, b in zip(tree._levels, fresh._levels, strict=True))
    assert tree.check_valid() == (True, "")


def test_single_precision_leaves_have_double_precision_sums():
    tree = SumTree(100)
    tree.set(np.array([3, 5]), np.array([2**24, 1]))
    assert tree.total == 2**24 + 1
    tree.set_range(16, 18, np.array([2**24, 1]))
    assert tree.total == 2**25 + 2


def test_a_slot_named_twice_keeps_its_last_value():
    tree = SumTree(40)
    tree.set(np.array([5, 20, 5]), np.array([1.0, 2.0, 3.0]))
    assert (tree.get(np.array([5, 20])).tolist(), tree.total) == ([3.0, 2.0], 5.0)


def test_an_empty_tree_finds_nothing():
    tree = tree_of(np.ones(20))
    tree.clear()
    assert tree.total == 0
    with pytest.raises(ValueError, match="every leaf is 0"):
        tree.find(np.zeros(1))


@settings(deadline=None, max_examples=60)
@given(st.data(), st.sampled_from([1, 16, 33, 300, 70_000]))
def test_any_changes_leave_the_tree_of_its_leaves(data, slots):
    tree, leaves = SumTree(slots), np.zeros(slots, np.float32)
    value = st.sampled_from([0.0, 1e-8, 0.3, 1.0, 1e8])
    for _ in range(data.draw(st.integers(1, 8))):
        if data.draw(st.booleans()):
            start = data.draw(st.integers(0, slots))
            stop = data.draw(st.integers(start, slots))
            leaves[start:stop] = new = data.draw(value)
            tree.set_range(start, stop, new)
        else:
            where = np.array(data.draw(st.lists(st.integers(0, slots - 1), max_size=40)), np.int64)
            leaves[where] = new = np.resize(data.draw(st.lists(value, min_size=1, max_size=9)), len(where))
            tree.set(where, new)
        assert tree.check_valid() == (True, "")
    np.testing.assert_array_equal(tree.get(np.arange(slots)), leaves)
    if leaves.any():
        found = tree.find(np.linspace(0, tree.total, 50))
        assert (leaves[found] > 0).all()
        assert (np.diff(found) >= 0).all()


def test_a_broken_sum_or_leaf_is_seen():
    tree = tree_of(np.ones(100))
    tree._levels[0][0, 0] = 2
    assert tree.check_valid() == (False, "a sum of level 1 is not that of its children")
    tree._levels[0][0, 0] = np.nan
    assert tree.check_valid() == (False, "a leaf is negative or not finite")
