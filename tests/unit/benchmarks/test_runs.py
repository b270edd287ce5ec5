"""What is read from a run directory, and how overrides become a command line."""

from __future__ import annotations

import json

import pytest
from campaign import runs


def line(steps, value, evaluation=None):
    return {"run/env_steps": steps, "run/return_mean": value, "run/evaluation": evaluation, "learner/updates": steps}


def judged(steps, value, success=None):
    return {"env_steps": steps, "return_mean": value, "return_std": 7.5, "success_rate": success}


def test_half_lines_are_left_out_and_a_missing_file_is_empty(tmp_path):
    assert runs.read_metrics(tmp_path) == []
    whole = json.dumps(line(1, -5.0))
    (tmp_path / "metrics.jsonl").write_text(whole + "\n" + whole[:9] + "\n" + whole + "\n" + whole[:-1])
    assert runs.read_metrics(tmp_path) == [line(1, -5.0)] * 2


def test_each_evaluation_is_one_point_although_many_lines_repeat_it():
    first, second = judged(1000, -900.1234), judged(2000, -150.0)
    metrics = [line(900, None), line(1200, None, first), line(1900, -1000.0, first), line(2300, -800.0, second)]
    assert runs.evaluations(metrics) == [(1000, -900.123, 7.5), (2000, -150.0, 7.5)]
    assert runs.evaluations(metrics, "success_rate") == []
    assert runs.training_returns(metrics) == [(1900, -1000.0), (2300, -800.0)]


def test_successes_have_the_spread_of_their_share():
    metrics = [line(1200, None, judged(1000, -1.0, 0.8)), line(2300, None, judged(2000, 0.0, None))]
    assert runs.evaluations(metrics, "success_rate") == [(1000, 0.8, 0.4)]


def test_a_long_curve_is_thinned():
    assert 150 <= len(runs.training_returns([line(n, float(n)) for n in range(1000)])) <= 250


def test_a_mark_lies_between_points_and_never_beyond_them():
    curve = [(1000, -900.0, 3.0), (2000, -100.0, 4.0)]
    assert runs.at(curve, 1500) == pytest.approx(-500.0)
    assert runs.at([p[:2] for p in curve], 1500) == pytest.approx(-500.0)  # as older records have them
    assert runs.at(curve, 2000) == -100.0
    assert runs.at(curve, 2001) is None
    assert runs.at([], 1) is None


def test_overrides_are_words_that_the_config_reads_back():
    words = runs.words({"env.id": "Pendulum-v1", "learner.actor_lr": 1e-3, "model.options.hidden": [32, 32], "seed": 4})
    assert words[:2] == ["--env.id", "Pendulum-v1"]
    config = runs.make_config({"env": {"id": "x"}}, words)
    assert (config.env.id, config.seed, config.learner.actor_lr) == ("Pendulum-v1", 4, 1e-3)
    assert config.model.options["hidden"] == [32, 32]


def test_settings_hold_no_place_no_name_and_no_seed():
    one = runs.settings(runs.make_config({"env": {"id": "a"}, "seed": 1, "run": {"dir": "here"}}))
    assert one == runs.settings(runs.make_config({"env": {"id": "a"}, "seed": 2, "run": {"dir": "there"}}))
    assert one != runs.settings(runs.make_config({"env": {"id": "b"}}))
    assert "here" not in json.dumps(one)


def test_two_runs_begun_within_a_second_have_places_of_their_own(tmp_path, monkeypatch):
    monkeypatch.setattr(runs, "RUNS", tmp_path)
    monkeypatch.setattr(runs.time, "strftime", lambda form: "now")
    places = []
    for _ in range(3):
        places.append(runs.new_place("a"))
        places[-1].with_suffix(".log").touch()
    assert [p.name for p in places] == ["a-now", "a-now-2", "a-now-3"]
