"""Planted faults of what a learner makes of its data and tells of it, of what a pool counts for that, and of exploring."""

from __future__ import annotations

from campaign.planting import Mutant

REPORT, ROW_CLOCK = ("tests/unit/learner/test_report.py",), ("tests/unit/learner/test_row_clock.py",)
PACING, GROUP = ("tests/protocol/test_pacing.py",), ("tests/unit/learner/test_group.py",)
REWARDS, RETURNS = ("tests/unit/learner/test_rewards.py",), ("tests/unit/buffer/test_returns.py",)
EXPLORING, LOOP = ("tests/unit/actor/test_exploring.py",), ("tests/unit/actor/test_loop.py",)
TASKS, MLP, CHUNKS = (
    ("tests/unit/actor/test_tasks.py",),
    ("tests/unit/learner/test_mlp.py",),
    ("tests/unit/actor/test_chunks.py",),
)

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
    Mutant(
        "gradient-of-the-critics-input",
        "learner/roofline.py",
        "(3 * critics - firsts)",
        "3 * critics",
        ("tests/unit/learner/test_roofline.py",),
    ),
    Mutant("share-of-one-process", "learner/roofline.py", " * model.processes", "", ("tests/unit/learner/test_roofline.py",)),
    # the penalty of a step
    Mutant("penalty-of-a-row", "learner/rewards.py", "self._sums[steps]", "torch.ones_like(total)", REWARDS),
    Mutant("penalty-of-a-whole-window", "learner/rewards.py", "self._sums[steps]", "self._sums[-1]", REWARDS),
    Mutant("penalty-not-discounted", "learner/rewards.py", "self._sums[steps]", "steps", REWARDS),
    # the scale of rewards
    Mutant(
        "rewards-are-centred",
        "learner/rewards.py",
        "total / self._spread",
        "(total - total.mean()) / self._spread",
        REWARDS,
    ),
    Mutant("spread-is-a-variance", "learner/rewards.py", " + VAR_FLOOR) ** 0.5)", " + VAR_FLOOR))", REWARDS),
    Mutant("rewards-divided-by-nothing", "learner/rewards.py", " and statistics.returns.var > 0", "", REWARDS),
    Mutant("spread-not-in-checkpoints", "learner/train_state.py", '"rewards": self.rewards,', "", REWARDS),
    Mutant("ended-episodes-go-on", "buffer/returns.py", "if not ended:", "if True:", RETURNS),
    Mutant("returns-go-on-over-gaps", "buffer/returns.py", "g = g if following == t else 0.0", "pass", RETURNS),
    Mutant("returns-not-discounted", "buffer/returns.py", "g = self._gamma * g + reward", "g = g + reward", RETURNS),
    Mutant(
        "windows-count-all-their-steps",
        "buffer/returns.py",
        " if self._chunks else np.ones(len(rows), np.int64)",
        "",
        RETURNS,
    ),
    Mutant("demonstrations-have-no-returns", "buffer/returns.py", "self._demos = self._moments", "pass", RETURNS),
    Mutant("running-episodes-not-in-snapshots", "buffer/returns.py", "= moments, running\n", "= moments, {}\n", RETURNS),
    Mutant("ranks-hear-no-statistics", "learner/sac.py", "part.set_state(own)", "pass", GROUP),
    Mutant(
        "actors-do-not-centre",
        "actor/policy.py",
        'shift[:] = np.tile(tensors[f"mean.{o.key}"].ravel(), self.stack)',
        "pass",
        MLP,
    ),
    # exploration
    Mutant(
        "ladder-upside-down",
        "actor/exploring.py",
        "return int(numbered[1]) / max(1, count - 1)",
        "return 1 - int(numbered[1]) / max(1, count - 1)",
        EXPLORING,
    ),
    Mutant("ladder-ends-too-soon", "actor/exploring.py", "max(1, count - 1)", "count", EXPLORING),
    Mutant(
        "all-lanes-explore-at-once",
        "actor/exploring.py",
        "rng.random(len(actions)) >=",
        "rng.random(1).repeat(len(actions)) >=",
        EXPLORING,
    ),
    Mutant(
        "noise-is-drawn-for-nothing",
        "actor/exploring.py",
        "if self.epsilon == 0 or isinstance(found, Decided):",
        "if isinstance(found, Decided):",
        EXPLORING,
    ),
    Mutant("robots-explore", "actor/config.py", "if self.robot and self.epsilon > 0:", "if False:", EXPLORING),
    Mutant("actors-do-not-explore", "actor/loop.py", "self._explorer.mix(choice.found, self._rng)", "choice.found", LOOP),
    Mutant(
        "shapes-are-met-later",
        "actor/gym_guard.py",
        "!= leaf.spec.shape:",
        "!= shape:",
        ("tests/unit/actor/test_gym_lanes.py",),
    ),
    # tasks
    Mutant("tasks-of-a-reset-are-lost", "actor/gym_guard.py", "return obs, _task(info)", "return obs, {}", TASKS),
    Mutant("tasks-of-an-autoreset-are-lost", "actor/gym_lanes.py", "self._note_tasks(found[4])", "pass", TASKS),
    Mutant("tasks-of-explicit-resets-are-lost", "actor/gym_lanes.py", "self._note_tasks(infos)\n", "pass\n", TASKS),
    Mutant("task-of-the-next-episode", "actor/evaluate.py", "0 if task is None else task[lane]", "int(step.task[lane])", TASKS),
    Mutant("row-of-task-0", "actor/recorder.py", "0 if seen.task is None else int(seen.task[lane])", "0", TASKS),
    # chunks
    Mutant(
        "tail-of-a-chunk-is-lost",
        "actor/assembler.py",
        'step("action", window), step("decided", ids))',
        'step("action", window), 0)',
        CHUNKS,
    ),
    Mutant("chunk-keeps-what-was-planned", "actor/assembler.py", "np.where(inside[:, :, None],", "np.where(False,", CHUNKS),
    Mutant("chunks-overlap", "actor/assembler.py", "decided is not None or not self._chunks", "True", CHUNKS),
    Mutant(
        "newest-chunk-goes-out-at-once",
        "actor/assembler.py",
        "last if self._chunks else last + 1 - self._spec.window",
        "last + 1 if self._chunks else last + 1 - self._spec.window",
        CHUNKS,
    ),
    Mutant(
        "chunk-goes-on-in-the-next-episode",
        "launch/sync_actor.py",
        "self._decider.restart(self._recorder.anew)",
        "pass",
        CHUNKS,
    ),
    Mutant("actor-goes-on-with-an-old-chunk", "actor/loop.py", "self._decider.restart(self._recorder.anew)", "pass", LOOP),
    Mutant(
        "evaluation-goes-on-with-an-old-chunk", "actor/evaluate.py", "decider.restart(step.episode != playing)", "pass", CHUNKS
    ),
    Mutant("all-lanes-decide-together", "actor/deciding.py", "due = self._done == self._chunk", "due = self._done > 0", CHUNKS),
)
