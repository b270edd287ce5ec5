"""Promises: what a bar looks at, what is made again, and that a fault which is not found stops its trials."""

from __future__ import annotations

import importlib
import json
import sys

import pytest
from campaign import records
from campaign.gate import FAILED, NOT_RUN, PASSED, UNFINISHED
from campaign.process import Unable
from campaign.promise import (
    MEAN,
    MEDIAN,
    SUM,
    Bar,
    Outcome,
    Part,
    Promise,
    Recorded,
    at_least,
    at_most,
    between,
    counted,
    never,
    told,
)
from campaign.promise_tables import promise_section
from helpers.scripts import load
from promised import parts_of, promises

ORIGIN = {"date": "2026-01-02T03:04:05Z", "commit": "abc123", "dirty": False, "machine": {"cpu": "Test CPU", "cores": 2}}
BARS = (*never("lost"), *at_most("exit_s", 10), *at_least("acked", 100, SUM), *told("rate"))


def record(trial, passed=True, part="stops", **figures):
    return {"promise": "P99", "part": part, "trial": trial, "figures": figures, "passed": passed, "problems": [], **ORIGIN}


def part(run=lambda trial: Outcome({}), trials=3, bars=BARS, **more):
    return Part("stops", trials, run, bars, **more)


@pytest.mark.parametrize(
    ("bar", "values", "said", "met", "alone"),
    [
        (*never("x"), (0, 0), "x 0", True, False),
        (*never("x"), (0, 2), "x 2", False, True),
        (*at_most("x", 5), (1, 4), "x 4", True, False),
        (*at_most("x", 5), (1, 6), "x 6", False, True),
        (*at_least("x", 5), (7, 5), "x 5", True, False),
        (*at_least("x", 5), (7, 4), "x 4", False, True),
        (*between("x", 1, 2), (1, 2), "x 1 to 2", True, False),
        (*between("x", 1, 2), (1, 3), "x 1 to 3", False, True),
        (*at_least("x", 5, SUM), (2, 3), "x 5", True, False),
        (*at_least("x", 6, SUM), (2, 3), "x 5", False, False),
        (*told("x"), (2, 3, 9), "x 3", True, False),
        (Bar("x", MEDIAN, high=2), (2, 3, 9), "x 3", False, False),
        (*at_least("x", 0.9, MEAN), (0.95, 1.05), "x 0.95 to 1.05", True, False),
        (*at_least("x", 0.9, MEAN), (0.8, 1.2), "x 0.8 to 1.2", False, False),
    ],
)
def test_a_bar_judges_all_trials_together_and_the_last_of_them_alone(bar, values, said, met, alone):
    assert bar.judge([record(n, x=value) for n, value in enumerate(values)]) == (said, met)
    assert bool(bar.broken_by({"x": values[-1]})) == alone


def test_a_figure_that_is_asked_for_and_not_there_is_a_problem():
    assert part().problems(Outcome({"lost": 0, "acked": 1})) == ("no exit_s",)
    assert part(bars=()).problems(Outcome({"rate": float("nan")})) == ("rate is nan",)
    assert part().problems(Outcome({"lost": 1, "exit_s": 11}, ("hung",))) == (
        "hung",
        "lost 1, asked for <= 0",
        "exit_s 11, asked for <= 10",
    )


@pytest.mark.parametrize(
    ("made", "state"),
    [
        ([], NOT_RUN),
        ([record(n, lost=0, exit_s=1, acked=50) for n in range(2)], UNFINISHED),
        ([record(n, lost=0, exit_s=1, acked=50) for n in range(3)], PASSED),
        ([record(n, lost=0, exit_s=1, acked=10) for n in range(3)], FAILED),
        ([record(0, False, lost=0, exit_s=1, acked=50)], FAILED),
        ([record(0, False, lost=0), *(record(n, lost=0, exit_s=1, acked=50) for n in range(3))], PASSED),
        ([record(n, part="others", lost=0, exit_s=1, acked=50) for n in range(3)], NOT_RUN),
    ],
)
def test_the_newest_record_of_each_trial_counts_and_all_must_be_there(made, state):
    tally = part().tally("P99", made)
    assert tally.state == state
    assert tally.bound is None or tally.bound == pytest.approx(1 - 0.05 ** (1 / tally.trials) if not tally.failures else 1)


def test_the_page_has_a_row_for_each_part_with_its_command():
    rows = (part(), Recorded("elsewhere", "kills.py", "kills.jsonl", lambda known: counted(known, 1, {"lost": 0}, "lost 0")))
    known = {"P99": Promise("P99", "It stops.", rows)}
    made = {"promises.jsonl": [record(n, lost=0, exit_s=n, acked=50) for n in range(3)], "kills.jsonl": [record(0)]}
    text = "\n".join(promise_section(known, made))
    assert "- **P99** It stops." in text
    assert (
        "| P99 | stops | `promises.py --only P99/stops` | **passed** | 3 of 3 | 0 | 0.63 | lost 0; exit_s 2; acked 150; rate -"
        " | lost <= 0; exit_s <= 10; acked >= 100 | `abc123` | 2026-01-02 |" in text
    )
    assert "| P99 | elsewhere | `kills.py` | **passed** | 1 of 1 | 0 | 0.95 | lost 0 | lost 0 | `abc123` | 2026-01-02 |" in text


