"""Arguments of another kind: every call of the pool names the argument, its value and what it takes, and changes nothing."""

import inspect
from pathlib import Path

import numpy as np
import pytest

from headrace.buffer import SACReplayPool, SamplingConfig, arguments
from headrace.buffer.view import PoolView
from headrace.common.block import Block
from headrace.common.errors import ArgumentError, HeadraceError
from headrace.common.label import Kind, Label


def rows(n=4):
    t = np.arange(n, dtype="<f4")
    return {"state": t[:, None], "action": t[:, None], "reward": t, "next_state": t[:, None] + 1, "done": t < 0}


def filled():
    pool = SACReplayPool(20, sampling=SamplingConfig("prioritised"), rng=np.random.default_rng(0))
    pool.add_batch(rows())
    return pool


class Odd:
    """Nothing that any call takes, and whose text cannot be had either."""

    def __repr__(self):
        raise RuntimeError("no text")


NO_NUMBERS = (2.0, 1.5, "3", True, np.float32(1), np.zeros(2, int), None, Odd())
NO_TEXTS = (3, b"local", ["local"], Odd())
NO_ARRAYS = ("x", [[1.0], [1.0, 2.0]], {}, np.array(["a"]), Odd(), [None])
NO_PATHS = ("", 3, b"there", "a\0b", Odd())


def calls(name, values, call):
    return [(name, value, call) for value in values]


CALLS = [
    *calls("batch_size", (*NO_NUMBERS, 0, -1), lambda p, v: p.sample_batch(v)),
    *calls("batch_size", (*NO_NUMBERS, 0, -1), lambda p, v: p.sample(v)),
    *calls("batch_size", (2.0, 0), lambda p, v: p.insert_and_resample(rows(), v)),
    *calls("batches", (*NO_NUMBERS, 0), lambda p, v: p.draw(1, batches=v)),
    *calls("rng", (3, Odd(), np.random), lambda p, v: p.sample(1, v)),
    *calls("mix", (3, ["critic"], None), lambda p, v: p.sample_batch(1, v)),
    *calls("stream", NO_NUMBERS, lambda p, v: p.label("local", v, 1, 2, 1)),
    *calls("first", NO_NUMBERS, lambda p, v: p.label("local", 1, v, 2, 1)),
    *calls("last", NO_NUMBERS, lambda p, v: p.label("local", 1, 1, v, 1)),
    *calls("outcome", NO_NUMBERS, lambda p, v: p.label("local", 1, 1, 2, v)),
    *calls("actor", NO_TEXTS, lambda p, v: p.label(v, 1, 1, 2, 1)),
    *calls("actor", NO_TEXTS, lambda p, v: p.discard(v, 1, 1, 2)),
    *calls("first", NO_NUMBERS, lambda p, v: p.discard("local", 1, v, 2)),
    *calls("first", NO_NUMBERS, lambda p, v: p.amend_rewards("local", 1, v, np.ones(2))),
    *calls("rewards", (*NO_ARRAYS, 3.0, np.ones((1, 1, 1))), lambda p, v: p.amend_rewards("local", 1, 1, v)),
    *calls("label", (3, None, Odd()), lambda p, v: p.amend("local", v)),
    *calls("kind", (1, "discard"), lambda p, v: p.amend("local", Label(v, 1, 1, 2))),
    *calls("rewards", (3, [1.0]), lambda p, v: p.amend("local", Label(Kind.REWARDS, 1, 1, 1, rewards=v))),
    *calls("episode", NO_NUMBERS, lambda p, v: p.amend("local", Label(Kind.DISCARD, 1, 1, 2, episode=v))),
    *calls("n", (*NO_NUMBERS, -1, 1 << 40), lambda p, v: p.grant_updates(v)),
    *calls("rows", (*NO_NUMBERS, -1), lambda p, v: p.reject("local", 1, 1, v)),
    *calls("first_seq", NO_NUMBERS, lambda p, v: p.reject("local", 1, v, 1)),
    *calls("block", (3, {}, None), lambda p, v: p.insert(v, "a", 1, 1)),
    *calls("actor", NO_TEXTS, lambda p, v: p.insert(Block(np.zeros(1), {}), v, 1, 1)),
    *calls("first_seq", NO_NUMBERS, lambda p, v: p.insert(Block(np.zeros(1), {}), "a", 1, v)),
    *calls("priorities", NO_ARRAYS, lambda p, v: p.insert(Block(np.zeros(1), {}), "a", 1, 1, v)),
    *calls("priorities", NO_ARRAYS, lambda p, v: p.add_batch(rows(), v)),
    *calls("priorities", NO_ARRAYS, lambda p, v: p.update_priorities([0], v)),
    *calls("ids", (*NO_ARRAYS, [0.5], 3, np.zeros((1, 1), int), [1 << 63]), lambda p, v: p.update_priorities(v, [1.0])),
    *calls("ids", (*NO_ARRAYS, [0.5], 3), lambda p, v: p.gather(v)),
    *calls("epoch", ("1", 1.0), lambda p, v: p.update_priorities([0], [1.0], v)),
    *calls("out", (3, {}), lambda p, v: p.gather([0], v)),
    *calls("start", NO_NUMBERS, lambda p, v: p.live(v, 2)),
    *calls("stop", ("1", 1.0), lambda p, v: list(p.dump(0, v))),
    *calls("actor", NO_TEXTS, lambda p, v: p.admit(v)),
    *calls("actor", NO_TEXTS, lambda p, v: p.streams(v)),
    *calls("stream", NO_NUMBERS, lambda p, v: p.last_seq("local", v)),
    *calls("path", NO_PATHS, lambda p, v: p.save(v)),
    *calls("path", NO_PATHS, lambda p, v: p.load(v)),
    *calls("path", NO_PATHS, lambda p, v: SACReplayPool.from_path(v)),
    *calls("keep", (*NO_NUMBERS, 0, -1), lambda p, v: p.save("never-written", keep=v)),
    *calls("progress", (3, "x"), lambda p, v: p.save("never-written", v)),
    *calls("folder", NO_PATHS, lambda p, v: p.pinned(v)),
    *calls("origin", (3, "x"), lambda p, v: p.pinned(None, v)),
    *calls("other", (3, None), lambda p, v: p.adopt(v)),
    *calls("state", (3, None), lambda p, v: p.set_state(v)),
    *calls("body", (3, None, {}), lambda p, v: SACReplayPool.like(v)),
    *calls("capacity", NO_NUMBERS, lambda p, v: SACReplayPool(v)),
    *calls("path", NO_PATHS, lambda p, v: SACReplayPool(5, path=v)),
    *calls("spec", (3, {}), lambda p, v: SACReplayPool(5, spec=v)),
    *calls("config", (3, {}), lambda p, v: SACReplayPool(5, config=v)),
    *calls("sampling", (3, {}), lambda p, v: SACReplayPool(5, sampling=v)),
    *calls("rng", (3, 0.5), lambda p, v: SACReplayPool(5, rng=v)),
    *calls("demos", (3, "demos"), lambda p, v: SACReplayPool(5, demos=v)),
    *calls("return_gamma", ("x", True, -1, 2, float("nan")), lambda p, v: SACReplayPool(5, return_gamma=v)),
    *calls("directory", NO_PATHS, lambda p, v: PoolView(v)),
]


