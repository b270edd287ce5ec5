"""What people see of a status: numbers in words, one line, a table, and nothing invented where nothing is known."""

import io

import pytest
from rich.console import Console

from headrace.common.clock import ManualClock
from headrace.launch.progress import LINE_EVERY_S, Progress, duration, eta_s, facts, fleet, line, table, text

STATUS = {
    "run": "run-1",
    "phase": "training",
    "uptime_s": 42.4,
    "env_steps": 4200,
    "env_steps_goal": 10000,
    "updates": 3200,
    "updates_owed": 3200,
    "rates": {"env_steps_s": 100.0, "updates_s": 99.0},
    "achieved_ratio": 1.0,
    "target_ratio": 1.0,
    "return_mean": -812.34,
    "policy_lag_updates": 12,
    "policy_age_s": 0.13,
    "pool": {"rows": 4200, "capacity": 100000},
    "actors": [{"id": "actor-0", "host": "h", "pid": 7, "rate": 50.0, "executed": 2100, "lag_updates": 12, "age_s": 0.1}],
    "evaluators": [],
    "evaluations": [{"return_mean": -165.0, "return_std": 20.0, "episodes": 5, "env_steps": 4000}],
    "waiting": [],
}


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0:00"), (61.4, "1:01"), (3725, "1:02:05"), (None, "-"), (float("inf"), "-"), (-3, "0:00")]
)
def test_durations(seconds, text):
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, 58.0),
        ({"env_steps_goal": 0}, None),
        ({"rates": {"env_steps_s": 0.0, "updates_s": 0.0}}, None),
        ({"env_steps": 10000, "updates": 9000, "updates_owed": 9990}, 10.0),
        ({"env_steps": 10000, "updates": 9990, "updates_owed": 9990}, 0.0),
    ],
)
def test_the_eta_follows_what_is_left(change, expected):
    assert eta_s({**STATUS, **change}) == expected


def test_facts_say_every_number_that_was_asked_for():
    said = dict(facts(STATUS))
    assert said["env steps"] == "4,200 of 10,000   100.0/s"
    assert said["updates"] == "3,200   99.0/s"
    assert said["updates per env step"] == "1.000   target 1"
    assert said["pool"] == "4,200 rows (4% of 100,000)"
    assert said["return, training"] == "-812.3"
    assert said["return, evaluation"] == "-165.0 ± 20.0 over 5 episodes at 4,000"
    assert said["policy age"] == "12 updates, 0.1 s"
    assert said["time, ETA"] == "0:42, 0:58"


def test_a_status_that_knows_nothing_yet_is_shown_too():
    empty = {"phase": "waiting", "pool": {}, "return_mean": None, "evaluations": [], "waiting": ["no actor is connected"]}
    assert dict(facts(empty))["return, evaluation"] == "-"
    assert ("waiting", "no actor is connected") in facts(empty)
    assert "waiting: no actor is connected" in line(empty)


def test_the_line_names_the_same_numbers():
    said = line(STATUS)
    for part in ("4200/10000 (100/s)", "3200 (99/s)", "ratio 1.000", "-812.3 (eval -165.0)", "12 updates 0.1 s", "ETA 0:58"):
        assert part in said


def test_warnings_are_shown_like_reasons_to_wait():
    status = {**STATUS, "waiting": ["no actor is connected"], "warnings": ["3 rows rejected: nan"]}
    assert facts(status)[-2:] == [("waiting", "no actor is connected"), ("warning", "3 rows rejected: nan")]
    assert line(status).endswith("  waiting: no actor is connected  warning: 3 rows rejected: nan")
    assert "3 rows rejected: nan" in rendered(table(status, "run-1"))


RANK = {"id": "learner-1", "pid": 8, "silent_s": 0.2, "learner/updates": 3190, "updates_without_rows": 3}


def test_the_ranks_of_a_learner_are_shown_and_those_that_were_lost():
    learner = {"id": "learner", "pid": 7, "silent_s": 0.1, "learner/updates": 3200, "ranks": 3}
    shown = [text for label, text in facts({**STATUS, "learner": learner, "ranks": [RANK]}) if label.startswith("rank")]
    assert shown == [
        "2 of 3",
        "learner   3,200 updates   pid 7   silent 0.1 s",
        "learner-1   3,190 updates, 3 without rows   pid 8   silent 0.2 s",
    ]
    lost = [{"role": role, "id": name, "why": "silent", "pid": 5} for role, name in (("actor", "a"), ("rank", "learner-2"))]
    shown = dict(facts({**STATUS, "learner": learner, "ranks": [RANK], "lost_sessions": lost}))["ranks"]
    assert shown == "2 of 3   1 lost so far: learner-2 (silent, pid 5)"
    several = {**STATUS, "learner": learner, "ranks": [RANK], "lost_sessions": lost[1:] * 9}
    assert dict(facts(several))["ranks"].count("learner-2") == 3


