"""robomimic's files become right transitions; a malformed one is refused by field and loads nothing."""

import h5py
import numpy as np
import pytest
from helpers.demo_files import HIGH, LOW, Take, write_robomimic
from helpers.demo_import import BOUNDS, drop, link, prove, prove_outcomes, put, refuses, rows_of, run, spoil


def test_robomimic(tmp_path, capsys):
    write_robomimic(tmp_path / "demo.hdf5")
    said = run(capsys, "pool", "import", tmp_path / "demo.hdf5", tmp_path / "pool", *BOUNDS)
    assert "22 rows of 5 episodes, 2 successes, 3 failures entered as actor demo, 22 are live" in said
    assert "a done is read as terminated" in said
    batch, spec = rows_of(tmp_path / "pool")
    prove(batch)
    prove_outcomes(batch.rows)
    assert [(o.key, o.shape, o.dtype) for o in spec.obs] == [
        ("agentview_image", (4, 4, 3), "|u1"),
        ("pose", (2,), "<f4"),
    ]
    assert (spec.action.low, spec.action.high) == (LOW, HIGH)
    assert (batch.next_obs["agentview_image"] == batch.rows["episode"][:, None, None, None]).all()


def test_robomimic_dones_may_be_the_end_of_the_recording(tmp_path, capsys):
    write_robomimic(tmp_path / "demo.hdf5", success=False)
    words = ("--dones", "truncated", "--obs", "pose=state", *BOUNDS)
    run(capsys, "pool", "import", tmp_path / "demo.hdf5", tmp_path / "pool", *words)
    batch, _ = rows_of(tmp_path / "pool")
    prove(batch, "state", ends=["truncated"] * 5)
    assert not batch.rows["outcome"].any()
    assert list(batch.obs) == ["state"]


def test_demos_are_read_in_the_order_of_their_numbers(tmp_path, capsys):
    takes = (Take(2),) * 12
    write_robomimic(tmp_path / "demo.hdf5", takes)
    run(capsys, "pool", "import", tmp_path / "demo.hdf5", tmp_path / "pool", *BOUNDS)
    batch, _ = rows_of(tmp_path / "pool")
    prove(batch, lengths=[2] * 12, ends=["terminated"] * 12)


def test_a_done_in_the_middle_ends_an_episode_and_begins_the_next(tmp_path, capsys):
    write_robomimic(tmp_path / "demo.hdf5", (Take(6, "truncated"),))
    with h5py.File(tmp_path / "demo.hdf5", "a") as file:
        file["data/demo_0/dones"][2] = 1
    run(capsys, "pool", "import", tmp_path / "demo.hdf5", tmp_path / "pool", *BOUNDS, "--n-step", 4)
    rows = rows_of(tmp_path / "pool")[0].rows
    assert rows["episode"].tolist() == [0, 0, 0, 1, 1, 1]
    assert rows["steps"].tolist() == [3, 2, 1] * 2
    assert rows["terminated"].tolist() == [1] * 3 + [0] * 3
    assert rows["truncated"].tolist() == [0] * 3 + [1] * 3


ROBOMIMIC_FAULTS = {
    "no obs": (drop("data/demo_3/obs"), "data/demo_3/obs/agentview_image: missing"),
    "no dones": (drop("data/demo_3/dones"), "data/demo_3/dones: missing"),
    "short obs": (put("data/demo_3/obs/pose", np.zeros((3, 2))), "data/demo_3/obs/pose: 3 rows, expected 4"),
    "other shape": (put("data/demo_3/obs/pose", np.zeros((4, 3))), "data/demo_3/obs/pose: (3,) a row, expected (2,)"),
    "actions": (put("data/demo_4/actions", np.zeros((3, 5))), "data/demo_4/actions: (5,) a row, expected (2,)"),
    "nan in the last demo": (spoil("data/demo_4/next_obs/pose", 2, np.nan), "data/demo_4/next_obs/pose: row 2 holds NaN"),
    "linked demo": (link("data/demo_2", h5py.SoftLink("/data/demo_1")), "data/demo_2/actions: a link to '/data/demo_1'"),
}


@pytest.mark.parametrize("case", ROBOMIMIC_FAULTS)
def test_a_malformed_robomimic_file_is_refused_by_field_and_loads_nothing(case, tmp_path, capsys):
    change, said = ROBOMIMIC_FAULTS[case]
    write_robomimic(tmp_path / "demo.hdf5")
    refuses(capsys, tmp_path / "demo.hdf5", change, said)
