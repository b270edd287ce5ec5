"""Planted faults of the pool's own trials: what hides a bar in noise, takes harm for none, or leaves a process behind."""

from __future__ import annotations

from campaign.planting import Mutant

TESTS = ("tests/unit/benchmarks/test_pool_trials.py",)
STALLING, DAMAGING = "benchmarks/campaign/stalling.py", "benchmarks/campaign/damaging.py"
DEAF = "tests/unit/benchmarks/test_powercut.py::test_a_disk_that_does_not_answer_is_ended_with_its_machine"
IN_VAIN = "tests/unit/benchmarks/test_powercut.py::test_a_wait_in_vain_says_what_was_seen"

TRIALS = (
    Mutant(
        "a-bar-is-met-within-the-noise", STALLING, "high <= MOST_STALL and noise <= MOST_STALL", "high <= MOST_STALL", TESTS
    ),
    Mutant("a-bar-is-missed-within-the-noise", STALLING, "low - noise >", "low >", TESTS),
    Mutant("a-snapshot-beside-one-window-only", STALLING, "b - (before + after) / 2", "b - before", TESTS),
    Mutant("noise-that-cancels-itself", STALLING, "abs(after - before)", "after - before", TESTS),
    Mutant("a-silent-load-passes", DAMAGING, 'return ["silently_loaded"]\n    same', "return []\n    same", TESTS),
    Mutant(
        "an-import-that-took-harm-passes",
        DAMAGING,
        "if not said:\n        return [",
        "if not said:\n        return []; [",
        TESTS,
    ),
    Mutant("no-trial-is-made-again", "benchmarks/snapshots.py", 'r["verdict"] != NOISY]', "True]", TESTS),
    Mutant(
        "a-disk-outlives-its-machine",
        "benchmarks/campaign/machine.py",
        "self.close()  # a disk that comes up later",
        "pass  # a disk that comes up later",
        (DEAF,),
    ),
    Mutant(
        "a-wait-in-vain-says-nothing",
        "benchmarks/campaign/target.py",
        'if lines else "nobody wrote to the log"',
        'if lines else ""',
        (IN_VAIN,),
    ),
    Mutant(
        "a-failed-process-ends-a-script-with-a-traceback",
        "benchmarks/campaign/process.py",
        "except (ProcessFailed, Unable) as error:",
        "except () as error:",
        ("tests/unit/benchmarks/test_process.py",),
    ),
)
