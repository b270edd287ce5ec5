"""Pacing decisions, by tables and by simulation."""

from __future__ import annotations

import numpy as np
import pytest

from headrace.buffer.pacing import Pacing, PacingConfig
from headrace.common import config
from headrace.common.errors import ConfigError
from headrace.launch.sizes import require_sizes


def make(**options):
    return Pacing(
        config.load(PacingConfig, {"min_fill": 100, "random_steps": 50, "env_steps": 1000, "lead_steps": 40, **options})
    )


def test_updates_follow_the_steps_beyond_the_minimum_fill():
    pacing = make(ratio=2.0)
    for env_steps, updates, allowed in [(0, 0, 0), (99, 0, 0), (100, 0, 0), (101, 0, 2), (110, 20, 0), (110, 5, 15)]:
        pacing.observe(env_steps, updates)
        assert pacing.updates_allowed() == allowed, (env_steps, updates)


def test_a_fraction_of_an_update_is_never_granted():
    pacing = make(ratio=0.25)
    pacing.observe(103, 0)
    assert pacing.updates_allowed() == 0
    pacing.observe(104, 0)
    assert pacing.updates_allowed() == 1


def test_the_first_steps_of_the_run_are_random_whoever_does_them():
    pacing = make(min_fill=30, random_steps=50, lead_steps=40)
    pacing.join("a", executed=0, pending=0)
    pacing.join("b", executed=0, pending=0)
    first = pacing.allowances()
    assert {k: (v.granted, v.random) for k, v in first.items()} == {"a": (20, 20), "b": (20, 20)}
    for name in "ab":
        pacing.accounted(name, 20)
    pacing.observe(40, 10)
    second = pacing.allowances()
    assert sum(v.granted for v in second.values()) == 80  # 30 + 40 + 10 updates / ratio 1
    assert sum(v.random for v in second.values()) == 50


@pytest.mark.parametrize("next_one", ["a", "b"])
def test_a_dead_actor_returns_what_it_did_not_deliver(next_one):
    pacing = make(env_steps=200, min_fill=100, lead_steps=1000)
    pacing.join("a", executed=0, pending=0)
    assert pacing.allowances()["a"].granted == 200
    assert pacing.allowances()["a"].final
    pacing.accounted("a", 150)
    pacing.observe(150, 0)
    pacing.leave("a")
    pacing.join(next_one, executed=0, pending=0)
    assert pacing.allowances()[next_one].granted == 50


def test_a_reconnect_keeps_what_is_under_way():
    pacing = make(env_steps=0, min_fill=100, lead_steps=40)
    pacing.observe(70, 0)
    pacing.join("a", executed=80, pending=10)  # 10 steps sent and not acknowledged
    allowance = pacing.allowances()["a"]
    assert allowance.granted == 80 + (40 - 10)


def test_rows_whose_acknowledgement_was_lost_are_found_by_the_heartbeat():
    pacing = make(env_steps=100, min_fill=50, lead_steps=1000)
    pacing.observe(30, 0)
    pacing.join("a", executed=30, pending=10)  # the buffer was killed after it committed these ten
    assert pacing.allowances()["a"].granted == 30 + 60
    pacing.settled("a", 30)
    pacing.settled("a", 20)
    assert pacing.allowances()["a"].granted == 100


def test_a_forged_heartbeat_settles_no_more_than_was_granted():
    pacing = make(env_steps=100, min_fill=50, lead_steps=1000)
    pacing.join("a", executed=0, pending=0)
    pacing.allowances()
    pacing.settled("a", 10**9)
    assert pacing.allowances()["a"].granted == 200
    pacing.accounted("a", 5)
    assert pacing.allowances()["a"].granted <= 205


def test_whole_vector_steps_only():
    pacing = make(env_steps=1000, min_fill=100, lead_steps=41)
    pacing.join("a", executed=0, pending=0, lanes=8)
    assert pacing.allowances()["a"].granted % 8 == 0


@pytest.mark.parametrize("ratio", [1.0, 0.3])
@pytest.mark.parametrize(("lanes", "window"), [([1], 1), ([1, 1, 1], 10), ([8, 8], 5), ([4] * 7, 1), ([8, 1, 1], 3)])
def test_a_short_lead_never_stops_the_run(lanes, window, ratio):
    """Rows leave a lane only ``window`` steps after they began, and learner and actors wait for each other."""
    pacing = make(ratio=ratio, env_steps=0, min_fill=64, random_steps=0, lead_steps=1)
    width = {f"a{i}": n for i, n in enumerate(lanes)}
    for name, n in width.items():
        pacing.join(name, executed=0, pending=0, lanes=n, window=window)
    executed, delivered = dict.fromkeys(width, 0), dict.fromkeys(width, 0)
    for _ in range(2000):
        allowances = pacing.allowances()
        for name, n in width.items():
            executed[name] += (allowances[name].granted - executed[name]) // n * n
            ready = max(0, executed[name] - n * window)
            pacing.accounted(name, ready - delivered[name])
            delivered[name] = ready
        pacing.observe(sum(delivered.values()), pacing.updates)
        pacing.observe(pacing.env_steps, pacing.updates + min(1, pacing.updates_allowed()))
    assert pacing.updates > 200
    assert all(steps > 50 for steps in delivered.values()), delivered


