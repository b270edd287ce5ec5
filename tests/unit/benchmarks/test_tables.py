"""The results page: a missing gate says so, and what the records hold is what it shows."""

from __future__ import annotations

from campaign import gate as gates
from campaign.faults import MUTANTS
from campaign.registry import GATES
from campaign.tables import page, summary

ORIGIN = {"date": "2026-01-02T03:04:05Z", "commit": "abc123", "dirty": False, "machine": {"cpu": "Test CPU", "cores": 2}}


def gate_record(name, seed, value):
    gate = GATES[name]
    count = {"episodes": gate.episodes, "env_steps": gate.env_steps, "updates": 9744, "achieved_ratio": 1.0, "wall_s": 120.0}
    result = {"return_mean": -2.5, "return_std": 9.5, gate.value: value}
    curve = {"marks": {str(gate.marks[0]): -500.5, str(gate.marks[1]): None}, "evaluations": [[1000, -900.0], [10000, value]]}
    settings = {"learner": {"lr": 0.001}, "pacing": {"ratio": 1.0}, "model": {}}
    rest = {"env": gate.env, "example": gate.example, "preset": gate.preset, "settings": settings}
    return {"gate": name, "seed": seed, **result, **count, **curve, **rest, **ORIGIN}


def trial(number, passed):
    when = {"killed_at_s": 3.25, "killed_at_env_steps": 700, "recovered_s": 2.5}
    counts = {"produced": 8000, "live": 7990, "abandoned": 10, "rows_evicted": 0, "rows_duplicate": 3}
    problems = [] if passed else ["1 missing: actor-0 | stream 1\nseq 4"]
    return {"role": "buffer", "trial": number, **when, "counters": counts, "passed": passed, "problems": problems, **ORIGIN}


def test_nothing_measured_says_so_everywhere():
    text = page([], [], [], {}, [])
    assert {line.state for line in summary([], [], [])} == {gates.NOT_RUN}
    assert "passed" not in text
    assert text.count("not run yet") > len(GATES)


def test_records_become_tables_with_verdicts_seeds_commits_and_machine():
    known = [gate_record("pendulum-async", seed, -150.0 - seed) for seed in range(5)]
    states = {line.name: line.state for line in summary(known, [], [])}
    assert states["pendulum-async"] == gates.PASSED
    assert states["pendulum: async = sync"] == gates.UNFINISHED
    text = page(known, [], [], {}, ["pendulum"])
    for word in (
        "![pendulum](pendulum.png)",
        "-154.0 ± 9.5",
        "seed 4",
        "`abc123`",
        "Test CPU, 2 cores",
        "2026-01-02",
        "-500.5",
    ):
        assert word in text


def test_gates_of_success_presets_and_peers_say_what_they_are():
    reach = [{**gate_record("reach-rlpd", seed, 0.94), "marks": {"2000": 0.5}} for seed in range(3)]
    crossq = [gate_record("halfcheetah-100k-crossq", seed, 7000.0) for seed in range(3)]
    peer = [{**gate_record("hopper-sb3", seed, 300.0), "versions": {"stable-baselines3": "2.9"}} for seed in range(3)]
    known = [*reach, *crossq, *peer, *(gate_record("halfcheetah-100k", seed, 6500.0) for seed in range(3))]
    lines = {line.name: line for line in summary(known, [], [])}
    assert (lines["reach-rlpd"].state, lines["hopper-sb3"].state) == (gates.PASSED, gates.MEASURED)
    assert lines["halfcheetah-100k"].text.endswith("; stretch 6150.0 reached")
    assert "mean of halfcheetah-100k-crossq 7000.0 (>= 6500.0 (1 of 6500.0))" in lines["halfcheetah-100k: crossq >= sac"].text
    text = page(known, [], [], {}, ["reach"])
    assert "| seed 2 | 94% | -2.5 ± 9.5 | 50 | 50% | - | - | 6000 |" in text
    assert "(`examples/halfcheetah_v4.yaml`, `examples/presets/crossq.yaml` with overrides): learner lr 0.001; pacing" in text
    assert "ratio 1.0. Versions: stable-baselines3 2.9." in text
    assert "### reach: Reach" in text


