"""The audit of the kill campaign: good pools pass, and each fault is found and counted as what it is."""

from __future__ import annotations

from dataclasses import replace

import kills
import numpy as np
import pytest
from campaign import choosing, numbered, records
from campaign.numbered import PART, Rows, Written
from campaign.strikes import Scale, labelled, of_kind

from headrace.buffer import SACReplayPool


def everything(pool):
    ids = np.arange(pool.tail, pool.head)
    return Rows(pool.gather(ids), ~np.isin(ids, pool.live(pool.tail, pool.head).ids)), pool.counters(), pool.actors()


@pytest.fixture
def held():
    """A pool of 100 rows after 150 of two writers: rows, counters and actors."""
    with SACReplayPool(100, spec=numbered.SPEC) as pool:
        for first, n in ((1, 60), (61, 15)):
            for writer in (0, 1):
                pool.insert(numbered.block(writer, first, n), numbered.actor_id(writer), 7, first)
        yield everything(pool)


@pytest.fixture
def told():
    """A pool of one writer's 9 labelled parts, of which the first two are gone and the eighth is discarded."""
    with SACReplayPool(7 * PART, spec=numbered.SPEC) as pool:
        for number in range(1, 10):
            pool.insert(numbered.block(0, (number - 1) * PART + 1, PART), numbered.actor_id(0), 7, (number - 1) * PART + 1)
            pool.amend(numbered.actor_id(0), numbered.label(number, 7))
        yield everything(pool)


def judged(held, rows=None, acked=75, offered=75, **counters):
    good, counted, actors = held
    written = {(writer, 7): Written(acked, offered) for writer in (0, 1)}
    return numbered.judge(numbered.collect([rows or good], actors), written, {**counted, **counters})


def judged_labels(told, labelled, labels, rows=None, **counters):
    good, counted, actors = told
    written = {(0, 7): Written(9 * PART, 9 * PART, labelled, labels)}
    return numbered.judge(numbered.collect([rows or good], actors), written, {**counted, **counters})


def faults(verdict):
    return tuple(getattr(verdict, fault) for fault in numbered.FAULTS)


def changed(rows, **columns):
    """A copy with other values, (where, value), in some columns."""
    batch = rows.batch[np.arange(len(rows.batch))]
    for name, (where, value) in columns.items():
        batch.rows[name][where] = value
    return replace(rows, batch=batch)


def test_a_pool_with_evicted_rows_passes_whatever_of_it_was_acknowledged(held):
    assert judged(held).passed
    assert judged(held, acked=0, offered=500).passed


@pytest.mark.parametrize(("kind", "fault"), [("removed", 0), ("doubled", 1), ("changed", 2), ("invented", 3)])
def test_each_sabotage_is_counted_as_what_it_is(held, kind, fault):
    for seed in range(20):
        found = faults(judged(held, numbered.sabotage(held[0], kind, np.random.default_rng(seed))))
        assert found[fault] == 1, (seed, found)


def test_rows_that_were_acknowledged_and_never_came_are_lost(held):
    assert faults(judged(held, acked=80, offered=80)) == (10, 0, 0, 0, 0)


def test_rows_beyond_what_was_sent_and_of_unknown_streams_are_phantoms(held):
    assert judged(held, acked=70, offered=74).phantom == 2
    rows, counters, actors = held
    other = numbered.judge(numbered.collect([rows], actors), {(0, 7): Written(75, 75), (1, 8): Written(0, 0)}, counters)
    assert other.phantom == int((rows.batch.rows["actor"] == actors.index("writer-1")).sum())


def test_rows_gone_from_the_beginning_of_a_stream_must_be_counted_as_evicted(held):
    rows = held[0]
    verdict = judged(held, Rows(rows.batch[3:], rows.discarded[3:]))
    assert verdict.lost == 3
    assert any("gone" in problem for problem in verdict.problems)


@pytest.mark.parametrize(
    "name", ["rows_live", "rows_accepted", "rows_evicted", "rows_rejected", "lost_before", "rows_discarded"]
)
def test_each_counter_that_is_wrong_is_a_problem(held, name):
    assert not judged(held, **{name: held[1][name] + 1}).passed


@pytest.mark.parametrize("column", ["action", "rewards", "episode", "t", "task", "terminated", "learner"])
def test_each_column_proves_itself(held, column):
    rows, _, actors = held
    assert numbered.collect([changed(rows, **{column: (5, rows.batch.rows[column][5] + 1)})], actors).corrupted == 1
    following = rows.batch[np.arange(len(rows.batch))]
    following.next_obs["obs"][9, 3] += 1
    assert numbered.collect([replace(rows, batch=following)], actors).corrupted == 1


