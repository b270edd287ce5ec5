import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from helpers.lane_rows import Lane, cpu_only, lane_spec

from headrace.buffer import PoolConfig, SACReplayPool, SamplingConfig, SetConfig
from headrace.common.errors import ArgumentError, BlockRefused, PoolTooSmall, SpecError


def transitions(start, n, **more):
    """Rows start..start+n-1: everything in a row says its number."""
    i = np.arange(start, start + n)
    return {
        "state": np.stack([i, i + 0.5], axis=1).astype(np.float32),
        "action": i[:, None].astype(np.float32) / 1000,
        "reward": i.astype(np.float32),
        "next_state": np.stack([i + 1, i + 1.5], axis=1).astype(np.float32),
        "done": i % 5 == 4,
        **more,
    }


def prove_rows(batch, keys):
    """Every array of the batch must be of the rows that its reward names."""
    wanted = transitions(0, 1000)
    i = batch["reward"].astype(int)
    for key in keys:
        np.testing.assert_array_equal(batch[key], wanted[key][i])
    return i.tolist()


def pool_of(capacity=100):
    return SACReplayPool(capacity, rng=np.random.default_rng(0))


def test_the_seeds_api():
    pool = pool_of(10)
    pool.add_batch(transitions(0, 4))
    assert pool.size == 4
    batch = pool.sample_batch(4)
    assert sorted(batch) == ["action", "done", "next_state", "reward", "state"]
    assert sorted(prove_rows(batch, batch)) == [0, 1, 2, 3]
    for key, value in transitions(0, 4).items():
        assert (batch[key].dtype, batch[key].shape) == (value.dtype, value.shape), key
    batch = pool.insert_and_resample(transitions(4, 20), 10)
    assert sorted(prove_rows(batch, batch)) == list(range(14, 24))
    with pytest.raises(PoolTooSmall, match="batch of 11 .* 10 stored"):
        pool.sample_batch(11)


@pytest.mark.parametrize("rows", [1, 30, 900])
@pytest.mark.parametrize("way", ["load", "state", "adopt", "reopen"])
def test_a_smaller_pool_keeps_the_newest_rows(tmp_path, way, rows):
    with SACReplayPool(1000, path=tmp_path / "pool" if way == "reopen" else None) as old:
        for start in range(0, 900, rows):
            old.add_batch(transitions(start, rows))
        old.save(tmp_path / "saved")
        state = old.get_state()
        pool = pool_of(100)
        if way == "load":
            assert pool.load(tmp_path / "saved")
        elif way == "state":
            pool.set_state(state)
        elif way == "adopt":
            pool.adopt(old)
    if way == "reopen":
        pool = SACReplayPool(100, path=tmp_path / "pool")
    for newest in range(900, 999):
        assert sorted(prove_rows(pool.sample_batch(100), transitions(0, 1))) == list(range(newest - 100, newest))
        pool.add_batch(transitions(newest, 1))
    assert pool.check_valid() == (True, "")
    assert pool.counters()["rows_retired"] == 0
    pool.close()


def test_further_keys_come_back_bit_for_bit():
    extras = {
        "response_mask": np.arange(12, dtype=np.int64).reshape(4, 3),
        "task": np.array(["pick", "place", "Öffnen", ""]),
        "weight": np.array([0.1, np.nan, -0.0, 1e300]),
        "when": np.arange(4).astype("datetime64[s]"),
        "half": np.arange(4, dtype=np.float16)[:, None],
        "big": np.arange(4, dtype=">i4"),
        "complex": np.arange(4) * 1j,
        "info": {"success": np.array([True, False, True, False]), "deep": {"id": np.arange(4, dtype=np.uint64)}},
    }
    pool = pool_of()
    pool.add_batch(transitions(0, 4, **extras))
    batch = pool.sample_batch(4)
    order = batch["reward"].astype(int)
    flat = {
        **{k: v for k, v in extras.items() if k != "info"},
        "success": extras["info"]["success"],
        "id": extras["info"]["deep"]["id"],
    }
    back = {**batch, "success": batch["info"]["success"], "id": batch["info"]["deep"]["id"]}
    for key, value in flat.items():
        assert back[key].dtype == value.dtype, key
        assert back[key].tobytes() == value[order].tobytes(), key


