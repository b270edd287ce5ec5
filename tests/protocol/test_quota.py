"""Robots are never held, and simulators leave them their share."""

from __future__ import annotations

import pytest

from headrace.buffer.pacing import UNBOUNDED, Pacing, PacingConfig
from headrace.buffer.quota import Quota


def make(**options):
    base = {"min_fill": 100, "env_steps": 100_000, "random_steps": 0, "lead_steps": 40, "ratio": 1.0}
    return Pacing(PacingConfig(**{**base, **options}))


def run(pacing, robots, simulators, rounds, done, env_steps=0, learner=10**6):
    """Each round every robot does its steps, and each simulator as many as it may; the learner all that it may."""
    for _ in range(rounds):
        allowances = pacing.allowances()
        for name, wish in {**robots, **simulators}.items():
            steps = min(wish, max(0, allowances[name].granted - done[name]))
            assert steps == wish or name in simulators
            done[name] += steps
            env_steps += steps
            pacing.accounted(name, steps)
        pacing.observe(env_steps, pacing.updates)
        pacing.observe(env_steps, pacing.updates + min(learner, pacing.updates_allowed()))
        assert pacing.check_valid() == (True, "")
    return env_steps


@pytest.mark.parametrize(
    ("share", "robot", "cap", "steps", "credit"),
    [
        # share, steps of robots, cap, steps of simulators, credit left
        (0.5, 0, 10, 4, 6.0),
        (0.5, 30, 10, 0, 10.0),  # nothing is saved up beyond the cap
        (0.5, 4, 10, 8, 6.0),
        (0.25, 2, 10, 10, 6.0),  # a robot's step earns three
        (1.0, 50, 10, 10, 0.0),  # earns nothing
        (0.8, 8, 10, 10, 2.0),
    ],
)
def test_credit_by_table(share, robot, cap, steps, credit):
    quota = Quota(share)
    quota.count(7, robot=False)
    assert (quota.active, quota.achieved) == (False, None)
    quota.begin(cap)
    quota.count(steps, robot=False)
    quota.count(robot, robot=True)
    assert quota.credit == pytest.approx(credit)
    quota.end()
    assert quota.credit == float("inf")


def test_no_share_means_no_limit():
    quota = Quota(0.0)
    quota.begin(10)
    quota.count(10**6, robot=False)
    assert not quota.active


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("count", [1, 5])
def test_fast_simulators_leave_a_slow_robot_its_share_in_every_window(share, count):
    pacing = make(robot_share=share, hold_actors=False, env_steps=0)
    pacing.join("arm", executed=0, pending=0, robot=True)
    simulators = {f"sim-{n}": 1000 for n in range(count)}
    for name in simulators:
        pacing.join(name, executed=0, pending=0)
    done, env_steps, windows = dict.fromkeys(["arm", *simulators], 0), 0, []
    for _ in range(20):
        before = dict(done)
        env_steps = run(pacing, {"arm": 1}, simulators, 50, done, env_steps)
        windows.append(sum(done[n] - before[n] for n in simulators))
    assert max(windows) <= 40 + 50 * (1 - share) / share + 1
    assert sum(windows) >= 0.95 * (1 - share) / share * done["arm"]
    assert min(done[n] for n in simulators) >= 0.7 * sum(windows) / count
    # what the robot does alone is not saved up
    for name in simulators:
        pacing.leave(name)
    env_steps = run(pacing, {"arm": 100}, {}, 50, done, env_steps)
    for name in simulators:
        pacing.join(name, executed=done[name], pending=0)
    before = dict(done)
    run(pacing, {"arm": 1}, simulators, 10, done, env_steps)
    assert sum(done[n] - before[n] for n in simulators) <= 40 + 10 * (1 - share) / share + 1