def test_labels_may_be_there_as_far_as_they_were_given_and_must_be_as_far_as_they_were_acknowledged(told):
    assert judged_labels(told, 9, 9).passed
    assert judged_labels(told, 0, 9).passed  # given, and not acknowledged
    assert judged_labels(told, 5, 6).corrupted == 3 * PART  # nobody gave labels 7 to 9
    unlabelled = judged_labels(told, 9, 9, changed(told[0], outcome=(slice(None), 0)))
    assert unlabelled.unlabelled == 3 * PART  # 4, 6 and 9 are outcomes
    assert not judged_labels(told, 9, 9, rows_discarded=0).passed


def test_a_label_that_was_not_acknowledged_is_whole_or_absent_and_none_comes_before_an_earlier_one(told):
    number = (numbered.seqs(told[0].batch) - 1) // PART + 1
    absent = changed(told[0], outcome=(number == 9, 0))
    assert judged_labels(told, 8, 9, absent).passed
    torn = changed(told[0], outcome=(np.flatnonzero(number == 9)[:7], 0))
    assert judged_labels(told, 8, 9, torn).problems == ("label 9 is on some of its rows only",)
    skipped = changed(told[0], outcome=(number == 6, 0))
    assert judged_labels(told, 5, 9, skipped).problems == ("label 9 is there, and label 6 is not",)


def test_what_a_row_says_must_be_its_own_label(told):
    number = (numbered.seqs(told[0].batch) - 1) // PART + 1
    three = np.flatnonzero(number == 4)[:3]
    for wrong in ({"outcome": (three, 2)}, {"rewards": (three, -5.0)}):
        assert numbered.collect([changed(told[0], **wrong)], told[2]).corrupted == 3
    discarded = told[0].discarded.copy()
    discarded[three] = True
    assert numbered.collect([replace(told[0], discarded=discarded)], told[2]).corrupted == 3


def test_a_priority_is_none_the_first_or_what_the_row_was_rated(held):
    rows, _, actors = held
    batch = rows.batch
    writers = np.array([int(name[-1]) for name in actors])[batch.rows["actor"]]
    priorities = numbered.rating(writers, numbered.seqs(batch)) + np.float32(numbered.PRIORITY_EPS)
    priorities[:20], priorities[20:40] = 0, numbered.FIRST_PRIORITY
    assert numbered.collect([replace(rows, priorities=priorities)], actors).corrupted == 0
    assert numbered.collect([replace(rows, priorities=np.roll(priorities, 1))], actors).corrupted > 50


def test_the_selftest_finds_all_and_passes_a_good_pool():
    assert all(kills.selftest().values())


def test_the_plan_spreads_the_kinds_and_leaves_out_what_passed():
    plan = choosing.plan_of({"load": 60, "snapshot": 20, "capacity": 20})
    assert len(set(plan)) == 100
    assert {kind for kind, _ in plan[:5]} == {"load", "snapshot", "capacity"}
    known = [{"kind": "load", "trial": n, "passed": n > 0, "commit": "a"} for n in range(3)]
    assert len(records.unpassed(plan, known, "a", "kind", "trial")) == 97
    assert len(records.unpassed(plan, known, "b", "kind", "trial")) == 98


def test_records_of_one_level_do_not_count_for_the_other_and_old_ones_are_made_again():
    known = [{"kind": "load", "trial": 0}, {"kind": "load", "trial": 0, "ack": "synced", "labels": 3}]
    assert of_kind("memory", "load", known) == known[:1]
    assert of_kind("synced", "load", known) == known[1:]
    assert labelled(known) == known[1:]


@pytest.mark.parametrize("ack", ["memory", "synced"])
def test_a_killed_buffer_has_all_that_its_writers_were_told_and_goes_on(tmp_path, ack):
    records_of = list(kills.strikes(tmp_path, [("load", 0), ("load", 1)], Scale((4000, 5000), 4000), ack))
    assert [r["problems"] for r in records_of] == [[], []]
    assert all(r["passed"] and r["acked"] > 0 and r["restart_s"] > 0 for r in records_of)
    assert sum(r["labels"] for r in records_of) > 0
    assert sum(r["rated"] for r in records_of) > 0
