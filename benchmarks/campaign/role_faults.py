"""Planted faults of roles and of the command line: which policy is taken, what is kept, what is refused before a start."""

from __future__ import annotations

from campaign.planting import Mutant

ROLES = (
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
        "return (enough or ended)",
        "return enough",
        ("tests/unit/learner/test_loop.py",),
    ),
    Mutant(
        "import-into-the-pool-of-a-run",
        "launch/transfer.py",
        "        _refuse_run(target, place)\n",
        "",
        ("tests/unit/launch/test_transfer.py",),
    ),
    Mutant(
        "film-of-the-state-after-the-step",
        "actor/film.py",
        "value(obs, action)[0]",
        "value(step.next_obs, action)[0]",
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
        "    check_env(config.env)\n",
        "",
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
)