@pytest.mark.parametrize("name", sorted({name for name, _, _ in CALLS}))
def test_an_argument_of_another_kind_is_named_and_changes_nothing(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pool = filled()
    before, content = pool.counters(), list(pool.dump())
    for value, call in [(value, call) for each, value, call in CALLS if each == name]:
        with pytest.raises(ArgumentError, match=rf"^{name}: .*\({type(value).__name__}\), expected "):
            call(pool, value)
    assert (pool.counters(), list(pool.dump())) == (before, content)
    assert list(tmp_path.iterdir()) == []


def test_numpys_numbers_and_lists_are_as_good_as_pythons(tmp_path):
    pool = SACReplayPool(np.int64(20), path=str(tmp_path / "pool"), sampling=SamplingConfig("prioritised"))
    pool.add_batch(rows(), [1, 2, 3, 4])
    assert len(pool.sample_batch(np.int32(3))["reward"]) == 3
    assert pool.label("local", np.uint8(1), np.int64(1), 2, np.array(1)).rows == 2
    assert pool.amend_rewards("local", 1, 1, [5, 6]).rows == 2
    assert pool.update_priorities([0, 1], [1, 2]) == 0
    assert pool.update_priorities(np.zeros(0, np.float32), []) == 0
    assert pool.grant_updates(np.int16(2)) == 2
    assert pool.gather([1, 2]).rows["rewards"][:, 0].tolist() == [6, 2]
    pool.close()


def test_tensors_are_taken_for_the_numbers_that_they_hold():
    torch = pytest.importorskip("torch")
    pool = filled()
    td = torch.tensor([1.0, 2.0], requires_grad=True)
    for errors in (td, td.abs(), td.bfloat16(), td.double()):
        assert pool.update_priorities(torch.tensor([0, 1]), errors) == 0
    assert pool.amend_rewards("local", 1, 1, td).rows == 2
    assert pool.sampling_info()["priority_max"] == pytest.approx(2, rel=1e-2)
    with pytest.raises(ArgumentError, match=r"rewards: shape \(1,\) of torch\.complex64 \(Tensor\), expected an array"):
        pool.amend_rewards("local", 1, 1, torch.zeros(1, dtype=torch.complex64))


def test_ragged_arrays_of_a_batch_are_named():
    with pytest.raises(HeadraceError, match=r"transitions\.reward: list, not one array"):
        filled().add_batch({**rows(2), "reward": [[1.0], [1.0, 2.0]]})


def test_every_check_names_what_it_takes():
    for name, check in inspect.getmembers(arguments, inspect.isfunction):
        if name in ("whole", "real", "text", "instance", "directory", "numbers", "ids"):
            more = {"real": (0, 1), "instance": (Path,)}.get(name, ())
            with pytest.raises(ArgumentError, match=r"^it: .*\(Odd\), expected "):
                check("it", Odd(), *more)
