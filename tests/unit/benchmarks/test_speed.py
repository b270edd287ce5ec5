"""The speed table: its judgements, its sizes, and one row measured for real."""

from __future__ import annotations

import argparse
import json
from contextlib import ExitStack

import numpy as np
import pytest
from campaign.choosing import add_only
from campaign.tables import page, summary
from speed import data
from speed.children import Child, ChildFailed
from speed.rows import Bar, Extra, Flat, Most, Setup, figures, judge
from speed.table import TABLE


def test_a_ratio_is_taken_within_each_round_and_its_median_judged():
    rates = {"ours": [10, 200, 30], "a": [1, 100, 2]}  # 10, 2, 15
    check = Bar("ours", ("a",), 10).judge(rates)
    assert (check.value, check.low, check.high, check.met) == (10, 2, 15, True)
    assert not Bar("ours", ("a",), 10.1).judge(rates).met


def test_several_others_count_one_after_the_other_or_as_their_best():
    rates = {"ours": [6.0], "a": [10.0], "b": [15.0]}
    assert Bar("ours", ("a", "b"), 1).judge(rates).value == pytest.approx(6 * (1 / 10 + 1 / 15))
    assert Bar("ours", ("a", "b"), 1, best=True).judge(rates).value == pytest.approx(6 / 15)


def test_what_did_not_take_part_is_not_judged():
    assert Bar("ours", ("a",), 1).judge({"ours": [1]}) is None
    assert Bar("ours", ("a", "b"), 1).judge({"ours": [1], "a": [1]}) is None
    assert Bar("ours", ("a", "b"), 1, best=True).judge({"ours": [1], "a": [1]}).met
    assert Flat("x", "y", (1, 2)).judge({"x 1": [1], "y 1": [1], "x 2": [1]}) is None
    assert Most("m", 1).judge({}) is None


@pytest.mark.parametrize(("second", "met"), [(1.0, True), (1.4, True), (1.6, False), (0.6, False)])
def test_flat_means_within_a_fifth_of_the_mean_cost(second, met):
    rates = {"x 1": [1], "y 1": [2], "x 2": [1], "y 2": [2 * second]}
    assert Flat("x", "y", (1, 2)).judge(rates).met is met


@pytest.mark.parametrize(("second", "met"), [(1.0, True), (1.4, True), (1.6, False)])
def test_flat_time_beyond_another_has_that_one_taken_off(second, met):
    rates = {"x 1": [1 / 3], "y 1": [1 / 2], "x 2": [1 / (9 + second)], "y 2": [1 / 9]}
    assert Flat("x", "y", (1, 2), extra=True).judge(rates).met is met
    assert not Flat("x", "y", (1, 2)).judge({**rates, "y 1": [10.0]}).met


def test_a_time_may_be_flat_by_itself():
    assert Flat("x", None, (1, 2)).judge({"x 1": [2.0, 3.0], "x 2": [2.0, 2.5]}).met
    assert not Flat("x", None, (1, 2)).judge({"x 1": [2.0], "x 2": [3.2]}).met
    assert Flat("x", None, (1, 2)).judge({"x 1": [2.0]}) is None


def test_extra_time_is_the_difference_of_the_times_of_a_call():
    check = Extra("slow", "fast", 0.3).judge({"slow": [500.0, 1000.0], "fast": [1000.0, 2000.0]})
    assert (check.value, check.low, check.high, check.met) == (0.75, 0.5, 1.0, False)
    assert Extra("slow", "fast", 0.3).judge({"slow": [500.0]}) is None


def test_blocks_and_plain_rows_are_sound():
    rng = np.random.default_rng(0)
    for spec in data.SPECS.values():
        data.block(spec, 3, rng).check(spec)
    assert set(map(len, data.plain(5, rng).values())) == {5}


def test_a_child_that_dies_is_an_error_that_says_so():
    with pytest.raises(ChildFailed, match=r"ours\.py nobody"):
        Child("ours.py", {"role": "nobody"})


def test_an_insert_row_measures_a_real_buffer(tmp_path):
    row = TABLE["insert-32"]
    with ExitStack() as stack:
        subjects = row.open(Setup(tmp_path, {}, True, 0.0), stack)
        rates = {name: [s.window(0.2), s.window(0.2)] for name, s in subjects.items()}
    assert rates["headrace"][1] > 0
    assert judge(row, rates) == []  # no peer, no ratio
    assert figures(rates)["headrace"]["low"] <= figures(rates)["headrace"]["high"]


def test_records_become_a_section_and_a_verdict():
    check = {"what": "headrace / reverb", "value": 30.1, "low": 28, "high": 33.0, "bar": ">= 25", "met": True}
    origin = {"commit": "abc", "dirty": False, "date": "2026-01-02T03:04:05Z", "machine": {"cpu": "x", "cores": 2}}
    figure = {"median": 400000.0, "low": 390000.0, "high": 410000.0}
    record = {"row": "insert-32", "rounds": 5, "window_s": 2.0, "figures": {"headrace": figure}, "checks": [check], "peers": {}}
    text = page([], [], [], {}, [], [{**record, **origin}])
    assert "| headrace (rows/s) | 400,000 (390,000 to 410,000) |" in text
    assert "| headrace / reverb | 30.1 (28 to 33) | >= 25 |" in text
    states = {line.name: line.state for line in summary([], [], [], [{**record, **origin}])}
    assert (states["pool: insert-32"], states["pool: sample"]) == ("passed", "not run yet")
    json.dumps(record)


def test_only_takes_names_that_are_there(capsys):
    parser = argparse.ArgumentParser()
    add_only(parser, ("a", "b"), "row")
    assert parser.parse_args([]).only == ["a", "b"]
    assert parser.parse_args(["--only", "b"]).only == ["b"]
    with pytest.raises(SystemExit):
        parser.parse_args(["--only", "b,c"])
    assert "no row 'c'; there are a, b" in capsys.readouterr().err