@pytest.fixture
def script(tmp_path, monkeypatch):
    made = load("promises")
    monkeypatch.setattr(made, "FILE", tmp_path / "promises.jsonl")
    monkeypatch.setattr(made.provenance, "commit", lambda: {"commit": "abc123", "dirty": False})
    monkeypatch.setattr(made.provenance, "machine", lambda: ORIGIN["machine"])

    def run(one, *words):
        monkeypatch.setattr(made, "promises", lambda: {"P99": Promise("P99", "It stops.", (one,))})
        monkeypatch.setattr(sys, "argv", ["promises.py", *words])
        return made.main()

    made.go = run
    return made


def test_a_trial_is_recorded_with_seed_bar_and_figures_and_made_once(script, capsys):
    seen = []

    def run(trial):
        assert not list(trial.place.iterdir())
        (trial.place / "file").write_text("")
        seen.append((trial.number, int(trial.rng.integers(1 << 30)), trial.quick))
        return Outcome({"lost": int(trial.number == 1), "exit_s": 0.1234567, "acked": 50})

    assert script.go(part(run)) == 1
    made = records.read(script.FILE)
    assert [(r["promise"], r["part"], r["trial"], r["passed"], r["commit"]) for r in made] == [
        ("P99", "stops", n, n != 1, "abc123") for n in range(3)
    ]
    assert made[1]["problems"] == ["lost 1, asked for <= 0"]
    assert (made[0]["figures"], made[0]["bar"]) == (
        {"lost": 0, "exit_s": 0.123457, "acked": 50},
        "lost <= 0; exit_s <= 10; acked >= 100",
    )
    summary = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert summary["P99/stops"] | {"figures": ""} == {
        "state": FAILED,
        "trials": 3,
        "of": 3,
        "failures": 1,
        "failure_bound_95": pytest.approx(0.8646, abs=1e-4),
        "figures": "",
    }
    assert script.go(part(run), "--only", "P99/stops") == 1  # what failed on this commit stays failed
    assert len(records.read(script.FILE)) == 3
    script.provenance.commit = lambda: {"commit": "def456", "dirty": False}
    run_before = list(seen)
    assert script.go(part(run)) == 1
    assert seen[3:] == [run_before[1]]  # the failed one alone, with the same chance
    assert script.go(part(run), "--quick") == 1
    assert (seen[4:], len(records.read(script.FILE))) == ([(0, run_before[0][1], True)], 4)


def test_what_a_trial_raises_is_a_problem_without_a_place(script):
    def run(trial):
        raise AssertionError(f"{trial.place}/log says no")

    assert script.go(part(run, trials=1, bars=()), "--only", "P99") == 1
    (made,) = records.read(script.FILE)
    assert made["problems"] == ["AssertionError: /log says no"]


def test_a_planted_fault_that_is_not_found_stops_the_trials_of_its_part(script, capsys):
    blind = part(lambda trial: pytest.fail("was made"), trials=1, control=lambda place: {"a flip": False})
    assert script.go(blind) == 1
    assert records.read(script.FILE) == []
    assert script.go(blind, "--selftest") == 1
    sees = part(lambda trial: Outcome({}), trials=1, bars=(), control=lambda place: {"a flip": place.is_dir()})
    assert script.go(sees, "--selftest") == 0
    assert records.read(script.FILE) == []
    assert script.go(sees) == 0
    assert "P99/stops: planted faults found: {'a flip': True}" in capsys.readouterr().out


def test_no_record_of_changed_files_none_after_the_time_and_none_of_what_cannot_be(script, capsys):
    one = part(trials=1, bars=())
    script.provenance.commit = lambda: {"commit": "abc123", "dirty": True}
    assert script.go(one) == 2
    assert "belong to no commit" in capsys.readouterr().err
    script.provenance.commit = lambda: {"commit": "abc123", "dirty": False}
    assert script.go(one, "--minutes", "0") == 1
    assert records.read(script.FILE) == []

    def run(trial):
        raise Unable("root is needed")

    assert script.go(part(run, trials=2, bars=())) == 2
    assert capsys.readouterr().err.count("cannot be made here: root is needed") == 1
    assert records.read(script.FILE) == []


def test_each_promise_has_a_module_of_its_number_and_parts_of_one_name(tmp_path, monkeypatch):
    known = promises()
    assert {"P2", "P3", "P12"} <= known.keys()
    for promise in known.values():
        names = [row.name for row in promise.parts]
        assert len(set(names)) == len(names)
        assert all(name == name.lower() and "/" not in name for name in names)
    assert all(made.trials >= made.quick > 0 for made in parts_of(known).values())
    (tmp_path / "p98_wrong.py").write_text(
        "from campaign.promise import Promise\nPROMISE = Promise('P99', 'Something else.', ())\n"
    )
    package = importlib.import_module("promised")
    monkeypatch.setattr(package, "__path__", [str(tmp_path)])
    with pytest.raises(ValueError, match=r"promised/p98_wrong\.py has promise P99"):
        promises()
