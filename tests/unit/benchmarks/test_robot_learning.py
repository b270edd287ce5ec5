"""What the record of a robot's run says: episodes and their curve, steps that are there once and in order, bars, its table."""

from __future__ import annotations

import pytest
from campaign.gate import FAILED, NOT_RUN, PASSED
from campaign.robot_course import Wound, allowed_s, safe_ms
from campaign.robot_figures import WINDOW, conserved, curve_of, episodes_of, off_period_ms, problems, unbalanced
from campaign.robot_table import robot_line, robot_section

from headrace.common.specs import OUTCOME_FAILURE, OUTCOME_SUCCESS
from headrace.launch.chaos.robot_log import RobotLog


def row(episode, seq, source="policy", outcome=OUTCOME_SUCCESS, stream=1):
    return {"stream": stream, "seq": seq, "episode": episode, "source": (source,), "outcome": outcome}


def act(at, episode, kind="policy"):
    return {"what": "act", "kind": kind, "episode": episode, "tick": 0, "at": at, "deadline": None, "done": True}


def reset(episode):
    return {"what": "reset", "episode": episode, "at": 0.0}


def exam(success):
    return {"success": success, "interval": [success, success], "episodes": 100}


def record(**changes):
    zero = dict.fromkeys(("stale_commands", "crossed_resets", "lost", "duplicated", "out_of_order", "missing", "unbalanced"), 0)
    figures = {"wall_min": 30.0, "env_steps": 16_000, "updates": 7_900, "updates_s": 10.0, "human_share": 0.1}
    times = {"period_ms_p50": 50.0, "period_ms_p99": 52.0, "jitter_ms_p99": 1.0}
    origin = {"commit": "c", "dirty": False, "date": "2026-01-01T00:00:00Z", "machine": {}}
    about = {"seed": 0, "hurt": False, "policy": exam(0.95), "cloning": exam(0.3), "curve": [], "problems": []}
    base = {**about, **zero, **figures, **times, **origin, **changes}
    return {**base, "passed": not problems(base, 20.0)}


def hurt(**changes):
    return record(hurt=True, course_done=True, safe_ms={"actor-kill": [40.0, 60.0]}, cut_s=600.0, spooled=12_000, **changes)


def test_episodes_are_counted_in_their_order_and_a_curve_counts_those_without_help():
    rows = [row(0, 1), row(0, 2), row(1, 3, "human"), row(1, 4), row(2, 5, outcome=OUTCOME_FAILURE), row(0, 1, stream=2)]
    assert episodes_of(rows) == [[2, 0, 1], [2, 1, 1], [1, 0, 0], [1, 0, 1]]
    episodes = [[4, 0, 1]] * 20 + [[4, 2, 1]] * 20 + [[4, 0, 0]] * 10 + [[9, 0, 1]] * (WINDOW + 7)
    assert curve_of(episodes) == [[200, 0.4, 0.2], [650, 1.0, 0.0]]


LOG = [
    reset(0),
    act(0.1, 0),
    act(0.2, 0),
    act(0.3, -1, "hold"),
    reset(1),
    act(0.4, 1),
    act(0.5, 1),
    {"what": "stop", "at": 0.6},
]
WHOLE = [row(0, 1), row(0, 2), row(1, 3)]  # the last step of an episode that was stopped was not carried out to its end


@pytest.mark.parametrize(
    ("rows", "acked", "expected"),
    [
        (WHOLE, 3, {}),
        (WHOLE[1:], 3, {"lost": 1, "missing": 1}),
        (WHOLE[:1], 1, {"missing": 1}),
        (WHOLE[:2], 2, {}),
        ([*WHOLE, row(1, 3)], 3, {"duplicated": 1, "out_of_order": 1}),
        ([WHOLE[1], WHOLE[0], WHOLE[2]], 3, {"out_of_order": 1}),
    ],
)
def test_every_step_is_there_once_and_in_order(rows, acked, expected):
    zero = {"lost": 0, "duplicated": 0, "out_of_order": 0, "missing": 0, "cut_episodes": 1}
    tail = [act(0.7, -1, "hold")]  # armed again, it holds: that does not end the episode that was stopped
    assert conserved(rows, {1: acked}, RobotLog([*LOG, *tail])) == {**zero, **expected}