@pytest.mark.parametrize(
    ("env_steps", "updates", "drawable", "granted", "finished"),
    [
        (100, 0, True, 40, False),  # the lead
        (100, 0, False, 40, False),
        (140, 0, True, 0, False),  # held
        (140, 0, False, 40, False),  # nobody waits for a learner that cannot get a batch
        (99, 0, False, 40, False),
        (1000, 0, True, 0, False),
        (1000, 0, False, 0, True),  # nor does the end of the run
        (1000, 900, True, 0, True),
    ],
)
def test_a_pool_too_small_for_a_batch_holds_nobody(env_steps, updates, drawable, granted, finished):
    pacing = make()
    pacing.join("a", executed=0, pending=0)
    pacing.observe(env_steps, updates)
    pacing.drawable = drawable
    assert pacing.allowances()["a"].granted == granted
    assert pacing.finished == finished


@pytest.mark.parametrize("slow", ["actors", "learner"])
@pytest.mark.parametrize("ratio", [0.5, 1.0, 4.0])
def test_the_ratio_holds_whichever_side_is_slower(slow, ratio):
    pacing = make(ratio=ratio, env_steps=5000, min_fill=200, random_steps=0, lead_steps=64)
    rng = np.random.default_rng(3)
    for name in "abc":
        pacing.join(name, executed=0, pending=0)
    done = dict.fromkeys("abc", 0)
    env_steps = updates = 0
    for _ in range(200_000):
        allowances = pacing.allowances()
        for name in "abc":
            room = allowances[name].granted - done[name]
            steps = min(room, int(rng.integers(0, 2 if slow == "actors" else 9)))
            done[name] += steps
            env_steps += steps
            pacing.accounted(name, steps)
        pacing.observe(env_steps, updates)
        assert pacing.check_valid() == (True, "")
        updates += min(pacing.updates_allowed(), int(rng.integers(0, 3 if slow == "learner" else 40)))
        pacing.observe(env_steps, updates)
        if env_steps > 700:
            assert pacing.updates <= ratio * (env_steps - 200)
            assert pacing.updates >= ratio * (env_steps - 200 - 64) - ratio - 1 or slow == "actors"
        if pacing.finished:
            break
    assert (env_steps, updates) == (5000, int(ratio * 4800))
    assert pacing.achieved_ratio == pytest.approx(ratio, rel=0.002)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"min_fill": 1000, "env_steps": 1000}, ["min_fill", "1000", "999"]),
        ({"random_steps": 2000}, ["random_steps", "2000", "1000"]),
        ({"ratio": -1}, ["ratio", "-1", "0"]),
        ({"ratio": 0.001}, ["ratio", "0.001", "900", "0.001112"]),
    ],
)
def test_impossible_pacing_is_refused_with_both_values(options, words):
    with pytest.raises(ConfigError) as error:
        require_sizes(make(**options).config, 1, 1_000_000)
    assert all(w in str(error.value) for w in words)


@pytest.mark.parametrize(
    ("options", "env_steps", "updates", "alarm"),
    [
        ({}, 100, 0, ""),  # nothing is asked for yet
        ({}, 2100, 1960, ""),  # what the lead of 40 explains, and 5 % do
        ({}, 2100, 1900, ""),
        ({}, 2100, 1880, "0.940 updates per env step, 1 asked for: off by 6%"),
        ({}, 600, 461, ""),
        ({}, 600, 459, "0.918 updates per env step, 1 asked for: off by 8%"),
        ({"ratio": 0.5}, 2100, 700, "0.350 updates per env step, 0.5 asked for: off by 30%"),
        ({"hold_learner": False}, 2100, 5000, ""),  # the ratio is the least there
        ({"hold_learner": False}, 2100, 1000, "0.500 updates per env step, 1 asked for: off by 50%"),
        ({}, 2100, 2120, "1.060 updates per env step, 1 asked for: off by 6%"),
        ({"ratio": 0.0}, 2100, 0, ""),
    ],
)
def test_a_ratio_that_is_off_by_more_than_the_lead_explains_is_told(options, env_steps, updates, alarm):
    pacing = make(**options)
    pacing.observe(env_steps, updates)
    assert pacing.alarm == alarm
