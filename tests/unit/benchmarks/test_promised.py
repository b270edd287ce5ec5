"""The judges of single promises: each finds what is planted for it."""

from __future__ import annotations

import re

import pytest
from campaign.misconfigured import CASES
from campaign.records import ROOT
from promised import (
    p09_stopped,
    p12_checkpoints,
    p13_damage,
    p14_exact_resume,
    p15_live_resume,
    p17_ranks,
    p18_ratio,
    p21_start_stop,
    p24_leaks,
    promises,
)


@pytest.mark.parametrize(
    "control",
    [
        p09_stopped.control,
        p12_checkpoints.control,
        p13_damage.blind,
        p14_exact_resume.one_bit,
        p15_live_resume.control,
        p17_ranks.control,
        p18_ratio.control,
        p21_start_stop.litter,
        p21_start_stop.unnamed,
        p24_leaks.control,
    ],
)
def test_a_planted_fault_is_found(control, tmp_path):
    found = control(tmp_path)
    assert found
    assert all(found.values()), found


@pytest.mark.parametrize(
    ("resumed", "whole", "part"), [(-300.0, -150.0, 0.5), (-150.0, -150.0, 1.0), (5.0, 10.0, 0.5), (-1.0, 1.0, 0.0)]
)
def test_a_cost_that_is_twice_as_high_is_half_of_the_return(resumed, whole, part):
    assert p15_live_resume.reached(resumed, whole) == pytest.approx(part)


def test_the_first_minute_ends_so_long_after_the_first_step_and_counts_what_was_made_before_it():
    points = [(0.0, 500, 400), (1.0, 500, 400), (2.0, 510, 450), (30.0, 610, 550), (62.0, 700, 640), (63.0, 900, 2000)]
    assert p15_live_resume.first_minute(points) == pytest.approx(240 / 200)


def test_the_loss_before_is_that_of_the_last_updates_and_the_loss_after_that_of_the_first():
    before = [{"learner/updates": n, "critic/loss": 100.0 if n < 500 else 1.0} for n in range(0, 1001, 100)]
    after = [{"learner/updates": n, "critic/loss": 2.0 if n <= 1300 else 50.0} for n in range(800, 2001, 100)]
    assert p15_live_resume.loss_ratio([*before, *after], {"updates": 1000}) == pytest.approx(2.0)


def test_stalls_are_what_is_beyond_the_usual():
    assert p12_checkpoints._stall([1.0, 1.0, 2.0, 1.0], 1.0) == pytest.approx(1 / 5)


def test_each_misconfiguration_has_a_name_of_its_own():
    assert len({case.name for case in CASES}) == len(CASES) > 20


def test_the_guarantees_name_every_promise_and_no_other():
    named = set(re.findall(r"\bP\d+", (ROOT / "docs" / "guarantees.md").read_text()))
    assert promises().keys() <= named
    assert named <= {f"P{number}" for number in range(1, 25)}
