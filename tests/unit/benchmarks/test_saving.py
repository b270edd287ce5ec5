"""The audit of checkpoints finds what it must find, and what is still to do is known."""

from __future__ import annotations

import checkpoints
from campaign import saving


def test_every_sabotage_is_found_and_what_is_good_passes(tmp_path):
    assert checkpoints.selftest(tmp_path) == dict.fromkeys(checkpoints.SABOTAGES, True)


def test_every_call_fails_in_four_ways():
    assert len(set(saving.fault_names())) == 4 * len(saving.CALLS) == 24


def test_counts_over_kills_and_faults():
    lines = [
        {"kind": "kill", "half": True, "passed": True},
        {"kind": "kill", "half": False, "passed": False},
        {"kind": "fault", "reached": 7, "passed": True},
    ]
    counts = {"kills": 2, "half_written": 1, "faults": 1, "calls_failed": 7, "failures": 1}
    assert checkpoints.summarise(lines) == counts
