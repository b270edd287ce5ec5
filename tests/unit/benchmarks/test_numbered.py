"""The audit of the kill campaign: good pools pass, and each fault is found and counted as what it is."""

from __future__ import annotations

import kills
import numpy as np
import pytest
from campaign import numbered, records
from campaign.numbered import Written
from campaign.strikes import Scale

from headrace.buffer import SACReplayPool


@pytest.fixture
def held():
    """A pool of 100 rows after 150 of two writers: batch, counters and actors."""
    with SACReplayPool(100, spec=numbered.SPEC) as pool:
        for first, n in ((1, 60), (61, 15)):
            for writer in (0, 1):
                pool.insert(numbered.block(writer, first, n), numbered.actor_id(writer), 7, first)
        yield pool.gather(np.arange(pool.tail, pool.head)), pool.counters(), pool.actors()


def judged(held, batches=None, acked=75, offered=75, **counters):
    batch, counted, actors = held
    written = {(writer, 7): Written(acked, offered) for writer in (0, 1)}
    return numbered.judge(numbered.collect([batch] if batches is None else batches, actors), written, {**counted, **counters})


def faults(verdict):
    return verdict.lost, verdict.duplicated, verdict.corrupted, verdict.phantom


def test_a_pool_with_evicted_rows_passes_whatever_of_it_was_acknowledged(held):
    assert judged(held).passed
    assert judged(held, acked=0, offered=500).passed


@pytest.mark.parametrize(("kind", "fault"), [("removed", 0), ("doubled", 1), ("changed", 2), ("invented", 3)])
def test_each_sabotage_is_counted_as_what_it_is(held, kind, fault):
    for seed in range(20):
        found = faults(judged(held, [numbered.sabotage(held[0], kind, np.random.default_rng(seed))]))
        assert found[fault] == 1, (seed, found)


def test_rows_that_were_acknowledged_and_never_came_are_lost(held):
    assert faults(judged(held, acked=80, offered=80)) == (10, 0, 0, 0)


def test_rows_beyond_what_was_sent_and_of_unknown_streams_are_phantoms(held):
    assert judged(held, acked=70, offered=74).phantom == 2
    batch, counters, actors = held
    other = numbered.judge(numbered.collect([batch], actors), {(0, 7): Written(75, 75), (1, 8): Written(0, 0)}, counters)
    assert other.phantom == int((batch.rows["actor"] == actors.index("writer-1")).sum())


def test_rows_gone_from_the_beginning_of_a_stream_must_be_counted_as_evicted(held):
    verdict = judged(held, [held[0][3:]])
    assert verdict.lost == 3
    assert any("gone" in problem for problem in verdict.problems)


@pytest.mark.parametrize(
    "name", ["rows_live", "rows_accepted", "rows_evicted", "rows_rejected", "lost_before", "rows_discarded"]
)
def test_each_counter_that_is_wrong_is_a_problem(held, name):
    assert not judged(held, **{name: held[1][name] + 1}).passed


@pytest.mark.parametrize("column", ["action", "rewards", "episode", "t", "outcome", "task", "terminated", "learner"])
def test_each_column_proves_itself(held, column):
    batch, _, actors = held
    changed = batch[np.arange(len(batch))]
    changed.rows[column][5] += 1
    assert numbered.collect([changed], actors).corrupted == 1
    following = batch[np.arange(len(batch))]
    following.next_obs["obs"][9, 3] += 1
    assert numbered.collect([following], actors).corrupted == 1


def test_the_selftest_finds_all_and_passes_a_good_pool():
    assert all(kills.selftest().values())


def test_the_plan_spreads_the_kinds_and_leaves_out_what_passed():
    plan = kills.plan_of({"load": 60, "snapshot": 20, "capacity": 20})
    assert len(set(plan)) == 100
    assert {kind for kind, _ in plan[:5]} == {"load", "snapshot", "capacity"}
    known = [{"kind": "load", "trial": n, "passed": n > 0, "commit": "a"} for n in range(3)]
    assert len(records.unpassed(plan, known, "a", "kind", "trial")) == 97
    assert len(records.unpassed(plan, known, "b", "kind", "trial")) == 98


def test_a_killed_buffer_has_all_that_its_writers_were_told_and_goes_on(tmp_path):
    records_of = list(kills.strikes(tmp_path, [("load", 0), ("load", 1)], Scale((2000, 3000), 5000)))
    assert [r["problems"] for r in records_of] == [[], []]
    assert all(r["passed"] and r["acked"] > 0 and r["restart_s"] > 0 for r in records_of)
