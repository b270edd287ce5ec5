"""The model of a fleet: its parts follow what is asked for, and its page is made of the records."""

from __future__ import annotations

import json

import pytest
from campaign.records import RESULTS
from campaign.scaling import FLEET, KINDS, MEASURED, MODEL, Costs, limits_of, page

COSTS = Costs(1e-4, 4e-4, 5e-7, {"state": 7e-5, "camera": 2e-2}, 1e-9, 90 << 10, 5e-3, ())


def parts(kind="state", costs=COSTS, **changes):
    return {limit.what: limit.part for limit in limits_of(FLEET._replace(**changes), costs, kind)}


def test_the_next_limit_comes_first():
    for kind in KINDS:
        found = [limit.part for limit in limits_of(FLEET, COSTS, kind)]
        assert found == sorted(found, reverse=True)


@pytest.mark.parametrize(
    ("what", "changes", "factor"),
    [
        ("core for beats of sessions", {"actors": 20_000}, 2),
        ("core for beats of sessions", {"shards": 16}, 0.5),
        ("core for blocks", {"flush_s": 0.5}, 2),
        ("core for blocks", {"flush_s": 0.001}, 10),  # each step by itself, ten a second
        ("core for blocks", {"block_rows": 5}, 2),  # full before a second is over
        ("core for rows", {"rate": 20.0}, 2),
        ("core for batches by socket", {"batch": 512}, 2),
        ("core for batches by socket", {"updates": 10.0}, 0.5),
        ("core for handing weights on", {"versions": 0.4}, 2),
        ("link, in", {"link_gbit": 12.5}, 2),
        ("memory of sessions", {"memory_gib": 32.0}, 2),
        ("time of a storm", {"shards": 4}, 2),
    ],
)
def test_each_part_follows_what_is_asked_for(what, changes, factor):
    assert parts(**changes)[what] == pytest.approx(factor * parts()[what])


def test_one_core_is_the_sum_of_what_it_does_and_declared_memory_is_the_buffers_own_bound():
    found = parts("camera")
    assert found["core, all of it"] == pytest.approx(sum(part for what, part in found.items() if what.startswith("core for")))
    assert parts(credit_mb=16.0)["memory, declared"] > 1.2 * parts()["memory, declared"]


def test_the_page_holds_what_the_records_give(tmp_path):
    for name in ("sessions.jsonl", "pool.jsonl"):
        (tmp_path / name).write_text((RESULTS / name).read_text())
    marks = [f"<!-- {part}: begin -->old<!-- {part}: end -->" for part in (MEASURED, MODEL)]
    made = page(f"before{marks[0]}between{marks[1]}after", tmp_path)
    assert made == page(made, tmp_path)
    assert made.startswith("before")
    assert made.endswith("after")
    assert "between" in made
    assert "old" not in made
    with (tmp_path / "sessions.jsonl").open("a") as file:
        newest = [json.loads(line) for line in (tmp_path / "sessions.jsonl").read_text().splitlines()]
        storm = next(record for record in reversed(newest) if record["trial"] == "storm")
        file.write(json.dumps({**storm, "figures": {**storm["figures"], "all_acked_s": 1000.0}}) + "\n")
    assert page(made, tmp_path) != made
