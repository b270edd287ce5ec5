"""Planted faults of what a learner makes of its data and tells of it."""

from __future__ import annotations

from campaign.planting import Mutant

REPORT, ROW_CLOCK = ("tests/unit/learner/test_report.py",), ("tests/unit/learner/test_row_clock.py",)
PACING, GROUP = ("tests/protocol/test_pacing.py",), ("tests/unit/learner/test_group.py",)

DATA = (
    # the report
    Mutant("success-told-of-failure", "learner/report.py", "q[of])}", "q[~of])}", REPORT),
    Mutant("demonstrations-have-an-age", "learner/report.py", "[batch.ids < PINNED]", "", REPORT),
    Mutant("a-row-of-a-chunk-is-a-step", "learner/report.py", "- 1 - ids) * steps", "- 1 - ids)", REPORT),
    Mutant("every-task-is-told", "learner/report.py", "[:MOST_TASKS]", "", REPORT),
    Mutant("a-pause-makes-rows-young", "learner/row_clock.py", "marks[-2][0] == rows", "marks[-1][0] == rows", ROW_CLOCK),
    Mutant("rows-of-a-lost-future", "learner/row_clock.py", "marks.clear()", "pass", ROW_CLOCK),
    Mutant("lead-of-actors-is-alarming", "buffer/pacing.py", ", config.ratio * self._lead())", ", 0.0)", PACING),
    Mutant(
        "free-learner-is-alarming",
        "buffer/pacing.py",
        "if missing > 0 or not config.hold_learner",
        "if missing > 0",
        PACING,
    ),
    Mutant(
        "numbers-that-are-not-finite-go-through",
        "learner/sac.py",
        "torch.maximum(self._skip, (norm + loss).mul_(0.0).nan_to_num_(nan=1.0))",
        "self._skip",
        GROUP,
    ),
)
