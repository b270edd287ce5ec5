import pytest

from headrace.buffer.config import SamplingConfig, SetConfig
from headrace.common.config import dump, load
from headrace.common.errors import ConfigError

HALVES = {"demo": {"share": 0.5, "source": ["demo"], "when_small": "replace"}, "online": {"share": 0.5}}


def sampling(**sets):
    return load(SamplingConfig, {"sets": sets}, "sampling")


def test_shares_of_each_batch():
    config = sampling(**HALVES)
    assert config.mixes == {"critic": {"demo": 0.5, "online": 0.5}}
    assert load(SamplingConfig, dump(config)) == config
    assert SamplingConfig().mixes == {}


def test_the_actors_batch_is_a_separate_one_when_it_has_shares():
    config = sampling(good={"share": 0.5, "actor_share": 0.9}, bad={"share": 0.5, "actor_share": 0.1}, none={"share": 0})
    assert config.mixes["actor"] == {"good": 0.9, "bad": 0.1, "none": 0.0}


def test_three_thirds_are_one():
    assert sampling(**{f"s{i}": {"share": 1 / 3} for i in range(3)}).mixes


@pytest.mark.parametrize(
    ("sets", "message"),
    [
        (
            {"a": {"share": 0.5}, "b": {"share": 0.4}},
            r"sampling.sets: share adds up to 0.9 \(a 0.5, b 0.4\), must be 1; nearest valid: a 0.5556, b 0.4444",
        ),
        ({"a": {"share": 0.0}, "b": {"share": 0.0}}, r"adds up to 0 \(a 0, b 0\), must be 1; nearest valid: a 0.5, b 0.5"),
        ({"a": {"share": 0.5, "actor_share": 0.9}, "b": {"share": 0.5}}, r"actor_share.* adds up to 1.4 \(a 0.9, b 0.5\)"),
        ({"a-b": {"share": 1}}, "'a-b' is not a name"),
        ({"a": {}}, "sampling.sets.a.share: required"),
        ({"a": {"share": 1, "task": [-1]}}, r"sampling.sets.a.task\[0\]: -1 is below"),
        ({f"s{i}": {"share": 1} for i in range(33)}, "33 sets, allowed 32"),
    ],
)
def test_sets_that_make_no_batch_are_refused(sets, message):
    with pytest.raises(ConfigError, match=message):
        sampling(**sets)


def test_balance_needs_uniform_sampling():
    way_out = r"balance: task with sampling.method prioritised.*none, with a set for each task in place of a.*a_0: {task: \[0\]"
    with pytest.raises(ConfigError, match=way_out):
        load(SamplingConfig, {"method": "prioritised", "sets": {"a": {"share": 1, "balance": "task"}}}, "sampling")


@pytest.mark.parametrize(
    ("sets", "message"),
    [
        ({"a": {"share": 1, "min_fill": 101}}, "sampling.sets.a.min_fill: 101 is above pool.capacity 100; nearest valid: 100"),
        ({"a": {"share": 0.5, "newest_rows": 9}, "b": {"share": 0.5, "newest_rows": 10}}, "add up to 19, below a batch of 20"),
    ],
)
def test_sets_that_never_fill_are_refused(sets, message):
    with pytest.raises(ConfigError, match=message):
        sampling(**sets).check_fits(100, 20)


def test_a_repeating_set_fills_any_batch():
    sampling(a={"share": 1, "newest_rows": 1, "when_small": "replace"}).check_fits(100, 20)
    assert SetConfig(1.0).when_small == "yield"