def test_nested_states_become_observation_keys():
    def batch(start, n):
        i = np.arange(start, start + n)
        image = np.broadcast_to((i % 256).astype(np.uint8)[:, None, None], (n, 4, 4))
        return {"images": {"front/left": image}, "joints": i[:, None].astype(np.float32)}

    pool = pool_of()
    pool.add_batch({**transitions(0, 6), "state": batch(0, 6), "next_state": batch(1, 6)})
    drawn = pool.sample_batch(6)
    i = drawn["reward"].astype(int)
    assert (drawn["state"]["images"]["front/left"][:, 0, 0] == i).all()
    assert (drawn["next_state"]["images"]["front/left"][:, 3, 3] == i + 1).all()
    assert drawn["state"]["images"]["front/left"].dtype == np.uint8
    assert (drawn["next_state"]["joints"][:, 0] == i + 1).all()
    assert [o.key for o in pool.spec.obs] == ["images/front/left", "joints"]


def test_the_learner_sees_the_same_rows():
    pool = pool_of()
    data = transitions(0, 8, truncated=np.arange(8) % 2 == 1)
    data["terminated"] = data.pop("done")
    pool.add_batch(data)
    batch = pool.sample(8)
    i = batch.rows["rewards"][:, 0].astype(int)
    np.testing.assert_array_equal(batch.obs["state"], data["state"][i])
    np.testing.assert_array_equal(batch.next_obs["state"], data["next_state"][i])
    np.testing.assert_array_equal(batch.rows["action"], data["action"][i])
    np.testing.assert_array_equal(batch.rows["terminated"], data["terminated"][i])
    np.testing.assert_array_equal(batch.rows["truncated"], data["truncated"][i])
    assert (batch.rows["steps"] == 1).all()
    assert pool.env_steps == 8


def test_chunk_rewards_say_how_many_steps_were_executed():
    mask = np.array([[1, 1, 1], [1, 0, 0]])
    rewards = np.array([[1, 2, 3], [4, 0, 0]], np.float32)
    pool = pool_of()
    pool.add_batch({**transitions(0, 2), "reward": rewards, "response_mask": mask, "action": np.zeros((2, 3, 4))})
    batch = pool.gather(np.arange(2))
    assert batch.rows["steps"].tolist() == [3, 1]
    assert (pool.spec.window, pool.spec.kind, pool.spec.action.shape) == (3, "chunk", (3, 4))
    drawn = pool.sample_batch(2)
    np.testing.assert_array_equal(np.sort(drawn["reward"], axis=0), np.sort(rewards, axis=0))
    assert drawn["action"].dtype == np.float64
    with pytest.raises(SpecError, match=r"response_mask"):
        pool.add_batch(
            {**transitions(0, 2), "reward": rewards, "response_mask": mask[:, ::-1].copy(), "action": np.zeros((2, 3, 4))}
        )


def test_done_beside_terminated_is_only_kept():
    done, terminated = np.array([True, True, False]), np.array([False, True, False])
    pool = pool_of()
    pool.add_batch({**transitions(0, 3), "done": done, "terminated": terminated, "truncated": done & ~terminated})
    drawn = pool.sample_batch(3)
    i = drawn["reward"].astype(int)
    np.testing.assert_array_equal(drawn["done"], done[i])
    np.testing.assert_array_equal(drawn["terminated"], terminated[i])
    np.testing.assert_array_equal(pool.gather(np.arange(3)).rows["terminated"], terminated)


@pytest.mark.parametrize("shape", [(), (1,), (2,), (2, 3), (2, 3, 4)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64])
def test_actions_of_any_shape(shape, dtype):
    pool = pool_of()
    action = np.arange(5 * np.prod(shape, dtype=int)).reshape(5, *shape).astype(dtype)
    pool.add_batch(transitions(0, 5, action=action, reward=np.arange(5.0)[:, None]))
    drawn = pool.sample_batch(5)
    wanted = np.float32 if dtype == np.int64 else dtype  # in which later actions that are no whole numbers come back too
    assert (drawn["action"].dtype, drawn["reward"].shape) == (wanted, (5, 1))
    np.testing.assert_array_equal(drawn["action"], action[drawn["reward"][:, 0].astype(int)])


