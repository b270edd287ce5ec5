"""A pool's own trials: harm that is found, harm that a blind reader takes, a bar that noise hides, and their tables."""

from __future__ import annotations

import re

import numpy as np
import pytest
from campaign import damaging, harming, records, stalling
from campaign.gate import FAILED, PASSED, UNFINISHED
from campaign.pool_tables import DAMAGE, FILES, STALLS, TORN, pool_lines, pool_sections
from campaign.stalling import MET, MISSED, NOISY
from helpers.scripts import load

ORIGIN = {"date": "2026-01-02T03:04:05Z", "commit": "abc123", "dirty": False, "machine": {"cpu": "Test CPU", "cores": 2}}


@pytest.mark.parametrize("kind", damaging.KINDS)
def test_harm_to_files_is_found_unless_no_digest_is_looked_at(kind, tmp_path):
    (tmp_path / "seeing").mkdir()
    (tmp_path / "blind").mkdir()
    counts = damaging.harmed(kind, tmp_path / "seeing", np.random.default_rng(1), 10)
    assert counts["flipped"] == 10
    assert counts["truncated"] == len(harming.files(tmp_path / "seeing" / "whole")) >= 5
    assert counts["swapped"] >= 10
    assert {fault: counts[fault] for fault in damaging.FAULTS} == dict.fromkeys(damaging.FAULTS, 0)
    assert damaging.blind(kind, tmp_path / "blind", 10)["silently_loaded"] > 3


@pytest.mark.parametrize("harm", ["flip", "truncate", "swap"])
def test_harm_changes_the_files_that_it_names(harm, tmp_path):
    for name in ("one", "other"):
        (tmp_path / name).write_bytes(name.encode())
    rng = np.random.default_rng(0)
    if harm == "flip":
        named = {harming.flip(tmp_path, rng)}
    elif harm == "truncate":
        harming.truncate(tmp_path / "one", rng)
        named = {"one"}
    else:
        harming.swap(tmp_path / "one", tmp_path / "other")
        named = {"one", "other"}
    assert {p.name for p in harming.files(tmp_path) if p.read_bytes() != p.name.encode()} == named


@pytest.mark.parametrize(
    ("alone", "beside", "verdict"),
    [
        ([0.01, 0.01, 0.01, 0.01], [0.012, 0.013, 0.012], MET),
        ([0.01, 0.01, 0.01, 0.01], [0.05, 0.06, 0.05], MISSED),
        ([0.01, 0.011, 0.012, 0.011], [0.02, 0.022, 0.021], NOISY),  # at the bar
        ([0.10, 0.20, 0.05, 0.15], [0.14, 0.12, 0.11], NOISY),  # windows alone differ by more than is asked
        ([0.10, 0.20, 0.05, 0.15], [0.01, 0.01, 0.01], NOISY),  # no snapshot makes inserts faster
        ([0.10, 0.20, 0.05, 0.15], [0.90, 0.95, 0.85], MISSED),  # by more than any noise
        ([0.50, 0.40, 0.30, 0.20], [0.45, 0.35, 0.25], NOISY),
        ([0.00, 0.02, 0.00], [0.03, 0.03], NOISY),  # above the bar by less than windows alone differ
        ([0.02], [], NOISY),
        ([0.002, 0.006, 0.002, 0.006], [0.012, 0.012, 0.012], MET),  # windows alone differ, by less than is asked
    ],
)
def test_the_bar_of_a_snapshot_is_judged_only_where_noise_allows_it(alone, beside, verdict):
    assert stalling.judge([(alone, beside)])["verdict"] == verdict


def test_a_snapshot_is_compared_with_the_windows_around_it():
    said = stalling.judge([([0.0, 0.2, 0.4], [0.15, 0.35]), ([0.1, 0.1], [0.15])])
    assert (said["pairs"], said["added"], said["interval"]) == (3, 0.05, [0.05, 0.05])
    assert said["noise"] == pytest.approx(0.4 / 3, abs=1e-6)


def test_windows_alone_and_beside_snapshots_come_in_turn(tmp_path):
    found = stalling.measure(tmp_path, 4_000, 2)
    assert (len(found["alone"]), len(found["beside"]), found["rows"]) == (3, 2, 4_000)
    assert all(share >= 0 for share in (*found["alone"], *found["beside"]))
    assert stalling.stall((2.0, [0.1, 0.1, 0.4, 0.05]), 0.1) == pytest.approx(0.15)


