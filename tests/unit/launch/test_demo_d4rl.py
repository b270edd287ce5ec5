"""D4RL's files become right transitions; a malformed one is refused by field and loads nothing."""

import h5py
import numpy as np
import pytest
from helpers.demo_files import TAKES, Take, write_d4rl
from helpers.demo_import import (
    BOUNDS,
    LENGTHS,
    declare,
    drop,
    empty_pool,
    external_storage,
    link,
    prove,
    put,
    refuses,
    rows_of,
    run,
    spoil,
    virtual,
)


@pytest.mark.parametrize("window", [1, 3])
def test_d4rl_with_next_observations(window, tmp_path, capsys):
    write_d4rl(tmp_path / "d.hdf5", tail=4)
    words = ("--n-step", window, "--stack", 2, "--success", "infos/goal", "--actor", "expert", *BOUNDS)
    said = run(capsys, "pool", "import", tmp_path / "d.hdf5", tmp_path / "pool", *words)
    assert "26 rows of 6 episodes, 2 successes, 4 failures entered as actor expert" in said
    batch, spec = rows_of(tmp_path / "pool")
    assert (spec.window, spec.stack, spec.kind) == (window, 2, "steps")
    prove(batch, "obs", window, [*LENGTHS, 4], [*(take.end for take in TAKES), "truncated"])


def test_d4rl_without_next_observations_invents_none(tmp_path, capsys):
    """The last step of a truncated episode has no next observation, so it is left out and the one before it is truncated."""
    write_d4rl(tmp_path / "d.hdf5", next_observations=False, tail=4)
    said = run(capsys, "pool", "import", tmp_path / "d.hdf5", tmp_path / "pool", *BOUNDS)
    assert "3 steps were left out" in said
    assert "3 terminated steps keep their own observation" in said
    batch, _ = rows_of(tmp_path / "pool")
    rows = batch.rows
    last = rows["terminated"] == 1
    np.testing.assert_array_equal(batch.next_obs["obs"][last], batch.obs["obs"][last])
    batch.next_obs["obs"][last] += (0, 1)
    prove(
        batch, "obs", 1, [5, 1, 8, 4, 2, 3], ["terminated", "terminated", "truncated", "terminated", "truncated", "truncated"]
    )


def test_a_step_that_is_not_followed_by_its_next_observation_cuts_the_episode(tmp_path, capsys):
    write_d4rl(tmp_path / "d.hdf5", (Take(6),))
    with h5py.File(tmp_path / "d.hdf5", "a") as file:
        file["next_observations"][2] = (9, 9)
    said = run(capsys, "pool", "import", tmp_path / "d.hdf5", tmp_path / "pool", *BOUNDS, "--n-step", 3, "--stack", 2)
    assert "6 rows of 2 episodes" in said
    assert "1 episodes were cut" in said
    batch, _ = rows_of(tmp_path / "pool")
    assert batch.rows["truncated"].tolist() == [1, 1, 1, 0, 0, 0]
    assert batch.next_obs["obs"][:3, 1].tolist() == [[9, 9]] * 3
    assert batch.obs["obs"][3].tolist() == [[0, 3], [0, 3]]


D4RL_FAULTS = {
    "no actions": (drop("actions"), "actions: missing"),
    "no rewards": (drop("rewards"), "rewards: missing"),
    "no terminals": (drop("terminals"), "terminals: missing"),
    "no timeouts": (drop("timeouts"), "timeouts: missing"),
    "no observations": (drop("observations"), "observations: missing"),
    "short": (put("rewards", np.zeros(21, "f4")), "rewards: 21 rows, expected 22"),
    "empty": (put("actions", np.zeros((0, 2), "f4")), "actions: no rows"),
    "scalar": (put("rewards", 1.0), "rewards: shape (), expected rows"),
    "next of another shape": (
        put("next_observations", np.zeros((22, 3), "f4")),
        "next_observations: (3,) a row, expected (2,)",
    ),
    "nan": (spoil("observations", 7, np.nan), "observations: row 7 holds NaN"),
    "infinite action": (spoil("actions", 21, np.inf), "actions: row 21 holds NaN"),
    "nan reward": (spoil("rewards", 0, np.nan), "rewards: row 0 holds NaN"),
    "too large for float32": (put("rewards", np.full(22, 1e200)), "rewards: row 0 holds NaN, infinity, or what float32"),
    "changed by float32": (
        put("rewards", np.where(np.arange(22) == 9, (1 << 24) + 1, 1 << 30)),
        "rewards: row 9 holds 16777217, a whole number that float32 would make 16777216; scale the column",
    ),
    "unsigned": (put("rewards", np.ones(22, "u8")), "rewards: dtype uint64; stored are bool, uint8"),
    "flag": (put("terminals", np.full(22, 2)), "terminals: (22,) of int64, expected one 0 or 1 a row"),
    "text": (put("rewards", np.array([b"x"] * 22)), "rewards: dtype |S1"),
    "objects": (put("rewards", ["x"] * 22, dtype=h5py.string_dtype()), "rewards: dtype object"),
    "ragged": (declare("rewards", (22,), dtype=h5py.vlen_dtype("f4")), "rewards: dtype object"),
    "complex": (put("rewards", np.zeros(22, "c8")), "rewards: dtype complex64"),
    "compound": (put("rewards", np.zeros(22, [("a", "f4")])), "rewards: dtype [('a', '<f4')]"),
    "huge": (
        declare("observations", (1 << 40, 2), dtype="f4", chunks=(64, 2)),
        "declares 8796093022208 bytes, but the file has",
    ),
    "huge chunk": (declare("rewards", (22,), dtype="f4", chunks=(1 << 28,), maxshape=(None,)), "chunks of (268435456,)"),
    "soft link": (link("rewards", h5py.SoftLink("/actions")), "rewards: a link to '/actions'; links are not followed"),
    "external link": (
        link("rewards", h5py.ExternalLink("/etc/passwd", "/x")),
        "rewards: a link to '/x'; links are not followed",
    ),
    "linked obs": (link("observations", h5py.SoftLink("/actions")), "observations: a link to '/actions'"),
    "external storage": (external_storage, "rewards: its data lie in other files"),
    "virtual": (virtual, "rewards: its data lie in other files"),
}


@pytest.mark.parametrize("case", D4RL_FAULTS)
def test_a_malformed_d4rl_file_is_refused_by_field_and_loads_nothing(case, tmp_path, capsys):
    change, said = D4RL_FAULTS[case]
    write_d4rl(tmp_path / "d.hdf5")
    refuses(capsys, tmp_path / "d.hdf5", change, said, empty_pool(tmp_path / "there"))
