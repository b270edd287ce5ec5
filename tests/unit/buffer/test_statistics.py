import itertools

import numpy as np
import pytest

from headrace.buffer.statistics import RunningStatistics
from headrace.common.specs import ActionSpec, ObsSpec, TransitionSpec

SPEC = TransitionSpec(
    (ObsSpec("camera", (2, 2), "|u1"), ObsSpec("joints", (3,), "<f4"), ObsSpec("map", (2, 2), "<f4"), ObsSpec("x", (), "<f4")),
    ActionSpec((1,), (-1.0,), (1.0,)),
)


def frames(rng, n, offset=1e3):
    shapes = {o.key: o.shape for o in SPEC.obs if o.dtype == "<f4"}
    return {key: rng.normal(offset, 2.0, (n, *shape)).astype("<f4") for key, shape in shapes.items()}


def test_blocks_add_up_to_the_moments_of_all_rows():
    rng = np.random.default_rng(0)
    data, running = frames(rng, 1000), RunningStatistics(SPEC)
    cuts = [0, 1, 2, 40, 41, 700, 1000]
    for low, high in itertools.pairwise(cuts):
        running.add({k: v[low:high] for k, v in data.items()}, np.arange(high - low))
    result = running.result()
    assert result.count == 1000
    assert sorted(result.mean) == ["joints", "map", "x"]
    for key, values in data.items():
        wide = values.astype(np.float64)
        np.testing.assert_allclose(result.mean[key], wide.mean(0), rtol=1e-6)
        np.testing.assert_allclose(result.var[key], wide.var(0), rtol=1e-5)
        assert result.mean[key].dtype == result.var[key].dtype == np.float32
        assert result.mean[key].shape == values.shape[1:]
    assert running.check_valid() == (True, "")


def test_only_the_frames_of_the_index_count_each_as_often_as_named():
    running = RunningStatistics(SPEC)
    data = {
        k: np.arange(5, dtype="<f4").reshape(5, *[1] * (v.ndim - 1)) * np.ones_like(v)
        for k, v in frames(np.random.default_rng(0), 5).items()
    }
    running.add(data, np.array([4, 4, 1]))
    assert running.result().mean["x"] == 3.0
    assert running.result().var["x"] == 2.0


def test_wide_keys_are_added_in_chunks_without_a_difference(monkeypatch):
    rng = np.random.default_rng(1)
    data = frames(rng, 64)
    whole, cut = RunningStatistics(SPEC), RunningStatistics(SPEC)
    whole.add(data, np.arange(64))
    monkeypatch.setattr("headrace.buffer.statistics._CHUNK_NUMBERS", 40)
    cut.add(data, np.arange(64))
    np.testing.assert_allclose(cut.result().var["map"], whole.result().var["map"], rtol=1e-6)


def test_no_rows_yet_means_normalising_changes_nothing():
    empty = RunningStatistics(SPEC).result()
    assert empty.count == 0
    assert not empty.mean["map"].any()
    assert (empty.var["map"] == 1).all()


def test_state_is_exact():
    rng = np.random.default_rng(2)
    one = RunningStatistics(SPEC)
    one.add(frames(rng, 100), np.arange(100))
    other, third = RunningStatistics(SPEC), RunningStatistics(SPEC)
    other.decode(one.encode())
    third.set_state(one.get_state())
    more = frames(rng, 10)
    for running in (one, other, third):
        running.add(more, np.arange(10))
    assert one.encode() == other.encode() == third.encode()
    assert len(one.encode()) == one.nbytes()
    with pytest.raises(ValueError, match="expected"):
        one.set_state({"count": 1, "mean": np.zeros(2), "m2": np.zeros(2)})


@pytest.mark.parametrize("cut", [0, 1, 300, 1000])
def test_two_parts_are_merged_as_if_they_had_been_counted_together(cut):
    data = frames(np.random.default_rng(4), 1000, offset=50)
    one, two, both = RunningStatistics(SPEC), RunningStatistics(SPEC), RunningStatistics(SPEC)
    one.add(data, np.arange(cut))
    two.add(data, np.arange(cut, 1000))
    both.add(data, np.arange(1000))
    before = one.encode(), two.encode()
    merged = one.merged(two)
    assert merged.check_valid() == (True, "")
    assert merged.get_state()["count"] == 1000
    for name in ("mean", "m2"):
        np.testing.assert_allclose(merged.get_state()[name], both.get_state()[name], rtol=1e-9)
    assert (one.encode(), two.encode()) == before


@pytest.mark.parametrize("n", [1, 64, 129])
def test_a_piece_far_from_the_mean_keeps_its_variance(n):
    """At 1e9 float32 steps by 64, and of the squares' sum float64 would keep two digits of the variance."""
    running, steps = RunningStatistics(SPEC), np.random.default_rng(4).integers(0, 4, n)
    data = {
        k: (1e9 + 64.0 * steps.reshape(n, *[1] * (v.ndim - 1)) * np.ones_like(v)).astype("<f4")
        for k, v in frames(np.random.default_rng(0), n).items()
    }
    running.add(data, np.arange(n))
    np.testing.assert_allclose(running.result().var["joints"], [64.0**2 * steps.var()] * 3, rtol=1e-6)
    assert running.check_valid() == (True, "")


def test_consecutive_frames_count_as_an_index_of_them_does():
    data = frames(np.random.default_rng(5), 300)
    by_index, by_range = RunningStatistics(SPEC), RunningStatistics(SPEC)
    by_index.add(data, np.arange(7, 290))
    by_range.add(data, range(7, 290))
    assert by_index.encode() == by_range.encode()


def test_a_column_that_never_changes_has_no_variance():
    running = RunningStatistics(SPEC)
    for n in (1, 40, 700, 3):
        running.add({k: np.full_like(v, 0.1) for k, v in frames(np.random.default_rng(0), n).items()}, np.arange(n))
    assert not running.result().var["map"].any()
    assert (running.result().mean["map"] == np.float32(0.1)).all()