def test_invalid_rows_are_left_out():
    pool = pool_of()
    pool.add_batch(transitions(0, 3, valids=np.zeros(3)))
    assert (pool.size, pool.spec) == (0, None)
    pool.add_batch(transitions(0, 4, valids=np.array([1, 0, 2, 0])))
    pool.add_batch(transitions(4, 2, valids=np.zeros(2, int)))
    assert sorted(pool.sample_batch(2)["reward"].tolist()) == [0, 2]
    assert sorted(pool.sample_batch(2)["valids"].tolist()) == [1, 2]
    assert pool.statistics().count == 2


def test_an_empty_batch_is_nothing():
    pool = pool_of()
    pool.add_batch(transitions(0, 0))
    assert (pool.size, pool.spec) == (0, None)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"reward": None}, "transitions.reward: missing"),
        ({"extra": np.zeros(3)}, r"transitions.extra: unknown; the first batch had .*mask"),
        (
            {"state": np.zeros((3, 2), int), "next_state": np.zeros((3, 2), int)},
            r"transitions.state: <i8, the first batch had <f4",
        ),
        ({"state": np.zeros((3, 5), np.float32), "next_state": np.zeros((3, 5), np.float32)}, r"transitions.state: \(5,\)"),
        ({"done": np.array([0, 1, 2])}, "transitions.done: row 2 holds 2, expected 0 or 1"),
        ({"action": np.zeros((2, 1))}, r"transitions.action: shape \(2, 1\), but state has 3 rows"),
        ({"action": np.zeros(())}, r"transitions.action: shape \(\)"),
        ({"action": [{}, {}, {}]}, "transitions.action: Python objects"),
        ({"mask": np.zeros(3, np.int32)}, "transitions.mask: <i4, the first batch had <i8"),
        ({"state": np.zeros((3, 2), np.complex64)}, "transitions.state: <c8, the first batch had <f4"),
    ],
)
def test_a_batch_that_differs_is_refused_by_name(change, message):
    pool = pool_of()
    pool.add_batch(transitions(0, 4, mask=np.zeros(4, np.int64)))
    data = {k: v for k, v in {**transitions(0, 3, mask=np.zeros(3, np.int64)), **change}.items() if v is not None}
    with pytest.raises(SpecError, match=message):
        pool.add_batch(data)
    assert pool.size == 4


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"done": None}, "transitions.done: missing"),
        ({"next_state": np.zeros((3, 4))}, "transitions.next_state: .* of state"),
        ({"done": np.zeros(3), "truncated": np.zeros(3)}, "transitions.terminated: missing"),
        ({"reward": {"a": np.zeros(3)}}, "transitions.reward: missing, or not one array"),
        ({"reward": np.zeros((3, 2, 2))}, "transitions.reward"),
        ({"void": np.zeros((3, 0))}, "extra/void"),
        *(({name: np.zeros(3)}, f"transitions.{name}: belongs to a sampled batch") for name in ("ids", "weights", "sets")),
    ],
)
def test_a_first_batch_that_cannot_be_stored_is_refused_and_forgotten(change, message):
    pool = pool_of()
    data = {k: v for k, v in {**transitions(0, 3), **change}.items() if v is not None}
    with pytest.raises(SpecError, match=message):
        pool.add_batch(data)
    pool.add_batch(transitions(0, 3))
    assert pool.size == 3


def test_non_finite_numbers_do_not_enter():
    pool = pool_of()
    pool.add_batch(transitions(0, 3))
    for key in ("state", "action", "reward", "next_state"):
        data = transitions(0, 3)
        data[key][1] = np.inf
        with pytest.raises(BlockRefused) as error:
            pool.add_batch(data)
        assert error.value.reason == "non-finite"
        assert f"transitions.{key}: row 1 holds inf" in str(error.value)
    assert pool.size == 3


