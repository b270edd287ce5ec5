"""The checker: honest evidence passes, and each lie in it is found as what it is."""

from __future__ import annotations

from dataclasses import replace

import pytest
from helpers.chaos import acted, changed, honest, laned, spooled

from headrace.launch.chaos.checker import judge
from headrace.launch.chaos.evidence import Applied, Sent
from headrace.launch.chaos.verdict import KINDS


@pytest.fixture(scope="module")
def evidence():
    return honest()


def found(evidence):
    return dict(judge(evidence).found)


def without(evidence, index):
    return replace(evidence, rows=[row for i, row in enumerate(evidence.rows) if i != index])


def with_row(evidence, index, **changes):
    rows = list(evidence.rows)
    rows[index] = rows[index]._replace(**changes)
    return replace(evidence, rows=rows)


def test_honest_evidence_passes_and_every_kind_was_looked_at(evidence):
    verdict = judge(evidence)
    assert (dict(verdict.found), verdict.cases) == ({}, {})
    assert all(verdict.trials[kind] > 0 for kind in KINDS if kind != "intruded")
    assert (verdict.trials["lost"], verdict.trials["corrupted"], verdict.trials["torn"]) == (12 + 21 + 13, 16 + 21 + 13, 52)
    assert verdict.figures["abandoned"] == 2
    assert verdict.figures["produced"] == verdict.figures["committed"] + verdict.figures["abandoned"] == 52


def test_a_row_that_was_acknowledged_and_is_not_there_is_lost(evidence):
    assert found(without(evidence, 5))["lost"] == 1


def test_what_was_not_acknowledged_may_be_missing_where_its_process_was_killed(evidence):
    """The last block of the killed process: it was sent, and no answer was seen."""
    counters = {"rows_accepted": 49, "rows_live": 49, "env_steps": 49}
    assert found(replace(without(evidence, 15), left=49, counters={**evidence.counters, **counters})) == {}


def test_a_process_that_ended_in_order_leaves_nothing_behind(evidence):
    last = len(evidence.rows) - 1
    acked = changed(evidence, 2, acked={2: 12})
    assert found(replace(without(acked, last), counters={})) == {"unbalanced": 1}


def test_one_that_died_by_itself_may_leave_nothing_behind_either(evidence):
    assert found(replace(evidence, hits={})) == {"unbalanced": 1}


def test_a_seq_that_is_there_twice(evidence):
    twin = evidence.rows[3]._replace(id=len(evidence.rows))
    assert found(replace(evidence, rows=[*evidence.rows, twin], counters={})) == {"duplicated": 1}


def test_a_transition_under_a_stream_that_nobody_numbered(evidence):
    twin = evidence.rows[3]._replace(id=len(evidence.rows), stream=77, seq=1)
    assert found(replace(evidence, rows=[*evidence.rows, twin], counters={})) == {"duplicated": 1}


def test_a_row_that_nobody_executed(evidence):
    twin = evidence.rows[3]._replace(id=len(evidence.rows), stream=77, seq=1, digest="0" * 16)
    assert found(replace(evidence, rows=[*evidence.rows, twin], counters={})) == {"phantom": 1}


@pytest.mark.parametrize("change", [{"digest": "0" * 16}, {"t": 2}, {"episode": 1}])
def test_a_row_that_is_not_its_step(evidence, change):
    assert found(with_row(evidence, 0, **change)) == {"corrupted": 1}


def test_a_row_that_changed_while_it_lay_there(evidence):
    again = evidence.rows[0]._replace(digest="1" * 16)
    assert found(replace(evidence, rows=[*evidence.rows, again])) == {"corrupted": 1}


def test_a_cut_is_believed_of_the_last_step_alone(evidence):
    """Rows that a leaving process cut off are marked truncated, whatever the env said; only the last one can be."""
    last = judge(evidence).cases
    steps = list(evidence.clients[1].steps)
    steps.append(steps[-1]._replace(t=steps[-1].t + 1, at=steps[-1].at + 1))
    assert not last
    killed = {client.process: frozenset({"kill"}) for client in evidence.clients[:2]}
    assert found(replace(changed(evidence, 1, steps=steps, ended=None), hits=killed))["corrupted"] == 1


def test_rows_in_another_order_than_they_were_numbered_in(evidence):
    rows = list(evidence.rows)
    rows[2], rows[3] = rows[3]._replace(id=rows[2].id), rows[2]._replace(id=rows[3].id)
    assert found(replace(evidence, rows=rows)) == {"reordered": 1}


