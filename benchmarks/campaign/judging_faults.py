"""Planted faults of the learning campaign: what is judged, of which runs, and with what it is compared."""

from __future__ import annotations

from campaign.planting import Mutant

GATE, COMPARISON, LEARNING = (f"benchmarks/campaign/{name}.py" for name in ("gate", "comparison", "learning"))
GATE_TEST, COMPARISON_TEST, LEARNING_TEST = (
    (f"tests/unit/benchmarks/test_{name}.py",) for name in ("gate", "comparison", "learning")
)

JUDGING = (
    Mutant("the-best-seed-is-judged", GATE, "worst >= bars.each", "best >= bars.each", GATE_TEST),
    Mutant("one-seed-may-learn-what-none-should", GATE, "best < bars.below", "worst < bars.below", GATE_TEST),
    Mutant("unknown-success-is-left-out", GATE, "if len(known) < len(values):", "if not known:", GATE_TEST),
    Mutant(
        "a-stretch-is-asked-for",
        GATE,
        "state = PASSED if judged",
        'state = FAILED if "not" in note else PASSED if judged',
        GATE_TEST,
    ),
    Mutant("evaluations-of-any-length", GATE, "episodes == {gate.episodes}", "bool(episodes)", GATE_TEST),
    Mutant(
        "the-first-record-of-a-seed-counts",
        GATE,
        'records if r.get("gate") == gate.name}',
        'reversed(records) if r.get("gate") == gate.name}',
        GATE_TEST,
    ),
    Mutant("a-run-is-done-whatever-its-settings", GATE, 'same_settings(found[-1]["settings"], settings)', "True", GATE_TEST),
    Mutant("far-below-the-peer", COMPARISON, "NOT_BELOW: high >= 0", "NOT_BELOW: True", COMPARISON_TEST),
    Mutant("above-the-peer-is-a-fault", COMPARISON, "NOT_BELOW: high >= 0", "NOT_BELOW: low <= 0 <= high", COMPARISON_TEST),
    Mutant("peers-of-other-settings", COMPARISON, "if comparison.same_settings:", "if False:", COMPARISON_TEST),
    Mutant("seeds-without-a-counterpart-count", COMPARISON, 'if r["seed"] in seeds]', "]", COMPARISON_TEST),
    Mutant(
        "a-preset-is-forgotten",
        LEARNING,
        "gate.overrides(seed), gate.preset_file)\n\n\ndef settings",
        "gate.overrides(seed))\n\n\ndef settings",
        LEARNING_TEST,
    ),
    Mutant(
        "returns-drawn-where-success-is-judged",
        LEARNING,
        "curve = runs.evaluations(metrics, value)",
        "curve = runs.evaluations(metrics)",
        LEARNING_TEST,
    ),
    Mutant(
        "the-peer-runs-at-other-settings",
        "benchmarks/campaign/peer_learning.py",
        "if taken[section][key] != value:",
        "if False:",
        LEARNING_TEST,
    ),
    Mutant(
        "success-is-not-told",
        "launch/runner.py",
        "eval_success_rate=None if verdict is None else verdict.success_rate",
        "eval_success_rate=None",
        ("tests/unit/launch/test_train.py::test_successes_of_the_final_evaluation_are_told",),
    ),
)