def test_a_first_batch_with_a_number_that_is_none_fixes_nothing():
    pool = pool_of()
    with pytest.raises(BlockRefused, match=r"transitions.state: row 1 holds nan"):
        pool.add_batch({**transitions(0, 3), "state": np.array([[0.0, 1.0, 2.0], [0.0, np.nan, 0.0], [1.0, 1.0, 1.0]])[:, :2]})
    assert pool.spec is None
    pool.add_batch({**transitions(0, 3), "state": np.ones((3, 7)), "next_state": np.ones((3, 7))})
    assert pool.sample_batch(3)["state"].shape == (3, 7)


@pytest.mark.parametrize("name", ["action", "reward"])
def test_a_whole_number_that_float32_would_change_is_refused_by_row(name):
    pool, data = pool_of(), transitions(0, 3)
    data[name] = data[name].astype(np.int64)
    pool.add_batch(data)
    data[name].reshape(-1)[1] = -(1 << 24) - 1
    with pytest.raises(SpecError, match=rf"transitions\.{name}: row 1 holds -16777217, .* would make -16777216; scale it"):
        pool.add_batch(data)
    assert pool.size == 3


def test_a_pool_of_long_blocks_says_that_plain_dictionaries_will_not_fill_it(caplog):
    pool = SACReplayPool(100, config=PoolConfig(min_block_rows=8, max_block_rows=8))
    for start in range(0, 300, 3):
        pool.add_batch(transitions(start, 3))
    (said,) = [record.getMessage() for record in caplog.records]
    assert "pool.min_block_rows: 8 leaves room for 170 frames" in said
    assert "of a capacity of 100 only the newest 77 rows are sure to stay; with 1 all do" in said
    assert 77 <= pool.size < 100


def test_where_all_plain_rows_fit_nothing_is_said_of_long_blocks(caplog):
    pool = SACReplayPool(100, config=PoolConfig(min_block_rows=32))  # the slack of one commit is a whole pool
    for start in range(0, 300, 3):
        pool.add_batch(transitions(start, 3))
    assert (pool.size, caplog.records) == (100, [])


def test_a_pool_with_a_spec_takes_plain_batches_that_fit_it():
    spec = lane_spec()
    pool = SACReplayPool(50, spec=spec)
    pool.insert(Lane(spec, 1).block(4), "a", 1, 1)
    drawn = pool.sample_batch(4)
    assert sorted(drawn) == ["action", "next_state", "reward", "state", "terminated", "truncated"]
    assert (drawn["state"].shape, drawn["terminated"].dtype, drawn["reward"].shape) == ((4, 3), np.bool_, (4,))
    data = transitions(0, 5, state=np.zeros((5, 3)), next_state=np.ones((5, 3)), action=np.zeros((5, 2)))
    pool.add_batch(data)
    assert pool.size == 9
    assert pool.streams("local") == {1: 5}
    with pytest.raises(SpecError, match=r"spec\.action"):
        SACReplayPool(50, spec=spec).add_batch({**data, "action": np.zeros((5, 3))})
    with pytest.raises(SpecError, match=r"extra/mask"):
        SACReplayPool(50, spec=spec).add_batch({**data, "mask": np.zeros(5)})
    with pytest.raises(SpecError, match=r"spec\.stack"):
        SACReplayPool(50, spec=lane_spec(stack=2)).add_batch(data)
    with pytest.raises(SpecError, match=r"spec\.next_action: True != False"):
        SACReplayPool(50, spec=replace(spec, next_action=True)).add_batch(data)
    assert SACReplayPool(50, spec=lane_spec(stack=2)).spec.stack == 2


def test_plain_pools_reopen_with_their_form(tmp_path):
    with SACReplayPool(10, path=tmp_path) as pool:
        pool.add_batch(transitions(0, 4, valids=np.ones(4, np.int8)))
    with SACReplayPool(10, path=tmp_path) as pool:
        pool.add_batch(transitions(4, 4, valids=np.ones(4, np.int8)))
        drawn = pool.sample_batch(8)
        assert sorted(prove_rows(drawn, transitions(0, 1))) == list(range(8))
        assert drawn["valids"].dtype == np.int8


