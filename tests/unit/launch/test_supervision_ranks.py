"""The ranks of a learner share a fate: the supervisor's decisions about them, without a process or a clock."""

import pytest

from headrace.launch.exits import GROUP_LOST, MUST_NOT_RESTART
from headrace.launch.supervision import DONE, FAILED, INTERRUPTED, PATIENCE_S, RolePlan, Supervision, SupervisorConfig

RANKS = ["learner", "learner-1", "learner-2"]
PLANS = [RolePlan("learner", "learner"), RolePlan("learner-1", "rank"), RolePlan("learner-2", "rank")]
OTHERS = [RolePlan("buffer", "buffer"), RolePlan("actor-0", "actor")]
CONFIG = SupervisorConfig(restarts=3, restart_window_s=100.0, pause_s=1.0, pause_max_s=3.0, stop_s=10.0)


def verbs(actions):
    return [(action.verb, action.role) for action in actions]


def start(supervision, now):
    begun = [action.role for action in supervision.tick(now) if action.verb == "start"]
    for name in begun:
        supervision.started(name)
    return begun


@pytest.fixture
def supervision():
    made = Supervision([*PLANS, *OTHERS], CONFIG)
    assert start(made, 0.0) == [*RANKS, "buffer", "actor-0"]
    return made


@pytest.mark.parametrize("lost", RANKS)
def test_a_killed_rank_is_named_and_all_are_started_again_together(supervision, lost):
    others = [name for name in RANKS if name != lost]
    supervision.exited(others[0], GROUP_LOST, 5.0, "rank 0 of 3 could not sum gradients")  # noticed first, as may be
    supervision.exited(lost, -9, 5.0)
    assert supervision.tick(5.5) == []  # the third is still there
    supervision.exited(others[1], GROUP_LOST, 6.0)
    assert supervision.notices() == [f"{lost} died (signal 9); starting all 3 ranks again in 1.0 s"]
    assert start(supervision, 6.9) == []
    assert start(supervision, 7.0) == RANKS
    assert not supervision.given_up


@pytest.mark.parametrize("silent", RANKS)
def test_a_silent_rank_is_killed_and_named_when_the_others_have_given_it_up(supervision, silent):
    others = [name for name in RANKS if name != silent]
    for n, name in enumerate(others):
        supervision.exited(name, GROUP_LOST, 5.0 + n)
    end = 5.0 + PATIENCE_S["learner" if silent == "learner" else "rank"]
    assert supervision.tick(end - 0.1) == []
    assert verbs(supervision.tick(end)) == [("kill", silent)]
    supervision.exited(silent, -9, end)
    assert supervision.notices() == [f"{silent} did not answer and was killed; starting all 3 ranks again in 1.0 s"]
    assert start(supervision, end + 1.0) == RANKS


def test_a_rank_that_does_not_notice_a_death_is_killed_and_not_blamed_for_it(supervision):
    """Such as one that waits for the others where a group meets, for longer than this."""
    supervision.exited("learner-2", 1, 5.0, "MemoryError")
    assert verbs(supervision.tick(5.0 + PATIENCE_S["rank"])) == [("kill", "learner-1")]
    supervision.exited("learner-1", -9, 10.0)
    assert verbs(supervision.tick(5.0 + PATIENCE_S["learner"])) == [("kill", "learner")]
    supervision.exited("learner", -9, 17.0)
    said = "learner-2 died (exit code 1); starting all 3 ranks again in 1.0 s; it said: MemoryError"
    assert supervision.notices() == [said]


def test_the_learner_may_finish_the_checkpoint_that_it_writes():
    assert PATIENCE_S["learner"] > PATIENCE_S["rank"]


def test_what_all_ranks_lost_together_is_one_death_and_the_limit_names_the_last(supervision):
    now = 0.0
    for death in range(CONFIG.restarts + 1):
        assert not supervision.given_up, death
        now += 10.0
        for name in RANKS:
            supervision.exited(name, -9 if name == "learner-1" else GROUP_LOST, now)
        start(supervision, now + CONFIG.pause_max_s)
    reason = (
        "the learner's ranks were lost 4 times; learner-1 died (signal 9) last; the limit is supervisor.restarts 3 within 100 s"
    )
    assert supervision.given_up == {"learner-1": reason}
    assert (supervision.outcome, supervision.reason) == (FAILED, reason)


def test_a_rank_that_cannot_go_on_ends_the_run(supervision):
    supervision.exited("learner", GROUP_LOST, 1.0)
    supervision.exited("learner-1", MUST_NOT_RESTART, 1.0)
    assert not supervision.outcome
    supervision.exited("learner-2", 1, 1.0)
    assert (supervision.outcome, supervision.reason) == (FAILED, "learner-1 cannot go on")


def test_further_ranks_leave_first_and_nobody_hurries_a_learner_that_saves(supervision):
    supervision.exited("learner-1", 0, 5.0)
    supervision.exited("learner-2", 0, 5.0)
    assert supervision.tick(500.0) == []
    supervision.exited("learner", 0, 600.0)
    assert start(supervision, 600.0 + CONFIG.pause_max_s - 0.1) == []  # the job is reported done, as a rule
    assert start(supervision, 600.0 + CONFIG.pause_max_s) == RANKS
    assert supervision.notices() == []


def test_a_rank_that_stays_when_the_learner_has_left_is_killed(supervision):
    supervision.exited("learner", 0, 5.0)
    assert verbs(supervision.tick(5.0 + PATIENCE_S["rank"])) == [("kill", "learner-1"), ("kill", "learner-2")]


@pytest.mark.parametrize(("begin", "outcome"), [("job_done", DONE), ("stop", INTERRUPTED)])
def test_all_ranks_are_asked_to_end_in_the_learners_turn(supervision, begin, outcome):
    getattr(supervision, begin)(1.0)
    assert verbs(supervision.tick(1.0)) == [("terminate", "actor-0")]
    supervision.exited("actor-0", 0, 1.1)
    assert verbs(supervision.tick(1.1)) == [("terminate", name) for name in RANKS]
    for name in reversed(RANKS):
        supervision.exited(name, 0, 1.2)
    assert verbs(supervision.tick(1.2)) == [("terminate", "buffer")]
    supervision.exited("buffer", 0, 1.3)
    assert supervision.ended
    assert supervision.outcome == outcome


def test_ranks_that_had_not_begun_when_the_job_was_done_have_nothing_to_end_cleanly(supervision):
    """A finished run is resumed: some are asked while they wait for each other, and the last one finds itself alone."""
    supervision.job_done(1.0)
    supervision.tick(1.0)
    supervision.exited("actor-0", 0, 1.1)
    supervision.tick(1.1)
    for name, code in zip(RANKS, (GROUP_LOST, -15, 0), strict=True):
        supervision.exited(name, code, 1.2)
    assert supervision.outcome == DONE


def test_a_further_rank_that_is_slow_to_leave_a_done_job_costs_a_notice(supervision):
    supervision.job_done(1.0)
    supervision.tick(1.0)
    supervision.exited("actor-0", 0, 1.0)
    supervision.tick(1.0)
    supervision.exited("learner", 0, 1.1)
    supervision.exited("learner-2", 0, 1.1)
    assert verbs(supervision.tick(11.0)) == [("kill", "learner-1")]
    supervision.exited("learner-1", -9, 11.0)
    assert supervision.outcome == DONE
    assert supervision.notices() == ["learner-1 did not leave in time after the job was done and was killed; the result stands"]
