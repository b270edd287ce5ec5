"""The learner's speed table: its judgements, and its learners measured for real."""

from __future__ import annotations

import time
from contextlib import ExitStack

import pytest
from campaign.tables import page, summary
from speed.children import Child
from speed.learning import flop
from speed.learning_table import TABLE, Apart, Waiting
from speed.parts import Stopwatch
from speed.rows import Setup, judge
from speed.table import filled_buffer


def test_the_arithmetic_of_an_update_is_that_of_its_layers():
    assert flop(17, 6, 256) == 2 * 256 * 1_135_872


def test_ratios_have_their_targets_and_what_is_only_told_has_none():
    rates = {"headrace fp32": [120.0], "headrace bf16": [190.0], "stable-baselines3": [100.0], "SBX": [200.0]}
    checks = {c["what"]: (c["bar"], c["met"]) for c in judge(TABLE["update-1"], rates)}
    assert checks == {
        "headrace fp32 / stable-baselines3": (">= 1.2", True),
        "headrace bf16 / stable-baselines3": (">= 1.65", True),
        "headrace fp32 / SBX": ("-", True),
        "headrace bf16 / SBX": (">= 1", False),
        "headrace bf16 / headrace fp32": ("-", True),
    }
    assert [c["bar"] for c in judge(TABLE["update-2"], rates)][:2] == [">= 1.3", ">= 2"]


def test_a_stopwatch_tells_parts_apart():
    class Worker:
        def update(self):
            self.passes()
            self.data()

        def passes(self):
            time.sleep(0.004)

        def data(self):
            time.sleep(0.002)

    watch, worker = Stopwatch(), Worker()
    for name in ("update", "passes", "data"):
        watch.time(name, worker, name)
    worker.update()
    worker.update()
    ms = watch.milliseconds(products=3.0)
    assert list(ms) == ["update", "products", "rest of the passes", "data", "all else"]
    assert ms["update"] == pytest.approx(sum(ms.values()) - ms["update"], abs=1e-3)
    assert ms["rest of the passes"] == pytest.approx(1000 * watch.seconds["passes"] / 2 - 3, abs=1e-3)
    assert watch.calls["update"] == 2


def test_a_learner_is_measured_beside_a_real_buffer(tmp_path):
    with ExitStack() as stack:
        endpoint = filled_buffer(Setup(tmp_path, {}, True, 0.0), stack, "flat", 2000, 2000)
        options = {"role": "learner", "endpoint": endpoint, "threads": 1, "precision": "fp32"}
        child = stack.enter_context(Child("learning.py", options))
        waited = Waiting(child).window(0.2)
    assert 0 <= waited <= 100
    assert child.last["rate"] > 0
    parts = child.last["parts"]
    whole = parts.pop("update")
    assert set(parts) == {"products", "rest of the passes", "data", "sample", "optimisers", "all else"}
    assert sum(parts.values()) == pytest.approx(whole, abs=0.01)


def test_ranks_share_rows_and_noise_and_have_the_losses_of_one():
    with ExitStack() as stack:
        one, two = (stack.enter_context(Child("learning.py", {"role": "ranks", "size": size})) for size in (1, 2))
        assert 0 < Apart(one, two).window(0.0) < 1e-4
    assert len({loss for update in one.last["losses"] for loss in update}) == 40


def test_records_become_a_section_with_parts_and_a_verdict():
    check = {"what": "headrace fp32 / stable-baselines3", "value": 1.5, "low": 1.4, "high": 1.6, "bar": ">= 1.2", "met": True}
    told = {**check, "what": "headrace fp32 / SBX", "value": 0.9, "bar": "-"}
    origin = {"commit": "abc", "dirty": False, "date": "2026-01-02T03:04:05Z", "machine": {"cpu": "x", "cores": 2}}
    figure = {"median": 130.0, "low": 120.0, "high": 140.0}
    parts = {"headrace fp32": {"update": 7.7, "products": 5.5}, "by autograd fp32": {"update": 9.0, "data": 0.1}}
    record = {"row": "update-1", "rounds": 8, "window_s": 1.0, "figures": {"headrace fp32": figure}, "peers": {}}
    known = [{**record, "checks": [check, told], "parts": parts, **origin}]
    text = page([], [], [], {}, [], learner=known)
    assert "| headrace fp32 (updates/s) | 130 (120 to 140) |" in text
    assert "| headrace fp32 / SBX | 0.9 (1.4 to 1.6) | - |" in text
    assert "| ms each | update | products | data |" in text
    assert "| by autograd fp32 | 9.000 | - | 0.100 |" in text
    lines = {line.name: line for line in summary([], [], [], learner=known)}
    assert (lines["learner: update-1"].state, lines["learner: waiting"].state) == ("passed", "not run yet")
    assert lines["learner: update-1"].text == "headrace fp32 / stable-baselines3 1.5 (>= 1.2)"
