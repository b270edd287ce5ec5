"""Minari's data sets become right transitions; a malformed one is refused by field and loads nothing."""

import json

import h5py
import numpy as np
import pytest
from helpers.demo_files import HIGH, LOW, write_minari
from helpers.demo_import import BOUNDS, drop, fails, prove, prove_outcomes, put, rows_of, run


def test_minari(tmp_path, capsys, monkeypatch):
    place = write_minari(tmp_path, monkeypatch)
    said = run(capsys, "pool", "import", place, tmp_path / "pool", "--n-step", 2)
    assert "22 rows of 5 episodes, 2 successes, 3 failures entered as actor arm-v0" in said
    batch, spec = rows_of(tmp_path / "pool")
    prove(batch, "agent.pose", 2)
    prove_outcomes(batch.rows)
    assert (spec.action.low, spec.action.high) == (LOW, HIGH)  # they are in the file


def test_minari_renames_and_flat_spaces(tmp_path, capsys, monkeypatch):
    place = write_minari(tmp_path / "a", monkeypatch)
    run(capsys, "pool", "import", place / "data", tmp_path / "pool", "--obs", "agent/pose=obs")
    prove(rows_of(tmp_path / "pool")[0], "obs")
    run(capsys, "pool", "import", write_minari(tmp_path / "b", monkeypatch, nested=False), tmp_path / "flat")
    prove(rows_of(tmp_path / "flat")[0], "obs")


@pytest.mark.parametrize("jpeg", [False, True])
def test_minari_images(jpeg, tmp_path, capsys, monkeypatch):
    place = write_minari(tmp_path, monkeypatch, image=32, jpeg=jpeg)
    run(capsys, "pool", "import", place, tmp_path / "pool")
    batch, spec = rows_of(tmp_path / "pool")
    assert spec.obs[1].shape == (32, 32, 3)
    shades = batch.rows["episode"][:, None, None, None] * 20.0
    assert np.abs(batch.next_obs["camera"] - shades).max() <= (2 if jpeg else 0)


def test_minari_without_finite_bounds_needs_them(tmp_path, capsys, monkeypatch):
    place = write_minari(tmp_path, monkeypatch, low=(-np.inf, -1.0))
    assert "--low, --high: Minari files do not say" in fails(capsys, "pool", "import", place, tmp_path / "pool")
    run(capsys, "pool", "import", place, tmp_path / "pool", *BOUNDS)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda meta: meta.update(data_format="arrow"), "data_format 'arrow'; only Minari's hdf5 form is read"),
        (lambda meta: meta.update(action_space='{"type": "Discrete", "n": 3, "start": 0}'), "action_space is a Discrete"),
        (lambda meta: meta.update(action_space="{"), "action_space: not a space"),
        (lambda meta: meta.update(observation_space='{"type": "Text"}'), "observation_space: it is a Text"),
        (lambda meta: meta.update(observation_space='{"type": "Dict", "subspaces": 3}'), "observation_space: not a space"),
    ],
)
def test_a_minari_data_set_whose_metadata_do_not_fit_is_refused(change, said, tmp_path, capsys, monkeypatch):
    place = write_minari(tmp_path, monkeypatch)
    meta = json.loads((place / "data" / "metadata.json").read_text())
    change(meta)
    (place / "data" / "metadata.json").write_text(json.dumps(meta))
    assert said in fails(capsys, "pool", "import", place, tmp_path / "new")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (drop("episode_2/truncations"), "episode_2/truncations: missing"),
        (put("episode_2/observations/agent/pose", np.zeros((9, 2))), "episode_2/observations/agent/pose: 9 rows, expected 10"),
        (put("episode_2/infos/success", np.zeros(4, bool)), "episode_2/infos/success: 4 rows, expected 9 or 10"),
        (put("episode_0/observations/camera", np.zeros((6, 30), "u1")), "camera: row 0 is no whole JPEG"),
    ],
)
def test_a_malformed_minari_episode_is_refused_by_field(change, said, tmp_path, capsys, monkeypatch):
    place = write_minari(tmp_path, monkeypatch, image=32)
    with h5py.File(place / "data" / "main_data.hdf5", "a") as file:
        change(file)
    assert said in fails(capsys, "pool", "import", place, tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_an_image_of_another_size_than_its_space_is_not_unpacked(tmp_path, capsys, monkeypatch):
    small, large = (write_minari(tmp_path / n, monkeypatch, image=size) for n, size in (("a", 32), ("b", 64)))
    (small / "data" / "main_data.hdf5").write_bytes((large / "data" / "main_data.hdf5").read_bytes())
    assert "row 0 is an image of (64, 64, 3), expected (32, 32, 3)" in fails(capsys, "pool", "import", small, tmp_path / "new")
