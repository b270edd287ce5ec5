"""Learning curves: read from metrics, averaged with an interval, drawn whole."""

import json

import numpy as np
import pytest

from headrace.common.errors import ConfigError, HeadraceError
from headrace.launch import curves
from headrace.launch.curves import band, draw_groups, draw_run, find_groups, read_curve
from headrace.launch.rundir import RunDir


def write_metrics(run, offset=0.0, evaluations=True):
    lines = []
    for step in range(0, 1000, 100):
        record = {"run/env_steps": step, "run/return_mean": step + offset if step else None}
        if evaluations and step >= 400:
            record["run/evaluation"] = {"env_steps": step // 400 * 400, "return_mean": step // 400 * 400 + offset}
        lines.append(json.dumps(record))
    run.metrics.write_text("\n".join(lines) + "\n")


@pytest.fixture
def make_run(tmp_path):
    def make(name, **options):
        run = RunDir.create(tmp_path / name, {})
        write_metrics(run, **options)
        return run

    return make


def test_a_curve_holds_each_point_once(make_run):
    curve = read_curve(make_run("a").metrics)
    assert curve.training[:, 0].tolist() == list(range(100, 1000, 100))
    assert curve.evaluation.tolist() == [[400, 400], [800, 800]]
    assert curve.best_known is curve.evaluation


def test_a_long_curve_keeps_its_ends_and_its_form_in_few_points(tmp_path, monkeypatch):
    monkeypatch.setattr(curves, "MOST_POINTS", 50)
    path = tmp_path / "metrics.jsonl"
    path.write_text("".join(json.dumps({"run/env_steps": n, "run/return_mean": 2.0 * n}) + "\n" for n in range(1000)))
    training = read_curve(path).training
    assert 20 < len(training) <= 50
    assert training[-1].tolist() == [999, 1998]
    assert (training[:, 1] == 2 * training[:, 0]).all()
    assert training[0, 0] < 50
    assert np.diff(training[:, 0]).max() < 50


def test_without_evaluations_the_training_returns_are_drawn(make_run, tmp_path):
    curve = read_curve(make_run("a", evaluations=False).metrics)
    assert curve.evaluation.shape == (0, 2)
    assert curve.best_known is curve.training
    assert read_curve(tmp_path / "none").training.shape == (0, 2)


def test_a_band_is_the_mean_over_the_shared_steps():
    one, two = np.array([[0.0, 0], [100, 100]]), np.array([[50.0, 60], [150, 160]])
    steps, mean, bounds = band([one, two, two])
    assert (steps[0], steps[-1]) == (50, 100)
    np.testing.assert_allclose(mean, steps + 20 / 3)
    low, high = bounds
    np.testing.assert_allclose([low, high], [steps, steps + 10], atol=1e-9)
    steps, mean, bounds = band([one, two])
    np.testing.assert_allclose(mean, steps + 5)
    assert bounds is None


def test_pictures_are_written_whole(make_run, tmp_path):
    run = make_run("a")
    assert draw_run(run, "a")
    assert run.curve.read_bytes()[:4] == b"\x89PNG"
    assert not [p for p in run.path.iterdir() if ".part" in p.name]
    assert not draw_run(RunDir.create(tmp_path / "empty", {}), "empty")


def test_runs_are_grouped_by_their_directory(make_run, tmp_path):
    for name in ("sac/seed-0", "sac/seed-1", "other"):
        make_run(name)
    groups = find_groups([tmp_path / "sac", tmp_path / "other"])
    assert {label: [p.name for p in places] for label, places in groups.items()} == {"sac": ["seed-0", "seed-1"], "": ["other"]}
    draw_groups(groups, tmp_path / "all.png")
    assert (tmp_path / "all.png").stat().st_size > 1000


def test_lines_that_cannot_be_read_are_left_out(make_run, tmp_path):
    run = make_run("a")
    whole = read_curve(run.metrics)
    junk = [b"\xff\xfe\x00garbage", b"[" * 100_000, b'{"run/env_steps": "many", "run/return_mean": 1.0}']
    junk += [b'{"run/evaluation": {}}', b'{"run/env_steps": 999999, "run/return_mean": NaN}', b'"\xc3"']
    run.metrics.write_bytes(b"\n".join([*junk, run.metrics.read_bytes(), *junk]))
    assert read_curve(run.metrics).training.tolist() == whole.training.tolist()
    assert draw_run(run, "a")


def test_metrics_of_which_nothing_can_be_read_are_named(make_run, tmp_path):
    run = make_run("a")
    run.metrics.write_bytes(bytes(range(256)) * 4)
    with pytest.raises(HeadraceError, match=r"metrics\.jsonl: not one line of it can be read"):
        draw_groups(find_groups([run.path]), tmp_path / "x.png")
    run.metrics.unlink()
    run.metrics.mkdir()
    with pytest.raises(HeadraceError, match=r"metrics\.jsonl: cannot be read"):
        read_curve(run.metrics)


def test_nothing_to_draw_is_said(tmp_path):
    RunDir.create(tmp_path / "runs" / "empty", {})
    with pytest.raises(ConfigError, match="nothing to draw yet"):
        draw_groups(find_groups([tmp_path / "runs"]), tmp_path / "x.png")
    with pytest.raises(ConfigError, match="neither a run directory"):
        find_groups([tmp_path])


@pytest.mark.parametrize(
    ("out", "said"),
    [
        ("x.txt", "not the name of a picture; it must end in one of .*[.]png"),
        ("x", "not the name of a picture"),
        ("nowhere/x.png", "there is no directory .*nowhere"),
        ("taken.png", "cannot be written: Is a directory"),
    ],
)
def test_where_no_picture_can_be_is_one_line_about_out(make_run, tmp_path, out, said):
    run = make_run("a")
    (tmp_path / "taken.png").mkdir()
    with pytest.raises(ConfigError, match=f"--out .*{out}: {said}"):
        draw_groups(find_groups([run.path]), tmp_path / out)
    assert not list(tmp_path.glob(".*part*"))
