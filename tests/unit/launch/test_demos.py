"""Rows of demonstrations take the form of the pool that they enter; what does not fit is refused by field."""

import pytest
from helpers.demo_files import write_d4rl
from helpers.demo_import import BOUNDS, empty_pool, fails, prove, rows_of, run


def test_rows_are_appended_in_the_form_of_the_pool(tmp_path, capsys):
    write_d4rl(tmp_path / "d.hdf5")
    place = empty_pool(tmp_path / "there", window=3)
    run(capsys, "pool", "import", tmp_path / "d.hdf5", place)  # the pool says the bounds
    batch, _ = rows_of(place)
    prove(batch, "obs", 3)
    said = run(capsys, "pool", "import", tmp_path / "d.hdf5", place)
    assert "entered as actor d@2, 44 are live" in said


@pytest.mark.parametrize(
    ("pool", "words", "said"),
    [
        ({"obs": ((3,), "<f4")}, (), "obs.obs: (3,) <f4 != (2,) <f4"),
        ({"obs": ((2,), "|u1")}, (), "obs.obs: (2,) |u1 != (2,) <f4"),
        ({"dim": 3}, BOUNDS, "spec.action.shape[0]: 3 != 2"),
        ({"low": (-3.0, -1.0)}, BOUNDS, "spec.action.low[0]: -3.0 != -2.0"),
        ({}, ("--obs", "=x"), "obs.obs: (2,) <f4 != missing; obs.x: missing != (2,) <f4"),
        ({}, ("--chunk", "3"), "--chunk: not here"),
        ({}, ("--n-step", "3"), "--n-step: not here"),
    ],
)
def test_what_does_not_fit_the_pool_is_refused_by_field(pool, words, said, tmp_path, capsys):
    write_d4rl(tmp_path / "d.hdf5")
    place = empty_pool(tmp_path / "there", **pool)
    assert said in fails(capsys, "pool", "import", tmp_path / "d.hdf5", place, *words)
    assert len(rows_of(place)[0]) == 0


def test_bounds_are_never_guessed(tmp_path, capsys):
    write_d4rl(tmp_path / "d.hdf5")
    said = fails(capsys, "pool", "import", tmp_path / "d.hdf5", tmp_path / "pool")
    assert "D4RL files do not say the bounds" in said
    assert "2 dimensions" in said
    words = ("--low", "-1", "--high", "1", "2", "3")
    assert "--high: 3 numbers, expected 1 or 2" in fails(
        capsys, "pool", "import", tmp_path / "d.hdf5", tmp_path / "pool", *words
    )
    said = run(capsys, "pool", "import", tmp_path / "d.hdf5", tmp_path / "pool", "--low", "-0.35", "--high", "0.35")
    assert "9 steps have an action outside the bounds" in said
