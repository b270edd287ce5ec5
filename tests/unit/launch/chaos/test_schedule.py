"""The schedule: a seed decides it, nothing is forgotten, and nobody is hit by what cannot hit him."""

from __future__ import annotations

from collections import Counter

import pytest

from headrace.launch.chaos.schedule import INTRUDE, KINDS, NOISE, PLAIN_ONLY, Schedule, chapters

KILLS = ["kill"]


def test_a_seed_gives_the_same_faults_however_often_it_is_asked():
    one, other = Schedule(3, list(KINDS)), Schedule(3, list(KINDS))
    at_once = one.due(300.0)
    assert [fault for second in range(301) for fault in other.due(float(second))] == at_once
    assert Schedule(4, list(KINDS)).due(300.0) != at_once
    assert [fault.at for fault in at_once] == sorted(fault.at for fault in at_once)


def test_each_fault_comes_in_its_turn_to_each_of_its_roles():
    whole = {(kind, role) for kind in KINDS for role in KINDS[kind].roles if kind != NOISE}
    bag = sum(KINDS[kind].weight * len(KINDS[kind].roles) for kind in KINDS)
    faults = Schedule(0, list(KINDS)).due(1000.0)
    assert len(faults) > 4 * bag
    for start in range(0, 4 * bag, bag):
        counts = Counter((fault.kind, fault.role) for fault in faults[start : start + bag])
        assert counts == {(kind, role): KINDS[kind].weight for kind, role in whole}


def test_an_hour_kills_each_role_a_hundred_times():
    for seed in range(5):
        plans = [Schedule(seed + i, c.kinds).due(c.seconds) for i, c in enumerate(chapters(list(KINDS), 3600.0))]
        kills = Counter(fault.role for faults in plans for fault in faults if fault.kind == "kill")
        assert min(kills.values()) >= 100
        assert len(kills) == 4


def test_how_long_and_on_whom_is_as_its_kind_says():
    for fault in Schedule(1, list(KINDS)).due(600.0):
        low, high = KINDS[fault.kind].seconds
        assert low <= fault.seconds <= high
        assert fault.role in KINDS[fault.kind].roles
        assert 0 <= fault.pick < 1


def test_only_what_is_asked_for():
    assert {fault.kind for fault in Schedule(0, KILLS).due(100.0)} == {"kill"}
    assert Schedule(0, [NOISE]).due(1e6) == []


def test_what_needs_keys_and_what_cannot_have_them_are_in_chapters_of_their_own():
    (only,) = chapters(["kill", NOISE], 60.0)
    assert (only.kinds, only.seconds, only.keyed) == (("kill", NOISE), 60.0, False)
    (only,) = chapters(["kill", INTRUDE], 60.0)
    assert (only.kinds, only.seconds, only.keyed) == (("kill", INTRUDE), 60.0, True)
    plain, keyed = chapters(list(KINDS), 60.0)
    assert (plain.name, plain.keyed, keyed.name, keyed.keyed) == ("plain", False, "keyed", True)
    assert set(plain.kinds) == set(KINDS) - {INTRUDE}
    assert set(keyed.kinds) == set(KINDS) - set(PLAIN_ONLY)
    assert plain.seconds + keyed.seconds == pytest.approx(60.0)
    assert plain.seconds > keyed.seconds > 15.0
