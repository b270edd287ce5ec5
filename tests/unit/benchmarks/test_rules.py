"""The page of rules: each has tests that exist and planted faults that these tests must find."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from campaign.faults import MUTANTS

ROOT = Path(__file__).resolve().parents[3]
ROWS = re.findall(r"^\| (\d+) \|(.*)\|$", (ROOT / "docs" / "rules.md").read_text(), re.MULTILINE)


def test_every_rule_has_its_row():
    assert [int(number) for number, _ in ROWS] == [n for n in range(1, 34) if n != 27]  # of flow policies: docs/vla.md


@pytest.mark.parametrize(("number", "row"), ROWS, ids=[number for number, _ in ROWS])
def test_the_tests_of_a_rule_exist_and_are_told_to_find_its_faults(number, row):
    *_, tests, faults = re.split(r"(?<!\\)\|", row)
    named = re.findall(r"`(\S+\.py)(?:::(\w+))?`", tests)
    planted = re.findall(r"`(\S+)`", faults)
    assert named
    assert planted
    assert [name for file, name in named if name and f"\ndef {name}(" not in (ROOT / "tests" / file).read_text()] == []
    files = {f"tests/{file}" for file, _ in named}
    assert [fault for fault in planted if files.isdisjoint(t.partition("::")[0] for t in MUTANTS[fault].tests)] == []
