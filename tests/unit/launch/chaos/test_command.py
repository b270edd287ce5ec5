"""The command: kinds by name, and a summary that counts only with its controls."""

from __future__ import annotations

from collections import Counter

import pytest
from helpers.chaos import honest

from headrace.common.errors import ConfigError, HeadraceError
from headrace.launch.chaos import command
from headrace.launch.chaos.checker import judge
from headrace.launch.chaos.command import chaos_command, judge_again, parse_kinds, summarise, table
from headrace.launch.chaos.controls import HONEST, fired
from headrace.launch.chaos.sabotage import FINDS
from headrace.launch.chaos.schedule import FULL_DISK, KINDS

ORIGIN = {"seed": 7, "minutes": 2.0, "kinds": ["kill"], "commit": "abc"}
ALL_FIRED = {**dict.fromkeys(FINDS, True), HONEST: True}


@pytest.fixture
def rootless(monkeypatch):
    monkeypatch.setattr(command.Disk, "is_possible", staticmethod(lambda: False))


def test_without_a_word_all_kinds_that_this_user_can_make(monkeypatch):
    monkeypatch.setattr(command.Disk, "is_possible", staticmethod(lambda: True))
    assert parse_kinds(None) == list(KINDS)


def test_only_root_fills_disks(rootless):
    assert set(KINDS) - set(parse_kinds(None)) == {FULL_DISK}
    with pytest.raises(ConfigError, match="full-disk needs a disk of its own"):
        parse_kinds("kill,full-disk")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"only": "kill,kil"}, "--only: 'kil' is not one of kill, restart"),
        ({"minutes": 0.0}, "--minutes: 0 is no time; nearest valid: 0.1"),
        ({"place": "."}, "--dir: .* is there already"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_starts(tmp_path, words, message):
    given = {"minutes": 1.0, "seed": 0, "only": None, "place": tmp_path / "new", **words}
    given["place"] = tmp_path if given["place"] == "." else given["place"]
    with pytest.raises(ConfigError, match=message):
        chaos_command(**given, as_json=False)
    assert not (tmp_path / "new").exists()


def test_all_lies_must_be_found_and_nothing_at_the_honest_one():
    assert fired(ALL_FIRED) == len(FINDS) == 8
    assert fired({**ALL_FIRED, "flip": False}) == 7
    assert fired({**ALL_FIRED, HONEST: False}) == 0


def summary(controls=ALL_FIRED):
    verdict = judge(honest())
    faults = Counter({("kill", "actor"): 3, ("kill", "buffer"): 2, ("pause", "actor"): 1})
    return verdict, summarise(verdict, faults, {**ORIGIN, "controls": controls})


def test_the_summary_has_every_figure_that_is_asked_for():
    verdict, said = summary()
    assert said["passed"]
    assert (said["trials"], said["kills"], said["controls_fired"]) == (verdict.trials["lost"], 5, 8)
    assert said["kills_by_role"] == {"buffer": 2, "learner": 0, "actor": 3, "evaluator": 0}
    assert said["faults"] == {"kill": 5, "pause": 1}
    text = table(verdict, said)
    assert text.endswith("passed")
    assert "seed 7" in text
    assert "so nothing above counts" not in text


def test_no_campaign_can_be_judged_that_has_not_ended(tmp_path):
    with pytest.raises(HeadraceError, match=r"origin\.json: cannot be read"):
        judge_again(tmp_path, as_json=False)


def test_a_campaign_whose_controls_did_not_fire_does_not_count():
    verdict, said = summary({**ALL_FIRED, "drop": False})
    assert not said["passed"]
    text = table(verdict, said)
    assert "7 of 8 lies found - so nothing above counts" in text
    assert text.endswith("FAILED")
