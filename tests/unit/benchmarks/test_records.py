"""Records are appended whole, read back, and compared by the settings that both have."""

from __future__ import annotations

import pytest
from campaign import records


def test_what_is_appended_is_read_and_a_missing_file_is_empty(tmp_path):
    file = tmp_path / "deep" / "gates.jsonl"
    assert records.read(file) == []
    records.append(file, {"seed": 0, "return_mean": -1.5})
    records.append(file, {"seed": 1})
    assert records.read(file) == [{"seed": 0, "return_mean": -1.5}, {"seed": 1}]


def test_a_number_that_json_does_not_have_is_refused_and_writes_nothing(tmp_path):
    with pytest.raises(ValueError, match="not JSON compliant"):
        records.append(tmp_path / "a.jsonl", {"return_mean": float("nan")})
    assert not (tmp_path / "a.jsonl").exists()


@pytest.mark.parametrize("line", ['{"seed": 0', "[1]"])
def test_a_damaged_line_is_named(tmp_path, line):
    file = tmp_path / "gates.jsonl"
    file.write_text('{"seed": 0}\n\n' + line + "\n")
    with pytest.raises(ValueError, match=r"gates\.jsonl, line 3"):
        records.read(file)


def test_the_newest_record_of_a_key_wins_and_strangers_are_left_out():
    found = records.latest([{"a": 1, "v": 1}, {"a": 2, "v": 2}, {"a": 1, "v": 3}, {"b": 1}], "a")
    assert found == {(1,): {"a": 1, "v": 3}, (2,): {"a": 2, "v": 2}}


def test_settings_agree_when_the_keys_of_both_do():
    old = {"learner": {"lr": 0.001, "batch": 256}, "env": {"kwargs": {"g": 9.8}}}
    assert records.same_settings(old, {"learner": {"lr": 0.001, "batch": 256, "new": 1}, "env": {"kwargs": {"g": 9.8}}})
    assert not records.same_settings(old, {"learner": {"lr": 0.003, "batch": 256}})
    assert not records.same_settings(old, {"env": {"kwargs": {"g": 1.6}}})
