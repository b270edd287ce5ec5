"""The form of plain dictionaries: whatever comes in after the first batch comes back as it is, or is refused by name."""

import numpy as np
import pytest

from headrace.buffer import PoolConfig, SACReplayPool, SamplingConfig, SetConfig, export_pool, import_pool
from headrace.common.errors import SpecError


def rows(reward, **more):
    """Rows that their reward numbers; every array of a row says it again."""
    reward = np.asarray(reward)
    state = np.stack([reward, reward], axis=1).astype(np.float32)
    return {"state": state, "action": reward[:, None], "reward": reward, "next_state": state, "done": reward > 2, **more}


FIRST = {
    "whole numbers": np.array([0, 1]),
    "truth values": np.array([False, True]),
    "bytes": np.array([0, 1], np.uint8),
    "half floats": np.array([0, 1], np.float16),
    "floats": np.array([0, 1], np.float32),
    "wide floats": np.array([0.0, 1.0]),
}


@pytest.mark.parametrize("first", FIRST.values(), ids=FIRST)
def test_rewards_and_actions_of_later_batches_and_labels_are_not_cut_to_the_first_ones_dtype(first):
    pool = SACReplayPool(100)
    pool.add_batch(rows(first))
    pool.add_batch(rows(np.array([0.5, -2.0, 300.0, 1e6], np.float32)))
    pool.amend_rewards("local", 1, 2, np.array([-3.5]))
    batch = pool.sample_batch(6)
    assert sorted(batch["reward"].tolist()) == [-3.5, -2, 0, 0.5, 300, 1e6]
    assert sorted(batch["action"][:, 0].tolist()) == [-2, 0, 0.5, 1, 300, 1e6]
    wanted = np.float64 if first.dtype == np.float64 else np.float32
    assert (batch["reward"].dtype, batch["action"].dtype) == (wanted, wanted)


@pytest.mark.parametrize("dtype", [np.uint8, np.int32, np.int64])
def test_tasks_beyond_the_first_ones_dtype_come_back(dtype):
    pool = SACReplayPool(100)
    pool.add_batch(rows([1.0, 2.0], task=np.array([1, 2], dtype)))
    pool.add_batch(rows([3.0], task=np.array([70_000])))
    batch = pool.sample_batch(3)
    assert batch["task"].dtype == np.int64
    assert dict(zip(batch["reward"], batch["task"], strict=True)) == {1: 1, 2: 2, 3: 70_000}


def test_states_that_the_first_ones_dtype_cannot_hold_are_refused():
    pool = SACReplayPool(100)
    half = rows([1.0])
    half["state"], half["next_state"] = half["state"].astype(np.float16), half["next_state"].astype(np.float16)
    pool.add_batch(half)
    with pytest.raises(SpecError, match=r"transitions.state: <f4, the first batch had <f2; convert it to that"):
        pool.add_batch(rows([1e6]))
    wide = SACReplayPool(100)
    wide.add_batch(rows([1e6]))
    wide.add_batch(half)
    assert sorted(wide.sample_batch(2)["state"][:, 0].tolist()) == [1, 1e6]


REFUSED = {
    "two keys of one name": ({"info": {1: np.zeros(1), "1": np.ones(1)}}, r"transitions/info: the key 1 is no text but int"),
    "a structured array": ({"x": np.zeros(1, [("a", "<f4"), ("b", "u1")])}, r"transitions.x: a structured array; .* a, b each"),
    "no mark of validity": ({"valids": np.array([np.nan])}, r"transitions.valids: row 0 holds \[nan\], expected 0 or 1"),
    "next states of another kind": (
        {"next_state": np.zeros((1, 2), np.int64)},
        r"transitions.next_state: <i8, but state is <f4",
    ),
}