def test_what_an_actor_that_left_had_not_handed_over_is_no_loss_and_counters_add_up():
    assert conserved(WHOLE[:1], {1: 1}, RobotLog(LOG), [0.9])["missing"] == 0
    assert conserved([], {}, RobotLog(LOG[:4]))["missing"] == 0  # the last one, in which the run ended
    assert conserved(WHOLE[:1], {1: 1}, RobotLog(LOG), [1.4])["missing"] == 1
    counters = {"rows_accepted": 9, "rows_live": 4, "rows_evicted": 3, "rows_retired": 1, "rows_discarded": 1}
    assert unbalanced(counters) == 0
    assert unbalanced({**counters, "rows_accepted": 10}) == 1


def test_a_number_that_is_given_out_again_is_another_episode():
    again = [reset(1), act(0.8, 1), act(0.9, -1, "hold")]
    assert conserved([*WHOLE, row(1, 4)], {1: 4}, RobotLog([*LOG, *again]))["missing"] == 0
    lost = [reset(0), act(1.0, 0), act(1.1, -1, "hold"), reset(1)]  # an actor whose spool was lost counts from 0 again
    assert conserved([*WHOLE[:2], row(0, 1, stream=2)], {}, RobotLog([*LOG[:4], *lost]))["missing"] == 0
    assert conserved([row(0, 1, stream=2)], {}, RobotLog([*LOG[:4], *lost]))["missing"] == 2


def test_periods_are_held_against_the_clock_within_episodes_and_where_no_command_is_missing():
    ticks = [(1.0, 0, 0), (1.05, 0, 1), (1.11, 0, 2), (1.21, 0, 4), (2.0, 1, 0), (2.04, 1, 1), (9.0, 1, 2)]
    log = RobotLog([{**act(at, episode), "tick": tick} for at, episode, tick in ticks])
    assert off_period_ms(log, 0.5, 3.0, 20.0) == (10.0, 10.0)
    assert off_period_ms(log, 1.08, 1.5, 20.0) == (0.0, 0.0)


def test_how_long_the_policy_was_followed_is_told_by_fault_and_a_human_may_drive_on():
    log = RobotLog([act(1.0, 0), act(1.05, 0), act(1.1, 0, "hold"), act(1.2, 0, "human"), act(9.0, 0), act(12.0, 0)])
    wounds = [Wound("actor", "kill", 1.06, 2.0), Wound("buffer", "stop", 6.0, 9.5), Wound("buffer", "stop", 6.0, 8.0)]
    found = safe_ms(log, wounds, 20.0, allowed_s(20.0, 0.5))
    assert found["actor-kill"] == [40.0]
    assert found["buffer-stop"] == [None, 0.0]


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (record(), ""),
        (hurt(), ""),
        (record(policy=exam(0.89)), "success 89%"),
        (record(cloning=exam(0.80)), "cloning alone has 80%"),
        (record(wall_min=91.0), "91 min, 90 are allowed"),
        (record(stale_commands=1), "stale_commands 1"),
        (record(missing=2), "missing 2"),
        (hurt() | {"safe_ms": {"actor-kill": [40.0, 101.0]}}, "safe within 100 ms"),
        (hurt() | {"safe_ms": {"actor-kill": [40.0, None]}}, "never safe after 1 faults"),
        (hurt() | {"safe_ms": {}}, "safe within inf ms"),
        (hurt() | {"spooled": 0}, "no step waited"),
        (hurt() | {"course_done": False}, "ended before all faults"),
    ],
)
def test_each_bar_that_is_missed_is_told(found, text):
    missed = problems(found, 20.0)
    assert (len(missed) == 1 and text in missed[0]) if text else not missed


def test_the_page_tells_the_newest_of_each_seed():
    assert robot_line([]).state == NOT_RUN
    assert robot_section([], drawn=False) == [NOT_RUN]
    bad = record(policy=exam(0.5))
    assert robot_line([bad]).state == FAILED
    line = robot_line([bad, record(), hurt()])
    assert (line.state, len(line.records)) == (PASSED, 2)
    assert "seed 0, undisturbed: 95% of 100" in line.text
    page = "\n".join(robot_section([record(), hurt()], drawn=True))
    assert "| actor-kill | 40, 60 |" in page
    assert "600 s, 12,000 steps waited" in page
    assert "robot-reach.png" in page
