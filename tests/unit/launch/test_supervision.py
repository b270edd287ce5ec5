"""The supervisor's decisions, rule by rule, without a process or a clock."""

import pytest

from headrace.launch.exits import BUFFER_LEFT, MUST_NOT_RESTART
from headrace.launch.supervision import DONE, FAILED, INTERRUPTED, Action, RolePlan, Supervision, SupervisorConfig

PLANS = [
    RolePlan("buffer", "buffer"),
    RolePlan("learner", "learner"),
    RolePlan("actor-0", "actor"),
    RolePlan("actor-1", "actor"),
    RolePlan("evaluator", "evaluator"),
]
NAMES = [p.name for p in PLANS]
CONFIG = SupervisorConfig(restarts=3, restart_window_s=10.0, pause_s=1.0, pause_max_s=3.0, stop_s=10.0)


def running(plans=PLANS, config=CONFIG):
    supervision = Supervision(plans, config)
    for action in supervision.tick(0.0):
        assert action.verb == "start"
        supervision.started(action.role)
    return supervision


def verbs(actions):
    return [(a.verb, a.role) for a in actions]


def test_everything_starts_at_once_and_only_once():
    supervision = Supervision(PLANS, CONFIG)
    assert [a.role for a in supervision.tick(0.0)] == NAMES
    for name in NAMES:
        supervision.started(name)
    assert supervision.tick(0.1) == []


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("code", [1, 2, -9, -15])
def test_a_death_is_answered_by_a_start_after_the_pause(name, code):
    supervision = running()
    supervision.exited(name, code, 5.0)
    assert supervision.tick(5.9) == []
    assert supervision.tick(6.0) == [Action("start", name)]
    assert name in supervision.notices()[0]


def test_a_role_that_left_with_its_buffer_has_ended_in_order():
    supervision = running()
    supervision.exited("actor-0", BUFFER_LEFT, 5.0)
    assert supervision.tick(5.0 + CONFIG.pause_max_s) == [Action("start", "actor-0")]
    assert supervision.notices() == []


def test_the_pause_doubles_up_to_its_limit():
    supervision = running(config=SupervisorConfig(restarts=9, restart_window_s=100, pause_s=1.0, pause_max_s=3.0))
    now, pauses = 0.0, []
    for _ in range(4):
        supervision.exited("actor-0", -9, now)
        start = now
        while not supervision.tick(now):
            now += 0.25
        pauses.append(now - start)
        supervision.started("actor-0")
    assert pauses == [1.0, 2.0, 3.0, 3.0]


def kill_until_given_up(supervision, name, *, step=2.0, limit=20, progress=False):
    now = 0.0
    for n in range(1, limit):
        supervision.exited(name, -9, now)
        if name in supervision.given_up:
            return n
        now += step
        while Action("start", name) not in supervision.tick(now):
            now += 0.5
        supervision.started(name)
        if progress:
            supervision.progressed(name)
    return None


def test_the_limit_is_the_declared_one_and_is_named():
    supervision = running()
    assert kill_until_given_up(supervision, "actor-0", step=0.0) == 4
    reason = supervision.given_up["actor-0"]
    assert "supervisor.restarts 3 within 10 s" in reason
    assert "4 times" in reason
    assert "signal 9" in reason


def test_deaths_outside_the_window_do_not_count():
    assert kill_until_given_up(running(), "learner", step=4.0, progress=True) is None


@pytest.mark.parametrize(
    ("name", "outcome"),
    [("buffer", FAILED), ("learner", FAILED), ("actor-0", ""), ("evaluator", "")],
    ids=lambda v: v or "goes on",
)
def test_who_ends_the_run_when_given_up(name, outcome):
    supervision = running()
    supervision.exited(name, MUST_NOT_RESTART, 1.0)
    assert supervision.outcome == outcome
    assert supervision.ending == bool(outcome)
    assert supervision.given_up == {name: f"{name} cannot go on"}


def test_the_last_actor_ends_the_run():
    supervision = running()
    supervision.exited("actor-0", MUST_NOT_RESTART, 1.0)
    supervision.exited("actor-1", MUST_NOT_RESTART, 2.0)
    assert supervision.outcome == FAILED
    assert "actor-1" in supervision.reason


def test_an_actor_that_waits_for_its_restart_counts_as_left():
    supervision = running()
    supervision.exited("actor-0", -9, 1.0)
    supervision.exited("actor-1", MUST_NOT_RESTART, 1.1)
    assert not supervision.ending


@pytest.mark.parametrize("name", NAMES)
def test_every_role_is_needed_until_the_job_is_reported_done(name):
    supervision = running()
    for n in range(20):
        supervision.exited(name, 0, 10.0 * n)
        assert supervision.tick(10.0 * n + CONFIG.pause_max_s - 0.1) == []
        assert supervision.tick(10.0 * n + CONFIG.pause_max_s) == [Action("start", name)]
        supervision.started(name)
    assert not supervision.given_up
    supervision.exited(name, 0, 500.0)
    supervision.job_done(500.1)
    assert supervision.outcome == DONE
    assert Action("start", name) not in supervision.tick(600.0)


@pytest.mark.parametrize("begin", ["job_done", "stop"])
def test_an_ordered_end_goes_in_turns(begin):
    supervision = running()
    getattr(supervision, begin)(1.0)
    assert verbs(supervision.tick(1.0)) == [("terminate", n) for n in ("actor-0", "actor-1", "evaluator")]
    assert supervision.tick(1.1) == []
    for name in ("evaluator", "actor-1", "actor-0"):
        assert supervision.tick(1.2) == []
        supervision.exited(name, 0, 1.3)
    assert verbs(supervision.tick(1.3)) == [("terminate", "learner")]
    supervision.exited("learner", 0, 1.4)
    assert verbs(supervision.tick(1.4)) == [("terminate", "buffer")]
    assert not supervision.ended
    supervision.exited("buffer", 0, 1.5)
    assert supervision.tick(1.5) == []
    assert supervision.ended
    assert supervision.outcome == (DONE if begin == "job_done" else INTERRUPTED)