def test_a_trial_that_was_too_noisy_is_made_again_and_others_are_not(tmp_path, monkeypatch, capsys):
    script = load("snapshots")
    monkeypatch.setattr(script, "FILE", tmp_path / "snapshots.jsonl")
    monkeypatch.setattr(script.provenance, "commit", lambda: {"commit": "abc123", "dirty": False})
    monkeypatch.setattr("sys.argv", ["snapshots.py"])
    figures = {"alone": [0.0, 0.0, 0.0], "beside": [0.001, 0.001], "rows": 10, "snapshot_s": 1.0}
    made = iter([figures, {**figures, "alone": [0.0, 0.3, 0.0]}, figures, figures])
    monkeypatch.setattr(script.stalling, "measure", lambda *_: next(made))
    assert script.main() == 3
    assert "1: too noisy" in capsys.readouterr().out
    assert script.main() == 0
    assert script.main() == 0
    assert [r["trial"] for r in records.read(script.FILE)] == [0, 1, 2, 1]
    missed = [stalled(n, [0.0, 0.0], [0.2]) for n in range(3)]
    assert script.pending(3, missed, "abc123") == []
    assert script.pending(3, missed, "another") == [0, 1, 2]


def torn(trial, **changes):
    counts = {"rows": 100_000, "mixed": 0, "bad": 500, "written": 300_000, "seconds": 9.5, "passed": True, "problems": []}
    return {"trial": trial, **counts, **changes, **ORIGIN}


def damage(kind, trial, **changes):
    counts = {"flipped": 100, "truncated": 7, "swapped": 21, **dict.fromkeys(damaging.FAULTS, 0), "passed": True}
    return {"kind": kind, "trial": trial, **counts, **changes, **ORIGIN}


def stalled(trial, alone, beside):
    facts = {"rows": 1_000_000, "snapshot_s": 1.25, "alone": alone, "beside": beside, **ORIGIN}
    return {"trial": trial, **facts, **stalling.judge([(alone, beside)])}


def test_tables_say_what_the_records_hold():
    quiet = ([0.001, 0.001, 0.001], [0.003, 0.003])
    found = {
        TORN.file: [torn(n) for n in range(TORN.trials)],
        STALLS.file: [stalled(n, *quiet) for n in range(STALLS.trials)],
        DAMAGE.file: [damage(kind, n) for kind in damaging.KINDS for n in range(DAMAGE.trials)],
    }

    def states(**changes):
        return [line.state for line in pool_lines({**found, **changes})]

    assert states() == [PASSED] * 3
    assert [line.state for line in pool_lines({name: lines[:-1] for name, lines in found.items()})] == [UNFINISHED] * 3
    assert states(**{TORN.file: [*found[TORN.file], torn(3, mixed=1, passed=False)]})[0] == FAILED
    assert states(**{DAMAGE.file: [*found[DAMAGE.file], damage("export", 3, not_named=1, passed=False)]})[2] == FAILED
    assert states(**{STALLS.file: [stalled(0, [0.1, 0.3], [0.2])]})[1] == NOISY
    assert states(**{STALLS.file: [stalled(n, [0.0, 0.0], [0.2]) for n in range(3)]})[1] == FAILED
    texts = [line.text for line in pool_lines(found)]
    assert "1,000,000 rows while 3,000,000 were written into a pool of 64: 0 mixed, 95 % upper bound 3e-06" in texts[0]
    assert "a snapshot adds 0.20% of wall time [0.20%, 0.20%] over 6 pairs" in texts[1]
    assert "2,000 flipped, 140 truncated, 420 swapped: 0 silently loaded, 0 not named, 0 held otherwise, 0 crashed" in texts[2]
    page = "\n".join(pool_sections(found))
    assert "| 9 | 100,000 | 0 | 500 | 300,000 | 9.5 | `abc123` | 2026-01-02 |" in page
    assert "| 2 | 1,000,000 | 1.25 | 0.30% | 0.10% | 0.20% | 0.20% to 0.20% | 0.00% | met |" in page
    assert "| export | 10 | 1,000 | 70 | 210 | 0 | 0 | 0 | 0 | `abc123` |" in page
    assert len(re.findall("not run yet", "\n".join(pool_sections({})))) == len(FILES)
