"""Pictures of gates: records of both forms are drawn, the same ones to the same bytes, and none without any."""

from __future__ import annotations

import numpy as np
from campaign.drawing import band, bars_of, draw_curves
from campaign.registry import GATES, PICTURES


def record(gate, seed, width=3):
    curve = [[1000, -900.0, 5.0][:width], [gate.env_steps, 400.0 + seed, 5.0][:width]]
    return {"gate": gate.name, "seed": seed, gate.value: 400.0 + seed, "evaluations": curve}


def test_a_picture_needs_records_and_shows_old_and_new_ones(tmp_path):
    out, gates = tmp_path / "a.png", [GATES[name] for name in PICTURES["halfcheetah"]]
    known = [record(gate, seed, 2 + seed % 2) for gate in gates for seed in gate.seeds]
    assert draw_curves(gates, known, out)
    first = out.read_bytes()
    assert draw_curves(gates, known, out)
    assert out.read_bytes() == first
    assert not draw_curves(gates, [], out)
    assert not out.exists()


def test_each_bar_of_a_picture_is_drawn_once_with_its_kind():
    assert bars_of([GATES[name] for name in PICTURES["halfcheetah"]]) == [
        ("mean", "bar for the mean, 3460.0", 3460.0),
        ("each", "bar for each seed, 2500.0", 2500.0),
    ]
    assert bars_of([GATES[name] for name in PICTURES["reach"]]) == [
        ("each", "bar for each seed, 90%", 0.9),
        ("below", "bar that each seed must stay below, 20%", 0.2),
    ]
    assert bars_of([GATES[name] for name in PICTURES["hopper"]]) == []


def test_the_band_covers_what_all_seeds_have():
    steps, mean, low, high = band([np.array([[0.0, 0.0], [10.0, 10.0]]), np.array([[2.0, 4.0], [12.0, 14.0]])])
    assert (steps[0], steps[-1], mean[0], mean[-1]) == (2, 10, 3, 11)
    assert (low <= mean).all()
    assert (mean <= high).all()
