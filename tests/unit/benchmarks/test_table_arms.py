"""What is asked of policies for the tabletop, and what their records say of it."""

from __future__ import annotations

import pytest
from campaign import runs
from campaign.gate import FAILED, NOT_RUN, PASSED, UNFINISHED
from campaign.table_arms import ARMS, LEARNED, SEEDS, judge, problems, table


def side(rate, *tasks):
    return {"rate": rate, "episodes": 400, "tasks": {str(i): t for i, t in enumerate(tasks or [rate] * 4)}}


def record(arm="dsrl", seed=0, **changed):
    good = {
        "arm": arm,
        "seed": seed,
        "start": side(0.4),
        "end": side(0.6),
        "curve": [(1000, 0.3, 0.4), (2000, 0.5, 0.4)],
        "chance": 0.05,
        "blank": side(0.1),
        "shuffled": side(0.2),
        "wall_s": 600.0,
    }
    return {**good, **changed}


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({}, ""),
        ({"end": side(0.56)}, ""),
        ({"end": side(0.54)}, "gains 14%"),
        ({"curve": [(1000, 0.24, 0.4)]}, "dips to 24% from 40%"),
        ({"end": side(0.6, 0.9, 0.9, 0.31, 0.29)}, "task 3 ends at 29% from 40%"),
        ({"blank": side(0.2)}, "20% without images, chance is 5%"),
        ({"shuffled": side(0.3)}, "30% with the words of any task"),
        ({"arm": "bc-continued"}, "gains 20% by cloning alone"),
        ({"arm": "bc-continued", "end": side(0.44)}, ""),
        ({"arm": "teacher", "end": side(0.29)}, "success 29%"),
        ({"arm": "teacher", "end": side(0.61)}, "success 61%"),
        ({"arm": "teacher", "end": side(0.45)}, ""),
    ],
)
def test_each_thing_that_is_asked_can_be_missed(changed, problem):
    found = problems(record(**changed))
    assert [text.startswith(problem) for text in found] == ([True] if problem else [])


def test_an_arm_has_passed_when_every_seed_has():
    arm = ARMS["dsrl"]
    assert judge(arm, []) == (NOT_RUN, [])
    assert judge(arm, [record()])[0] == UNFINISHED
    assert judge(arm, [record(seed=seed) for seed in SEEDS])[0] == PASSED
    assert judge(arm, [record(), record(seed=1, end=side(0.4))]) == (FAILED, ["seed 1: gains 0%, wanted 15%"])
    assert judge(arm, [record(end=side(0.4)), record(), record(seed=1)])[0] == PASSED  # the newest one counts
    assert "| dsrl | 0 | 40% | 60% | 40% 40% 40% 40% | 60% 60% 60% 60% | 20% | 10% | 10 |" in table([record()])


@pytest.mark.parametrize("name", ARMS)
def test_every_arm_is_a_run_that_can_be_made(name):
    arm = ARMS[name]
    config = runs.resolve(arm.config, arm.overrides(1, "teacher"), arm.preset_file)
    assert config.seed == 1
    assert config.run.mode == "async"
    assert bool(config.pacing.env_steps) == (name in LEARNED)
    assert (config.eval.episodes, config.eval.final_episodes) == (200, 400) or arm.clones
