"""A first batch that is refused, for whatever reason, fixes neither the pool's form nor its directory."""

import numpy as np
import pytest

from headrace.buffer import SACReplayPool, SamplingConfig, generations
from headrace.buffer.files import PoolFiles
from headrace.common.errors import BlockRefused, NoSpace, PoolError, PriorityRefused, SpecError
from headrace.common.specs import ActionSpec, ObsSpec, TransitionSpec

BY_PRIORITY = SamplingConfig("prioritised")


def rows(n, width=2, **more):
    t = np.arange(n, dtype="<f4")
    state = np.repeat(t[:, None], width, axis=1)
    return {"state": state, "action": t[:, None], "reward": t, "next_state": state + 1, "done": t < 0, **more}


@pytest.mark.parametrize("on_disk", [False, True])
@pytest.mark.parametrize(
    ("sampling", "batch", "priorities", "error"),
    [
        (BY_PRIORITY, rows(3), np.ones(2), PriorityRefused),
        (BY_PRIORITY, rows(3), np.array([1, -1, 1.0]), PriorityRefused),
        (BY_PRIORITY, rows(3), np.array([1, np.nan, 1.0]), PriorityRefused),
        (None, rows(3), np.ones(3), PoolError),
        (None, rows(3, reward=np.full(3, np.inf)), None, BlockRefused),
    ],
    ids=["too few priorities", "negative", "no number", "not by priority", "infinite"],
)
def test_a_refused_first_batch_leaves_the_form_open(tmp_path, on_disk, sampling, batch, priorities, error):
    pool = SACReplayPool(10, path=tmp_path / "pool" if on_disk else None, sampling=sampling)
    with pytest.raises(error):
        pool.add_batch(batch, priorities)
    assert pool.spec is None
    assert not generations.is_pool(tmp_path / "pool")
    pool.add_batch(rows(4, width=7, more=np.zeros(4)))
    assert pool.sample_batch(4)["state"].shape == (4, 7)
    pool.close()


def test_a_refused_first_batch_of_a_pool_with_a_spec_leaves_the_plain_form_open():
    spec = TransitionSpec((ObsSpec("state", (2,), "<f4"),), ActionSpec((1,), (-1.0,), (1.0,)))
    pool = SACReplayPool(10, spec=spec, sampling=BY_PRIORITY)
    with pytest.raises(PriorityRefused):
        pool.add_batch(rows(3), np.ones(4))
    two = rows(3)
    end = two.pop("done")
    pool.add_batch({**two, "terminated": end, "truncated": end})
    assert {"terminated", "truncated"} <= pool.sample_batch(3).keys()


def test_a_pool_whose_priorities_do_not_fit_is_not_there(tmp_path, monkeypatch):
    def full(*_):
        raise NoSpace("no room for priorities")

    with monkeypatch.context() as patched:
        patched.setattr(PoolFiles, "add_column", full)
        pool = SACReplayPool(10, path=tmp_path, sampling=BY_PRIORITY)
        with pytest.raises(NoSpace):
            pool.add_batch(rows(3))
    assert generations.read(tmp_path) is None
    pool.add_batch(rows(3, width=5))
    pool.close()
    with SACReplayPool(10, path=tmp_path, sampling=BY_PRIORITY) as again:
        assert again.sample_batch(2)["state"].shape == (2, 5)


@pytest.mark.parametrize("sampling", [BY_PRIORITY, None])
def test_rows_of_a_sampled_batch_go_in_again_without_what_is_the_batchs(sampling):
    pool = SACReplayPool(50, sampling=sampling)
    pool.add_batch(rows(8))
    sample = pool.sample_batch(4)
    for name in {"ids", "weights"} if sampling else {"sets"}:
        with pytest.raises(SpecError, match=rf"transitions\.{name}: belongs to a sampled batch.*leave ids, weights, sets out"):
            pool.insert_and_resample({**{k: v for k, v in sample.items() if k in rows(1)}, name: np.zeros(4)}, 4)
    again = {k: v for k, v in sample.items() if k not in ("ids", "weights", "sets")}
    assert len(pool.insert_and_resample(again, 4)["state"]) == 4
    assert pool.size == 12