def test_blocks_that_are_not_what_was_executed(evidence):
    (first, *rest) = evidence.clients[1].sent
    swapped = first._replace(runs=[[0, 1, 1], [0, 0, 1], [0, 2, 1], [1, 0, 1]])
    assert found(changed(evidence, 1, sent=[swapped, *rest]))["reordered"] == 2
    invented = first._replace(runs=[[0, 0, 3], [9, 0, 1]])
    assert found(changed(evidence, 1, sent=[invented, *rest]))["phantom"] == 1
    assert found(changed(evidence, 1, sent=rest))["reordered"] >= 1  # begins at seq 5


def test_a_block_that_is_another_when_it_is_sent_again(evidence):
    sent = list(evidence.clients[1].sent)
    assert found(changed(evidence, 1, sent=[*sent, sent[0]])) == {}
    assert found(changed(evidence, 1, sent=[*sent, sent[0]._replace(digest="other")])) == {"corrupted": 1}


def test_an_action_by_two_versions_at_once(evidence):
    steps = list(evidence.clients[1].steps)
    steps[-1] = steps[-1]._replace(action=acted(2, 3))
    assert found(changed(evidence, 1, steps=steps))["torn"] == 1


def test_an_action_by_another_version_than_the_one_applied_last(evidence):
    later = [a._replace(at=a.at + 1.0) if a.step == 2 else a for a in evidence.clients[1].applied]
    assert found(changed(evidence, 1, applied=later)) == {"stale": 1}


def test_a_row_that_names_another_version_than_the_one_that_acted(evidence):
    assert found(with_row(evidence, 0, step=5)) == {"stale": 1}


def test_versions_that_go_back(evidence):
    applied = evidence.clients[1].applied
    again = [*applied, Applied(applied[-1].at + 0.01, 1, applied[-1].step)]
    assert found(changed(evidence, 1, applied=again)) == {"stale": 1}


def test_a_successor_that_begins_with_older_weights_than_its_predecessor_had(evidence):
    older = [a._replace(epoch=1) for a in evidence.clients[2].applied]
    assert found(changed(evidence, 2, applied=older))["stale"] == 2  # updates 0 and 1, when 2 was known; then 2 is fine


def test_a_version_that_nobody_published(evidence):
    assert found(replace(evidence, published=evidence.published - {(1, 2)}))["torn"] == 2


def test_rows_of_a_process_that_had_a_successor(evidence):
    late = [sent._replace(at=sent.at + 50) if sent.first == 13 else sent for sent in evidence.clients[0].sent]
    assert found(changed(evidence, 0, sent=late)) == {"phantom": 1}
    # unless the process was welcomed once more, or its block had been sent before
    assert found(changed(evidence, 0, sent=late, welcomed=[(10.1, 1), (60.0, 3)])) == {}
    assert found(changed(evidence, 0, sent=[*evidence.clients[0].sent, late[-1]])) == {}


def test_counters_that_do_not_add_up(evidence):
    for name in ("rows_accepted", "rows_live", "rows_evicted", "env_steps", "lost_before"):
        wrong = replace(evidence, counters={**evidence.counters, name: evidence.counters[name] + 1})
        assert "unbalanced" in found(wrong), name


def test_rows_that_were_evicted_before_anybody_read_them_are_no_loss_and_no_cover_for_one(evidence):
    rows = [row for row in evidence.rows if not 4 <= row.id < 8]
    assert found(replace(evidence, rows=rows, unseen=[(4, 8)], left=46, counters={})) == {}
    assert found(replace(evidence, rows=[r for r in rows if r.id != 1], unseen=[(4, 8)], counters={}))["lost"] == 1


def test_rejected_rows_are_not_lost(evidence):
    gone = replace(without(evidence, 5), counters={})
    assert found(changed(gone, 0, rejected={1: frozenset({6})})) == {}


def test_a_batch_that_did_not_prove_itself(evidence):
    assert found(replace(evidence, unproved=1)) == {"corrupted": 1}


def test_a_stranger_may_not_say_rows_of_an_actor(evidence):
    assert isinstance(evidence.clients[0].sent[0], Sent)
    other = [row._replace(actor="actor-9") if row.id == 0 else row for row in evidence.rows]
    assert set(found(replace(evidence, rows=other, counters={}))) >= {"phantom", "lost"}


def test_lanes_of_a_process_are_each_in_their_order(evidence):
    two = laned()
    assert judge(two).found == {}
    assert judge(two).figures["committed"] == 16
    sent = [
        one._replace(first=first)
        for one, first in zip([*two.clients[0].sent[2:], *two.clients[0].sent[:2]], (1, 6, 9, 14), strict=True)
    ]
    assert found(changed(two, 0, sent=sent))["reordered"] > 0  # an episode of a lane before the one that came first
    crossed = two.rows[0]._replace(episode=2)
    assert found(replace(two, rows=[crossed, *two.rows[1:]]))["corrupted"] == 1