@pytest.mark.parametrize(
    "learner", [None, {"id": "learner", "ranks": 1}, {"id": "learner"}, {"id": "learner", "ranks": "many"}]
)
def test_a_learner_that_is_alone_has_no_ranks_to_show(learner):
    assert not [label for label, _ in facts({**STATUS, "learner": learner, "ranks": []}) if label.startswith("rank")]


def test_an_evaluator_has_no_rate_and_no_steps():
    judge = {"id": "evaluator", "host": "h", "pid": 8, "silent_s": 0.2}
    status = {**STATUS, "evaluators": [judge]}
    assert fleet(status)[1] == ["actor-0", "h", "7", "50.0", "2,100", "12 updates, 0.1 s", "0.0 s"]
    assert fleet(status)[2] == ["evaluator", "h", "8", "-", "-", "-", "0.2 s"]
    assert fleet({}) == []


def test_shares_of_random_actions_are_shown_where_there_are_any():
    actors = [{**STATUS["actors"][0], "epsilon": epsilon} for epsilon in (0.4, 0.00065536, 0.0)]
    judge = {"id": "evaluator", "host": "h", "pid": 8, "silent_s": 0.2, "epsilon": "none"}
    head, *rows = fleet({**STATUS, "actors": actors, "evaluators": [judge]})
    assert head[-1] == "epsilon"
    assert [row[-1] for row in rows] == ["0.4", "0.00066", "0", "-"]
    assert {len(row) for row in (head, *rows)} == {8}
    assert "0.00066" in text({**STATUS, "actors": actors})
    assert fleet({**STATUS, "actors": actors[2:]})[0][-1] == "silent"


def test_plain_text_has_the_actors_too():
    lines = text(STATUS).splitlines()
    assert lines[0] == "env steps             4,200 of 10,000   100.0/s"
    assert lines[-2].split() == ["actor", "host", "pid", "env", "steps/s", "env", "steps", "policy", "age", "silent"]
    assert lines[-1].startswith("actor-0  h")
    assert len(lines[-1]) == len(lines[-2])  # numbers are on the right
    assert text({"waiting": ["x"]}).splitlines()[-1] == "waiting               x"


def rendered(what):
    out = io.StringIO()
    Console(file=out, width=120).print(what)
    return out.getvalue()


def test_the_table_lists_actors_and_bounds_them():
    shown = rendered(table(STATUS, "run-1"))
    assert "actor-0" in shown
    assert "training" in shown
    many = [{**STATUS["actors"][0], "id": f"actor-{n}"} for n in range(40)]
    shown = rendered(table({**STATUS, "actors": many}, "run-1"))
    assert "actor-15" in shown
    assert "actor-16" not in shown
    assert "24 more" in shown


def test_names_from_the_wire_are_text_and_not_markup():
    evil = [{**STATUS["actors"][0], "id": "[red]x[/red]"}]
    assert "[red]x[/red]" in rendered(table({**STATUS, "actors": evil}, "[bold]t"))


def test_without_a_terminal_there_is_a_line_every_few_seconds():
    out, clock = io.StringIO(), ManualClock(100.0)
    progress = Progress(Console(file=out, force_terminal=False), "run-1", clock)
    for _ in range(int(3 * LINE_EVERY_S)):
        progress.update(STATUS)
        clock.advance(1.0)
    progress.notice("actor-0 died [signal 9]")
    progress.close()
    lines = out.getvalue().splitlines()
    assert len(lines) == 4
    assert lines[-1] == "actor-0 died [signal 9]"


def test_on_a_terminal_the_table_stays_in_place():
    out = io.StringIO()
    progress = Progress(Console(file=out, force_terminal=True, width=100), "run-1", ManualClock())
    progress.update(STATUS)
    progress.update({**STATUS, "env_steps": 4300})
    progress.close()
    assert "\x1b[" in out.getvalue()
    assert "4,300" in out.getvalue()


def test_how_the_learner_reads_the_pool_is_shown():
    status = {"pool": {"rows": 7, "capacity": 10}, "learner": {"reading": "mapped"}}
    assert dict(facts(status))["pool"] == "7 rows (70% of 10)   read: mapped"
    assert dict(facts({**status, "learner": None}))["pool"] == "7 rows (70% of 10)"
    pinned = {"pool": {**status["pool"], "demo_rows": 1200}}
    assert dict(facts(pinned))["pool"] == "7 rows (70% of 10) and 1,200 demonstrations"


def test_sets_are_shown_with_what_became_of_their_shares():
    good = {
        "critic": {"share": 0.5, "realised": 0.25, "repeated": 0.0},
        "actor": {"share": 0.9, "realised": 0.9, "repeated": 0.0},
    }
    mixes = {mix: {"good": s} for mix, s in good.items()}
    shown = text({**STATUS, "sampling": {"sets": {"good": 1200, "spare": 3}, "mixes": mixes}})
    assert "set good              1,200 rows   critic 25.0% of 50.0%   actor 90.0% of 90.0%" in shown
    assert "set spare             3 rows\n" in shown
    assert "set " not in text(STATUS)