def test_a_role_that_ignores_the_request_is_killed_and_the_end_fits_its_budget():
    supervision = running()
    supervision.stop(0.0)
    now = 0.0
    asked, killed = set(), {}
    while not supervision.ended:
        for action in supervision.tick(now):
            if action.verb == "terminate":
                asked.add(action.role)
            else:
                killed[action.role] = now
                supervision.exited(action.role, -9, now)
        now = round(now + 0.1, 3)
        assert now <= CONFIG.stop_s + 0.5  # three turns, each seen one tick late
    assert set(killed) == asked == set(NAMES)
    assert killed["actor-0"] < killed["learner"] < killed["buffer"]


def test_the_second_request_kills_everything_at_once():
    supervision = running()
    supervision.stop(1.0)
    supervision.tick(1.0)
    supervision.stop(1.1)
    assert verbs(supervision.tick(1.1)) == [("kill", n) for n in NAMES]


def test_one_request_during_the_end_of_a_finished_job_takes_nothing_from_it():
    supervision = running()
    supervision.job_done(1.0)
    supervision.stop(1.1)
    assert supervision.outcome == DONE
    assert all(a.verb == "terminate" for a in supervision.tick(1.1))


def test_a_done_job_gives_slow_roles_time_unless_somebody_waits():
    for request, patience in ((None, CONFIG.stop_s), (2.0, 3.0)):
        supervision = running()
        supervision.job_done(1.0)
        supervision.tick(1.0)
        end = 1.0 + patience
        if request is not None:
            supervision.stop(request)
            end = request + patience
        assert not [a for a in supervision.tick(end - 0.01) if a.verb == "kill"]
        assert {a.role for a in supervision.tick(end) if a.verb == "kill"} == {"actor-0", "actor-1", "evaluator"}


def test_nothing_is_started_during_an_end():
    supervision = running()
    supervision.exited("actor-0", -9, 0.9)
    supervision.stop(1.0)
    supervision.exited("learner", -9, 1.1)
    for now in (1.2, 2.0, 50.0):
        assert all(a.verb != "start" for a in supervision.tick(now))


@pytest.mark.parametrize(("name", "outcome"), [("learner", FAILED), ("buffer", FAILED), ("actor-0", DONE), ("evaluator", DONE)])
def test_a_done_job_needs_a_clean_end_of_learner_and_buffer(name, outcome):
    supervision = running()
    supervision.job_done(1.0)
    supervision.exited(name, 1, 1.1)
    assert supervision.outcome == outcome


def test_a_learner_that_had_not_begun_when_the_job_was_done_has_nothing_to_end_cleanly():
    supervision = running([RolePlan("learner", "learner")])
    supervision.job_done(1.0)
    assert verbs(supervision.tick(1.0)) == [("terminate", "learner")]
    supervision.exited("learner", -15, 1.1)
    assert supervision.outcome == DONE


def test_a_death_says_why_as_far_as_the_role_did():
    supervision = running()
    supervision.exited("learner", 1, 1.0, "ValueError: no")
    supervision.exited("buffer", -9, 1.0)
    assert supervision.notices() == [
        "learner died (exit code 1); starting it again in 1.0 s; it said: ValueError: no",
        "buffer died (signal 9); starting it again in 1.0 s",
    ]


@pytest.mark.parametrize(("slow", "outcome"), [("actor-0", DONE), ("evaluator", DONE), ("buffer", DONE), ("learner", FAILED)])
def test_a_role_that_is_slow_to_leave_a_done_job_costs_a_notice_unless_it_is_the_learner(slow, outcome):
    supervision = running()
    supervision.job_done(0.0)
    now = 0.0
    while not supervision.ended:
        for action in supervision.tick(now):
            if action.role != slow:
                supervision.exited(action.role, 0, now)
            elif action.verb == "kill":
                supervision.exited(slow, -9, now)
        now += 0.1
    assert supervision.outcome == outcome
    said = f"{slow} did not leave in time after the job was done and was killed; the result stands"
    assert supervision.notices() == ([said] if outcome == DONE else [])


def test_a_failure_keeps_its_first_reason():
    supervision = running()
    supervision.exited("buffer", MUST_NOT_RESTART, 1.0)
    supervision.fail("something later", 1.1)
    assert supervision.reason == "buffer cannot go on"


@pytest.mark.parametrize(("name", "what"), [("actor-0", "acknowledged row"), ("learner", "update"), ("buffer", "answer")])
def test_deaths_in_a_row_without_anything_done_in_between_are_too_many_at_any_pace(name, what):
    supervision = running()
    assert kill_until_given_up(supervision, name, step=1000.0) == 4
    reason = supervision.given_up[name]
    assert reason == (f"{name} died 4 times without one {what}, last by signal 9; the limit is supervisor.restarts 3 in a row")


def test_a_role_that_gets_something_done_between_its_deaths_is_never_given_up():
    supervision, now = running(), 0.0
    for n in range(60):
        supervision.exited("actor-0", -9, now)
        supervision.exited("actor-1", -9, now)
        now += 13.0
        for action in supervision.tick(now):
            supervision.started(action.role)
        if n % 3 == 2:
            supervision.progressed("actor-0")
    assert list(supervision.given_up) == ["actor-1"]
