"""What README says was measured stands in the newest records."""

from __future__ import annotations

from campaign import highlights
from campaign.markdown import Line

PAGE = "before\n<!-- measured: begin -->\nold\n<!-- measured: end -->\nafter\n"
LINES = [Line(name, "passed", f"{name} in numbers", ()) for name in highlights.KEPT]


def record(value, what="headrace / ray"):
    return {"row": "images", "checks": [{"what": "another", "value": 7.0}, {"what": what, "value": value}]}


def test_a_ratio_is_that_of_the_newest_record_and_a_dash_before_there_is_one():
    none = highlights.page(PAGE, {}, LINES)
    assert "batches of camera images **-**" in none
    made = highlights.page(PAGE, {"pool.jsonl": [record(9.94), record(0.954)]}, LINES)
    assert "batches of camera images **0.95x**" in made
    assert "batches of camera images **33x**" in highlights.page(made, {"pool.jsonl": [record(33.4)]}, LINES)
    assert "batches of camera images **-**" in highlights.page(made, {"pool.jsonl": [record(33.4, "of another")]}, LINES)
    assert "old" not in made
    assert made.startswith("before\n")
    assert made.endswith("<!-- measured: end -->\nafter\n")


def test_what_survived_is_said_in_the_words_of_the_verdicts():
    made = highlights.page(PAGE, {}, LINES)
    for line in LINES:
        assert f"| {line.name} | {line.text} |" in made
