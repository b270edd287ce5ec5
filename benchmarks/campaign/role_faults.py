"""Planted faults of roles and of the command line: which policy is taken, what is kept, what is refused before a start."""

from __future__ import annotations

from campaign.planting import Mutant

ROLES = (
    Mutant(
        "policy-of-another-description-taken",
        "common/weights.py",
        'different = differences(dict(policy), dict(weights.policy), "policy")',
        "different: list[str] = []",
        ("tests/unit/learner/test_sac.py", "tests/unit/actor/test_policy.py"),
    ),
    Mutant(
        "checkpoint-of-nothing-written",
        "learner/loop.py",
        "untouched = self._from_seed and self.sac.step == 0",
        "untouched = False",
        ("tests/unit/learner/test_loop.py",),
    ),
    Mutant(
        "policy-that-was-taken-over-is-not-kept",
        "learner/loop.py",
        "untouched = self._from_seed and self.sac.step == 0",
        "untouched = self.sac.step == 0",
        ("tests/unit/learner/test_loop.py",),
    ),
)