TORCH = """
import numpy as np, torch
from headrace.buffer import SACReplayPool
i = torch.arange(6)
camera = i.to(torch.uint8)[:, None, None].expand(6, 2, 2)
data = {
    "state": {"x": torch.stack([i, i], 1).to(torch.bfloat16).requires_grad_(), "camera": camera},
    "action": i[:, None].float(), "reward": i.double(), "done": i % 2 == 0,
    "next_state": {"x": torch.stack([i, i], 1).to(torch.bfloat16), "camera": camera},
    "response_mask": torch.tril(torch.ones(6, 6, dtype=torch.int32)), "flag": i == 3, "half": (i / 7).to(torch.bfloat16),
    "tasks": np.arange(6),
}
pool = SACReplayPool(10)
out = pool.insert_and_resample(data, 6)
order = out["reward"].long()
for key, value in [*data.items(), *out["state"].items()]:
    if key in ("state", "next_state"): continue
    got = out[key] if key in out else value
    assert type(got) is type(value), key
    want = data[key] if key in data else data["state"][key]
    assert got.dtype == want.dtype and got.shape == want.shape, key
    assert (torch.as_tensor(got) == torch.as_tensor(want)[order]).all(), key
pool.save("SNAPSHOT")
again = SACReplayPool.from_path("SNAPSHOT")
assert again.sample_batch(6)["half"].dtype == torch.bfloat16
print("good")
"""


def test_torch_in_torch_out(tmp_path):
    pytest.importorskip("torch", reason="the base install has no torch")
    code = TORCH.replace("SNAPSHOT", str(tmp_path / "snapshot"))
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=cpu_only(), timeout=120)
    assert child.stdout == "good\n", child.stderr
    without = (
        "import sys\nfrom headrace.buffer import SACReplayPool\nfrom headrace.common.errors import PoolError\n"
        f"pool = SACReplayPool.from_path({str(tmp_path / 'snapshot')!r})\n"
        "try:\n    pool.sample_batch(2)\nexcept PoolError as error:\n    print(error)\nassert 'torch' not in sys.modules"
    )
    child = subprocess.run([sys.executable, "-c", without], capture_output=True, text=True, env=cpu_only(), timeout=120)
    assert "import torch before sampling" in child.stdout, child.stderr


def test_whole_numbers_task_and_source_are_what_sets_choose_by():
    halves = {
        "people": SetConfig(0.5, source=("human",), when_small="replace"),
        "rest": SetConfig(0.5, source=("policy",), task=(7,)),
    }
    pool = SACReplayPool(100, sampling=SamplingConfig(sets=halves), rng=np.random.default_rng(0))
    task, source = np.repeat([7, 8], [60, 20]), np.repeat([0, 1], [60, 20])
    pool.add_batch(transitions(0, 80, task=task, source=source.astype(np.uint8)))
    batch = pool.sample_batch(40)
    assert (batch["task"].dtype, batch["source"].dtype) == (np.int64, np.int64)
    assert np.bincount(batch["source"]).tolist() == [20, 20]
    assert (batch["task"] == np.where(batch["source"] == 1, 8, 7)).all()
    assert pool.spec.obs[0].key == "state"
    assert len(pool.spec.obs) == 1
    with pytest.raises(SpecError, match=r"transitions.source: row 1 holds 3, allowed are 0 to 2"):
        pool.add_batch(transitions(0, 2, task=task[:2], source=np.array([1, 3], np.uint8)))
    with pytest.raises(SpecError, match=r"transitions.task: row 0 holds -1"):
        pool.add_batch(transitions(0, 1, task=np.array([-1]), source=np.zeros(1, np.uint8)))


@pytest.mark.parametrize("name", ["task", "source"])
def test_whole_numbers_in_a_column_are_tags_too(name):
    pool = SACReplayPool(100)
    pool.add_batch(transitions(0, 4, **{name: np.array([[2], [0], [1], [2]])}))
    assert sorted(pool.sample(4).rows[name].reshape(4)) == [0, 1, 2, 2]
    assert pool.sample_batch(4)[name].shape == (4, 1)