def test_a_robot_is_never_held_and_a_dead_learner_changes_nothing_for_it():
    pacing = make(robot_share=0.5)
    pacing.join("arm", executed=0, pending=0, robot=True)
    pacing.join("sim", executed=0, pending=0)
    done = {"arm": 0, "sim": 0}
    run(pacing, {"arm": 3}, {"sim": 1000}, 1000, done, learner=0)
    assert done["arm"] == 3000
    assert done["sim"] <= 140
    assert pacing.allowances()["arm"] == pacing.allowances()["arm"].__class__(UNBOUNDED, 0, False)


def test_without_a_robot_simulators_are_free_and_with_an_idle_one_they_wait():
    pacing = make(robot_share=0.5, hold_actors=False)
    pacing.join("sim", executed=0, pending=0)
    done = {"sim": 0, "arm": 0}
    env_steps = run(pacing, {}, {"sim": 1000}, 100, done)
    assert done["sim"] == 4000
    pacing.join("arm", executed=0, pending=0, robot=True)
    assert not pacing.quota_holds
    env_steps = run(pacing, {"arm": 0}, {"sim": 1000}, 100, done, env_steps)
    assert done["sim"] == 4040
    assert pacing.quota_holds
    pacing.leave("arm")
    run(pacing, {}, {"sim": 1000}, 10, done, env_steps)
    assert done["sim"] == 4440


@pytest.mark.parametrize("again", [False, True])
def test_a_simulator_that_dies_holding_its_allowance_takes_none_of_the_others(again):
    """Whether it stays away, or returns under the same id before anyone noticed."""
    pacing = make(robot_share=0.5, hold_actors=False)
    pacing.join("arm", executed=0, pending=0, robot=True)
    pacing.join("sim-0", executed=0, pending=0)
    pacing.join("sim-1", executed=0, pending=0)
    done = {"arm": 0, "sim-0": 0, "sim-1": 0}
    assert pacing.allowances()["sim-0"].granted == 20
    if again:
        pacing.join("sim-0", executed=0, pending=0)
    else:
        pacing.leave("sim-0")
    run(pacing, {"arm": 1}, {"sim-1": 1000}, 100, done)
    assert done["sim-1"] == pytest.approx(100 + 40 - (20 if again else 0), abs=2)


def test_many_that_join_at_once_share_what_there_is():
    pacing = make(env_steps=0, lead_steps=40)
    pacing.join("first", executed=0, pending=0)
    assert pacing.allowances()["first"].granted == 140 - 100
    done = {"first": 0}
    for number in range(100):
        pacing.join(f"late-{number}", executed=0, pending=0)
        done[f"late-{number}"] = 0
    # more actors than the lead has steps: each still completes a row of its own
    run(pacing, {}, dict.fromkeys(done, 5), 400, done)
    assert min(done.values()) >= 20


def test_the_end_of_the_run_ends_robots_too():
    pacing = make(env_steps=1000, min_fill=10)
    pacing.join("arm", executed=0, pending=0, robot=True)
    pacing.observe(999, 0)
    assert pacing.allowances()["arm"].granted == UNBOUNDED
    pacing.observe(1003, 0)  # what was under way may go beyond
    allowance = pacing.allowances()["arm"]
    assert (allowance.granted, allowance.final) == (0, True)


def test_a_robot_acts_at_random_until_the_run_has_its_random_steps():
    pacing = make(random_steps=50)
    pacing.join("arm", executed=0, pending=0, robot=True)
    for mine, others in [(0, 0), (10, 0), (10, 30), (19, 30), (20, 31)]:
        pacing._accounts["arm"].accounted = mine
        pacing.observe(mine + others, 0)
        left = 50 - mine - others
        assert pacing.allowances()["arm"].random == (mine + left if left > 0 else 0)


def test_state_is_kept():
    pacing = make(robot_share=0.5)
    pacing.join("arm", executed=0, pending=0, robot=True)
    pacing.join("sim", executed=5, pending=3)
    pacing.observe(300, 120, 20)
    pacing.allowances()
    pacing.accounted("sim", 3)
    other = make(robot_share=0.5)
    other.set_state(pacing.get_state())
    assert other.get_state() == pacing.get_state()
    assert other.allowances() == pacing.allowances()
