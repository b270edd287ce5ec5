"""Planted faults of the success classifier: what it learns from, when it says success, and how its rates are counted."""

from __future__ import annotations

from campaign.planting import Mutant

FORWARD, COMMAND = ("tests/unit/actor/test_success.py",), ("tests/unit/launch/test_classifier.py",)
FRAMES, REPORT = "launch/classifier_frames.py", "launch/classifier_report.py"

JUDGED = ("tests/unit/actor/test_judged.py",)

CLASSIFIER = (
    Mutant(
        "images-not-centred-in-numpy",
        "common/convolutions.py",
        "x / np.float32(255) - np.float32(0.5)",
        "x / np.float32(255)",
        FORWARD,
    ),
    Mutant(
        "held-images-need-not-follow",
        "actor/success.py",
        "self._seen + 1 if probability >= self._threshold else 0",
        "self._seen + (probability >= self._threshold)",
        FORWARD,
    ),
    Mutant("held-goes-on-over-episodes", "actor/success.py", "    held.restart()\n", "", FORWARD),
    Mutant(
        "one-image-too-few-is-held", "actor/success.py", "self._seen >= self._hold", "self._seen >= self._hold - 1", FORWARD
    ),
    Mutant(
        "cameras-of-another-size-pass", "actor/success.py", "(found.shape, found.dtype) != (o.shape, o.dtype)", "False", FORWARD
    ),
    Mutant("classifier-learns-from-itself", FRAMES, "clip.said is not None and clip.said == clip.success", "False", COMMAND),
    Mutant(
        "what-people-contradict-is-left-out",
        FRAMES,
        "clip.said is not None and clip.said == clip.success",
        "clip.said is not None",
        COMMAND,
    ),
    Mutant("last-image-is-not-there", FRAMES, ", parts[-1].after[o.key][None]]", "]", COMMAND),
    Mutant("doubtful-images-are-learned", FRAMES, "= NOBODY_KNOWS\n", "= NOT\n", COMMAND),
    Mutant(
        "judged-by-what-was-learned",
        "launch/classifier_command.py",
        "for clip in test], rule, options",
        "for clip in train], rule, options",
        COMMAND,
    ),
    Mutant("check-judges-by-what-was-learned", "launch/classifier_command.py", "if clip.identity not in known]", "]", COMMAND),
    Mutant("early-success-is-not-false", REPORT, "at is not None and at < before", "False", COMMAND),
    Mutant("first-image-is-judged", REPORT, "first_held(found[1:], held)", "first_held(found, held)", COMMAND),
    Mutant("bound-of-failures-alone", REPORT, "failure_bound(self.false + self.early, ", "failure_bound(self.false, ", COMMAND),
    Mutant("env-keeps-its-reward", "actor/gym_success.py", "return obs, float(held), bool", "return obs, reward, bool", JUDGED),
    Mutant("held-success-does-not-end-an-env", "actor/gym_success.py", "bool(terminated) or held", "bool(terminated)", JUDGED),
    Mutant(
        "env-held-over-episodes", "actor/gym_success.py", "            self._judge.restart()\n", "            pass\n", JUDGED
    ),
    Mutant("robot-held-over-episodes", "actor/judged_robot.py", "            self._judge.restart()\n", "", JUDGED),
    Mutant("the-scene-is-judged", "actor/judged_robot.py", "self._acts = command.episode >= 0", "self._acts = True", JUDGED),
    Mutant(
        "a-frozen-picture-counts-on",
        "actor/judged_robot.py",
        "if stamps != self._stamps or None in stamps:",
        "if True:",
        JUDGED,
    ),
    Mutant(
        "other-stamps-count-as-pictures",
        "actor/judged_robot.py",
        "for key in self._judge.cameras]",
        "for key in seen.stamps]",
        JUDGED,
    ),
    Mutant(
        "hold-of-the-config-is-ignored",
        "actor/success.py",
        "what.hold if config.hold is None else config.hold",
        "what.hold",
        JUDGED,
    ),
    Mutant(
        "threshold-of-the-config-is-ignored",
        "actor/success.py",
        "what.threshold if config.threshold is None else config.threshold",
        "what.threshold",
        JUDGED,
    ),
    Mutant(
        "chunks-forget-what-was-said",
        "actor/assembler.py",
        'np.bitwise_or.reduce(np.where(inside, step("health", window), 0), axis=1)',
        'step("health", ids)',
        JUDGED,
    ),
    Mutant(
        "nothing-is-taken-back",
        "actor/loop.py",
        "return float(outcome == OUTCOME_SUCCESS) if self._settings.env.success.file else None",
        "return None",
        ("tests/unit/actor/test_loop.py",),
    ),
    Mutant(
        "robots-success-stays-paid",
        "actor/control.py",
        "if seen.judged is not None and self._verdict:",
        "if False:",
        ("tests/unit/actor/test_control.py",),
    ),
    Mutant(
        "late-words-are-worth-nothing",
        "actor/loop.py",
        "return self._lanes.worth(0, episode, outcome)",
        "return None",
        ("tests/unit/actor/test_loop.py",),
    ),
    Mutant(
        "one-row-of-a-window-is-amended",
        "actor/episodes.py",
        "            if seq >= first:",
        "            if seq == last:",
        ("tests/unit/actor/test_episodes.py", "tests/unit/actor/test_loop.py"),
    ),
    Mutant(
        "other-steps-of-a-window-lose-their-rewards",
        "actor/episodes.py",
        "= [*known[:-1], reward]",
        "= reward",
        ("tests/unit/actor/test_episodes.py",),
    ),
    Mutant(
        "a-robot-with-rewards-cannot-hold",
        "actor/rewarding.py",
        "RewardedRobot(lanes, reward) if isinstance(lanes, HoldingLanes) else RewardedLanes(lanes, reward)",
        "RewardedLanes(lanes, reward)",
        ("tests/unit/actor/test_rewarding.py",),
    ),
    Mutant(
        "a-recording-ignores-what-late-words-are-worth",
        "launch/recording.py",
        "if take is not None and take is self._ended:",
        "if False:",
        ("tests/unit/launch/test_recording.py",),
    ),
    Mutant(
        "a-loop-of-ones-own-pays-nothing-late",
        "actor/scribe.py",
        "if verdict.reward is not None and (label",
        "if False and (label",
        ("tests/unit/actor/test_scribe.py",),
    ),
    Mutant(
        "people-erase-what-the-classifier-said",
        "actor/control.py",
        "done.health | health_of(seen.judged)",
        "done.health",
        ("tests/unit/actor/test_control.py",),
    ),
)