@pytest.mark.parametrize(("more", "why"), REFUSED.values(), ids=REFUSED)
def test_what_could_not_come_back_is_refused_and_fixes_nothing(more, why):
    pool = SACReplayPool(100)
    with pytest.raises(SpecError, match=why):
        pool.add_batch(rows([1.0], **more))
    assert (len(pool), pool.spec) == (0, None)


OTHERS = {
    "another dtype": ({"x": np.array([7], np.int32)}, r"x: <i4, <f4"),
    "words": ({"x": np.array(["a"])}, r"x: <U1, <f4"),
    "a half state": ({"x": np.zeros(1, np.float32), "state": np.zeros((1, 2), np.float16)}, r"state: <f2, <f4"),
}


@pytest.mark.parametrize("way", ["import", "load", "state", "adopt"])
@pytest.mark.parametrize(("ours", "why"), OTHERS.values(), ids=OTHERS)
def test_rows_of_another_form_are_refused_however_they_come(ours, why, way, tmp_path):
    source = SACReplayPool(100)
    source.add_batch(rows([1.0, 2.0], x=np.array([1, 2], np.float32)))
    source.save(tmp_path / "saved")
    export_pool(source, tmp_path / "export")
    pool = SACReplayPool(100)
    pool.add_batch(rows([5.0], **ours))
    with pytest.raises(SpecError, match=rf"has other plain dictionaries \(the pool's first\): {why}"):
        {
            "import": lambda: import_pool(tmp_path / "export", pool),
            "load": lambda: pool.load(tmp_path / "saved"),
            "state": lambda: pool.set_state(source.get_state()),
            "adopt": lambda: pool.adopt(source),
        }[way]()
    assert pool.sample_batch(1)["reward"].tolist() == [5]
    assert pool.check_valid() == (True, "")


def test_rows_of_the_same_form_come_back_from_an_import_whatever_numbers_the_pool_began_with(tmp_path):
    source = SACReplayPool(100)
    source.add_batch(rows([0.5, 0.7]))
    export_pool(source, tmp_path / "export")
    pool = SACReplayPool(100)
    pool.add_batch(rows([3, 4]))
    import_pool(tmp_path / "export", pool)
    np.testing.assert_array_equal(np.sort(pool.sample_batch(4)["reward"]), np.array([0.5, 0.7, 3, 4], np.float32))


def test_sets_by_task_refuse_words_wherever_the_rows_come_from(tmp_path):
    by_task = SamplingConfig(sets={"all": SetConfig(1.0, balance="task")})
    with SACReplayPool(100, path=tmp_path / "pool") as words:
        words.add_batch(rows([1.0, 2.0], task=np.array(["a", "b"])))
        words.save(tmp_path / "saved")
        for make in (
            lambda: SACReplayPool(100, sampling=by_task).load(tmp_path / "saved"),
            lambda: SACReplayPool.from_path(tmp_path / "saved", sampling=by_task),
            lambda: SACReplayPool(100, sampling=by_task, demos=words),
        ):
            with pytest.raises(SpecError, match="a set of sampling.sets chooses by task: give one whole number a row"):
                make()
    with pytest.raises(SpecError, match="chooses by task"):
        SACReplayPool(1, path=tmp_path / "pool", sampling=by_task)  # refused before it evicts what would not fit
    assert SACReplayPool(100, path=tmp_path / "pool").size == 2


def test_a_pool_stays_where_it_was_opened_wherever_the_process_goes(tmp_path, monkeypatch):
    source = SACReplayPool(100)
    source.add_batch(rows([1.0, 2.0]))
    export_pool(source, tmp_path / "export")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    pool = SACReplayPool(100, path="pool", config=PoolConfig(ack="synced"))
    monkeypatch.chdir("elsewhere")
    pool.add_batch(rows([3.0]))
    import_pool(tmp_path / "export", pool)
    pool.close()
    assert list((tmp_path / "elsewhere").iterdir()) == []
    assert sorted(SACReplayPool(100, path=tmp_path / "pool").sample_batch(3)["reward"]) == [1, 2, 3]
