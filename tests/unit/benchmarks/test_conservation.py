"""The conservation checker: silent on a whole dump, loud on every sabotage. Steps of life p are named by (p, episode, t)."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from campaign.conservation import SABOTAGES, Evidence, Life, check, digest, read_lives, sabotage, step_of

ACTION = np.array([0.25, -0.5], "<f4").tobytes()


def life(pid, actor, steps, length=7):
    return Life(pid, pid, actor, tuple(step_of(pid, i // length, i % length, ACTION.hex(), False, False) for i in range(steps)))


def row(life, seq, stream):
    step = life.steps[seq - 1]
    place = {"id": 0, "actor": life.actor, "stream": stream, "seq": seq, "episode": step.episode, "t": step.t}
    return {**place, "digest": digest(life.pid, step.episode, step.t, ACTION, False, False)}


FIRST, SECOND, THIRD = life(101, "actor-0", 30), life(102, "actor-1", 25), life(103, "actor-0", 12)
STREAMS = {1: FIRST, 7: SECOND, 2: THIRD}


def evidence(cut=0):
    """Three lives; the first was killed with its last ``cut`` steps not handed over."""
    counts = {1: 30 - cut, 7: 25, 2: 12}
    rows = [row(STREAMS[s], seq, s) for s, n in counts.items() for seq in range(1, n + 1)]
    counters = {"rows_accepted": len(rows), "rows_evicted": 0, "rows_retired": 0, "lost_before": 0, "rejected_steps": 0}
    return Evidence(rows, counters, [FIRST, SECOND, THIRD], frozenset({101}), {("actor-0", 1): 20, ("actor-1", 7): 25})


def test_a_whole_run_has_no_problems():
    balance = check(evidence())
    assert balance.problems == ()
    assert (balance.counts["produced"], balance.counts["live"], balance.counts["abandoned"]) == (67, 67, 0)


def test_what_a_killed_process_never_handed_over_is_abandoned():
    balance = check(evidence(cut=4))
    assert balance.problems == ()
    assert balance.counts["abandoned"] == 4


NAMED = {"remove": "1 missing", "duplicate": "1 there twice", "flip": "1 not what was executed", "replay": "1 never executed"}


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("kind", SABOTAGES)
def test_every_sabotage_is_found_and_named(kind, seed):
    whole = evidence()
    newest = [r for r in whole.rows if kind == "remove" and (r["stream"], r["seq"]) in {(1, 30), (7, 25), (2, 12)}]
    rows = sabotage([r for r in whole.rows if r not in newest], kind, np.random.default_rng(seed))
    problem(replace(whole, rows=[*rows, *newest]), NAMED[kind])  # a gap needs a row behind it


@pytest.mark.parametrize("kind", SABOTAGES)
def test_every_sabotage_is_found_by_the_rows_alone_when_the_counters_lie_along(kind):
    whole = evidence()
    rows = sabotage(whole.rows[:-12], kind, np.random.default_rng(3))  # without the last life, so that no newest row is hit
    lies = {**whole.counters, "rows_accepted": len(rows)}
    lives = [FIRST, SECOND]
    assert check(replace(whole, rows=rows, counters=lies, lives=lives)).problems


def problem(changed, text):
    problems = check(changed).problems
    assert any(text in p for p in problems), problems


def test_an_acknowledged_row_that_is_gone_is_told():
    whole = evidence(cut=4)
    problem(replace(whole, acked={("actor-0", 1): 27}), "acknowledged up to seq 27, the pool ends at 26")
    problem(replace(whole, acked={("actor-9", 1): 1}), "acked, but nothing of the stream is there")


def test_a_living_process_may_abandon_nothing():
    problem(replace(evidence(cut=4), killed=frozenset()), "4 steps of process 101 of actor-0")


def test_rows_of_another_episode_t_or_action_are_told():
    whole = evidence()
    for change in ({"t": 3}, {"episode": 4}, {"digest": digest(101, 0, 2, b"\0" * 8, False, False)}):
        rows = [{**r, **change} if (r["stream"], r["seq"]) == (1, 3) else r for r in whole.rows]
        problem(replace(whole, rows=rows), "not what was executed")


def test_a_row_under_another_actors_name_is_told():
    whole = evidence()
    rows = [{**r, "actor": "actor-1"} if r["stream"] == 2 else r for r in whole.rows]
    problem(replace(whole, rows=rows), "no process of that actor logged its steps")


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"rows_accepted": 68}, "acked 68 rows, but live + evicted + retired + discarded are 67"),
        ({"lost_before": 2}, "lost_before: 2"),
        ({"rejected_reward": 1}, "rejected_reward: 1"),
    ],
)
def test_counters_that_do_not_balance_are_told(change, text):
    whole = evidence()
    problem(replace(whole, counters={**whole.counters, **change}), text)


def test_a_row_cut_off_by_the_end_of_acting_is_truncated_and_still_proved():
    whole = evidence()
    cut = digest(103, 1, 4, ACTION, False, True)
    rows = [*whole.rows[:-1], {**whole.rows[-1], "digest": cut}]
    assert check(replace(whole, rows=rows)).problems == ()


def header(number, *words):
    return json.dumps([0.5, "begin", {"pid": 70, "actor": number, "argv": ["headrace", *words]}]) + "\n"


def test_lives_are_read_from_logs_without_evaluators_and_half_lines(tmp_path):
    steps = f'[0.6, "step", 0, 0, 0, "{ACTION.hex()}", 0, 1]\n[0.7, "step", 0, 0, 1, '
    (tmp_path / "steps-7.jsonl").write_text(header(7, "actor", "run", "--id", "actor-3") + steps)
    (tmp_path / "steps-8.jsonl").write_text(header(8, "actor", "run", "--id", "evaluator", "--evaluate"))
    (tmp_path / "steps-9.jsonl").write_text(header(9, "train", "config.yaml"))
    assert read_lives(tmp_path) == [Life(70, 7, "actor-3", (step_of(7, 0, 0, ACTION.hex(), 0, 1),))]
