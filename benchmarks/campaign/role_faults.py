"""Planted faults of roles and of the command line: which policy is taken, what is kept, what is refused before a start."""

from __future__ import annotations

from campaign.planting import Mutant

ENDS = (
    "tests/unit/launch/test_roles.py"
    "::test_a_role_that_has_ended_runs_what_asks_for_it_and_leaves_at_once_whatever_signal_comes",
)
FATES = "tests/unit/launch/test_supervision_ranks.py"

TRANSFER, DEMO_LOAD = ("tests/unit/launch/test_transfer.py",), ("tests/unit/launch/test_demo_load.py",)
D4RL = ("tests/unit/launch/test_demo_d4rl.py",)

ROLES = (
    Mutant("interpreter-torn-down", "launch/exits.py", "os._exit(code)", "sys.exit(code)", ENDS),
    Mutant(
        "children-without-a-leash",
        "launch/leash.py",
        "            _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)\n",
        "            pass\n",
        ("tests/unit/launch/test_supervise.py::test_no_process_of_a_test_outlives_a_test_run_that_is_killed",),
    ),
    Mutant("exit-functions-forgotten", "launch/exits.py", "atexit._run_exitfuncs()", "pass", ENDS),
    Mutant("last-words-not-flushed", "launch/exits.py", "stream.flush()", "pass", ENDS),
    Mutant(
        "demand-not-withdrawn-at-the-end",
        "learner/feed.py",
        "self._drawing, self._withdraws = False, True",
        "self._drawing = False",
        ("tests/unit/learner/test_feed.py",),
    ),
    Mutant(
        "what-is-on-its-way-at-the-end-not-awaited",
        "learner/loop.py",
        "(batches := self._feed.get(QUIET_S)) is not None",
        "(batches := self._feed.get(0.0)) is not None",
        ("tests/unit/learner/test_loop.py",),
    ),
    Mutant(
        "tasks-of-plain-batches-kept-from-sets",
        "buffer/plain.py",
        "columns |= {(name,) for name in TAGS if",
        "columns |= {(name,) for name in () if",
        ("tests/unit/buffer/test_plain.py",),
    ),
    Mutant(
        "end-of-the-offline-phase-not-kept",
        "learner/loop.py",
        "return (enough or ended or again)",
        "return (enough or again)",
        ("tests/unit/learner/test_loop.py",),
    ),
    Mutant(
        "second-demonstrations-have-any-spec",
        "launch/pinning.py",
        "different = [] if like is None else",
        "different = [] if True else",
        ("tests/unit/launch/test_pinning.py",),
    ),
    Mutant("imported-whole-numbers-change", "launch/demos.py", "    if changed:\n", "    if False:\n", D4RL),
    Mutant(
        "even-numbers-alone-are-held", "common/rounding.py", "odd > _EXACT", "size % 2", ("tests/unit/common/test_rounding.py",)
    ),
    Mutant("import-evicts-unasked", "launch/transfer.py", "if not evict:", "if False:", TRANSFER),
    Mutant("what-was-cut-is-imported-twice", "buffer/transfer.py", "if underway.names is None else", "if True else", TRANSFER),
    Mutant("import-ends-before-its-rows", "buffer/transfer.py", "    underway.begin(names)\n", "", TRANSFER),
    Mutant("new-pool-has-too-few-frames", "buffer/transfer.py", "needed + cuts", "-(1 << 40) + cuts", TRANSFER),
    Mutant("demonstrations-cut-are-there-twice", "launch/demo_load.py", "(underway.names or {}).get(name) or ", "", DEMO_LOAD),
    Mutant("chunks-have-room-as-steps", "launch/demo_load.py", "(places % chunk == 0)", "(places % 1 == 0)", DEMO_LOAD),
    Mutant(
        "import-into-the-pool-of-a-run",
        "launch/transfer.py",
        "        _refuse_run(target, place)\n",
        "",
        TRANSFER,
    ),
    Mutant(
        "role-that-gets-nothing-done-restarted-for-ever",
        "launch/supervision.py",
        "        fate.in_vain += 1\n",
        "",
        ("tests/unit/launch/test_supervision.py",),
    ),
    Mutant(
        "nobodys-headway-heard",
        "launch/supervise.py",
        "                self.decisions.progressed(name)\n",
        "                pass\n",
        ("tests/unit/launch/test_supervise.py::test_of_two_that_keep_dying_slowly_the_one_that_gets_nothing_done_is_given_up",),
    ),
    Mutant(
        "old-rows-of-an-actor-count-again",
        "launch/headway.py",
        "seq > before.get(stream, 0)",
        "seq > 0",
        ("tests/unit/launch/test_headway.py",),
    ),
    Mutant(
        "endless-episode-not-named",
        "launch/eval_news.py",
        "lengths > LONG_EPISODE",
        "lengths > 10 * LONG_EPISODE",
        ("tests/unit/launch/test_eval_news.py",),
    ),
    Mutant(
        "synchronous-run-without-its-newest-figures",
        "launch/watch.py",
        "lines[-1].items()",
        "lines[0].items()",
        ("tests/unit/launch/test_watch_synchronous.py",),
    ),
    Mutant(
        "a-look-at-a-run-finds-nobody",
        "launch/rundir.py",
        "return file.read(32).strip()\n",
        'return ""\n',
        ("tests/unit/launch/test_watch_synchronous.py",),
    ),
    Mutant(
        "film-of-the-state-after-the-step",
        "actor/film.py",
        "value(obs, acts.decided)[0]",
        "value(step.next_obs, acts.decided)[0]",
        ("tests/unit/actor/test_film.py",),
    ),
    Mutant(
        "film-shows-the-best-critic",
        "learner/values.py",
        "over_critics(self._model.sac_forward_critic(features, unit))",
        "self._model.sac_forward_critic(features, unit).max(dim=1).values",
        ("tests/unit/learner/test_values.py",),
    ),
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
    Mutant(
        "unknown-env-noticed-by-roles-alone",
        "launch/runner.py",
        "        check_env(config.env)\n",
        "        pass\n",
        ("tests/unit/launch/test_cli.py::test_what_is_wrong_is_one_line",),
    ),
    Mutant(
        "wrappers-not-looked-up",
        "actor/gym_make.py",
        "        for wrapper in config.wrappers:\n            _find_wrapper(",
        "        for wrapper in ():\n            _find_wrapper(",
        ("tests/unit/actor/test_gym_make.py::test_nothing_is_made_to_look_a_name_up",),
    ),
    Mutant(
        "intervals-of-two-values",
        "actor/evaluate.py",
        "if len(values) < FEWEST:",
        "if not len(values):",
        ("tests/unit/actor/test_evaluate.py::test_mean_deviation_and_interval",),
    ),
    Mutant(
        "policy-is-made-when-it-is-to-be-judged",
        "actor/evaluator.py",
        "if weights is not None and policy is None:",
        "if weights is not None and policy is None and weights.version.step:",
        ("tests/unit/actor/test_evaluator.py",),
    ),
    Mutant(
        "evaluation-ends-in-its-own-time",
        "actor/evaluator.py",
        "            raise _LeavingError\n",
        "            pass\n",
        ("tests/unit/actor/test_evaluator.py",),
    ),
    Mutant(
        "evaluator-does-not-hear-the-buffer",
        "actor/joining.py",
        "return self.stop.is_set() or self.uplink.stop is not None",
        "return self.stop.is_set()",
        ("tests/unit/actor/test_evaluator.py",),
    ),
    # the ranks of a learner
    Mutant(
        "a-lost-rank-is-started-again-alone",
        "launch/supervision.py",
        "return LEARNER if self.kind == RANK else self.name",
        "return self.name",
        (FATES,),
    ),
    Mutant(
        "a-silent-rank-is-waited-for",
        "launch/supervision.py",
        "fate.broken_at = min(fate.broken_at, now)",
        "pass",
        (FATES,),
    ),
    Mutant(
        "a-learner-that-saves-is-hurried",
        "launch/supervision.py",
        "elif code != 0 or role.plan.kind == LEARNER:",
        "else:",
        (FATES,),
    ),
    Mutant(
        "who-notices-first-is-blamed",
        "launch/supervision.py",
        "return 3 if role.code == GROUP_LOST else 1",
        "return 1",
        (FATES,),
    ),
    Mutant(
        "ranks-that-are-started-again-meet-those-before",
        "launch/supervise.py",
        "        if plan.kind == LEARNER:  # the first of its ranks, and none of those before is left\n",
        "        if False:\n",
        ("tests/unit/launch/test_supervise.py::test_ranks_are_started_again_together_and_meet_anew",),
    ),
    Mutant(
        "each-rank-takes-all-cores",
        "launch/lineup.py",
        "usable_cores() // size",
        "usable_cores()",
        ("tests/unit/launch/test_lineup.py",),
    ),
    Mutant(
        "several-ranks-in-one-process",
        "launch/config.py",
        "        if self.learner.ranks > 1:\n            self._require_ranks()\n",
        "",
        ("tests/unit/launch/test_config.py",),
    ),
    Mutant(
        "a-waiting-rank-hears-no-signal",
        "learner/group.py",
        'with group._together("meet"), mortal():',
        'with group._together("meet"):',
        ("tests/unit/learner/test_group.py::test_a_signal_ends_a_rank_that_waits_for_the_others_where_they_meet",),
    ),
    Mutant(
        "rows-of-a-hungry-rank-count-twice",
        "learner/rank.py",
        "counts=fresh is not None",
        "counts=True",
        ("tests/unit/learner/test_rank.py",),
    ),
)