def test_what_lay_in_a_spool_is_its_successors_and_arrives():
    kept = spooled()
    assert judge(kept).found == {}
    assert (judge(kept).figures["spooled"], judge(kept).figures["committed"], judge(kept).figures["abandoned"]) == (18, 18, 0)
    gone = replace(kept, rows=kept.rows[:12], left=12, counters={})
    unsent = replace(gone, clients=[kept.clients[0], replace(kept.clients[1], sent=[], acked={}, said=())])
    assert found(unsent) == {"lost": 6}  # though nobody ever said them
    assert found(gone) == {"lost": 6}  # counted once
    others = honest()  # rows of others at the same places are no excuse
    more = [*unsent.rows, *(row._replace(id=row.id + 100) for row in others.rows)]
    both = replace(unsent, clients=[*unsent.clients, *others.clients], rows=more, hits={**unsent.hits, **others.hits})
    assert found(replace(both, published=both.published | others.published)) == {"lost": 6}
    unkept = [replace(unsent.clients[0], kept=kept.clients[0].kept[:3]), unsent.clients[1]]
    assert found(replace(unsent, clients=unkept)) == {}  # what a killed process had not handed over


def test_a_spool_says_each_step_once_and_in_order():
    kept = spooled()
    twice = kept.rows[3]._replace(id=18, seq=19)
    heir = replace(kept.clients[1], sent=[*kept.clients[1].sent, Sent(70.0, 1, 19, 1, [[1, 0, 1]], "x")])
    assert found(replace(kept, clients=[kept.clients[0], heir], rows=[*kept.rows, twice], counters={})) == {"duplicated": 1}
    a, b = kept.rows[14], kept.rows[15]
    swapped = [*kept.rows[:14], b._replace(id=a.id, seq=a.seq), a._replace(id=b.id, seq=b.seq), *kept.rows[16:]]
    places = [[row.episode, row.t, 1] for row in swapped[12:16]]
    late = [kept.clients[1].sent[0]._replace(runs=places), *kept.clients[1].sent[1:]]
    heir = replace(kept.clients[1], sent=late, said=())
    assert found(replace(kept, clients=[replace(kept.clients[0], said=()), heir], rows=swapped, counters={}))["reordered"] == 1


def test_outcomes_are_those_of_the_rows_own_episode(evidence):
    labelled = [i for i, row in enumerate(evidence.rows) if row.outcome]
    row = evidence.rows[labelled[0]]
    assert found(with_row(evidence, labelled[0], outcome=3 - row.outcome)) == {
        "mislabelled": 2
    }  # by the env, and by the answer
    assert found(with_row(evidence, labelled[0], outcome=0)) == {"mislabelled": 1}  # it was answered
    gone = with_row(evidence, labelled[0], outcome=0)
    assert found(replace(gone, tail=row.id + 1)) == {}  # before it was
    last = len(evidence.rows) - 1
    assert evidence.rows[last].outcome == 0  # its episode was cut off
    assert found(with_row(evidence, last, outcome=1)) == {"mislabelled": 1}


def test_an_outcome_that_is_gone_again(evidence):
    row = next(row for row in evidence.rows if row.outcome)
    before = row._replace(outcome=0)
    assert found(replace(evidence, rows=[before, *evidence.rows])) == {}
    assert found(replace(evidence, rows=[*evidence.rows, before]))["mislabelled"] >= 1
    assert found(replace(evidence, rows=[*evidence.rows, before, row])) == {"mislabelled": 1}  # though it came again


def test_a_row_that_was_another_when_it_was_read_first(evidence):
    row = evidence.rows[0]
    assert found(replace(evidence, rows=[row._replace(digest="00"), *evidence.rows]))["corrupted"] > 0


def test_who_left_in_order_has_said_all_outcomes(evidence):
    mute = changed(evidence, 1, said=())
    rows = [row._replace(outcome=0) if row.actor == "actor-1" and row.episode == 0 else row for row in evidence.rows]
    assert found(mute) == {}
    assert found(replace(mute, rows=rows)) == {"mislabelled": 3}


def test_a_session_for_a_stranger(evidence):
    tried = [("actor-0 without a key", "silent"), ("actor-0 by the key of actor-1", "refused")]
    verdict = judge(replace(evidence, tried=tried))
    assert (dict(verdict.found), verdict.trials["intruded"]) == ({}, 2)
    assert verdict.figures["intruders_silent"] == verdict.figures["intruders_refused"] == 1
    assert found(replace(evidence, tried=[*tried, ("actor-0 by an unknown key", "opened")])) == {"intruded": 1}