def test_a_failed_trial_fails_its_role_and_cannot_break_the_table():
    states = {line.name: line.state for line in summary([], [], [trial(0, True), trial(1, False)])}
    assert states["SIGKILL of the buffer"] == gates.FAILED
    assert {line.name: line.state for line in summary([], [], [trial(0, True)])}["SIGKILL of the buffer"] == gates.UNFINISHED
    ten = [trial(n, True) for n in range(10)]
    assert {line.name: line.state for line in summary([], [], ten)}["SIGKILL of the buffer"] == gates.PASSED
    (line,) = [t for t in page([], [], [trial(1, False)], {}, []).splitlines() if "1 missing" in t]
    assert line.count("|") == 13 + 1
    assert "actor-0 / stream 1 seq 4" in line


def test_records_of_another_script_are_listed():
    text = page([], [], [], {"learner.jsonl": [{"updates_s": 90.0, "nested": {}}, {"updates_s": 95.5, "case": "cheetah"}]}, [])
    assert "## learner.jsonl" in text
    assert "| 95.5 | cheetah |" in text


def test_kills_are_summed_and_their_faults_and_slow_restarts_fail_them():
    def kill(kind, trial, **changes):
        counts = {"acked": 20_000, "labels": 7, "lost": 0, "duplicated": 0, "corrupted": 0, "phantom": 0, "problems": []}
        return {"kind": kind, "trial": trial, "restart_s": 0.8, "passed": True, **counts, **changes, **ORIGIN}

    def state(known):
        return {line.name: line.state for line in summary([], [], [], kills=known)}[
            "rows after SIGKILL of the buffer under load"
        ]

    known = [kill(kind, n) for kind, count in (("load", 60), ("snapshot", 20), ("capacity", 20)) for n in range(count)]
    assert state(known) == gates.PASSED
    assert state(known[:-1]) == gates.UNFINISHED
    assert state([*known, kill("load", 3, lost=1, passed=False)]) == gates.FAILED
    assert state([*known, kill("load", 3, restart_s=5.1)]) == gates.FAILED
    text = page([], [], [], {}, [], kills=known)
    assert "| memory | load | 60 | 1,200,000 | 420 | 0 | 0 | 0 | 0 | 0 | 0 | 0.80 | 0.80 | `abc123` |" in text
    assert (
        "100 kills, 2,000,000 acknowledged rows, 700 labels: 0 lost, 0 duplicated, 0 corrupted, 0 phantom, 0 unlabelled" in text
    )


def test_a_planted_fault_that_no_test_found_fails_and_is_named():
    one, other = list(MUTANTS)[:2]
    facts = {"file": "buffer/x.py", "seconds": 2.5, **ORIGIN}
    found = {"mutant": one, "killed": True, "by": "tests/x.py::test_y", **facts}
    missed = {"mutant": other, "killed": False, "by": "", **facts}
    assert summary([], [], [], mutants=[found])[-1].state == gates.UNFINISHED
    line = summary([], [], [], mutants=[found, missed])[-1]
    assert (line.state, f"1 of {len(MUTANTS)} found by the tests; not found: {other}") == (gates.FAILED, line.text)
    assert summary([], [], [], mutants=[{**found, "mutant": name} for name in MUTANTS])[-1].state == gates.PASSED
    text = page([], [], [], {}, [], mutants=[found, missed])
    assert "| tests/x.py::test_y | 2.5 |" in text
    assert "| **survived** |" in text


def test_power_cuts_are_summed_and_one_lost_row_fails_them():
    def cut(kind, trial, **changes):
        faults = {"lost": 0, "duplicated": 0, "corrupted": 0, "phantom": 0, "unlabelled": 0, "problems": []}
        counts = {"acked": 5000, "labels": 10, "rated": 0, "cached": 3, "restart_s": 0.9, "passed": True}
        return {"kind": kind, "trial": trial, **faults, **counts, **changes, **ORIGIN}

    def state(known):
        return {line.name: line.state for line in summary([], [], [], powercuts=known)}["rows after a power cut, synced"]

    known = [cut(kind, n) for kind, count in (("load", 30), ("capacity", 10)) for n in range(count)]
    assert state(known) == gates.PASSED
    assert state(known[:-1]) == gates.UNFINISHED
    assert state([*known, cut("load", 3, lost=1, passed=False)]) == gates.FAILED
    text = page([], [], [], {}, [], powercuts=known)
    assert "| load | 30 | 150,000 | 300 | 0 | 0 | 0 | 0 | 0 | 0 | 90 | 0.90 | 0.90 | 0.0 | `abc123` |" in text
    assert "95 % upper bound of failures" in text