@pytest.mark.parametrize("source", [np.array(["human"] * 4), np.ones(4, np.float32), np.ones((4, 2), int), np.ones(4, bool)])
def test_a_source_that_no_set_could_choose_by_is_refused(source):
    pool = SACReplayPool(100)
    with pytest.raises(SpecError, match=r"transitions.source: .* a row, expected one whole number a row \(0 policy, 1 human"):
        pool.add_batch(transitions(0, 4, source=source))
    pool.add_batch(transitions(0, 4, source=np.ones(4, int)))


@pytest.mark.parametrize("sets", [{"all": SetConfig(1.0, balance="task")}, {"all": SetConfig(1.0, task=(3,))}])
def test_words_for_tasks_are_refused_where_sets_choose_by_task(sets):
    pool = SACReplayPool(100, sampling=SamplingConfig(sets=sets))
    with pytest.raises(SpecError, match=r"transitions.task: <U5 \(\) a row, but a set of sampling.sets chooses by task"):
        pool.add_batch(transitions(0, 4, task=np.array(["reach"] * 4)))
    pool.add_batch(transitions(0, 4, task=np.full(4, 3)))


def test_done_says_what_the_flags_beside_it_say():
    flags = {"terminated": np.array([0, 1, 0]), "truncated": np.array([0, 0, 1])}
    pool = SACReplayPool(100)
    with pytest.raises(SpecError, match=r"transitions.done: row 2 holds 0, beside terminated 0, truncated 1; leave done out"):
        pool.add_batch({**transitions(0, 3), **flags, "done": np.array([0, 1, 0])})
    with pytest.raises(SpecError, match=r"transitions.done: row 0 holds 1, beside terminated 0; leave done out"):
        pool.add_batch({**transitions(0, 3), "terminated": flags["terminated"], "done": np.ones((3, 1))})
    pool.add_batch({**transitions(0, 3), **flags, "done": np.array([0, 1, 1])})
    assert pool.size == 3


@pytest.mark.parametrize("form", [lambda t: t.to_sparse(), lambda t: t.to("meta")])
def test_a_tensor_without_its_numbers_in_rows_is_refused_by_name(form):
    torch = pytest.importorskip("torch")
    with pytest.raises(SpecError, match=r"transitions.reward: a torch.* tensor on .*, expected a dense one"):
        SACReplayPool(10).add_batch({**transitions(0, 3), "reward": form(torch.ones(3))})


def test_tasks_are_balanced():
    one = {"all": SetConfig(1.0, balance="task")}
    pool = SACReplayPool(200, sampling=SamplingConfig(sets=one), rng=np.random.default_rng(0))
    pool.add_batch(transitions(0, 150, task=np.repeat([1, 2], [100, 50])))
    assert np.bincount(pool.sample_batch(40)["task"]).tolist() == [0, 20, 20]


def test_shorter_texts_fit_and_longer_ones_say_what_to_do():
    pool = pool_of()
    pool.add_batch(transitions(0, 2, word=np.array(["reach", "push"])))
    pool.add_batch(transitions(0, 1, word=np.array(["go"])))
    assert set(pool.sample_batch(3)["word"]) == {"reach", "push", "go"}
    with pytest.raises(SpecError, match=r"word: <U6, wider than the first batch's <U5; .* \.astype\('U6'\)"):
        pool.add_batch(transitions(0, 1, word=np.array(["insert"])))


@pytest.mark.parametrize("filled", [0, 3])
def test_what_is_no_dictionary_is_refused(filled):
    pool = pool_of()
    for _ in range(filled):
        pool.add_batch(transitions(0, 1))
    with pytest.raises(SpecError, match="transitions: list, expected a dictionary"):
        pool.add_batch([1, 2])


def test_a_generator_and_a_sampling_of_another_kind_are_refused():
    with pytest.raises(ArgumentError, match=r"rng: 3 \(int\), expected Generator or None"):
        SACReplayPool(10, rng=3)
    with pytest.raises(ArgumentError, match=r"sampling: .* \(dict\), expected SamplingConfig or None"):
        SACReplayPool(10, sampling={"method": "uniform"})
