"""Demonstrations of any format: which one it is, slices, whole files; what is none of them is refused."""

import h5py
import numpy as np
import pytest
from helpers.demo_files import Take, write_d4rl, write_minari, write_robomimic
from helpers.demo_import import BOUNDS, fails, prove, rows_of, run

from headrace.buffer import SACReplayPool, manifest
from headrace.launch import cli, exits


def test_long_episodes_are_read_slice_by_slice(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("headrace.launch.demos.SLICE_BYTES", 64)
    monkeypatch.setattr("headrace.launch.demo_load.BLOCK_ROWS", 7)
    write_d4rl(tmp_path / "d.hdf5", (Take(50), Take(41, "truncated")))
    words = ("--n-step", 3, "--success", "infos/goal", *BOUNDS)
    run(capsys, "pool", "import", tmp_path / "d.hdf5", tmp_path / "pool", *words)
    batch, _ = rows_of(tmp_path / "pool")
    prove(batch, "obs", 3, [50, 41], ["terminated", "truncated"])
    assert set(batch.rows["outcome"]) == {2}


@pytest.mark.parametrize("slice_bytes", [64, 1 << 20])
def test_demonstrations_become_chunks_one_behind_the_other(tmp_path, capsys, monkeypatch, slice_bytes):
    monkeypatch.setattr("headrace.launch.demos.SLICE_BYTES", slice_bytes)
    write_d4rl(tmp_path / "d.hdf5", (Take(10), Take(3, "truncated")))
    said = run(capsys, "pool", "import", tmp_path / "d.hdf5", tmp_path / "pool", "--chunk", 4, *BOUNDS)
    assert "4 rows (13 env steps) of 2 episodes entered as actor d, 4 are live" in said
    assert manifest.read(tmp_path / "pool")["config"]["capacity"] == 4  # rows, which are decisions
    batch, spec = rows_of(tmp_path / "pool")
    assert (spec.kind, spec.action.shape, spec.window) == ("chunk", (4, 2), 4)
    rows = batch.rows
    assert [(r["episode"], r["t"], r["steps"]) for r in rows] == [(0, 0, 4), (0, 4, 4), (0, 8, 2), (1, 0, 3)]
    assert rows["terminated"].tolist() == [0, 0, 1, 0]
    assert rows["truncated"].tolist() == [0, 0, 0, 1]
    for row, obs, after in zip(rows, batch.obs["obs"], batch.next_obs["obs"], strict=True):
        episode, t, m = int(row["episode"]), int(row["t"]), int(row["steps"])
        assert (obs.tolist(), after.tolist()) == ([episode, t], [episode, t + m])
        np.testing.assert_allclose(row["action"][:m, 1], [(t + i) / 10 for i in range(m)], rtol=1e-6)
        np.testing.assert_allclose(row["action"][m:, 1], (t + m - 1) / 10, rtol=1e-6)  # nobody knows what was planned
        assert row["rewards"].tolist() == [100 * episode + t + i if i < m else 0 for i in range(4)]


def test_rows_that_would_evict_others_are_refused_and_what_was_cut_is_finished(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("headrace.launch.demo_load.BLOCK_ROWS", 7)
    write_d4rl(tmp_path / "d.hdf5", (Take(20), Take(9, "truncated")))
    pool, words = tmp_path / "pool", ("pool", "import", tmp_path / "d.hdf5", tmp_path / "pool")
    assert "29 rows are to enter a pool with a capacity of 9 that holds 0" in fails(capsys, *words, "--capacity", 9, *BOUNDS)
    run(capsys, *words, "--capacity", 70, *BOUNDS)
    insert = SACReplayPool.insert

    def dying(pool, block, actor, stream, first_seq):
        if first_seq > 14:
            raise KeyboardInterrupt
        insert(pool, block, actor, stream, first_seq)

    with monkeypatch.context() as patch:
        patch.setattr(SACReplayPool, "insert", dying)
        assert cli.main([str(word) for word in words]) == exits.STOPPED
    assert "29 rows are to enter" in fails(capsys, *words, "--actor", "other")  # another import
    said = run(capsys, *words)
    assert "entered as actor d@2, 58 are live" in said
    assert "14 of them were in since an earlier import" in said
    batch, _ = rows_of(pool)
    for half in (slice(0, 29), slice(29, 58)):
        assert batch.rows["seq"][half].tolist() == list(range(1, 30))
        assert batch.obs["obs"][half].tolist() == [[0, t] for t in range(20)] + [[1, t] for t in range(9)]
    assert "17 rows made room" in run(capsys, *words, "--actor", "other", "--evict")


def test_a_cut_file_is_refused(tmp_path, capsys):
    write_robomimic(tmp_path / "demo.hdf5")
    data = (tmp_path / "demo.hdf5").read_bytes()
    for size in (len(data) - 1, len(data) // 2, 600, 9):
        (tmp_path / "cut.hdf5").write_bytes(data[:size])
        assert "cut.hdf5: not a whole HDF5 file" in fails(
            capsys, "pool", "import", tmp_path / "cut.hdf5", tmp_path / "new", *BOUNDS
        )
    (tmp_path / "cut.hdf5").write_bytes(data[:4])
    assert "none of what is read" in fails(capsys, "pool", "import", tmp_path / "cut.hdf5", tmp_path / "new", *BOUNDS)


def test_what_is_none_of_the_formats_is_refused(tmp_path, capsys, monkeypatch):
    (tmp_path / "notes.txt").write_text("hello")
    assert "none of what is read" in fails(capsys, "pool", "import", tmp_path / "notes.txt", tmp_path / "new")
    assert "does not exist" in fails(capsys, "pool", "import", tmp_path / "nowhere", tmp_path / "new")
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["x"] = 1
    assert "HDF5 of an unknown layout: x at its root" in fails(
        capsys, "pool", "import", tmp_path / "other.h5", tmp_path / "new"
    )
    place = write_minari(tmp_path, monkeypatch) / "data" / "main_data.hdf5"
    assert "name the directory" in fails(capsys, "pool", "import", place, tmp_path / "new")
    assert "--obs nothing=x: not in" in fails(capsys, "pool", "import", place.parent, tmp_path / "new", "--obs", "nothing=x")
    file = write_d4rl(tmp_path / "d.hdf5")
    for words, said in (
        (("--obs", "="), "--obs =: no key; expected PATH=KEY"),
        (("--obs", "x=y"), "not in observations; there are: one array without a path, which --obs =KEY names"),
        (("--low", 1, "--high", -1), "--low, --high: 1 and -1 in dimension 0; they must be finite, and --low below --high"),
        (("--low", "nan", "--high", 1), "--low, --high: nan and 1 in dimension 0"),
        (("--low", -1), "--high: 0 numbers, expected 1 or 2"),
        (("--actor", "x" * 300, *BOUNDS), "--actor: actor-name: 'xxx"),
    ):
        assert said in fails(capsys, "pool", "import", file, tmp_path / "new", *words)
    assert not (tmp_path / "new").exists()
